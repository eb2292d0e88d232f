"""Counts of the records of a retry topic: waiting, due, and when."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TierCount:
    """One retry topic; times in wall-clock ms, None where there is no such record.

    Attributes:
        waiting: records that are not due yet.
        due: records that are due, running or about to.
        oldest_due_ms: when the one that is due for the longest became due.
        next_due_ms: when the next one does.
        last_due_ms: when the last one does.
        behind: records that no time makes due: they wait for another one of their key.
    """

    waiting: int = 0
    due: int = 0
    oldest_due_ms: int | None = None
    next_due_ms: int | None = None
    last_due_ms: int | None = None
    behind: int = 0

    def add_behind(self) -> None:
        """Count one open record that waits for another one of its key."""
        self.behind += 1

    def add(self, due_ms: int, now_ms: int) -> None:
        """Count one open record."""
        if due_ms <= now_ms:
            self.due += 1
            self.oldest_due_ms = _least(self.oldest_due_ms, due_ms)
            return
        self.waiting += 1
        self.next_due_ms = _least(self.next_due_ms, due_ms)
        self.last_due_ms = max(self.last_due_ms or 0, due_ms)


def _least(known: int | None, more: int) -> int:
    return more if known is None else min(known, more)
