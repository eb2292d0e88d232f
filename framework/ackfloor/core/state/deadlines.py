"""Deadlines: which running handlers have outlived their consume timeout.

Theory. A timer per record would cost more than most handlers. Instead the running handlers
(at most `concurrency` of them) are scanned, and one observation keeps scans rare: *nothing
that starts after a scan can be due before the scan's time plus the shortest timeout*. So the
next scan is needed at the earlier of (the soonest deadline seen, scan time + shortest
timeout). The deadline is computed at the scan, from the timeout in force then, which is why
a changed setting applies to deliveries in flight: forget the plan (`replan`) and look again.

The clock runs from the start of the handler, never from the poll: a record that waits in a
queue is not late.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackfloor.core.records.tracked_delivery import TrackedDelivery

#: Seconds between two looks at a delivery whose handler is being killed.
LOOK_AGAIN_S = 0.02


class Deadlines:
    """When to look for overdue deliveries, and which they are.

    Attributes:
        next_scan_s: monotonic seconds at which `overdue` must be called next.
    """

    __slots__ = ("next_scan_s",)

    def __init__(self) -> None:
        self.next_scan_s = 0.0

    def replan(self) -> None:
        """A timeout changed: scan at the next opportunity."""
        self.next_scan_s = 0.0

    def look_again(self, now_s: float) -> None:
        """An overdue delivery is about to end, or its deadline was moved: look again soon."""
        self.next_scan_s = min(self.next_scan_s, now_s + LOOK_AGAIN_S)

    def overdue(
        self, running: Iterable[TrackedDelivery], shortest_timeout_s: float | None, now_s: float
    ) -> list[TrackedDelivery]:
        """The deliveries past their deadline, soonest due first.

        Args:
            running: deliveries whose handlers have started and not been answered.
            shortest_timeout_s: the shortest consume timeout in force, None where none is.
            now_s: monotonic seconds.
        """
        late: list[tuple[float, int, TrackedDelivery]] = []
        soonest = inf if shortest_timeout_s is None else now_s + shortest_timeout_s
        for n, delivery in enumerate(running):
            due = delivery.deadline_s
            if due is None or delivery.closed:
                continue
            if due <= now_s:
                late.append((due, n, delivery))
            elif due < soonest:
                soonest = due
        self.next_scan_s = soonest
        late.sort()
        return [delivery for _, _, delivery in late]
