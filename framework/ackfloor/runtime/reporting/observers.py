"""Fan-out of events to observers, so that none of them can hurt the loop."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ackfloor.core.messages.events import Event
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.ports import Observer

log = logging.getLogger("ackfloor.observers")


class Observers:
    """Tells every observer; logs what one raises, once for each kind of error.

    Attributes:
        failures: how often an observer raised.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = list(observers)
        self._logged: set[tuple[str, str]] = set()
        self.failures = 0

    def observe(self, events: Sequence[Event]) -> None:
        """Pass on the events of a turn."""
        for observer in self._observers:
            try:
                observer.observe(events)
            except BaseException as exc:
                self._failed(observer, exc)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Pass on a fresh snapshot."""
        for observer in self._observers:
            try:
                observer.snapshot(snapshot)
            except BaseException as exc:
                self._failed(observer, exc)

    def _failed(self, observer: Observer, exc: BaseException) -> None:
        self.failures += 1
        kind = (type(observer).__name__, type(exc).__name__)
        if kind not in self._logged:
            self._logged.add(kind)
            log.error("observer %s failed; more %s of its are only counted", *kind, exc_info=exc)
