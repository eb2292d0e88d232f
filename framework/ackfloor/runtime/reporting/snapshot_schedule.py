"""Freshness: when the next snapshot is due.

Twice a second, so that scrapes see fresh values. But where nothing has happened since the last one,
the next would be the same, and with hundreds of partitions that is most of an idle worker's work.
Then snapshots are less frequent, until something happens.
"""

from __future__ import annotations

from math import inf

from ackfloor.core.state.snapshot import Snapshot

#: Seconds between two snapshots, and where nothing has happened meanwhile.
INTERVAL_S = 0.5
QUIET_INTERVAL_S = 3.0


class Freshness:
    """How old the last snapshot is, and whether the next one may differ.

    Attributes:
        changed: set when something happens.
    """

    __slots__ = ("_made_s", "changed")

    def __init__(self) -> None:
        self.changed = True
        self._made_s = -inf

    def due(self, now_s: float) -> bool:
        """Whether to make another snapshot, at these monotonic seconds."""
        return now_s - self._made_s >= (INTERVAL_S if self.changed else QUIET_INTERVAL_S)

    def expire(self) -> None:
        """The next is due at once."""
        self._made_s = -inf

    def made(self, snapshot: Snapshot, now_s: float) -> None:
        """One was made."""
        self._made_s = now_s
        # What runs gets older, and so does what is wrong, or waits to be written.
        self.changed = (
            bool(snapshot.faults)
            or any(h.running or h.held_for_s or h.paused_for_s for h in snapshot.handlers)
            or any(partition.parking for partition in snapshot.partitions)
        )
