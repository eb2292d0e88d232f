"""Build the answer: the one place that runs its Spark jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor import RetryPolicy, SettingError
from ackfloor_monitoring.spark.spark_errors import NothingToReport
from ackfloor_monitoring.spark.table.settled_rows import commit_frame
from ackfloor_monitoring.spark.whatif.answer import (
    ASSUMPTIONS,
    PRESUMED,
    Estimate,
    LeftOut,
    Outcome,
    Policy,
    WhatIf,
)
from ackfloor_monitoring.spark.whatif.whatif_frames import attempts, histories, narrowed, outcomes
from ackfloor_monitoring.spark.whatif.whatif_model import mean_waits_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from ackfloor.commits import Settled


def what_if(
    failures: DataFrame,
    commits: Iterable[Settled] | None,
    policy: RetryPolicy,
    *,
    table: str,
    handler: str | None = None,
) -> WhatIf:
    """Replay what is in the table through another policy.

    Args:
        failures: rows of the table `failures`.
        commits: of the groups' tiers; None where they are not known.
        policy: from `model.Words`.
        table: the table's name in the answer.
        handler: only this one.

    Raises:
        NothingToReport: there is no row, or no message among them whose end is known.
        SettingError: no failure names the handler.
    """
    if handler is not None:
        _check_handler(failures, handler)
        failures = failures.where(F.col("handler") == handler)
    known = commit_frame(failures.sparkSession, commits or ())
    seen = attempts(failures, known)
    about = seen.agg(
        F.count("*").alias("records"),
        F.max("kafka_time").alias("last"),
        F.count_if(F.expr("not replayed and not behind and origin_offset is null")).alias(
            "without_origin"
        ),
        F.count_if(F.expr("replayed")).alias("replays"),
    ).collect()[0]
    if not about["records"]:
        raise NothingToReport(f"{table}: no failure is in it, so there is nothing to replay")
    lived = narrowed(histories(seen, about["last"] or 0), seen)
    sums = outcomes(lived, mean_waits_ms(policy)).collect()
    rows = [row for row in sums if row["left_out"] is None]
    left: Counter[str | None] = Counter()
    for row in sums:
        left[row["left_out"]] += row["messages"]
    left_out = LeftOut(
        left["waiting"], left["own_waits"], about["replays"], about["without_origin"]
    )
    if not rows:
        raise NothingToReport(
            f"{table}: no message in it can be replayed: {left_out.waiting} still wait, "
            f"{left_out.own_waits} had waits of their handler's own, and of "
            f"{left_out.without_origin} failures the origin can't be read"
        )
    return WhatIf(
        table=table,
        policy=Policy(len(policy.schedule()), policy.schedule(), policy.jitter),
        commits_known=commits is not None,
        total=_outcome(None, None, rows),
        handlers=_by_handler(rows),
        left_out=left_out,
        assumptions=ASSUMPTIONS if commits is not None else (*ASSUMPTIONS, PRESUMED),
        messages=left.total(),
    )


def _check_handler(failures: DataFrame, handler: str) -> None:
    names = [row["handler"] for row in failures.select("handler").distinct().collect()]
    if handler not in names:
        known = ", ".join(sorted(filter(None, names))) or "none"
        raise SettingError("--handler", handler, "no failure names it", f"the table has {known}")


def _by_handler(rows: Sequence[Row]) -> tuple[Outcome, ...]:
    """What each handler would have had, those with most messages first."""
    each = [_outcome(row["group"], row["handler"], [row]) for row in rows]
    return tuple(sorted(each, key=lambda o: (-o.messages, o.group or "", o.handler or "")))


def _outcome(group: str | None, handler: str | None, rows: Sequence[Row]) -> Outcome:
    numbers = rows[0].asDict().keys() - {"group", "handler", "left_out"}
    sums = {name: sum(row[name] or 0 for row in rows) for name in numbers}
    dead = sums["exhausted"] + sums["ended"]
    messages = sums["messages"]
    dead_then = _estimate(sums, "dead")
    return Outcome(
        group=group,
        handler=handler,
        messages=messages,
        recovered=sums["recovered"],
        recovered_then=Estimate(
            messages - dead_then.likely, messages - dead_then.most, messages - dead_then.least
        ),
        dead=dead,
        dead_then=dead_then,
        dead_anyway=sums["ended"],
        redeliveries=sums["redeliveries"],
        redeliveries_then=_estimate(sums, "redeliveries"),
        to_recovery_s=_mean_s(sums["recovered_ms"], sums["recovered"]),
        to_recovery_then_s=_mean_s(sums["likely_recovered_ms"], messages - dead_then.likely),
        sooner_s=_mean_s(
            sums["in_both_ms"] - sums["likely_recovered_ms"], messages - dead_then.likely
        ),
        to_death_s=_mean_s(sums["exhausted_ms"], sums["exhausted"]),
        to_death_then_s=_mean_s(sums["likely_exhausted_ms"], sums["likely_exhausted"]),
        tried_later=sums["tried_later"],
    )


def _estimate(sums: Mapping[str, float], what: str) -> Estimate:
    return Estimate(sums[f"likely_{what}"], sums[f"early_{what}"], sums[f"late_{what}"])


def _mean_s(total_ms: float, count: float) -> float | None:
    # Shares add up to a little more or less than whole messages.
    return round(total_ms / count / 1000, 3) if count > 1e-6 else None
