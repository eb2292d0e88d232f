"""A handler's process: `python -m ackfloor.runtime.process_child`, started by a worker.

It handles one record after the other, in its main thread. A second thread reads what the worker
says, so that a worker that has died ends it in the middle of a handler, and so that records it has
not begun can be asked back while one keeps it busy. Who takes a record is told by `popleft`, as
everywhere: the main thread to handle it, or the reader to give it back.

It is never stopped by a signal but SIGKILL: Ctrl-C and SIGTERM are the worker's business, which
drains. It logs to the worker's standard error, by the worker's settings.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from ackfloor.app import App, refuse_publish
from ackfloor.codec import make_decoder
from ackfloor.core.assignment import Assignment, HandlerRules, HandlerState
from ackfloor.core.delivery import Delivery
from ackfloor.core.outcomes import ACKED, Outcome, Released
from ackfloor.runtime.event_loop import EventLoopThread
from ackfloor.runtime.invoke import Invocation, bind, set_current
from ackfloor.runtime.lifespan import Lifespan
from ackfloor.runtime.logs import set_log_level, set_up_logging
from ackfloor.runtime.process_face import Face
from ackfloor.runtime.process_memory import resident_bytes
from ackfloor.runtime.process_pipe import receive, say
from ackfloor.runtime.process_plan import Plan
from ackfloor.runtime.process_words import Sent, SentRecord, spoken
from ackfloor.signature import read_signature, yielded_type

log = logging.getLogger("ackfloor.process")

#: Seconds that the lifespan has to end.
LIFESPAN_S = 5.0
_PR_SET_PDEATHSIG = 1

Item = deque[SentRecord]


class _Place:
    """As much of an assignment as a delivery needs where it is only handled."""

    __slots__ = ("clock", "handler", "partition", "topic")

    def __init__(self, topic: str, partition: int, handler: HandlerState) -> None:
        self.topic = topic
        self.partition = partition
        self.handler = handler
        self.clock = time.monotonic


class SentDelivery(Delivery):
    """A delivery in a handler's process: what is extended here is shown to the worker."""

    __slots__ = ("_face", "_number")

    def __init__(self, sent: SentRecord, place: _Place, face: Face) -> None:
        record = Sent(sent)
        assignment = cast("Assignment", place)
        super().__init__(assignment, record, sent.offset, len(record), time.monotonic())
        self.envelope = sent.envelope
        self._face = face
        self._number = sent.number

    def extend(self, by: Any) -> bool:
        """Move the deadline; see `Delivery.extend`."""
        return super().extend(by) and self._face.extend(self._number, self.extended_until_s)


class Child:
    """The work of one handler's process.

    Args:
        end: of the pipe to the worker.
        face: what the worker looks at.
        invocation: how the handler is called.
        memory_limit: resident bytes after which it asks to be replaced.
    """

    def __init__(
        self, end: socket.socket, face: Face, invocation: Invocation, memory_limit: int | None
    ) -> None:
        self._end = end
        self._face = face
        self._invocation = invocation
        self._memory_limit = memory_limit
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        #: What is left of the item at hand.
        self._rest: Item = deque()
        self._handler = HandlerState(HandlerRules(invocation.handler))
        self._places: dict[tuple[str, int], _Place] = {}
        #: How many records wait when the worker is told that there is room.
        self._low = 0
        self._received = 0
        self._say_lock = threading.Lock()

    def say(self, **said: Any) -> None:
        """Tell the worker something; either thread may."""
        with self._say_lock, suppress(OSError):
            say(self._end, said)

    # The reader's side.

    def read(self) -> None:
        """Take what the worker says, until it is gone."""
        while (frame := receive(self._end)) is not None:
            kind, *rest = pickle.loads(frame)  # noqa: S301 -- the worker's own words
            if kind == "work":
                self._work_came(*rest)
            elif kind == "recall":
                self.say(returned=self._unbegun())
            elif kind == "end":
                self._items.put(None)
        os._exit(1)

    def _work_came(self, rules: tuple[Any, ...], low: int, items: list[list[Any]]) -> None:
        timeout_s, max_extend_s, level = rules
        known = self._handler.rules
        if (known.consume_timeout_s, known.max_extend_s) != (timeout_s, max_extend_s):
            self._handler.rules = HandlerRules(
                known.name, consume_timeout_s=timeout_s, max_extend_s=max_extend_s
            )
        if level != logging.getLogger().level:
            set_log_level(logging.getLevelName(level))
        self._low = low
        self._received = items[-1][-1][0]
        for item in items:
            self._items.put(deque(SentRecord(*sent) for sent in item))

    def _unbegun(self) -> list[int]:
        """Take back every record that was not begun."""
        numbers = _emptied(self._rest)
        with suppress(queue.Empty):
            while (item := self._items.get_nowait()) is not None:
                numbers += _emptied(item)
            self._items.put(None)
        return numbers

    # The main thread's side.

    def work(self) -> None:
        """Handle what comes until the worker says that it is the end."""
        while (item := self._items.get()) is not None:
            self._rest = item
            while True:
                try:
                    sent = item.popleft()
                except IndexError:
                    break
                self._handle(sent)
                if self._memory_limit and resident_bytes("self") > self._memory_limit:
                    self.say(spent=True, returned=self._unbegun())

    def _handle(self, sent: SentRecord) -> None:
        number, face = sent.number, self._face
        place = self._places.get((sent.topic, sent.partition))
        if place is None:
            place = _Place(sent.topic, sent.partition, self._handler)
            self._places[sent.topic, sent.partition] = place
        delivery = SentDelivery(sent, place, face)
        set_current(delivery)
        now_s = delivery.started_s = time.monotonic()
        face.begin(number, now_s)
        if self._received - number == self._low:
            self.say(room=True)
        outcome: Outcome = ACKED
        fatal = ""
        try:
            self._invocation.call(delivery)
        except (SystemExit, KeyboardInterrupt) as exc:
            outcome, fatal = Released(), repr(exc)
        except BaseException as exc:
            outcome = self._invocation.outcome_of(exc)
        delivery.outcome = outcome
        face.finish(number, time.monotonic())
        if outcome is not ACKED:
            words = spoken(outcome)
            # A lane waits for what failed in it, and everything for what asked for a pause.
            back = self._unbegun() if words["kind"] == "held" or fatal else _emptied(self._rest)
            self.say(ended=number, returned=back, fatal=fatal, **words)
        face.end(number)
        if not self._rest and self._items.empty():
            self.say(room=True)


