"""The loop of a handler's process: it handles one record after the other.

The main thread handles. A second thread reads the worker's messages, so that the process ends with
its worker in the middle of a handler, and so that the worker can recall records that were not begun
while one runs. The main thread takes a record to handle it, the reader takes all of them to give
them back. Both take under one lock, the reader until its message is sent: every record before one
that has ended counts as done, unless it was given back before.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from ackfloor.core.records.outcomes import ACKED, Outcome
from ackfloor.core.records.redaction import NO_REDACTION, Redaction
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import Assignment, HandlerRules, HandlerState
from ackfloor.declare.outgoing import make_output
from ackfloor.runtime.calls.invoke import Invocation, set_current
from ackfloor.runtime.executors.process.pipe import receive, send
from ackfloor.runtime.executors.process.process_memory import resident_bytes
from ackfloor.runtime.executors.process.shared_progress import SharedProgress
from ackfloor.runtime.executors.process.wire_format import (
    Sent,
    SentBatch,
    SentRecord,
    outcome_to_dict,
    output_to_list,
)
from ackfloor.runtime.logging.logs import set_log_level

Item = deque[SentRecord | SentBatch]


class Place:
    """The part of an assignment that a delivery needs while it is handled."""

    __slots__ = ("clock", "handler", "partition", "topic", "topic_id")

    def __init__(self, sent: SentRecord, handler: HandlerState) -> None:
        self.topic = sent.topic
        self.topic_id = sent.topic_id
        self.partition = sent.partition
        self.handler = handler
        self.clock = time.monotonic


class SentDelivery(TrackedDelivery):
    """A delivery in a handler's process: the worker sees its extended deadline."""

    __slots__ = ("_number", "_progress")

    def __init__(self, sent: SentRecord, place: Place, progress: SharedProgress) -> None:
        record = Sent(sent)
        assignment = cast("Assignment", place)
        super().__init__(assignment, record, sent.offset, len(record), time.monotonic())
        self.envelope = sent.envelope
        self._progress = progress
        self._number = sent.number
        if place.handler.rules.exactly_once:
            self.begin_outputs()

    def extend(self, by: Any) -> bool:
        """Move the deadline; see `ackfloor.Delivery`."""
        return super().extend(by) and self._progress.extend(self._number, self.extended_until_s)


