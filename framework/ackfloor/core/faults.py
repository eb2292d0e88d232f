"""Faults: what outside keeps records open, named until it ends.

A fault never stops work. It is what readiness and people are told while the engine goes on
trying. A fault has a kind (`parking`, `commit`, `kafka`, `abandoned`, ...) and a subject; only
the latest message of each is kept, and at most `MOST` subjects of a kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from ackfloor.core.snapshot import Fault

MOST = 20


class Faults:
    """The faults in force."""

    __slots__ = ("_by_kind",)

    def __init__(self) -> None:
        self._by_kind: dict[str, dict[str, Fault]] = {}

    def put(self, kind: str, subject: str, message: str, now_ms: int) -> None:
        """Note a fault, keeping the time it was first seen."""
        subjects = self._by_kind.setdefault(kind, {})
        before = subjects.get(subject)
        if before is None and len(subjects) >= MOST:
            return
        since_ms = now_ms if before is None else before.since_ms
        subjects[subject] = Fault(kind, subject, message, since_ms)

    def clear(self, kind: str, subject: str | None = None) -> None:
        """A fault has ended: one subject's, or every one of its kind."""
        if subject is None:
            self._by_kind.pop(kind, None)
        else:
            self._by_kind.get(kind, {}).pop(subject, None)

    def replace(self, kind: str, messages: Mapping[str, str], now_ms: int) -> None:
        """These are the faults of a kind now; what stays keeps the time it was first seen."""
        for subject in self._by_kind.get(kind, {}).keys() - messages.keys():
            self.clear(kind, subject)
        for subject, message in messages.items():
            self.put(kind, subject, message, now_ms)

    def any(self, kind: str) -> bool:
        """Whether a fault of this kind is in force."""
        return bool(self._by_kind.get(kind))

    def all(self) -> tuple[Fault, ...]:
        """The faults in force, oldest kind first."""
        return tuple(fault for kind in self._by_kind.values() for fault in kind.values())
