"""AckTracker: which offsets of one assigned partition are open, and where its floor is.

Theory. The tracker follows the offsets that are *open* (registered and not settled), never a
range and never "offset + 1": an offset that was not delivered (a transaction marker, a
compacted or expired record) does not exist here and so can block nothing. Offsets arrive in
increasing order and settle in any order. `open` answers "is it mine?" in one dict look-up;
`order` keeps arrival order, and its head moves past settled offsets only when the floor is
asked for, so that settling costs one dict operation at any window size.

Invariants (tests/framework/core/acks/test_tracker_model.py holds each against a naive set):

I1  floor = the smallest open offset, or the position where none is open.
I2  the floor never goes down during one assignment; a new assignment is a new tracker.
I3  an offset settles at most once: a second settle, or one that was never registered, is None.
I4  an offset below the position is never registered twice, so a re-fetched record is not
    handled twice within one assignment.
I5  offsets that never arrive block nothing, in the middle of the log or (`passed`) at its end.
I6  count and gap figures match the set exactly.
I7  the gap runs hold every settled offset above the floor and no open one. They may hold
    offsets that never arrived: there is nothing to repeat of those.
I8  what an earlier assignment settled (`restored`) stays in the gap runs until the log has been
    read past it, so a commit made in between forgets nothing.
I9  after a `rewind` what was open from there on can be registered again, and what was settled is
    restored. The floor does not move.

Only the owner thread calls it. Cost: about 0.25 us per register and settle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import filterfalse, islice
from operator import lt
from typing import Generic, TypeVar

from ackfloor.core.acks.gap_set import Runs

T = TypeVar("T")


class AckTracker(Generic[T]):
    """The open offsets of one partition during one assignment.

    Args:
        position: the next offset to read when the partition was assigned; any value >= 0.
        restored: settled above it in an earlier assignment: ascending runs [start, end).
    """

    __slots__ = ("_next", "_order", "_position", "_seen", "highest_settled", "open", "restored")

    def __init__(self, position: int, restored: Runs = ()) -> None:
        #: offset -> what was registered with it, for every open offset.
        self.open: dict[int, T] = {}
        #: The highest offset settled so far, or -1.
        self.highest_settled = -1
        #: Runs settled in an earlier assignment, or before a rewind, that the log has not been read
        #: past.
        self.restored: deque[tuple[int, int]] = deque(restored)
        #: What was registered, a list of offsets at a time. Of the first list, those before `_next`
        #: are settled.
        self._order: deque[Sequence[int]] = deque()
        self._next = 0
        self._position = position
        #: How many offsets were registered or skipped.
        self._seen = 0

    @property
    def position(self) -> int:
        """The next offset to read."""
        return self._position

    def register(self, offsets: Sequence[int], items: Sequence[T]) -> Sequence[T]:
        """Open the given offsets and return the items that were really new.

        Args:
            offsets: record offsets in the order they were read, one for each item.
            items: what to keep with each offset.
        """
        if not offsets:
            return items
        if offsets[0] < self._position or not all(map(lt, offsets, islice(offsets, 1, None))):
            offsets, items = self._unseen(offsets, items)
            if not offsets:
                return items
        self._order.append(offsets)
        self.open.update(zip(offsets, items, strict=True))
        self._position = offsets[-1] + 1
        self._seen += len(offsets)
        return items

    def was_settled(self, offset: int) -> bool:
        """Whether this offset was settled before: by an earlier assignment, or before a rewind.

        Ask in ascending order.
        """
        restored = self.restored
        while restored and restored[0][1] <= offset:
            restored.popleft()
        return bool(restored) and restored[0][0] <= offset

    def skip(self, offset: int) -> bool:
        """Note a record that `was_settled`: it is not opened.

        Returns False where it was read before in this assignment.
        """
        if offset < self._position:
            return False
        self._order.append((offset,))
        self._position = offset + 1
        self._seen += 1
        self.highest_settled = max(self.highest_settled, offset)
        return True

    def _unseen(
        self, offsets: Sequence[int], items: Sequence[T]
    ) -> tuple[Sequence[int], Sequence[T]]:
        """Leave out what is below the position: a seek after a resume may fetch it again."""
        position = self._position
        kept: list[tuple[int, T]] = []
        for offset, item in zip(offsets, items, strict=True):
            if offset >= position:
                kept.append((offset, item))
                position = offset + 1
        return [offset for offset, _ in kept], [item for _, item in kept]

    def settle(self, offset: int) -> T | None:
        """Settle one offset and return its item, or None where it was not open (stale)."""
        item = self.open.pop(offset, None)
        if item is not None and offset > self.highest_settled:
            self.highest_settled = offset
        return item

    def settle_all(self, offsets: Iterable[int]) -> None:
        """Settle offsets; those that are not open are left out."""
        pop = self.open.pop
        settled = [offset for offset in offsets if pop(offset, None) is not None]
        if settled:
            self.highest_settled = max(self.highest_settled, *settled)

    def replace(self, offset: int, item: T) -> None:
        """Keep another item with an offset that is open."""
        if offset in self.open:
            self.open[offset] = item

    def rewind(self, position: int) -> list[T]:
        """Go back to an open offset: what is from there on is to be read again.

        Returns what was registered with those that were open.
        """
        offsets = [offset for offset in self.open if offset >= position]
        runs = _between(position, offsets, min(self.highest_settled, self._position - 1))
        for start, end in self.restored:
            if end > self._position:
                runs.append((max(start, self._position), end))
        self.restored = deque(runs)
        while self._order and self._order[-1][0] >= position:
            self._order.pop()
        if self._order and self._order[-1][-1] >= position:
            last = self._order.pop()
            self._order.append(last[: bisect_left(last, position)])
        self._seen -= len(offsets)
        self._position = position
        return [self.open.pop(offset) for offset in offsets]

    def passed(self, position: int) -> None:
        """Note that the log has nothing to deliver below `position` (trailing markers)."""
        if position > self._position:
            self._position = position

    def lose(self, position: int) -> int:
        """Note that the log holds nothing below `position` any more, read or not.

        Returns how many of the offsets that were not read were not settled before either.
        """
        first = self._position
        if position <= first:
            return 0
        self._position = position
        spared = [min(end, position) - max(start, first) for start, end in self.restored]
        return position - first - sum(count for count in spared if count > 0)

    def floor(self) -> int:
        """The position to commit: nothing below it is open."""
        order, is_open = self._order, self.open.__contains__
        while order:
            offsets = order[0]
            lowest = next(filter(is_open, islice(offsets, self._next, None)), None)
            if lowest is not None:
                self._next = bisect_left(offsets, lowest, self._next)
                return lowest
            order.popleft()
            self._next = 0
        return self._position

    def floor_without(self, settling: Collection[int]) -> int:
        """The floor as it will be once these open offsets are settled too."""
        if not settling:
            return self.floor()
        return next((offset for offset in self.open if offset not in settling), self._position)

    def oldest(self) -> T | None:
        """What was registered with the lowest open offset, or None where none is open."""
        return self.open.get(self.floor())

    def gap_count(self) -> int:
        """How many offsets above the floor are settled already."""
        self.floor()
        return sum(map(len, self._order)) - self._next - len(self.open)

    def gap_runs(self, settling: Collection[int] = ()) -> Runs:
        """The settled offsets above the floor, as ascending runs [start, end).

        What lies between two open offsets is settled, or never arrived. Costs one step for each
        offset that is open below the highest settled one.

        Args:
            settling: open offsets to take for settled.
        """
        highest = max(self.highest_settled, *settling) if settling else self.highest_settled
        open_ = filterfalse(settling.__contains__, self.open) if settling else self.open
        bound = min(highest, self._position - 1)
        runs = _between(self.floor_without(settling), open_, bound)
        for start, stop in self.restored:
            if stop > self._position:
                start = max(start, self._position)  # noqa: PLW2901
                if runs and runs[-1][1] == start:
                    start = runs.pop()[0]  # noqa: PLW2901
                runs.append((start, stop))
        return runs

    def settled_count(self) -> int:
        """How many offsets were settled or skipped since the partition was assigned."""
        return self._seen - len(self.open)

    def span(self) -> int:
        """How many offsets lie between the floor and the position."""
        return self._position - self.floor()


def _between(start: int, open_offsets: Iterable[int], highest: int) -> list[tuple[int, int]]:
    """The runs of offsets from `start` to `highest` that are not open, ascending."""
    runs: list[tuple[int, int]] = []
    end = start
    for offset in open_offsets:
        if offset > highest:
            break
        if offset > end:
            runs.append((end, offset))
        end = offset + 1
    if highest >= end:
        runs.append((end, highest + 1))
    return runs
