"""ReadyQueue: what waits for a slot of one handler, and the hold that keeps it waiting.

Slots take from `ready` with `popleft`, which is atomic; the owner thread and the slots add. While
a hold is on, everything waits in the backlog instead.

Why nothing is stranded on the wrong side, although `held` may flip at any moment in another
thread: whoever adds an item or flips the hold looks at `held` *afterwards* and moves everything
to the side it names, until it finds `held` unchanged. The last to look moves what is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Run

Item = Delivery | Run


class ReadyQueue:
    """Deliveries (unordered) or runs (lanes) that no slot has taken yet.

    Attributes:
        ready: what slots take from.
        held: whether nothing may be started.
    """

    __slots__ = ("_backlog", "held", "ready")

    def __init__(self) -> None:
        self.ready: deque[Item] = deque()
        self.held = False
        self._backlog: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self.ready) + len(self._backlog)

    def put(self, items: Sequence[Item], *, ahead: bool = False) -> None:
        """Add items at the end, or ahead of all others in their own order."""
        if ahead:
            self.ready.extendleft(reversed(items))
        else:
            self.ready.extend(items)
        if self.held:
            self._sort()

    def put_first(self, item: Item) -> None:
        """Add an item before all others."""
        self._backlog.appendleft(item)
        self._sort()

    def hold(self) -> None:
        """Keep everything waiting until `unhold`."""
        self.held = True
        self._sort()

    def unhold(self) -> None:
        """Let slots take again; waking them is the caller's business."""
        self.held = False
        self._sort()

    def _sort(self) -> None:
        while True:
            held = self.held
            source, target = (self.ready, self._backlog) if held else (self._backlog, self.ready)
            _move(source, target)
            if self.held == held:
                return


def _move(source: deque[Item], target: deque[Item]) -> None:
    while True:
        try:
            target.append(source.popleft())
        except IndexError:
            return
