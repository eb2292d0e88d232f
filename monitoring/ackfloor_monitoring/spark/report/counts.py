"""Failures counted by everything that the report asks for: what failed, when and why.

Three kinds of records lie in the topics, and only the first is a failure:

* a failed delivery: the handler failed and the record was parked or dead-lettered;
* a hop: an explicit wait longer than a tier goes on in the next one. Its headers are those of the
  record before, only the tier and the time differ;
* a replay: a dead letter that was put back to work, with its attempts at 0.

They are told apart by counting, so that no row needs to know its neighbours.

`counts` reads the table once, into some thousand rows, and the other frames are sums over these.
Only numbers are aggregated there, never text: text would make Spark sort all rows, where it can
hash them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.schema import MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# What the records of one explicit wait share.
_WAIT = (*MESSAGE, "replays", "attempt", "event_time")
_BY = (
    "group", "origin_topic", "handler", "reason", "error_type", "error_fingerprint", "release",
    "stage", "attempt", "replayed", "first_life",
)  # fmt: skip


def told(failures: DataFrame) -> DataFrame:
    """The table with milliseconds for times, and what its records are.

    Adds `replayed` (it is a replay, no failure), `first_life` (its message was not replayed) and
    `waits` (it belongs to an explicit wait, which may go on in further tiers).
    """
    attempt, replays = (F.coalesce(name, F.lit(0)) for name in ("attempt", "replays"))
    times = ("event_time", "first_failed_at", "not_before")
    return failures.withColumns(
        {
            **{name: F.unix_millis(name) for name in times},
            "attempt": attempt,
            "replays": replays,
            "replayed": (replays > 0) & (attempt == 0),
            "first_life": replays == 0,
            "waits": F.col("retry_at").isNotNull() & F.col("origin_offset").isNotNull(),
        }
    )


def period(failures: DataFrame) -> DataFrame:
    """One row: how many records, and the first and last failure in milliseconds."""
    return failures.agg(
        F.count("*").alias("records"),
        F.unix_millis(F.min("event_time")).alias("first"),
        F.unix_millis(F.max("event_time")).alias("last"),
    )


def counts(failures: DataFrame, bucket_ms: int) -> DataFrame:
    """Records and failures by stretch of time, handler, cause and what else tells them apart.

    Columns: those of `_BY`, `start` of the stretch, `cause`, `tier` (null in an explicit wait);
    `records`, of them `failures`, `hops`, `unreadable`, `without_origin`; `first` and `last`.
    """
    by = ("start", "tier", *_BY)
    rows = told(failures).withColumns(
        {"start": bucket(bucket_ms), "tier": F.when(~F.col("waits"), F.col("tier"))}
    )
    counted = rows.groupBy(*by).agg(
        F.count("*").alias("records"),
        F.count_if(F.size("unreadable") > 0).alias("unreadable"),
        F.count_if(F.col("origin_offset").isNull()).alias("without_origin"),
        F.min("event_time").alias("first"),
        F.max("event_time").alias("last"),
        F.lit(0).cast("long").alias("hops"),
    )
    # Where no record waits, the files' statistics say so and nothing is read.
    hops = (
        rows.where("waits")
        .groupBy(*dict.fromkeys((*_WAIT, *by)))
        .agg((F.count("*") - 1).alias("hops"))
        .where("hops > 0")
    )
    both = counted.unionByName(hops.select(*by, "hops"), allowMissingColumns=True)
    whole = ("records", "unreadable", "without_origin", "hops")
    return (
        both.groupBy(*by)
        .agg(
            *(F.sum(name).alias(name) for name in whole),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
        )
        .withColumns(
            {
                "cause": cause(),
                "failures": F.when(F.col("replayed"), 0).otherwise(
                    F.col("records") - F.col("hops")
                ),
            }
        )
    )


def totals(counts: DataFrame) -> DataFrame:
    """One row: records of each kind, what could not be read, and the groups."""
    return counts.agg(
        *(F.sum(name).alias(name) for name in ("records", "failures", "hops")),
        *(F.sum(name).alias(name) for name in ("unreadable", "without_origin")),
        F.sum(F.when(F.col("replayed"), F.col("records")).otherwise(0)).alias("replays"),
        F.sort_array(F.collect_set("group")).alias("groups"),
    )


def over_time(counts: DataFrame) -> DataFrame:
    """Failures by stretch of time, handler and reason."""
    return _failed(counts).groupBy("start", "group", "handler", "reason").agg(_failures())


def failure_groups(counts: DataFrame) -> DataFrame:
    """Failures by cause: how many, since and until when, in which releases, and their trend.

    `trend` maps the start of a stretch of time to its failures.
    """
    by_start = (
        _failed(counts)
        .groupBy("group", "handler", "cause", "start")
        .agg(
            _failures(),
            F.sum(F.when(F.col("stage") == "dlq", F.col("failures")).otherwise(0)).alias("dead"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.max("error_type").alias("error_type"),
            F.max("error_fingerprint").alias("fingerprint"),
            F.collect_set("release").alias("releases"),
        )
    )
    return by_start.groupBy("group", "handler", "cause").agg(
        _failures(),
        F.sum("dead").alias("dead"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.max("error_type").alias("error_type"),
        F.max("fingerprint").alias("fingerprint"),
        F.sort_array(F.array_distinct(F.flatten(F.collect_list("releases")))).alias("releases"),
        F.map_from_entries(F.collect_list(F.struct("start", "failures"))).alias("trend"),
    )


def samples(failures: DataFrame, groups: DataFrame) -> DataFrame:
    """The records with the latest failure of each group, by the columns of `groups`.

    Args:
        failures: the table.
        groups: `group`, `handler`, `cause` and `last`; few of them.
    """
    rows = told(failures).withColumn("cause", cause())
    wanted = groups.select(*(F.col(name).alias(f"_{name}") for name in groups.columns))
    return rows.join(
        F.broadcast(wanted),
        (F.col("event_time") == F.col("_last"))
        & (F.col("cause") == F.col("_cause"))
        & F.col("group").eqNullSafe(F.col("_group"))
        & F.col("handler").eqNullSafe(F.col("_handler"))
        & ~F.col("replayed"),
    ).select(
        "group", "handler", "cause", "kafka_time", "topic", "partition", "offset", "error_message"
    )


def releases(counts: DataFrame) -> DataFrame:
    """When each release failed first."""
    return (
        _failed(counts)
        .where(F.col("release").isNotNull())
        .groupBy("release")
        .agg(F.min("first").alias("first"))
    )


def handlers(counts: DataFrame) -> DataFrame:
    """Timeouts and other failures by handler. Where the budget ran out, by the last cause."""
    timed_out = F.coalesce(
        (F.col("reason") == "timeout") | (F.col("error_type") == "ConsumeTimeout"), F.lit(False)
    )
    return (
        _failed(counts)
        .groupBy("group", "handler")
        .agg(
            F.sum(F.when(timed_out, F.col("failures")).otherwise(0)).alias("timeouts"),
            F.sum(F.when(~timed_out, F.col("failures")).otherwise(0)).alias("errors"),
        )
    )


def durations(failures: DataFrame) -> DataFrame:
    """How long failed calls took, by handler: percentiles 50, 95, 99 and 100 in milliseconds."""
    rows = told(failures).where("not replayed")
    by = ("group", "handler", "duration_ms")
    plain = rows.where("not waits").groupBy(*by).agg(F.count("*").alias("calls"))
    waiting = rows.where("waits").select(*by, *_WAIT[1:]).distinct()
    calls = plain.unionByName(waiting.groupBy(*by).agg(F.count("*").alias("calls")))
    chosen = F.array(*(F.lit(share) for share in (0.5, 0.95, 0.99, 1.0)))
    return calls.groupBy("group", "handler").agg(
        F.percentile("duration_ms", chosen, F.col("calls")).alias("duration_ms")
    )


def tiers(counts: DataFrame) -> DataFrame:
    """Which tiers the policy sent the records of each attempt to, of first lives."""
    return (
        _failed(counts)
        .where("first_life and tier is not null")
        .groupBy("group", "handler", "attempt")
        .agg(F.collect_set("tier").alias("tiers"))
    )


#: The columns of `topic_handlers`.
TOPIC_HANDLER = "`group` string, origin_topic string, handler string"


def topic_handlers(counts: DataFrame) -> DataFrame:
    """The handler of each source topic in a group; of one that was renamed the latest name."""
    return counts.groupBy("group", "origin_topic").agg(F.max_by("handler", "last").alias("handler"))


def cause() -> Column:
    """What groups a failure with its like: its fingerprint, else its class, else its reason."""
    return F.coalesce("error_fingerprint", "error_type", "reason", F.lit("unknown"))


def bucket(bucket_ms: int) -> Column:
    """The start of the stretch of time in which `event_time` lies."""
    at = F.col("event_time")
    return at - F.pmod(at, F.lit(bucket_ms))


def _failed(counts: DataFrame) -> DataFrame:
    return counts.where("failures > 0")


def _failures() -> Column:
    return F.sum("failures").alias("failures")