class Child:
    """The work of one handler's process.

    Args:
        end: of the pipe to the worker.
        progress: memory that the worker reads.
        invocation: how the handler is called.
        memory_limit: resident bytes after which it asks to be replaced.
        redaction: what is masked in what exceptions say.
        batch: set for a batch handler: then deliveries can be answered by hand.
        exactly_once: what it publishes goes to the worker before its record counts as ended.
    """

    def __init__(
        self,
        end: socket.socket,
        progress: SharedProgress,
        invocation: Invocation,
        memory_limit: int | None,
        redaction: Redaction = NO_REDACTION,
        batch: int | None = None,
        exactly_once: bool = False,
    ) -> None:
        self._end = end
        self.progress = progress
        self._invocation = invocation
        self._memory_limit = memory_limit
        self._redaction = redaction
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        #: What is left of the current item.
        self._rest: Item = deque()
        rules = HandlerRules(
            invocation.handler,
            batch=batch,
            exactly_once=exactly_once,
            make_output=make_output if exactly_once else None,
        )
        self._handler = HandlerState(rules)
        self._places: dict[tuple[str, int], Place] = {}
        #: How many records wait when this reports room to the worker.
        self._low = 0
        self._received = 0
        #: Around every message, and around taking a record.
        self._send_lock = threading.Lock()

    def send(self, **message: Any) -> None:
        """Send the worker a message; any thread may."""
        with self._send_lock, suppress(OSError):
            send(self._end, message)

    def leave(self, why: str) -> None:
        """Ask to be replaced after the current record; any thread may."""
        self._give_back(spent=why)

    def _give_back(self, **message: Any) -> None:
        """Give back what was not begun, with the reason if there is one."""
        with self._send_lock, suppress(OSError):
            send(self._end, {**message, "returned": self._unbegun()})

    # The reader's side.

    def read(self) -> None:
        """Read the worker's messages, until it is gone."""
        while (frame := receive(self._end)) is not None:
            kind, *rest = pickle.loads(frame)  # noqa: S301 -- sent by the worker
            if kind == "work":
                self._work_came(*rest)
            elif kind == "recall":
                self._give_back()
            elif kind == "end":
                self._items.put(None)
        os._exit(1)

    def _work_came(self, rules: tuple[Any, ...], low: int, items: list[list[Any]]) -> None:
        timeout_s, max_extend_s, level = rules
        known = self._handler.rules
        if (known.consume_timeout_s, known.max_extend_s) != (timeout_s, max_extend_s):
            self._handler.rules = replace(
                known, consume_timeout_s=timeout_s, max_extend_s=max_extend_s
            )
        if level != logging.getLogger().level:
            set_log_level(logging.getLevelName(level))
        self._low = low
        self._received = items[-1][-1][0]
        for item in items:
            self._items.put(self._opened(item))

    def _opened(self, item: list[Any]) -> Item:
        """An item as it was sent."""
        return deque(SentRecord(*sent) for sent in item)

    def _unbegun(self) -> list[int]:
        """Take every record that was not begun; under the lock."""
        numbers = _emptied(self._rest)
        with suppress(queue.Empty):
            while (item := self._items.get_nowait()) is not None:
                numbers += _emptied(item)
            self._items.put(None)
        return numbers

    # The main thread's side.

    def work(self) -> None:
        """Handle items until the worker sends `end`."""
        while (item := self._items.get()) is not None:
            self._rest = item
            while True:
                try:
                    with self._send_lock:
                        sent = item.popleft()
                except IndexError:
                    break
                self._handle(sent)
                if self._memory_limit and resident_bytes("self") > self._memory_limit:
                    self.leave("has grown")

    def _handle(self, sent: Any) -> None:
        """Handle one record, and send the outcome."""
        delivery = SentDelivery(sent, self._place(sent), self.progress)
        set_current(delivery)
        delivery.started_s = time.monotonic()
        self._begin(sent.number, delivery.started_s)
        outcome, _ = self._called(delivery)
        delivery.outcome = outcome
        if outcome is ACKED:
            # Not of any other cause: the record would be settled without them.
            with self._send_lock, suppress(ConnectionError):
                self._send_outputs(sent.number, 0, delivery)
        self._end_call(sent.number, outcome)

    def _send_outputs(self, number: int, place: int, delivery: TrackedDelivery) -> None:
        """Send what a handled record has published, under the lock and before its end."""
        outputs = delivery.outputs
        if outputs is not None and (outputs.items or outputs.too_large):
            items = [output_to_list(output) for output in outputs.items]
            message = {"place": place, "items": items, "too_large": outputs.too_large}
            send(self._end, {"outputs": number, **message})

    def _place(self, sent: SentRecord) -> Place:
        place = self._places.get((sent.topic, sent.partition))
        if place is None or place.topic_id != sent.topic_id:
            place = Place(sent, self._handler)
            self._places[sent.topic, sent.partition] = place
        return place

    def _begin(self, number: int, now_s: float) -> None:
        self.progress.begin(number, now_s)
        if self._received - number == self._low:
            self.send(room=True)

    def _called(self, what: Any) -> tuple[Outcome, BaseException | None]:
        """Call the handler; returns the outcome, and what was raised."""
        try:
            self._invocation.call(what)
        except BaseException as exc:
            return self._invocation.outcome_of(exc), exc
        return ACKED, None

    def _end_call(self, number: int, outcome: Outcome) -> None:
        """A call has ended: send its outcome unless it is an ack, then count it as ended."""
        self.progress.finish(number, time.monotonic())
        if outcome is not ACKED:
            message = outcome_to_dict(outcome, self._redaction)
            # Its lane waits for a failed record, and everything for a pause.
            with self._send_lock, suppress(OSError):
                back = self._unbegun() if message["kind"] == "held" else _emptied(self._rest)
                send(self._end, {"ended": number, "returned": back, **message})
        self.progress.end(number)
        if not self._rest and self._items.empty():
            self.send(room=True)


def _emptied(item: Item) -> list[int]:
    numbers: list[int] = []
    with suppress(IndexError):
        while True:
            numbers.append(item.popleft().number)
    return numbers
