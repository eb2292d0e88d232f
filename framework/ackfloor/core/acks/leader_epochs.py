"""LeaderEpochs: in which leader epoch each offset of a partition was written.

A partition's leader epoch grows with each new leader. Should the log be truncated (an unclean
election), the offsets cut off are used again, under a newer epoch. That distinguishes a settled
record from a later one at its offset.

Epochs never fall along a log, so a few (first offset, epoch) steps are enough.

Below the floor nothing is remembered of single offsets. There the broker is asked: a commit says in
which epoch the log was at its position, and whoever starts there has the broker say where that
epoch ends now. If below the position, the log was truncated below it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackfloor.core.records.tracked_delivery import TrackedDelivery

#: The epoch of a record without one (an old message format).
UNKNOWN = -1


class LeaderEpochs:
    """The epochs of what was read from one partition, as steps.

    Attributes:
        read_to: the offset after the highest that was read; -1 before the first, or where that is
            not known after a rewind.
    """

    __slots__ = ("_epochs", "_firsts", "_last", "read_to")

    def __init__(self) -> None:
        self.read_to = -1
        self._firsts: list[int] = []
        self._epochs: list[int] = []
        self._last = UNKNOWN

    def note(self, read: Sequence[TrackedDelivery]) -> None:
        """Records were read, in offset order; the usual batch costs one look."""
        self.read_to = max(self.read_to, read[-1].record_offset + 1)
        if leader_epoch(read[-1]) == self._last:
            return
        for delivery in read:
            epoch = leader_epoch(delivery)
            if epoch > self._last:
                self._firsts.append(delivery.record_offset)
                self._epochs.append(epoch)
                self._last = epoch

    def rewind(self, position: int) -> None:
        """Forget what is from an offset on: it is read again, and may be of another log by then."""
        self.read_to = -1
        while self._firsts and self._firsts[-1] >= position:
            self._firsts.pop()
            self._epochs.pop()
        self._last = self._epochs[-1] if self._epochs else UNKNOWN

    def at(self, offset: int) -> int:
        """The epoch of an offset, `UNKNOWN` where nothing below it said one."""
        step = bisect_right(self._firsts, offset)
        return self._epochs[step - 1] if step else UNKNOWN


def leader_epoch(delivery: TrackedDelivery) -> int:
    """The epoch a record says it was written in, or `UNKNOWN`."""
    epoch = delivery.record.leader_epoch()
    return UNKNOWN if epoch is None else epoch
