"""Build the answer: the one place that runs its Spark jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor import SettingError
from ackfloor_monitoring.spark.spark_errors import NothingToReport
from ackfloor_monitoring.spark.table.settled_rows import commit_frame
from ackfloor_monitoring.spark.whatif.answer import (
    ASSUMPTIONS,
    PRESUMED,
    Estimate,
    Examples,
    LeftOut,
    Outcome,
    WhatIf,
)
from ackfloor_monitoring.spark.whatif.asked_policies import Asked
from ackfloor_monitoring.spark.whatif.policies_in_force import policies_in_force
from ackfloor_monitoring.spark.whatif.recovery_quantiles import RecoveryTimes
from ackfloor_monitoring.spark.whatif.whatif_frames import (
    attempts,
    histories,
    narrowed,
    outcomes,
    recovery_times,
    replayed_under,
    with_tiers,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from ackfloor import RetryPolicy
    from ackfloor.commits import Settled
    from ackfloor_monitoring.spark.whatif.whatif_model import PolicyOptions


def what_if(
    failures: DataFrame,
    commits: Iterable[Settled] | None,
    policy: RetryPolicy | PolicyOptions,
    *,
    table: str,
    handler: str | None = None,
) -> WhatIf:
    """Replay what is in the table through another policy.

    Args:
        failures: rows of the table `failures`.
        commits: of the groups' tiers; None where they are not known.
        policy: a whole one for every handler; or options, whose rest is as in the policy in force.
        table: the table's name in the answer.
        handler: only this one.

    Raises:
        NothingToReport: there is no row, or no message among them whose end is known.
        SettingError: no failure names the handler, or an option is refused.
    """
    if handler is not None:
        _check_handler(failures, handler)
        failures = failures.where(F.col("handler") == handler)
    seen = attempts(failures, commit_frame(failures.sparkSession, commits or ()))
    about = _about(seen)
    if not about["records"]:
        raise NothingToReport(f"{table}: no failure is in it, so there is nothing to replay")
    in_force = policies_in_force(seen)
    asked = Asked.of(policy, in_force.by_owner)
    tiered = with_tiers(seen, in_force.tiers_s)
    lives = histories(tiered, about["last"] or 0, asked.frame(failures.sparkSession))
    sums, times = _computed(replayed_under(narrowed(lives, seen), asked.otherwise))
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
    handlers = _by_handler(rows, times, asked)
    return WhatIf(
        table=table,
        policy=asked.policy_of((handlers[0].group, handlers[0].handler)),
        commits_known=commits is not None,
        total=_outcome(None, None, rows, times),
        handlers=handlers,
        left_out=left_out,
        assumptions=ASSUMPTIONS if commits is not None else (*ASSUMPTIONS, PRESUMED),
        messages=left.total(),
        examples=_examples(sums),
    )


def _about(seen: DataFrame) -> Row:
    return seen.agg(
        F.count("*").alias("records"),
        F.max("kafka_time").alias("last"),
        F.count_if(F.expr("not replayed and not behind and origin_offset is null")).alias(
            "without_origin"
        ),
        F.count_if(F.expr("replayed")).alias("replays"),
    ).collect()[0]


def _computed(replayed: DataFrame) -> tuple[list[Row], RecoveryTimes]:
    """The sums, and the times to recovery, from one computation of each message."""
    replayed.persist()
    try:
        return outcomes(replayed).collect(), RecoveryTimes(recovery_times(replayed).collect())
    finally:
        replayed.unpersist()


def _check_handler(failures: DataFrame, handler: str) -> None:
    names = [row["handler"] for row in failures.select("handler").distinct().collect()]
    if handler not in names:
        known = ", ".join(sorted(filter(None, names))) or "none"
        raise SettingError("--handler", handler, "no failure names it", f"the table has {known}")


def _by_handler(rows: Sequence[Row], times: RecoveryTimes, asked: Asked) -> tuple[Outcome, ...]:
    """What each handler would have had, those with most messages first."""
    each = []
    for row in rows:
        owner = row["group"], row["handler"]
        outcome = _outcome(*owner, [row], times)
        each.append(
            replace(outcome, policy=asked.policy_of(owner), in_force=asked.in_force_of(owner))
        )
    return tuple(sorted(each, key=lambda o: (-o.messages, o.group or "", o.handler or "")))


def _examples(rows: Sequence[Row]) -> Examples:
    """One message of each kind of which too little is known."""

    def first(column: str, left_out: str | None) -> str | None:
        places = (row[column] for row in rows if row["left_out"] == left_out)
        return min(filter(None, places), default=None)

    return Examples(
        first("example", "waiting"), first("example", "own_waits"), first("example_later", None)
    )


def _outcome(
    group: str | None, handler: str | None, rows: Sequence[Row], times: RecoveryTimes
) -> Outcome:
    owner = None if group is None and handler is None else (group, handler)
    texts = {"group", "handler", "left_out", "example", "example_later"}
    numbers = rows[0].asDict().keys() - texts
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
        to_recovery_p50_s=times.at(0.5, owner, then=False),
        to_recovery_p50_then_s=times.at(0.5, owner, then=True),
        to_recovery_p99_s=times.at(0.99, owner, then=False),
        to_recovery_p99_then_s=times.at(0.99, owner, then=True),
    )


def _estimate(sums: Mapping[str, float], what: str) -> Estimate:
    return Estimate(sums[f"likely_{what}"], sums[f"early_{what}"], sums[f"late_{what}"])


def _mean_s(total_ms: float, count: float) -> float | None:
    # Shares add up to a little more or less than whole messages.
    return round(total_ms / count / 1000, 3) if count > 1e-6 else None
