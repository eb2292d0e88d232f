"""Lives and the retry funnel as rows: what became of messages, and at which attempt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.analysis.cause_frames import possible, possible_period
from ackfloor_monitoring.spark.analysis.described import described
from ackfloor_monitoring.spark.analysis.view_columns import CAUSE_STEP, LIFE, STEP
from ackfloor_monitoring.spark.report import lives
from ackfloor_monitoring.spark.report.deliveries import cause, failure_columns
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
    failed = ~F.col("replayed") & ~F.col("behind")
    why = F.struct("attempt", "event_time", cause().alias("cause"), "error_type")
    last = {"_last": F.max(F.when(failed, why))}
    lived = lives.lives(rows, known, possible_period(), last)
    ended = {
        "cause": F.col("_last.cause"),
        "error_type": F.col("_last.error_type"),
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
    return described(_steps(lived, _OWNER), STEP)


def funnel_by_cause(lived: DataFrame) -> DataFrame:
    """Rows of `CAUSE_STEP`: the same for each cause, that of a message's last failure.

    Args:
        lived: from `message_lives`.
    """
    known = lived.where("cause is not null")
    return described(_steps(known, (*_OWNER, "cause", "error_type")), CAUSE_STEP)


def _steps(lived: DataFrame, owner: tuple[str, ...]) -> DataFrame:
    by = (*owner, "attempts", "outcome")
    ended = lived.where("replays = 0").groupBy(*by).agg(F.count("*").alias("n"))
    # The steps of a cause begin with those of its handler.
    begin = F.min("attempts").over(Window.partitionBy(*_OWNER))
    ended = ended.withColumn("_begin", begin)
    same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in owner]
    reached = ended.join(
        F.broadcast(_attempts(ended, owner)), [*same, F.col("attempts") >= F.col("attempt")]
    )
    here = F.col("attempts") == F.col("attempt")
    ends = {
        name: F.sum(F.when(here & (F.col("outcome") == name), F.col("n")).otherwise(0))
        for name in OUTCOMES
    }
    counted = reached.groupBy(*owner, "attempt").agg(
        F.sum("n").alias("failed"), *(each.alias(name) for name, each in ends.items())
    )
    return counted.orderBy(*owner, "attempt")


def _attempts(ended: DataFrame, owner: tuple[str, ...]) -> DataFrame:
    """The attempts of each owner's funnel; a header may say any number."""
    first, last = F.min("_begin"), F.least(F.max("attempts"), F.lit(MOST_WITHOUT_GAP))
    none = F.array().cast("array<bigint>")
    every = F.when(first <= last, F.sequence(first, last)).otherwise(none)
    return (
        ended.groupBy(*(F.col(name).alias(f"_{name}") for name in owner))
        .agg(F.array_union(every, F.collect_set("attempts")).alias("every"))
        .select(*(f"_{name}" for name in owner), F.explode("every").alias("attempt"))
    )
