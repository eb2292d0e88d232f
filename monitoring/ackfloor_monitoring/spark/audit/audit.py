"""The audit: whether the table of failures is free of gaps and doubles, record by record.

Theory. A message's life begins with its first failure, or with a replay, and each failed delivery
of it leaves one record: attempt 1 in a retry topic, attempt 2 in the next, up to the dead-letter
topic, or up to a success, which leaves none. So the attempts of a life are a chain without a gap:
a record of attempt n can only come from a delivery of the record of attempt n - 1. A replay is
attempt 0 of the life that follows, and comes from the dead letter of the life before. Where
parking is not transactional, a crash between a park and its ack repeats a delivery, and one
attempt has two records: a double, and the only fault there.

A record that waits behind another one of its key in quarantine is no delivery: it is in no chain,
and is not overdue. One that is dead-lettered there ends its life, as any dead letter does.

The audit does not judge what the table can't show: a life that began before the table's first
record; the missing tier records of a handler that retries in place, which has none; whether a
record waits too long, where the group's commits are not known.
"""

from __future__ import annotations

from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.table.columns import MESSAGE
from ackfloor_monitoring.spark.table.settled_rows import with_settled
from ackfloor_monitoring.spark.table.table_frames import did_not_fail

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# In broadcast mode every worker has dead letters of its own.
LIFE = (*MESSAGE, "worker", "replays")
PLACE = ("topic", "partition", "offset")
FAULT_COLUMNS = ("fault", *MESSAGE, "replays", "attempt", *PLACE)


