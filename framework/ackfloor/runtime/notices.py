"""Notices: what the loop logs about deliveries, at most a few lines a second of each kind.

When a dependency dies, everything times out at once. The first few lines say what happens; the
others are counted, and the count is logged once a second, so that neither the log nor the owner
thread drowns. Nothing here logs a key, a value or a header; what an exception of
the user's says is logged as it says it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ackfloor.core.delivery import Delivery
from ackfloor.core.envelope import Reason
from ackfloor.core.guard_events import GuardReset, GuardTripped
from ackfloor.core.messages import DeliveryFailed, Event, MetadataIgnored, RecordDeadLettered

log = logging.getLogger("ackfloor.worker")

#: Lines of one kind in one window.
MOST_LINES = 3
WINDOW_S = 1.0


class _Kind:
    """One kind of notice: what is logged instead of the lines that were suppressed."""

    __slots__ = ("lines", "since_s", "summary", "suppressed")

    def __init__(self, summary: str) -> None:
        self.summary = summary
        self.since_s = 0.0
        self.lines = 0
        self.suppressed = 0

    def admits(self, now_s: float) -> bool:
        """Whether one more line may be logged; counts it if not."""
        self.flush(now_s)
        if self.lines < MOST_LINES:
            self.lines += 1
            return True
        self.suppressed += 1
        return False

    def flush(self, now_s: float) -> None:
        """Begin a new window if this one is over, and tell what it suppressed."""
        if now_s - self.since_s < WINDOW_S:
            return
        if self.suppressed:
            log.warning(self.summary, self.suppressed)
        self.since_s = now_s
        self.lines = self.suppressed = 0


class Notices:
    """The log lines of one worker's loop; only the owner thread calls it."""

    def __init__(self) -> None:
        self._timeouts = _Kind("%d more deliveries outlived their consume timeout")
        self._late = _Kind("%d more handlers raised after their deliveries had been answered")
        self._pauses = _Kind("%d more requests for a pause")
        self._left = _Kind("%d more handlers of partitions that left were given up")
        self._failures = _Kind("%d more deliveries failed")
        self._dead = _Kind("%d more records were dead-lettered")
        self._kinds = (
            self._timeouts,
            self._late,
            self._pauses,
            self._left,
            self._failures,
            self._dead,
        )

    def happened(self, events: Sequence[Event], now_s: float) -> None:
        """Log the failures among a turn's events; a timeout has its own line already."""
        for event in events:
            if isinstance(event, DeliveryFailed):
                if event.reason is not Reason.TIMEOUT and self._failures.admits(now_s):
                    log.warning(
                        "%s attempt %d: handler %s: %s: %s",
                        _place(event),
                        event.attempt,
                        event.handler,
                        event.error_type,
                        _first_line(event.error_message),
                    )
            elif isinstance(event, MetadataIgnored):
                log.warning(
                    "%s/%d: the metadata committed with position %d is not used: %s; what was "
                    "settled above that position is handled again",
                    event.topic,
                    event.partition,
                    event.position,
                    event.why,
                )
            elif isinstance(event, GuardTripped | GuardReset):
                _guard(event)
            elif isinstance(event, RecordDeadLettered) and self._dead.admits(now_s):
                log.error(
                    "%s attempt %d: dead-lettered (%s, %s)",
                    _place(event),
                    event.attempt,
                    event.reason,
                    event.error_type,
                )

    def timed_out(self, delivery: Delivery, now_s: float) -> None:
        """A delivery's time is up."""
        if self._timeouts.admits(now_s):
            log.warning(
                "%s: handler %s gave no answer within its consume timeout; the delivery has "
                "failed and the handler is abandoned",
                _name(delivery),
                _handler(delivery),
            )

    def goes_on(self, delivery: Delivery, now_s: float) -> None:
        """A handler has answered by hand and still runs at its deadline."""
        if self._timeouts.admits(now_s):
            log.warning(
                "%s: handler %s still runs at the end of its consume timeout, although it has "
                "answered; it is abandoned",
                _name(delivery),
                _handler(delivery),
            )

    def left_running(self, delivery: Delivery, now_s: float) -> None:
        """A partition left while a handler was at one of its records."""
        if self._left.admits(now_s):
            log.warning(
                "%s: the partition left while handler %s was running; the handler is given up, "
                "the record comes again where the partition went",
                _name(delivery),
                _handler(delivery),
            )

    def raised_late(self, handler: str, exc: BaseException, now_s: float) -> None:
        """A handler raised after its delivery had been answered."""
        if self._late.admits(now_s):
            log.error(
                "handler %s raised after its delivery had been answered", handler, exc_info=exc
            )

    def pause(self, handler: str, duration_s: float, reason: str, now_s: float) -> None:
        """A handler asked for a pause."""
        if self._pauses.admits(now_s):
            log.warning("handler %s takes no records for %g s: %s", handler, duration_s, reason)

    def flush(self, now_s: float) -> None:
        """Tell what was suppressed, where the window is over."""
        for kind in self._kinds:
            kind.flush(now_s)


def _guard(event: GuardTripped | GuardReset) -> None:
    """A guard trips seldom enough for a line each time."""
    if isinstance(event, GuardReset):
        log.warning("handler %s works again after %.1f s and goes on", event.handler, event.after_s)
        return
    log.error(
        "handler %s: %d of the last %d records failed, the last with %s: %s; it is stopped, its "
        "partitions are paused, and single records are tried until they succeed",
        event.handler,
        event.failing,
        event.sample,
        event.error_type,
        _first_line(event.error_message),
    )


def _name(delivery: Delivery) -> str:
    return f"{delivery.topic}/{delivery.partition}/{delivery.offset} attempt {delivery.attempt}"


def _handler(delivery: Delivery) -> str:
    return delivery.assignment.handler.rules.name


def _place(event: DeliveryFailed | RecordDeadLettered) -> str:
    return f"{event.read_from}/{event.partition}/{event.offset}"


def _first_line(text: str) -> str:
    """Enough of a message to know it by; the whole is in the record's headers."""
    return (text.splitlines() or [""])[0][:300]