def _emptied(item: Item) -> list[int]:
    numbers: list[int] = []
    with suppress(IndexError):
        while True:
            numbers.append(item.popleft().number)
    return numbers


def _die_with(worker: int) -> None:
    """End when the worker does, whatever a handler is doing."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:
        os._exit(1)


def _leave_signals_to_the_worker() -> None:
    def pass_over(_number: int, _frame: object) -> None:
        """Nothing: but processes that a handler starts don't inherit that."""

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_over)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def _begin(plan: Plan, events: EventLoopThread) -> tuple[Invocation, Lifespan]:
    """Import the handler, enter the lifespan where it takes what that yields."""
    pieces = plan["pieces"]

    def piece(name: str) -> Any:
        return pickle.loads(pieces[name])  # noqa: S301 -- the worker's own words

    def each(name: str) -> tuple[Any, ...]:
        return tuple(pickle.loads(one) for one in piece(name))  # noqa: S301

    function, lifespan = piece("function"), piece("lifespan")
    middleware, dead_letter_on = each("middleware"), each("dead_letter_on")
    name = plan["handler"]
    if plan["log"] is not None:
        set_up_logging(*plan["log"])
    state_type = None if lifespan is None else yielded_type(lifespan)
    signature = read_signature(function, handler=name, state_type=state_type)
    field = f"handlers.{name}.{signature.value_param or 'value'}"
    decode = make_decoder(
        signature.value_type, signature.accepts_null, decoder=piece("decoder"), field=field
    )
    app = App(plan["group"], mode=cast("Any", plan["mode"]))
    entered = Lifespan(None if lifespan is None else lambda: lifespan(app), events)
    if lifespan is not None:
        events.start()
    state = entered.enter()
    call = bind(function, signature, decode, state=state, middleware=middleware)
    return Invocation(name, call, False, False, dead_letter_on), entered


def main(argv: Sequence[str]) -> None:
    """Run one process until its worker says so or is gone."""
    descriptor, area, worker = map(int, argv)
    _die_with(worker)
    _leave_signals_to_the_worker()
    end = socket.socket(fileno=descriptor)
    face = Face(area)
    os.close(area)
    first = receive(end)
    if first is None:
        return
    plan: Plan = pickle.loads(first)  # noqa: S301 -- the worker's own words
    sys.path[:] = plan["path"]
    refuse_publish("a process handler can't publish: do it in an async or thread handler")
    events = EventLoopThread()
    try:
        invocation, lifespan = _begin(plan, events)
    except BaseException as exc:
        say(end, {"failed": f"{type(exc).__name__}: {exc}"})
        return
    child = Child(end, face, invocation, plan["memory_limit"])
    child.say(ready=True)
    threading.Thread(target=child.read, name="ackfloor:worker", daemon=True).start()
    child.work()
    try:
        lifespan.exit(LIFESPAN_S)
    except Exception:
        log.exception("handler %s: its lifespan did not end in order", plan["handler"])


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the user's must not keep the process.
    os._exit(0)
