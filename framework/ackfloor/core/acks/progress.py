"""Progress: a group's lag and open records in one partition, from its commit and the log's ends.

Kafka's lag counts from the committed position to the log's end. Some of
these records are settled already (the gap set), and some are gone (retention); what is left is
open: unread, or being handled. Offsets that hold no record, such as transaction markers,
count as open until the group has read past them, so `open` may be too high and never too low.

Nobody commits a dead-letter topic: a dead letter is settled when it has a disposition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ackfloor.core.acks.gap_set import Runs


@dataclass(frozen=True, slots=True)
class Progress:
    """A group's progress in one partition.

    Attributes:
        kind: source, retry or dlq.
        start: the first offset that the log still has; None where it is not known.
        end: the position behind its last record; None where it is not known.
        floor: the committed position; None where there is no commit.
        runs: settled above the floor, as ascending runs [start, end).
        disposed: dead letters that were replayed, discarded or archived, and are in the log.
        empty: offsets of a dead-letter topic that hold no dead letter, as far as it was read.
        oldest_ms: when the oldest open dead letter was written; None where
            there is none, or it is not known.
        owner: the member that has the partition; empty where none has.
        note: a warning about it, in a sentence.
    """

    group: str
    topic: str
    partition: int
    kind: str
    start: int | None = None
    end: int | None = None
    floor: int | None = None
    runs: Runs = ()
    disposed: int = 0
    empty: int = 0
    oldest_ms: int | None = None
    owner: str = ""
    note: str = ""

    @property
    def lag(self) -> int | None:
        """The lag as Kafka sees it; None without a commit."""
        if self.floor is None or self.end is None:
            return None
        return max(0, self.end - self.floor)

    @property
    def settled(self) -> int:
        """How many records above the floor are settled; of dead letters: disposed of."""
        if self.kind == "dlq":
            return self.disposed
        return sum(end - start for start, end in self._runs())

    @property
    def open(self) -> int | None:
        """How many records are in the log and not settled; None where it is not known."""
        first = self.start if self.kind == "dlq" else self.floor
        if first is None or self.end is None:
            return None
        return max(0, self.end - max(first, self.start or 0) - self.settled - self.empty)

    @property
    def oldest(self) -> int | None:
        """The lowest offset that is open, as far as the commit tells; None where none is."""
        if not self.open or self.floor is None:
            return None
        first = max(self.floor, self.start or 0)
        for start, end in self._runs():
            if start > first:
                break
            first = end
        return first

    @property
    def read_to(self) -> int | None:
        """The position up to which the group has read, as far as the commit tells."""
        return self.runs[-1][1] if self.runs else self.floor

    def _runs(self) -> Iterator[tuple[int, int]]:
        """The runs as far as the log still holds them."""
        for start, end in self.runs:
            first = max(start, self.start or 0)
            last = end if self.end is None else min(end, self.end)
            if first < last:
                yield first, last


def oddity(progress: Progress) -> str:
    """A warning about the floor for an operator; empty where there is none."""
    floor, start, end = progress.floor, progress.start, progress.end
    if floor is None:
        return "" if progress.kind == "dlq" else "no commit yet"
    if start is not None and floor < start:
        gone = (
            start
            - floor
            - sum(min(last, start) - first for first, last in progress.runs if first < start)
        )
        return f"retention has removed {gone} offsets that were not settled" if gone else ""
    if end is not None and floor > end:
        return (
            f"the floor is {floor - end} beyond the log's end: the log was truncated or made anew"
        )
    return ""
