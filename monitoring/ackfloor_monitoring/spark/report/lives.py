"""What became of each message: its lives, one per run through the retry policy.

A message's first life begins with its first failure; each replay begins another. A life ends

* dead: one of its records is in the dead-letter topic;
* waiting: one of its tier records is not settled;
* unknown: no commit shows whether one of its tier records is settled;
* recovered: every tier record is settled and nothing later was written. A success leaves no record
  in the topics. A message that was discarded on purpose, or that retention removed unread, looks
  the same, so the count is a bound from above.

The time of recovery is not recorded either. It was not before its last wait was over, so
`recovery_ms` is a bound from below.

As in `counts`, only numbers are aggregated: an outcome is its place in `OUTCOMES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.report.deliveries import cause, deliveries
from ackfloor_monitoring.spark.report.time_axis import Period
from ackfloor_monitoring.spark.table.columns import MESSAGE
from ackfloor_monitoring.spark.table.settled_rows import with_settled

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OUTCOMES = ("recovered", "dead", "waiting", "unknown")
_RECOVERED, _DEAD, _WAITING, _UNKNOWN = range(4)
# A redrive and a park keep the key, so it is part of a message's identity.
LIFE = (*MESSAGE, "key", "replays")
# What can be added up over the days of a life.
PART = (
    "failures", "replay_records", "attempts", "numbered", "numbers", "tier_records",
    "dead_records", "first_ms", "due_ms", "died_ms",
)  # fmt: skip
_SHOWN = ("failures", "attempts", "tier_records")
# Beyond it duplicates are not counted: a bit for each attempt must fit into a number.
_MOST_ATTEMPTS = 62


def lives(
    rows: DataFrame, commits: DataFrame, period: Period, more: Mapping[str, Column] | None = None
) -> DataFrame:
    """One row per message and replay, of the messages that failed and whose origin is known.

    Columns: `MESSAGE`, `key`, `replays`, `outcome`, `attempts` (deliveries that failed), `failures`
    and `duplicates` (of them: of an attempt that had failed before), `tier_records`,
    `recovery_ms`, `death_ms` (from the first failure; null where a clock was wrong: it would be
    negative, or its first or last failure lies outside of the period).

    Args:
        rows: from `deliveries.failure_columns`.
        commits: rows of `settled.COMMIT`; none where the commits are not known.
        period: in which failures lie.
        more: further aggregates over the deliveries of a life, by name.
    """
    retried = F.col("stage") == "retry"
    judged = (
        rows.where(F.col("origin_offset").isNotNull())
        .transform(with_settled, commits)
        .withColumns(
            {
                "open": (retried & (F.col("settled") == F.lit(False))).cast("long"),
                "unknown": (retried & F.col("settled").isNull()).cast("long"),
            }
        )
        .transform(deliveries, ("open", "unknown"))
        # Partitioned by offset once, the sums over lives need no other shuffle.
        .repartition("origin_offset")
    )
    summed = {name: F.sum(name) for name in ("open", "unknown")}
    return ended(parts(judged, {**summed, **(more or {})}, period=period), period)


def parts(
    deliveries: DataFrame,
    more: Mapping[str, Column],
    *,
    period: Period | None = None,
    day: Sequence[str] = (),
) -> DataFrame:
    """What is summed up of each life: of the whole, or of its deliveries of each day.

    Columns: `LIFE`, those of `PART`, and `more`. Parts of several days can be added up.

    Args:
        deliveries: those of known origin.
        more: further aggregates, by name.
        period: outside of it no message died; None where the deliveries are of one day.
        day: the column of the day, where each is to be summed up.
    """
    retried, attempt = F.col("stage") == "retry", F.col("attempt")
    failed = ~F.col("replayed") & ~F.col("behind")
    # Deliveries that failed, less the different ones among them, are duplicates: the different
    # ones are bits of a number.
    numbered = attempt.between(1, _MOST_ATTEMPTS)
    bit = F.expr("shiftleft(1L, cast(attempt as int))")
    at = F.col("event_time")
    died = at if period is None else F.when(_within(at, period), at)
    return deliveries.groupBy(*day, *LIFE).agg(
        F.count_if(failed).alias("failures"),
        F.count_if(F.col("replayed")).alias("replay_records"),
        # What failed has failed once at least, also where its attempt can't be read.
        F.greatest(F.max("attempt"), F.max(failed.cast("int"))).alias("attempts"),
        F.count_if(failed & numbered).alias("numbered"),
        F.bit_or(F.when(numbered, bit)).alias("numbers"),
        F.sum(F.when(retried, F.col("records")).otherwise(0)).alias("tier_records"),
        F.count_if(~retried).alias("dead_records"),
        F.min("first_failed_at").alias("first_ms"),
        F.max(F.when(retried, F.col("not_before"))).alias("due_ms"),
        F.min(F.when(~retried, died)).alias("died_ms"),
        *(column.alias(name) for name, column in more.items()),
    )


def ended(whole: DataFrame, period: Period) -> DataFrame:
    """How each life ended: from its sums to the columns of `lives`.

    Args:
        whole: from `parts`, with `open` and `unknown`.
        period: in which failures lie.
    """
    # All records of a life name the same first failure, which may be older than the table.
    first = F.when(F.col("first_ms").between(period.earliest_ms, period.last_ms), F.col("first_ms"))
    different = F.bit_count("numbers")
    outcome = (
        F.when(F.col("dead_records") > 0, _DEAD)
        .when(F.col("open") > 0, _WAITING)
        .when(F.col("unknown") > 0, _UNKNOWN)
        .otherwise(_RECOVERED)
    )
    found = {
        "outcome": outcome,
        "duplicates": F.coalesce(F.col("numbered") - different, F.lit(0)),
        "recovery_ms": F.when(F.col("due_ms") >= first, F.col("due_ms") - first),
        "death_ms": F.when(F.col("died_ms") >= first, F.col("died_ms") - first),
    }
    return (
        # What only waited behind another record is no message that failed.
        whole.where("failures > 0 or replay_records > 0")
        .withColumns(found)
        .drop(*(name for name in (*PART, "open", "unknown") if name not in _SHOWN))
    )


def _within(at: Column, period: Period) -> Column:
    return at.between(period.first_ms, period.last_ms)


def messages(lives: DataFrame) -> DataFrame:
    """One row per message: the outcome of its last life, and the sums of all its lives."""
    last = F.max(F.col("replays") * len(OUTCOMES) + F.col("outcome"))
    return lives.groupBy(*MESSAGE, "key").agg(
        (last % len(OUTCOMES)).alias("outcome"),
        F.sum("failures").alias("failures"),
        F.sum("tier_records").alias("tier_records"),
    )


def outcome_counts(lives: DataFrame) -> DataFrame:
    """Lives by source topic, whether they are replays, number of failed deliveries, and outcome."""
    return lives.groupBy(
        "group", "origin_topic", (F.col("replays") > 0).alias("replayed"), "attempts", "outcome"
    ).agg(F.count("*").alias("lives"), F.sum("duplicates").alias("duplicates"))


def dead_letters(rows: DataFrame, *day: str) -> DataFrame:
    """The dead letters whose origin is known: `LIFE`, `handler` and `cause`.

    Args:
        rows: from `deliveries.failure_columns`.
        day: the column of the day, where it is to be among them.
    """
    died = rows.where("stage = 'dlq' and origin_offset is not null and not behind")
    return died.select(*day, *LIFE, "handler", cause().alias("cause"))


def replays_by_cause(lives: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """What became of replays, by the handler and the cause of the dead letter before.

    Columns: `group`, `handler`, `cause`, `replayed`, `healed` (of them recovered).

    Args:
        dead_letters: from the function of this name.
    """
    again = lives.where("replays > 0").select(
        *(F.col(name).alias(f"_{name}") for name in (*MESSAGE, "key")),
        (F.col("replays") - 1).alias("_replays"),
        (F.col("outcome") == _RECOVERED).alias("_healed"),
    )
    # A key or a group may be null, in both.
    same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in LIFE]
    # Of a dead letter that is there twice, one counts: each time the same.
    first = F.min(F.struct("handler", "cause"))
    return (
        # Their files are small; a hash table of millions of dead letters is not.
        dead_letters.join(again.hint("merge"), reduce(and_, same))
        .groupBy(*LIFE, "_healed")
        .agg(first.alias("_first"))
        .groupBy("group", "_first.handler", "_first.cause")
        .agg(F.count("*").alias("replayed"), F.count_if("_healed").alias("healed"))
    )


def times(lives: DataFrame, handlers: DataFrame) -> DataFrame:
    """Percentiles 50, 95 and 99 of recovery (a bound from below) and death, in milliseconds.

    Args:
        lives: of which the first ones count.
        handlers: `group`, `origin_topic`, `handler`.
    """
    chosen = F.array(*(F.lit(share) for share in (0.5, 0.95, 0.99)))
    taken = {
        "recovered": F.when(F.col("outcome") == _RECOVERED, F.col("recovery_ms")),
        "dead": F.when(F.col("outcome") == _DEAD, F.col("death_ms")),
    }
    return (
        lives.where("replays = 0")
        .join(F.broadcast(handlers), ["group", "origin_topic"], "left")
        .groupBy("group", "handler")
        .agg(
            *(F.percentile(column, chosen).alias(name) for name, column in taken.items()),
            *(F.count(column).alias(f"{name}_messages") for name, column in taken.items()),
        )
    )


def message_hash() -> Column:
    """A number that stands for a message: in one of 300,000 tables of ten million two share one."""
    return _hash((*MESSAGE, "key"))


def key_hash() -> Column:
    """A number that stands for a key of a source topic and group; null where there is no key."""
    return F.when(F.col("key").isNotNull(), _hash(("group", "origin_topic", "key")))


def _hash(names: Sequence[str]) -> Column:
    # Spark passes over null, so (null, x) would be (x, null).
    return F.xxhash64(*(F.col(name).isNull() for name in names), *names)


def hot_keys(messages: DataFrame, most: int) -> DataFrame:
    """The keys with the most failures of each source topic and group, at most `most` in all.

    Of as many failures those with the lowest `key_hash` are taken: numbers can be compared
    wherever they are kept, and texts of millions of keys are not.
    """
    return (
        messages.where(F.col("key").isNotNull())
        .groupBy("group", "origin_topic", "key")
        .agg(
            F.sum("failures").alias("failures"),
            F.count("*").alias("messages"),
            F.count_if(F.col("outcome") == _DEAD).alias("dead"),
        )
        .orderBy(F.desc("failures"), key_hash(), "group", "origin_topic", "key")
        .limit(most)
    )


def partitions(messages: DataFrame) -> DataFrame:
    """Failures, tier records and outcomes by source partition.

    `span` is how many records the partition took from its first failing one to its last: the
    visible part of the input.
    """
    return messages.groupBy("group", "origin_topic", "origin_partition").agg(
        F.sum("failures").alias("failures"),
        F.count("*").alias("messages"),
        F.sum("tier_records").alias("tier_records"),
        (F.max("origin_offset") - F.min("origin_offset") + 1).alias("span"),
        *(F.count_if(F.col("outcome") == at).alias(name) for at, name in enumerate(OUTCOMES)),
    )
