"""BatchBuffer: records of a batch handler that wait for a full batch, or for `batch_wait`.

Theory. A batch is filled in two places. Here, where time is known: what is read waits until there
is enough for a batch, or until the first of it has waited for `batch_wait` since it was read; then
it goes to the handler's queue. And there (`handler_queue`), where a call takes as much as waits, up
to `batch`. So records that come meanwhile join an incomplete batch that finds no free slot.

What waits together depends on the ordering: of an unordered handler all records; by key the lanes
that no slot works on, because one batch may take several; by partition each lane for itself. A lane
in the buffer is free (see `lanes`) and in no queue.

Redeliveries and crash suspects are handled alone and never come here.

Invariants (tests/framework/core/queues/test_batch_buffer.py):

B1  a record waits here no longer than `wait_s` after it was read, however late others come.
B2  fewer than `size` records wait together once those that are full have been taken.
B3  what is put in comes out once, in the order in which it was put in; of a lane in offset order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackfloor.core.queues.lanes import Lane
    from ackfloor.core.records.tracked_delivery import LaneKey, TrackedDelivery

Entry = tuple[float, int, "Lane"]


class BatchBuffer:
    """The records of one handler that wait for a batch.

    Args:
        shared: lanes wait together; otherwise each waits for itself.
    """

    __slots__ = ("_count", "_due", "_lanes", "_loose", "_serial", "_shared")

    def __init__(self, *, shared: bool) -> None:
        self._shared = shared
        #: Of an unordered handler, the oldest first.
        self._loose: deque[TrackedDelivery] = deque()
        #: Lane -> its entry, the lane that has waited here longest first.
        self._lanes: dict[LaneKey, Entry] = {}
        #: A heap of (when its first record was read, serial, lane), stale entries included.
        self._due: list[Entry] = []
        self._serial = count()
        #: Records in `_lanes`.
        self._count = 0

    def __len__(self) -> int:
        return len(self._loose) + self._count

    # In.

    def add(self, deliveries: Iterable[TrackedDelivery], size: int) -> list[TrackedDelivery]:
        """Let unordered records wait; returns those that make full batches."""
        loose = self._loose
        loose.extend(deliveries)
        full = len(loose) - len(loose) % size
        return [loose.popleft() for _ in range(full)]

    def add_lane(self, lane: Lane, size: int) -> list[Lane]:
        """Let a free lane wait; returns the lanes that make full batches."""
        entry = (lane[0].received_s, next(self._serial), lane)
        self._lanes[lane.key] = entry
        heappush(self._due, entry)
        self._count += len(lane)
        return self._full(lane, size)

    def grew(self, lane: Lane, size: int) -> list[Lane]:
        """A record was added to a lane, perhaps one that waits here; as `add_lane`."""
        entry = self._lanes.get(lane.key)
        if entry is None or entry[2] is not lane:
            return []
        self._count += 1
        return self._full(lane, size)

    # Out.

    def _full(self, lane: Lane, size: int) -> list[Lane]:
        if self._shared:
            return self._all_lanes() if self._count >= size else []
        return [self._take(lane)] if len(lane) >= size else []

    def _take(self, lane: Lane) -> Lane:
        del self._lanes[lane.key]
        self._count -= len(lane)
        return lane

    def _all_lanes(self) -> list[Lane]:
        lanes = [lane for _, _, lane in self._lanes.values()]
        self._lanes.clear()
        self._due.clear()
        self._count = 0
        return lanes

    def due(self, now_s: float, wait_s: float) -> list[TrackedDelivery] | list[Lane]:
        """Take what has waited long enough, and what waits together with it."""
        if self.next_s(wait_s) > now_s:
            return []
        if self._loose:
            waited = list(self._loose)
            self._loose.clear()
            return waited
        if self._shared:
            return self._all_lanes()
        lanes: list[Lane] = []
        while self.next_s(wait_s) <= now_s:
            lanes.append(self._take(heappop(self._due)[2]))
        return lanes

    def next_s(self, wait_s: float) -> float:
        """Monotonic seconds at which something has waited long enough; inf where nothing waits."""
        if self._loose:
            return self._loose[0].received_s + wait_s
        due = self._due
        while due and self._lanes.get(due[0][2].key) is not due[0]:
            heappop(due)
        return due[0][0] + wait_s if due else inf

    # Ends.

    def forget_closed(self) -> None:
        """Partitions were dropped: what waited of them is gone."""
        self._loose = deque(d for d in self._loose if not d.closed)
        for _, _, lane in list(self._lanes.values()):
            if lane[0].closed:
                self._take(lane)

    def waiting(self) -> Iterable[TrackedDelivery]:
        """Every delivery that waits here."""
        yield from self._loose
        for _, _, lane in self._lanes.values():
            yield from lane
