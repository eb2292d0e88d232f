"""DueQueue: one partition's records that wait until they are due.

Theory. A record waits here between two deliveries: in a retry topic for its `not_before`, in its
place for its backoff or because its handler's circuit breaker withholds it. It
is open, takes no slot, and has one entry: what changes its time takes it out and puts it in again.

Invariants (tests/framework/core/queues/test_due_queue.py):

D1  entries come out in the order of their times, those of one time in the order of their offsets.
D2  `size` is the bytes of what is in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackfloor.core.records.tracked_delivery import TrackedDelivery

Entry = tuple[float, int, "TrackedDelivery"]


class DueQueue:
    """Deliveries of one partition and when they are due (monotonic seconds).

    Attributes:
        size: bytes of their values.
    """

    __slots__ = ("_entries", "size")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TrackedDelivery]:
        """All of them, in no order."""
        return (entry[2] for entry in self._entries)

    @property
    def next_s(self) -> float:
        """When the first is due; infinity without any."""
        return self._entries[0][0] if self._entries else inf

    @property
    def first(self) -> TrackedDelivery:
        """The one that is due first; there is one."""
        return self._entries[0][2]

    def put(self, due_s: float, delivery: TrackedDelivery) -> None:
        """Let a delivery wait."""
        heappush(self._entries, (due_s, delivery.record_offset, delivery))
        self.size += delivery.size

    def pop(self) -> TrackedDelivery:
        """Take out the one that is due first; there is one."""
        delivery = heappop(self._entries)[2]
        self.size -= delivery.size
        return delivery

    def put_all(
        self, due_s: Iterable[float], deliveries: Sequence[TrackedDelivery], size: int
    ) -> None:
        """Let deliveries wait, each until its time; `size` is the bytes of their values."""
        entries = self._entries
        for at_s, delivery in zip(due_s, deliveries, strict=True):
            heappush(entries, (at_s, delivery.record_offset, delivery))
        self.size += size

    def pop_due(self, now_s: float, most: int) -> list[TrackedDelivery]:
        """Take out up to so many that are due, in order."""
        entries = self._entries
        due: list[TrackedDelivery] = []
        for _ in range(min(most, len(entries))):
            if entries[0][0] > now_s:
                break
            due.append(heappop(entries)[2])
        self.size -= sum([delivery.size for delivery in due])
        return due

    def take(self, offsets: Collection[int]) -> list[tuple[float, TrackedDelivery]]:
        """Take these out, wherever they stand; returns them with their times, in order."""
        taken = sorted(entry for entry in self._entries if entry[1] in offsets)
        self._entries = [entry for entry in self._entries if entry[1] not in offsets]
        heapify(self._entries)
        self.size -= sum(entry[2].size for entry in taken)
        return [(due_s, delivery) for due_s, _, delivery in taken]

    def times(self, offsets: Collection[int]) -> dict[int, float]:
        """When those of these are due that wait here. Looks at each entry."""
        return {at: due_s for due_s, at, _ in self._entries if at in offsets}

    def hasten(self, now_s: float) -> None:
        """Make everything due now."""
        self._entries = [(min(due_s, now_s), at, each) for due_s, at, each in self._entries]
        heapify(self._entries)

    def clear(self) -> None:
        """Forget them all."""
        self._entries.clear()
        self.size = 0
