"""ErrorFunctions: calls what the user registered with `@app.on_error`, on a thread of its own.

So neither a handler nor the loop waits for it, and it can change nothing of a record: it gets a
view of the delivery that takes no answer. What waits is bounded; where the functions are slower
than failures come, the others are counted. What one of them raises is logged, a few lines a second.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from ackfloor.app import ErrorFunction
from ackfloor.core.records.record import Failure, Headers, Origin, Record
from ackfloor.core.records.redaction import NO_REDACTION, Redaction
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.declare.outgoing import HeadersGiven
from ackfloor.runtime.logging.rate_limit import RateLimit

log = logging.getLogger("ackfloor.on_error")

#: Failures that wait: each holds its record and its exception in memory.
MOST_WAITING = 256


class FailedDelivery:
    """A delivery that has failed, as an error function gets it; implements `ackfloor.Delivery`.

    Attributes:
        topic: the topic it was read from.
        partition: the partition it was read from.
        offset: the record's own offset there.
        attempt: which delivery of the record it was.
        origin: where the record was first.
        idempotency_key: what names it in all its deliveries.
        deadline_s: when its consume timeout ends, in monotonic seconds.
        headers: the record's.
    """

    def __init__(self, delivery: TrackedDelivery) -> None:
        self._record: Record = delivery.record
        self.topic: str = delivery.topic
        self.partition: int = delivery.partition
        self.offset: int = delivery.offset
        self.attempt: int = delivery.attempt
        self.origin: Origin = delivery.origin
        self.idempotency_key: str = delivery.idempotency_key
        self.deadline_s: float | None = delivery.deadline_s
        self.headers: Headers = delivery.headers
        self.timestamp: int = delivery.timestamp

    @property
    def key(self) -> bytes | None:
        """The raw key."""
        return self._record.key()

    @property
    def value(self) -> bytes | None:
        """The raw value."""
        return self._record.value()

    def publish(
        self,
        topic: str,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: HeadersGiven = (),
        partition: int | None = None,
    ) -> bool:
        """Too late: it would go with an acknowledgement that there will not be."""
        del topic, value, key, headers, partition
        return False

    def ack(self) -> bool:
        """Too late for an answer."""
        return False

    def retry(self, after: timedelta | str | None = None, reason: str = "") -> bool:
        """Too late for an answer."""
        del after, reason
        return False

    def dead_letter(self, reason: str) -> bool:
        """Too late for an answer."""
        del reason
        return False

    def discard(self, reason: str) -> bool:
        """Too late for an answer."""
        del reason
        return False

    def extend(self, by: timedelta | str) -> bool:
        """Too late: there is no deadline any more."""
        del by
        return False


_Item = tuple[BaseException | None, Failure, FailedDelivery]


class ErrorFunctions:
    """The functions of one worker.

    Args:
        functions: the user's.
        redaction: what is masked in the failure's texts; the exception is as it was raised.
    """

    def __init__(
        self, functions: Sequence[ErrorFunction], redaction: Redaction = NO_REDACTION
    ) -> None:
        self._functions = tuple(functions)
        self._redaction = redaction
        self._waiting: queue.Queue[_Item | None] = queue.Queue(MOST_WAITING)
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._dropped = RateLimit(
            log, "[failure was|failures were] not given to the functions of `on_error`"
        )
        self._raised = RateLimit(log, "[call|calls] of functions of `on_error` failed")

    def start(self) -> None:
        """Start the thread, if there is a function to call."""
        if self._functions:
            self._thread = threading.Thread(
                target=self._work, name="ackfloor:on_error", daemon=True
            )
            self._thread.start()

    # The owner thread's side.

    def failed(
        self, delivery: TrackedDelivery, failure: Failure, exc: BaseException | None
    ) -> None:
        """Have the functions called, unless too much waits already; never blocks."""
        if self._thread is None:
            return
        try:
            self._waiting.put_nowait((exc, failure, FailedDelivery(delivery)))
        except queue.Full:
            if self._dropped.admits(time.monotonic()):
                log.warning(
                    "a failure was not given to the functions of `on_error`: %d wait already",
                    MOST_WAITING,
                )

    def stop(self, timeout_s: float) -> None:
        """Let what waits be told; gives up after `timeout_s` seconds."""
        if self._thread is None:
            return
        self._stopping = True
        # Where it is full, the thread sees the mark behind what waits.
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(timeout_s)
        left = self._waiting.qsize()
        if self._thread.is_alive():
            log.warning(
                "a function of `on_error` does not end: %d failures that wait for it are not told",
                left,
            )
        for limit in (self._dropped, self._raised):
            limit.flush(float("inf"))

    # The thread's side.

    def _work(self) -> None:
        while not (self._stopping and self._waiting.empty()):
            item = self._waiting.get()
            if item is not None:
                self._tell(*item)
            # A failure's frames are not to live on until the next one comes.
            del item

    def _tell(self, exc: BaseException | None, failure: Failure, delivery: FailedDelivery) -> None:
        shown = failure._replace(
            message=self._redaction.of_text(failure.message) or "",
            stack=self._redaction.of_text(failure.stack) or "",
        )
        for function in self._functions:
            try:
                function(exc, shown, delivery)
            except BaseException as raised:
                # Whatever it is: nobody else would hear of the next failure.
                if self._raised.admits(time.monotonic()):
                    self._log(function, raised)

    def _log(self, function: ErrorFunction, raised: BaseException) -> None:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        log.error("%s, a function of `on_error`, failed", name, exc_info=raised)
