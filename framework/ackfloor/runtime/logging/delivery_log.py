"""DeliveryLog: what the loop logs about deliveries, at most a few lines a second of each kind.

So neither the log nor the owner thread drowns in a storm (`rate_limit`). The first failure of each
cause is logged with its traceback, later ones with their number (`failure_causes`). Each line about
a record carries topic, partition, offset, attempt and handler, in its text and as fields of their
own (`logs.place_of`). Nothing here logs a key, a value or a header; what an exception of the user's
says is logged as it says it, but for what the patterns of `[redaction]` mask.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import StrEnum

from ackfloor.core.messages.events import (
    BatchFailed,
    BreakerClosed,
    BreakerOpened,
    DeliveryFailed,
    Event,
    KeyFreed,
    KeyNotQuarantined,
    KeyQuarantined,
    MetadataIgnored,
    PublishFailed,
    QuarantinesTakenOver,
    RecordDeadLettered,
    RecordDiscarded,
    RecordParked,
    RecordsDeleted,
)
from ackfloor.core.records.envelope import STACK_CAP, Reason
from ackfloor.core.records.record import Failure
from ackfloor.core.records.redaction import Redaction
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.runtime.logging.failure_causes import FailureCauses, Noted
from ackfloor.runtime.logging.logs import about, named, place_of
from ackfloor.runtime.logging.rate_limit import WINDOW_S, RateLimit

log = logging.getLogger("ackfloor.worker")

#: Why a key is not quarantined, and what to do.
_NOT_QUARANTINED = {
    "full": "the worker has as many quarantined keys as it may; `ackfloor lanes ls` shows them: "
    "mend what they fail of, or start more workers",
    "partitions": "a retry topic has fewer partitions than its source; give it as many "
    "(`ackfloor topics plan` names it)",
}
#: Keys come and go by the thousand: lines about them are few in so many seconds, then counted.
KEYS_WINDOW_S = 10.0
#: Offsets in a line about what an operator discarded.
MOST_OFFSETS = 100


class GivenUp(StrEnum):
    """What becomes of a handler whose slot gives it up, by what runs it."""

    CANCELLED = "is cancelled; where it still runs after app.cancel_grace, it is abandoned"
    ABANDONED = "can't be interrupted, so it is abandoned: its thread goes on until it returns"
    KILLED = "is killed with its process"


class DeliveryLog:
    """The log lines of one worker's loop; only the owner thread calls it.

    Args:
        redaction: what is masked in what exceptions say.
    """

    def __init__(self, redaction: Redaction | None = None) -> None:
        self._redaction = redaction or Redaction()
        self._kinds: list[RateLimit] = []
        self._timeouts = self._kind("[delivery|deliveries] outlived the consume timeout")
        self._late = self._kind("[handler|handlers] raised after the delivery had been answered")
        self._pauses = self._kind("[request|requests] for a pause")
        self._left = self._kind("[handler|handlers] of partitions that left [was|were] given up")
        self._failures = self._kind("[delivery|deliveries] failed")
        self._tracebacks = self._kind("[failure|failures] came before the traceback was logged")
        self._causes = FailureCauses()
        self._dead = self._kind("[record was|records were] dead-lettered")
        self._ordered = self._kind("[record was|records were] dead-lettered as an operator asked")
        self._batches = self._kind("[call|calls] with several records failed")
        self._strays = self._kind("[exit|exits] of tasks or callbacks on the event loop")
        self._blocking = self._kind("[key|keys] could not be quarantined")
        keys = logging.INFO, KEYS_WINDOW_S
        self._quarantined = self._kind("[key was|keys were] quarantined", *keys)
        self._freed = self._kind("[key is|keys are] no longer quarantined", *keys)
        self._taken_over = self._kind("[partition|partitions] came with quarantined keys", *keys)
        self._unwritten = self._kind("[record|records] could not be parked or dead-lettered")
        #: What an operator has discarded in this turn.
        self._dropped: list[RecordDiscarded] = []

    def _kind(
        self, summary: str, level: int = logging.WARNING, window_s: float = WINDOW_S
    ) -> RateLimit:
        self._kinds.append(RateLimit(log, summary, level, window_s))
        return self._kinds[-1]

    def happened(self, events: Sequence[Event], now_s: float) -> None:
        """Log the failures among a turn's events; a timeout has its own line already."""
        for event in events:
            if isinstance(event, RecordParked):
                # As common as a failure, which has its line.
                continue
            if isinstance(event, DeliveryFailed):
                if event.reason is not Reason.TIMEOUT:
                    self._failed(event, now_s)
            elif isinstance(event, MetadataIgnored):
                log.warning(
                    "%s/%d: the metadata committed with position %d is not used: %s; what was "
                    "settled above that position is handled again",
                    event.topic,
                    event.partition,
                    event.position,
                    event.why,
                )
            elif isinstance(event, RecordDeadLettered):
                self._dead_lettered(event, now_s)
            elif isinstance(event, PublishFailed):
                # Each record once: the fault's own line covers all that wait.
                if event.tries == 1 and self._unwritten.admits(now_s):
                    _unwritten(event)
            else:
                self._seldom(event, now_s)
        if self._dropped:
            self._tell_dropped()

    def _seldom(self, event: Event, now_s: float) -> None:
        """What happens to more than a record."""
        if isinstance(event, RecordDiscarded):
            if event.by_operator:
                self._dropped.append(event)
        elif isinstance(event, BatchFailed):
            self._batch(event, now_s)
        elif isinstance(event, BreakerOpened | BreakerClosed):
            self._breaker(event)
        elif isinstance(event, KeyNotQuarantined):
            if self._blocking.admits(now_s):
                _not_quarantined(event)
        elif isinstance(event, KeyQuarantined | KeyFreed | QuarantinesTakenOver):
            self._quarantine(event, now_s)
        elif isinstance(event, RecordsDeleted):
            log.error(
                "%s: the retry topic was deleted: %d records in it are lost; %d had been read "
                "and are handled when they are due",
                event.topic,
                event.lost,
                event.kept,
            )

    def _dead_lettered(self, event: RecordDeadLettered, now_s: float) -> None:
        kind = self._ordered if event.by_operator else self._dead
        if kind.admits(now_s):
            _dead(event)

    def failing(self, delivery: TrackedDelivery, failure: Failure) -> None:
        """What is known of a failure whose event is about to come."""
        self._causes.note(delivery, failure)

    def _failed(self, event: DeliveryFailed, now_s: float) -> None:
        text = (
            f"{_place(event)} attempt {event.attempt}: handler {event.handler}: "
            f"{event.error_type}: {self._first_line(event.error_message)}"
        )
        self._failure(text, event, self._failures, now_s)

    def _failure(
        self, text: str, event: DeliveryFailed | BatchFailed, kind: RateLimit, now_s: float
    ) -> None:
        """Log a failure: the first of a cause with its traceback, another as one of a kind."""
        fields = None if isinstance(event, BatchFailed) else _fields(event)
        noted = self._causes.of(event)
        if noted is None:
            if kind.admits(now_s):
                log.warning("%s", text, extra=fields)
            return
        # A cause that comes at once with many others has its turn when it comes again.
        if not noted.cause.shown and self._tracebacks.admits(now_s):
            self._with_traceback(text, noted, fields)
        elif kind.admits(now_s):
            cause = noted.cause.fingerprint
            log.warning("%s (failure %d of cause %s)", text, noted.number, cause, extra=fields)

    def _with_traceback(self, text: str, noted: Noted, fields: dict[str, object] | None) -> None:
        noted.cause.shown = True
        stack = self._redaction.of_text(noted.stack) or ""
        if not log.isEnabledFor(logging.WARNING):
            return
        record = log.makeRecord(
            log.name, logging.WARNING, __file__, 0, "%s (the first of cause %s)",
            (text, noted.cause.fingerprint), None, "_with_traceback", fields,
        )  # fmt: skip
        # What a formatter prints below the line; there is no exception any more.
        record.exc_text = stack[-STACK_CAP:].rstrip("\n")
        log.handle(record)

    def _tell_dropped(self) -> None:
        """An operator discarded records: each is named, for nothing else is left of them."""
        offsets: dict[tuple[str, int, str, str], list[str]] = {}
        for event in self._dropped:
            place = event.read_from, event.partition, event.handler, event.reason
            offsets.setdefault(place, []).append(_offset_of(event))
        self._dropped.clear()
        for (topic, partition, handler, reason), those in offsets.items():
            for start in range(0, len(those), MOST_OFFSETS):
                named_here = those[start : start + MOST_OFFSETS]
                log.warning(
                    "%s/%d: handler %s: an operator discarded %s %s: %s",
                    topic,
                    partition,
                    handler,
                    "offset" if len(named_here) == 1 else "offsets",
                    ", ".join(named_here),
                    self._first_line(reason),
                )

    def timed_out(self, delivery: TrackedDelivery, given_up: GivenUp, now_s: float) -> None:
        """A delivery's time is up."""
        manual = delivery.assignment.handler.rules.manual
        if self._timeouts.admits(now_s):
            # By hand the handler's function may have returned long ago: then nothing is given up.
            log.warning(
                "%s: nobody has answered by hand (ack='manual') for handler %s within its consume "
                "timeout; the delivery has failed, and a later answer does not count"
                if manual
                else "%s: handler %s gave no answer within its consume timeout; the delivery has "
                "failed, and the handler %s",
                named(delivery),
                _handler(delivery),
                *(() if manual else (given_up,)),
                extra=place_of(delivery),
            )

    def goes_on(self, delivery: TrackedDelivery, given_up: GivenUp, now_s: float) -> None:
        """A handler has answered by hand and still runs at its deadline."""
        if self._timeouts.admits(now_s):
            log.warning(
                "%s: handler %s still runs at the end of its consume timeout, although it has "
                "answered; it %s",
                named(delivery),
                _handler(delivery),
                given_up,
                extra=place_of(delivery),
            )

    def left_running(self, delivery: TrackedDelivery, given_up: GivenUp, now_s: float) -> None:
        """A partition left while a handler was at one of its records."""
        if self._left.admits(now_s):
            log.warning(
                "%s: the partition left while handler %s was running; the record will be "
                "redelivered, and the handler %s",
                named(delivery),
                _handler(delivery),
                given_up,
                extra=place_of(delivery),
            )

    def raised_late(self, delivery: TrackedDelivery, exc: BaseException, now_s: float) -> None:
        """A handler raised after its delivery had been answered."""
        if self._late.admits(now_s):
            log.error(
                "%s: handler %s raised after its delivery had been answered",
                named(delivery),
                _handler(delivery),
                exc_info=exc,
                extra=place_of(delivery),
            )

    def stray(self, exc: BaseException, now_s: float) -> None:
        """An exit left a task or a callback on the event loop."""
        if self._strays.admits(now_s):
            log.error(
                "a task or callback on the event loop raised %s; the worker goes on",
                type(exc).__qualname__,
                exc_info=exc,
            )

    def pause(self, handler: str, duration_s: float, reason: str, now_s: float) -> None:
        """A handler asked for a pause."""
        if self._pauses.admits(now_s):
            shown = self._redaction.of_text(reason)
            log.warning("handler %s takes no records for %g s: %s", handler, duration_s, shown)

    def flush(self, now_s: float) -> None:
        """Tell what was suppressed, where the window is over."""
        for kind in self._kinds:
            kind.flush(now_s)

    def _breaker(self, event: BreakerOpened | BreakerClosed) -> None:
        """A breaker changes seldom enough for a line each time."""
        if isinstance(event, BreakerClosed):
            log.warning(
                "handler %s: circuit breaker closed after %.1f s (%s)",
                event.handler,
                event.after_s,
                event.why,
            )
            return
        if not event.failing:
            log.warning("handler %s: circuit breaker opened by an operator", event.handler)
            return
        log.error(
            "handler %s: circuit breaker opened: %d records in a row failed, the last with %s: %s; "
            "single records are tried until they succeed, and failures leave at a drip",
            event.handler,
            event.failing,
            event.error_type,
            self._first_line(event.error_message),
        )

    def _quarantine(
        self, event: KeyQuarantined | KeyFreed | QuarantinesTakenOver, now_s: float
    ) -> None:
        place = event.topic, event.partition, event.handler
        if isinstance(event, KeyQuarantined):
            if self._quarantined.admits(now_s):
                log.info(
                    "%s/%d: handler %s: the key of offset %d is quarantined: its later records "
                    "wait behind that one, in retry topics",
                    *place,
                    event.offset,
                )
        elif isinstance(event, KeyFreed):
            if self._freed.admits(now_s):
                log.info(
                    "%s/%d: handler %s: the key of offset %d is no longer quarantined, after "
                    "%.1f s",
                    *place,
                    event.offset,
                    event.after_s,
                )
        elif self._taken_over.admits(now_s):
            text = "%s/%d: handler %s: %d keys of it were quarantined before it came to this worker"
            log.info(text, *place, event.count)

    def _batch(self, event: BatchFailed, now_s: float) -> None:
        text = (
            f"handler {event.handler}: a call with {event.count} records failed, each is tried "
            f"alone now: {event.error_type}: {self._first_line(event.error_message)}"
        )
        self._failure(text, event, self._batches, now_s)

    def _first_line(self, text: str) -> str:
        """Enough of a message to know it by; the whole is in the record's headers."""
        # Masked first: a line that was cut might not match any more.
        shown = self._redaction.of_text(text) or ""
        return (shown.splitlines() or [""])[0][:300]


