"""ReadyQueue: what waits for a slot of one handler, and the holds that keep it waiting.

Slots take from `ready` with `popleft`, which is atomic; the owner thread and the slots add. While
the queue is shut, everything waits in the backlog instead.

It is shut for either of two reasons, each with a flag of its own, because each is lifted without
a look at the other: a handler takes no records (`hold`), or a record is to run with nothing
beside it (`seclude`). That record is in `alone`, and so are those that are tried although a hold
is on; a slot that finds nothing in `ready` looks there. What nobody has taken from there when the
queue is opened goes first.

Why nothing is stranded on the wrong side, although a flag may flip at any moment in another
thread: whoever adds an item or flips a flag looks at `shut` *afterwards* and moves everything
to the side it names, until it finds `shut` unchanged. The last to look moves what is left.
"""

from __future__ import annotations

from collections import deque

from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Run
from ackfloor.ports import Items

Item = Delivery | Run


class ReadyQueue:
    """Deliveries (unordered) or runs (lanes) that no slot has taken yet.

    Attributes:
        ready: what slots take from.
        alone: what is started although the queue is shut.
    """

    __slots__ = ("_backlog", "_held", "_secluded", "alone", "ready")

    def __init__(self) -> None:
        self.ready: deque[Item] = deque()
        self.alone: deque[Item] = deque()
        self._held = False
        self._secluded = False
        self._backlog: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self.ready) + len(self._backlog) + len(self.alone)

    @property
    def shut(self) -> bool:
        """Whether nothing may be started."""
        return self._held or self._secluded

    @property
    def secluded(self) -> bool:
        """Whether a record is to run with nothing beside it."""
        return self._secluded

    def take_held(self) -> Item | None:
        """Take the first of those that are kept waiting; None without any."""
        try:
            return self._backlog.popleft()
        except IndexError:
            return None

    def waits(self) -> int:
        """How many items slots may take now."""
        return len(self.ready) + len(self.alone)

    def take_alone(self) -> Item | None:
        """Take what is to run with nothing beside it, None where there is no such thing."""
        try:
            return self.alone.popleft()
        except IndexError:
            return None

    def put(self, items: Items, *, ahead: bool = False, alone: bool = False) -> None:
        """Add items at the end, or ahead of all others in their own order, or to run alone."""
        if alone:
            self.alone.extend(items)
            return
        shut = self.shut
        if not ahead:
            self.ready.extend(items)
        elif shut:
            # Sorting adds at the end.
            self._backlog.extendleft(reversed(items))
        else:
            self.ready.extendleft(reversed(items))
        if shut or self.shut:
            self._sort()

    def put_first(self, item: Item) -> None:
        """Add an item before all others."""
        self._backlog.appendleft(item)
        self._sort()

    def hold(self) -> None:
        """Keep everything waiting until `unhold`."""
        self._held = True
        self._sort()

    def unhold(self) -> None:
        """Lift the hold; waking slots is the caller's business."""
        self._held = False
        self._sort()

    def seclude(self, on: bool) -> None:
        """Keep everything waiting but what is in `alone`, or end that."""
        self._secluded = on
        self._sort()

    def _sort(self) -> None:
        while True:
            shut = self.shut
            if shut:
                _move(self.ready, self._backlog)
            else:
                # Who has always something to do in `ready` never looks elsewhere.
                _move_ahead(self.alone, self.ready)
                _move(self._backlog, self.ready)
            if self.shut == shut:
                return


def _move(source: deque[Item], target: deque[Item]) -> None:
    while True:
        try:
            target.append(source.popleft())
        except IndexError:
            return


def _move_ahead(source: deque[Item], target: deque[Item]) -> None:
    while True:
        try:
            target.appendleft(source.pop())
        except IndexError:
            return