class Fault(StrEnum):
    """What can be wrong."""

    HOLE = "hole"
    DOUBLE = "double"
    NO_CHAIN = "no_chain"
    AFTER_DEATH = "after_death"
    OVERDUE = "overdue"
    REPLAYED_TWICE = "replayed_twice"
    REPLAY_OF_NOTHING = "replay_of_nothing"
    REPLAY_NOT_NOTED = "replay_not_noted"
    REPLAY_LOST = "replay_lost"
    NO_ORIGIN = "no_origin"
    STRAY = "stray"

    @property
    def description(self) -> str:
        """The fault in one line."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    Fault.HOLE: "the attempt before it is not there",
    Fault.DOUBLE: "one attempt has more than one record",
    Fault.NO_CHAIN: "a dead letter of a later attempt, and no earlier one is there",
    Fault.AFTER_DEATH: "delivered again after it was dead-lettered",
    Fault.OVERDUE: "in a retry topic, past its due time, and not settled",
    Fault.REPLAYED_TWICE: "one dead letter was replayed more than once",
    Fault.REPLAY_OF_NOTHING: "replayed, and there is no dead letter that it comes from",
    Fault.REPLAY_NOT_NOTED: "replayed, and its dead letter has no disposition",
    Fault.REPLAY_LOST: "noted as replayed into a retry topic, and not there",
    Fault.NO_ORIGIN: "its headers do not say where it comes from",
    Fault.STRAY: "in a topic of another group or another source than its headers say",
}


def audited(failures: DataFrame, commits: DataFrame) -> DataFrame:
    """The audit's input, a row for each record: cache it, it is read several times.

    Adds `again` (a hop of an explicit wait), `behind` (it waits behind another record of its key),
    `settled` (null where no commit is known for its partition) and `whole`.

    Args:
        failures: rows of the table.
        commits: rows of `settled.COMMIT`.
    """
    first = failures.select(F.min("event_time").alias("first"))
    # What one explicit wait's records share.
    wait = Window.partitionBy(*MESSAGE, "worker", "replays", "attempt", "event_time")
    zero = F.lit(0)
    return (
        failures.crossJoin(F.broadcast(first))
        .transform(with_settled, commits)
        .withColumns(
            {
                "attempt": F.coalesce("attempt", zero),
                "replays": F.coalesce("replays", zero),
                # Rows are joined by it; null would equal nothing.
                "cluster": F.coalesce("cluster", F.lit("")),
                # A life that began before the table is incomplete.
                "whole": F.coalesce(F.col("first_failed_at") >= F.col("first"), F.lit(True)),
                "due_ms": F.unix_millis(F.coalesce("not_before", "kafka_time")),
            }
        )
        .withColumn(
            "again",
            F.col("retry_at").isNotNull() & (F.col("kafka_time") > F.min("kafka_time").over(wait)),
        )
        .withColumn("behind", did_not_fail())
        .select(
            *LIFE,
            "key",
            *PLACE,
            "topic_id",
            "attempt",
            "stage",
            "again",
            "behind",
            "settled",
            "due_ms",
            "whole",
        )
    )


def fault_rows(
    rows: DataFrame,
    overdue_ms: int | None,
    notes: DataFrame | None = None,
    *,
    there_ms: int = 0,
) -> DataFrame:
    """One row of `FAULT_COLUMNS` for each fault.

    Args:
        rows: from `audited`.
        overdue_ms: what was due before and is not settled is overdue, in milliseconds of the wall
            clock; None where the commits are not known.
        notes: all rows of `DISPOSITION`, read after the table; None skips their checks.
        there_ms: what was replayed before must be in the table, in milliseconds of the wall clock.
    """
    own = {Fault.NO_ORIGIN: ~_origin_known(), Fault.STRAY: _is_stray()}
    if overdue_ms is not None:
        own[Fault.OVERDUE] = _is_overdue(overdue_ms)
    named = rows.where(_origin_known())
    # What waits behind another record was not delivered; what died behind one did end.
    chained = named.where("not (behind and stage = 'retry')")
    found = [rows.transform(_with_faults, own), chain_faults(chained)]
    if notes is not None:
        found.append(replay_faults(chained, notes, there_ms))
    return reduce(lambda one, other: one.unionByName(other), found)


def chain_faults(rows: DataFrame) -> DataFrame:
    """What is wrong with the attempts of each life."""
    attempt, previous, before = F.col("attempt"), F.col("previous"), F.col("replays") - 1
    follows_replay = (attempt == 1) & F.array_contains("lives", before)
    needs_one = (attempt > 1) | follows_replay
    gap = needs_one & (previous.isNull() | (previous < attempt - 1)) & F.col("whole")
    no_park = F.col("parked_in_life") == 0
    replayed = (attempt == 0) & (F.col("replays") > 0)
    second_death = (F.col("died") > 0) & (F.col("died_before") > 0)
    faults = {
        Fault.HOLE: gap & ~no_park,
        Fault.NO_CHAIN: gap & no_park & F.col("has_tiers"),
        Fault.DOUBLE: (attempt > 0) & ((F.col("records") > 1) | second_death),
        Fault.AFTER_DEATH: (F.col("died_before") > 0) & ~F.col("doubled"),
        Fault.REPLAYED_TWICE: replayed & (F.col("records") > 1),
        Fault.REPLAY_OF_NOTHING: replayed
        & ~F.array_contains("dead_lives", before)
        & F.col("whole"),
    }
    return (
        _steps(rows)
        .withColumns({name: F.col("place")[name] for name in PLACE})
        .transform(_with_faults, faults)
    )


def _steps(rows: DataFrame) -> DataFrame:
    """One row per life and attempt: its records, and what the life has before it."""
    # Partitioned by message once, the windows need no shuffle of their own.
    counted = (
        rows.repartition(*MESSAGE)
        .groupBy(*LIFE, "attempt")
        .agg(
            F.count_if(~F.col("again") & ~F.col("behind")).alias("records"),
            F.count_if(F.col("stage") == "retry").alias("parked"),
            F.count_if(F.col("stage") == "dlq").alias("died"),
            F.min(F.struct(*PLACE)).alias("place"),
            F.min("whole").alias("whole"),
        )
    )
    # Handlers that retry in place have none.
    tiers = rows.groupBy("group", "origin_topic").agg(
        F.max(F.col("stage") == "retry").alias("has_tiers")
    )
    life, message = Window.partitionBy(*LIFE), Window.partitionBy(*MESSAGE)
    before = life.orderBy("attempt").rowsBetween(Window.unboundedPreceding, -1)
    return counted.withColumns(
        {
            "previous": F.max("attempt").over(before),
            "died_before": F.coalesce(F.sum("died").over(before), F.lit(0)),
            "doubled": (F.max("records").over(life) > 1) | (F.sum("died").over(life) > 1),
            "parked_in_life": F.sum("parked").over(life),
            "whole": F.min("whole").over(message),
            "dead_lives": F.collect_set(F.when(F.col("died") > 0, F.col("replays"))).over(message),
            "lives": F.collect_set("replays").over(message),
        }
    ).join(F.broadcast(tiers), ["group", "origin_topic"])


def replay_faults(rows: DataFrame, notes: DataFrame, there_ms: int) -> DataFrame:
    """What is wrong between replays and the dispositions of the dead letters they come from.

    A replay and its disposition are one transaction. So a replay that is in the table is noted,
    however young it is; one that is noted comes into the table with an ingest after it.
    """
    key = [*MESSAGE, "replays"]
    sent = rows.where("stage = 'retry' and attempt = 0 and replays > 0")
    sent = sent.groupBy(*key).agg(F.min(F.struct(*PLACE)).alias("sent"))
    noted = notes.where("disposition = 'replayed'").select(
        "topic", "topic_id", "partition", "offset", "target", "at_ms"
    )
    into_tier = F.col("target").rlike("--retry-[0-9]+[a-z]+$") & (F.col("at_ms") < there_ms)
    died = (
        rows.where("stage = 'dlq'")
        .withColumn("replays", F.col("replays") + 1)
        .join(noted, ["topic", "topic_id", "partition", "offset"], "left")
        .groupBy(*key)
        .agg(
            F.max(F.col("target").isNotNull()).alias("noted"),
            F.max(F.coalesce(into_tier, F.lit(False))).alias("must_be_there"),
            F.max(F.when(F.col("target").isNotNull(), F.struct(*PLACE))).alias("place"),
        )
    )
    both = died.join(sent, key, "full").withColumn("attempt", F.lit(0))
    place = F.coalesce("sent", "place")
    return both.withColumns({name: place[name] for name in PLACE}).transform(
        _with_faults,
        {
            Fault.REPLAY_NOT_NOTED: F.col("sent").isNotNull() & ~F.col("noted"),
            Fault.REPLAY_LOST: F.col("must_be_there") & F.col("sent").isNull(),
        },
    )


def _with_faults(rows: DataFrame, faults: dict[Fault, Column]) -> DataFrame:
    """A row for each fault whose condition holds."""
    named = [F.when(condition, F.lit(fault.value)) for fault, condition in faults.items()]
    # Nearly all rows are in order and go no further; `array_compact` would not be compiled.
    return (
        rows.where(F.coalesce(*named).isNotNull())
        .withColumn("fault", F.explode(F.array(*named)))
        .where("fault is not null")
        .select(*FAULT_COLUMNS)
    )


def _origin_known() -> Column:
    return (
        F.col("origin_topic").isNotNull()
        & F.col("origin_partition").isNotNull()
        & F.col("origin_offset").isNotNull()
    )


def _is_stray() -> Column:
    parts = F.split("topic", "--")
    # Null where the name has no such parts: nothing to compare with.
    return (F.get(parts, F.lit(0)) != F.col("origin_topic")) | (
        F.get(parts, F.lit(1)) != F.col("group")
    )


def _is_overdue(before_ms: int) -> Column:
    open_ = ~F.coalesce(F.col("settled"), F.lit(False))
    waits = (F.col("stage") == "retry") & open_ & ~F.col("behind")
    return waits & (F.col("due_ms") < before_ms)