def _offset_of(event: RecordDiscarded) -> str:
    """Its offset, and where it was first: operators know it by that place."""
    origin = event.origin
    if origin is None or origin == (event.read_from, event.partition, event.offset):
        return str(event.offset)
    return f"{event.offset} ({origin.topic}/{origin.partition}/{origin.offset})"


def _dead(event: RecordDeadLettered) -> None:
    log.log(
        logging.WARNING if event.by_operator else logging.ERROR,
        "%s attempt %d: handler %s: dead-lettered%s (%s)",
        _place(event),
        event.attempt,
        event.handler,
        " by an operator" if event.by_operator else "",
        # What was given up behind another record has no error.
        ", ".join(filter(None, (event.reason, event.error_type))),
        extra=_fields(event),
    )


def _not_quarantined(event: KeyNotQuarantined) -> None:
    log.warning(
        "%s/%d: handler %s: a key whose record failed is not quarantined, and blocks in place: %s",
        event.topic,
        event.partition,
        event.handler,
        _NOT_QUARANTINED[event.why],
    )


def _unwritten(event: PublishFailed) -> None:
    log.error(
        "%s attempt %d: handler %s: not written to %s: %s; it stays open, and is written again in "
        "%.2f s",
        _place(event),
        event.attempt,
        event.handler,
        event.target,
        event.error,
        event.retry_in_s,
        extra=_fields(event),
    )


def _handler(delivery: TrackedDelivery) -> str:
    return delivery.assignment.handler.rules.name


_OfRecord = DeliveryFailed | RecordDeadLettered | PublishFailed


def _place(event: _OfRecord) -> str:
    return f"{event.read_from}/{event.partition}/{event.offset}"


def _fields(event: _OfRecord) -> dict[str, object]:
    return about(event.read_from, event.partition, event.offset, event.attempt, event.handler)
