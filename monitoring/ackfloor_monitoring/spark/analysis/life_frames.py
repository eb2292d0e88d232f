"""Lives and the retry funnel as rows: what became of messages, and at which attempt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.analysis.cause_frames import possible, possible_period
from ackfloor_monitoring.spark.analysis.described import described
from ackfloor_monitoring.spark.analysis.view_columns import LIFE, STEP
from ackfloor_monitoring.spark.report import lives
from ackfloor_monitoring.spark.report.deliveries import failure_columns
from ackfloor_monitoring.spark.report.funnel import MOST_WITHOUT_GAP
from ackfloor_monitoring.spark.report.lives import OUTCOMES
from ackfloor_monitoring.spark.table.columns import MESSAGE
from ackfloor_monitoring.spark.table.settled_rows import commit_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ackfloor.commits import Settled

_OWNER = ("group", "handler")


def message_lives(failures: DataFrame, commits: Iterable[Settled]) -> DataFrame:
    """Rows of `LIFE`, of the messages whose origin is known.

    Args:
        failures: rows of the table.
        commits: of the groups' tiers; none where they are not known.
    """
    rows = failure_columns(failures)
    known = commit_frame(failures.sparkSession, commits)
    outcome, names = F.col("outcome"), F.array(*map(F.lit, OUTCOMES))
    recovered, dead = (outcome == OUTCOMES.index(name) for name in ("recovered", "dead"))
    lived = lives.lives(rows, known, possible_period())
    ended = {
        "message": F.struct(*MESSAGE, "key"),
        "outcome": F.get(names, outcome),
        "to_recovery_s": F.when(recovered, F.col("recovery_ms") / 1000),
        "to_death_s": F.when(dead, F.col("death_ms") / 1000),
    }
    return described(_with_handler(lived, rows).withColumns(ended), LIFE)


def _with_handler(lived: DataFrame, rows: DataFrame) -> DataFrame:
    """With the handler of the source topic; of one that was renamed the latest name."""
    order = F.struct(possible(F.col("event_time")), "handler")
    named = (
        rows.where(F.col("handler").isNotNull())
        .groupBy(F.col("group").alias("_group"), F.col("origin_topic").alias("_topic"))
        .agg(F.max_by("handler", order).alias("handler"))
    )
    same = [
        F.col("group").eqNullSafe(F.col("_group")),
        F.col("origin_topic").eqNullSafe(F.col("_topic")),
    ]
    return lived.join(F.broadcast(named), same, "left")


def funnel(lived: DataFrame) -> DataFrame:
    """Rows of `STEP`, in order: each attempt up to the last, also one at which nothing ended.

    Args:
        lived: from `message_lives`.
    """
    by = (*_OWNER, "attempts", "outcome")
    ended = lived.where("replays = 0").groupBy(*by).agg(F.count("*").alias("n"))
    same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in _OWNER]
    reached = ended.join(
        F.broadcast(_attempts(ended)), [*same, F.col("attempts") >= F.col("attempt")]
    )
    here = F.col("attempts") == F.col("attempt")
    ends = {
        name: F.sum(F.when(here & (F.col("outcome") == name), F.col("n")).otherwise(0))
        for name in OUTCOMES
    }
    counted = reached.groupBy(*_OWNER, "attempt").agg(
        F.sum("n").alias("failed"), *(each.alias(name) for name, each in ends.items())
    )
    return described(counted.orderBy(*_OWNER, "attempt"), STEP)


def _attempts(ended: DataFrame) -> DataFrame:
    """The attempts of each handler's funnel; a header may say any number."""
    first, last = F.min("attempts"), F.least(F.max("attempts"), F.lit(MOST_WITHOUT_GAP))
    none = F.array().cast("array<bigint>")
    every = F.when(first <= last, F.sequence(first, last)).otherwise(none)
    return (
        ended.groupBy(*(F.col(name).alias(f"_{name}") for name in _OWNER))
        .agg(F.array_union(every, F.collect_set("attempts")).alias("every"))
        .select(*(f"_{name}" for name in _OWNER), F.explode("every").alias("attempt"))
    )
