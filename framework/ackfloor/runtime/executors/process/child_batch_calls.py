"""Batches in a handler's process: one call after the other, and answers by hand.

An answer by hand counts once it is sent: it then arrives at the worker, even if this process dies.
So an answer is claimed and sent under the lock of the pipe, and the end of the call claims what is
left under the same lock. Each answer before the end was also sent before it; a later one is late.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from contextlib import suppress
from typing import Any

from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import ACKED, Failed, Outcome, Rejected
from ackfloor.core.records.redaction import NO_REDACTION, Redaction
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.runtime.calls.invoke import Invocation
from ackfloor.runtime.executors.batch_calls import begin
from ackfloor.runtime.executors.process.child_calls import Child, Item, Place, SentDelivery
from ackfloor.runtime.executors.process.pipe import send
from ackfloor.runtime.executors.process.shared_progress import SharedProgress
from ackfloor.runtime.executors.process.wire_format import SentBatch, SentRecord, outcome_to_dict
from ackfloor.runtime.logging.logs import named, place_of
from ackfloor.runtime.logging.rate_limit import RateLimit

log = logging.getLogger("ackfloor.process")


class BatchedDelivery(SentDelivery):
    """A delivery of a batch in a handler's process: its answer is sent to the worker."""

    __slots__ = ("_child", "_index")

    def __init__(self, sent: SentRecord, place: Place, child: BatchChild, index: int) -> None:
        super().__init__(sent, place, child.progress)
        self._child = child
        self._index = index

    def _answer(self, outcome: Outcome) -> bool:
        return self._child.answer(self, self._number, self._index, outcome)


class BatchChild(Child):
    """The work of one process of a handler that takes batches; see `Child`."""

    def __init__(
        self,
        end: socket.socket,
        progress: SharedProgress,
        invocation: Invocation,
        memory_limit: int | None,
        redaction: Redaction = NO_REDACTION,
        *,
        exactly_once: bool = False,
    ) -> None:
        super().__init__(
            end,
            progress,
            invocation,
            memory_limit,
            redaction,
            batch=1,
            exactly_once=exactly_once,
        )
        summary = "[handler|handlers] raised after the delivery had been answered"
        self._late = RateLimit(log, summary)

    def _opened(self, item: list[Any]) -> Item:
        return deque(SentBatch(*sent) for sent in item)

    def _handle(self, sent: SentBatch) -> None:
        """Call the handler with one batch, and send the outcome."""
        batch = Batch()
        for index, one in enumerate(sent.records):
            record = SentRecord(*one)
            delivery = BatchedDelivery(record, self._place(record), self, index)
            delivery.batch = batch
            batch.items.append(delivery)
        now_s = time.monotonic()
        begin(batch, now_s)
        self._begin(sent.number, now_s)
        outcome, raised = self._called(batch)
        with self._send_lock:
            left = [delivery for delivery in batch.items if delivery.claim()]
            for unanswered in left:
                unanswered.outcome = outcome
                if outcome is ACKED:
                    with suppress(ConnectionError):
                        self._send_outputs(sent.number, batch.items.index(unanswered), unanswered)
        if not left and isinstance(outcome, Failed | Rejected) and self._late.admits(now_s):
            log.error(
                "%s: handler %s raised after its deliveries had been answered",
                named(batch.items[0]),
                self._invocation.handler,
                exc_info=raised,
                extra=place_of(batch.items[0]),
            )
        self._end_call(sent.number, outcome)

    def answer(self, delivery: TrackedDelivery, number: int, index: int, outcome: Outcome) -> bool:
        """Answer one delivery; any thread may. Returns whether it counts."""
        message = outcome_to_dict(outcome, self._redaction)
        with self._send_lock:
            try:
                if not delivery.claim():
                    send(self._end, {"late": delivery.topic})
                    return False
                delivery.outcome = outcome
                if outcome is ACKED:
                    self._send_outputs(number, index, delivery)
                send(self._end, {"answered": number, "place": index, **message})
            except OSError:
                # The worker is gone.
                return False
        return True
