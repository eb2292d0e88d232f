"""Timing: how precise deadlines and retries were, from what the topics say.

Deadline precision is the time from a handler's start to its record being in a retry or
dead-letter topic, less the consume timeout. Retry lateness is the time from a redelivery's due
time to its handler's start. What fell into a disturbance is counted apart: while a partition has
no worker, or the broker is away, nothing can be on time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ackfloor_handlers.demo.account.facts import Disturbance, Facts


@dataclass(frozen=True, slots=True)
class Spread:
    """Durations in ms: those of undisturbed times, sorted, and how many there were besides."""

    values_ms: tuple[int, ...]
    disturbed: int = 0

    def percentile(self, share: float) -> int | None:
        """The value that `share` of all do not exceed; None where there is none."""
        if not self.values_ms:
            return None
        return self.values_ms[max(0, ceil(share * len(self.values_ms)) - 1)]

    def __str__(self) -> str:
        if not self.values_ms:
            return "nothing measured"
        text = f"{self.percentile(0.5)} / {self.percentile(0.99)} ms over {len(self.values_ms):,}"
        return text + (f", {self.disturbed:,} disturbed" if self.disturbed else "")


def deadline_precision(facts: Facts, timeout_ms: int) -> Spread:
    """How long after its deadline a stuck order was in its next topic."""
    outages = [disturbance for disturbance in facts.disturbances if disturbance.timeouts]
    spans = [
        (record.started_ms, record.appended_ms)
        for record in (*facts.parked, *facts.dead)
        if record.timed_out
    ]
    return _spread(spans, timeout_ms, outages)


def retry_lateness(facts: Facts) -> Spread:
    """How long after its due time a redelivery's handler started."""
    spans = [
        (receipt.due_ms, receipt.started_ms)
        for receipt in facts.receipts
        if receipt.due_ms is not None
    ]
    return _spread(spans, 0, facts.disturbances)


def _spread(
    spans: Sequence[tuple[int, int]], expected_ms: int, disturbances: Sequence[Disturbance]
) -> Spread:
    undisturbed = [
        to_ms - from_ms - expected_ms
        for from_ms, to_ms in spans
        if not any(disturbance.covers(from_ms, to_ms) for disturbance in disturbances)
    ]
    return Spread(tuple(sorted(undisturbed)), len(spans) - len(undisturbed))
