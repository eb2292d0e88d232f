"""Kept forms: what was judged, and what came of it, for as long as somebody may look at it again.

Invariants. What was confirmed once is begun once, however many confirm it at a time. What is under
way is never forgotten; of the rest the oldest go first. What nobody confirmed in time can't be
confirmed any more: by then it may mean something else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

#: So many forms are kept.
MOST: Final = 500
#: Seconds that somebody has for a confirmation, unless it is said otherwise.
LONGEST_S: Final = 900.0


class Carrying(Protocol):
    """What came of a form that was confirmed: why it failed, and whether it is over."""

    error: str
    over: bool


J = TypeVar("J")
C = TypeVar("C", bound=Carrying)


class KeptForms(Generic[J, C]):
    """Those of one desk; any thread may use it.

    Args:
        clock: monotonic seconds.
        longest_s: seconds that somebody has for a confirmation.
    """

    def __init__(
        self,
        most: int = MOST,
        clock: Callable[[], float] = time.monotonic,
        longest_s: float = LONGEST_S,
    ) -> None:
        self._most = most
        self._longest_s = longest_s
        self._clock = clock
        self._lock = threading.Lock()
        self._judged: dict[str, tuple[J, float]] = {}
        self._carried: dict[str, C] = {}

    def keep(self, id_: str, judged: J) -> None:
        """Keep what was judged just now."""
        with self._lock:
            self._judged[id_] = judged, self._clock()
            while len(self._judged) > self._most and (oldest := self._oldest()) is not None:
                del self._judged[oldest]
                self._carried.pop(oldest, None)

    def _oldest(self) -> str | None:
        """The oldest that is not under way."""
        for id_ in self._judged:
            carried = self._carried.get(id_)
            if carried is None or carried.over:
                return id_
        return None

    def judged(self, id_: str) -> J | None:
        """What was judged under an id; None where it is forgotten, or too old to be confirmed."""
        with self._lock:
            found = self._judged.get(id_)
            if found is None:
                return None
            judged, at_s = found
            old = self._clock() - at_s > self._longest_s
            return None if old and id_ not in self._carried else judged

    def carried(self, id_: str) -> C | None:
        """What came of it; None where it was not confirmed."""
        with self._lock:
            return self._carried.get(id_)

    def begin(self, id_: str, made: C) -> bool:
        """Note that it is confirmed; whether it was not before."""
        with self._lock:
            return self._carried.setdefault(id_, made) is made
