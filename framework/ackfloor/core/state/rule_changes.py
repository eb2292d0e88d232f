"""Reload: which settings may change while records are in flight, and what a change does to them.

Theory. Nothing that is in flight holds a copy of a setting: a deadline is computed from the
handler's rules when it is looked at, a verdict when an answer comes, a gate compares with the
limit it has. So a reload replaces the rules whole, forgets the plan of the next scan, and is
done. What a delivery *is* (its lane, who may answer it) was decided when it was dispatched,
so ordering, acknowledgement and where it is retried can't change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules, HandlerState

#: What of a handler's rules the records in flight rely on.
FIXED = ("ordering", "manual", "in_place", "quarantines", "exactly_once")


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The settings that a reload replaces; durations in seconds."""

    handlers: tuple[HandlerRules, ...]
    limits: FlowLimits
    commit_interval_s: float
    commit_count: int


def check(handlers: Mapping[str, HandlerState], reloaded: Reloaded) -> None:
    """Refuse what can't change; raises ValueError."""
    for rules in reloaded.handlers:
        known = handlers.get(rules.name)
        if known is None:
            raise ValueError(f"no handler {rules.name!r}")
        for name in FIXED:
            before, after = getattr(known.rules, name), getattr(rules, name)
            if before != after:
                raise ValueError(f"{rules.name}: {name} can't change from {before!r} to {after!r}")


def overdue_under(
    running: Iterable[TrackedDelivery], reloaded: Reloaded, now: Now
) -> tuple[TrackedDelivery, ...]:
    """The running deliveries that would be past their deadline at once, longest running first."""
    timeouts = {rules.name: rules.consume_timeout_s for rules in reloaded.handlers}
    late = []
    for delivery in running:
        timeout_s = timeouts.get(delivery.assignment.handler.rules.name)
        if timeout_s is None or not delivery.started_s or delivery.closed:
            continue
        if max(delivery.started_s + timeout_s, delivery.extended_until_s) <= now.mono_s:
            late.append(delivery)
    return tuple(sorted(late, key=lambda delivery: delivery.started_s))
