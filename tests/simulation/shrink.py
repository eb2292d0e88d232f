"""Shrink: a smaller run that breaks the same promise.

Halves of the faults are left out, then halves of the records, then smaller and smaller parts, as
long as what is left still breaks the same rule. What remains is not the smallest there is; it is
small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.simulation.delays import checked
from tests.simulation.plan import Plan

T = TypeVar("T")

#: Runs after which one is content with what there is.
MOST_RUNS = 200


def shrunk(plan: Plan, rule: str) -> Plan:
    """A smaller plan that breaks the same rule."""
    runs = 0

    def breaks(tried: Plan) -> bool:
        nonlocal runs
        runs += 1
        broken = checked(tried).broken
        return broken is not None and broken.rule == rule

    def enough() -> bool:
        return runs >= MOST_RUNS

    plan = _fewer(plan, plan.faults, lambda p, some: p.without(faults=some), breaks, enough)
    return _fewer(plan, plan.records, lambda p, some: p.without(records=some), breaks, enough)


def _fewer(
    plan: Plan,
    parts: Sequence[T],
    without: Callable[[Plan, Sequence[T]], Plan],
    breaks: Callable[[Plan], bool],
    enough: Callable[[], bool],
) -> Plan:
    """Leave out as many of some parts as can be left out."""
    left = list(parts)
    size = len(left)
    while size >= 1 and not enough():
        kept_all = True
        for first in range(0, len(left), size):
            some = left[first : first + size]
            tried = without(plan, some)
            if some and not enough() and breaks(tried):
                plan, kept_all = tried, False
                left = [part for part in left if part not in some]
                break
        if kept_all:
            size //= 2
    return plan
