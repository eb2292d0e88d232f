"""Faults that a test puts into the in-memory broker."""

from __future__ import annotations

from math import inf


class FaultPlan:
    """What fails next: for each subject (a topic, a group) an error and how often."""

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: dict[str, tuple[str, float]] = {}

    def put(self, subject: str, error: str, times: int | None) -> None:
        """The next `times` attempts fail with `error`; None for all until `clear`."""
        self._faults[subject] = (error, inf if times is None else times)

    def take(self, subject: str) -> str | None:
        """The error of one attempt, or None where it succeeds."""
        error, left = self._faults.get(subject, ("", 0))
        if left <= 0:
            return None
        self._faults[subject] = (error, left - 1)
        return error

    def clear(self) -> None:
        """Everything works again."""
        self._faults.clear()
