"""Invariant 12 by comparison: does sick work delay healthy work?

The same run is played without its sick records. With them, a record that can be handled may start
later by the time that the sick ones have had slots for, and by a second; unless its own lane holds
a sick one, which it has to wait for.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tests.simulation.plan import APART, Plan, RecordPlan
from tests.simulation.watch import Broken
from tests.simulation.world import Result, play

#: Seconds that a healthy record may start later, beyond the slots of sick ones.
SLACK_S = 1.0


def checked(plan: Plan, *, trace: bool = False) -> Result:
    """Play a plan, and once more without its sick records where that tells something."""
    result = play(plan, trace=trace)
    if result.broken is None and is_comparable(plan):
        checks = {**result.checks, "12": 1}
        return replace(result, broken=delayed(plan, result), checks=checks)
    return result


def is_comparable(plan: Plan) -> bool:
    """Whether only its sick records make this run other than the one without them.

    A `Pause` holds healthy records by design: it says that nobody is to be handled. A process that
    dies takes healthy records with it. Where a worker may hold a handful of records only, those
    that wait for their retry are soon all that it holds.
    """
    kinds = {act.kind for record in plan.records for act in record.acts}
    roomy = min(plan.max_open, plan.partition_open) >= 1_000
    return not plan.faults and roomy and not kinds & APART


def delayed(plan: Plan, result: Result) -> Broken | None:
    """The first healthy record that sick ones have delayed, or None."""
    alone = play(plan.healthy())
    if alone.broken is not None:
        return alone.broken
    sick_lanes = {_lane(plan, record) for record in plan.records if record.sick}
    # Those behind a sick one in its lane come later, and have their slots then.
    behind_s = sum(r.acts[0].takes_s for r in plan.records if _lane(plan, r) in sick_lanes)
    allowed_s = result.sick_slots_s + behind_s + _backlog_s(plan) + SLACK_S
    for record in plan.healthy().records:
        ordered = plan.handlers[record.handler].ordering != "unordered"
        if ordered and _lane(plan, record) in sick_lanes:
            continue
        start_s, alone_s = result.starts_s[record.uid], alone.starts_s[record.uid]
        if start_s > alone_s + allowed_s:
            return Broken(
                "12",
                f"{record.uid} waits {start_s:.3f} s for its start, {alone_s:.3f} s without the "
                f"sick records, which had slots for {result.sick_slots_s:.3f} s",
            )
    return None


def _backlog_s(plan: Plan) -> float:
    """Seconds in which the slots of a handler do all the work whose order may be another.

    Which of some records comes first may differ where others are left out, and where slots are
    short a record may be first or last. In lanes that is all work: a slot goes on with a lane
    before it looks at another. Without order it is what is produced at one moment: it gets into
    the log, and is read, in any order.
    """
    work_s: defaultdict[tuple[int, float], float] = defaultdict(float)
    for record in plan.records:
        handler = plan.handlers[record.handler]
        at_s = record.at_s if handler.ordering == "unordered" else 0.0
        work_s[record.handler, at_s] += record.acts[0].takes_s / handler.concurrency
    return max(work_s.values(), default=0.0)


def _lane(plan: Plan, record: RecordPlan) -> tuple[int, int, bytes | None]:
    by_key = plan.handlers[record.handler].ordering == "key"
    return (record.handler, record.partition, record.key if by_key else None)
