"""The retry funnel from its counts: how many messages each attempt saved, and how many it lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ackfloor_monitoring.spark.report.answer import Step

MOST_WITHOUT_GAP = 100
Owner = tuple[str | None, str | None]


def funnel_steps(
    outcome_counts: Mapping[tuple[Owner, int, str], int],
    tiers: Mapping[tuple[Owner, int], tuple[str, ...]],
) -> tuple[Step, ...]:
    """The steps of each handler, from how many messages ended where.

    Args:
        outcome_counts: messages by (group and handler), failed deliveries and outcome.
        tiers: by (group and handler) and attempt, the delays that its records waited.
    """
    counts: dict[Owner, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for (owner, attempts, outcome), messages in outcome_counts.items():
        counts[owner][attempts][outcome] = messages
    return tuple(
        step
        for owner in sorted(counts, key=lambda names: [name or "" for name in names])
        for step in _steps(owner, counts[owner], tiers)
    )


def _steps(
    owner: Owner,
    counts: Mapping[int, Mapping[str, int]],
    tiers: Mapping[tuple[Owner, int], tuple[str, ...]],
) -> Iterable[Step]:
    left = sum(sum(outcomes.values()) for outcomes in counts.values())
    # Every attempt up to the last, also one at which no message ended; a header may say any number.
    every = range(min(counts), min(max(counts), MOST_WITHOUT_GAP) + 1)
    for attempt in sorted({*every, *counts}):
        outcomes = counts.get(attempt, {})
        yield Step(
            *owner,
            attempt,
            tiers.get((owner, attempt), ()),
            left,
            outcomes.get("recovered", 0),
            outcomes.get("dead", 0),
            outcomes.get("waiting", 0),
            outcomes.get("unknown", 0),
        )
        left -= sum(outcomes.values())
