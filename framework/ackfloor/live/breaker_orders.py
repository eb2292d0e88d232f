"""Forced circuit breakers: operators' orders, from the run's address to the workers.

The run keeps each order until it expires or is taken back. All orders in force make up one numbered
version, which the run sends to each worker until it has it; a worker that is started gets it before
it has a partition. Times are monotonic seconds, which are the same in all processes of a machine.

In the other direction, a worker reports which breakers opened by themselves. If its process is
replaced, because handlers were abandoned or it crashed, the next one begins with these open.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from ackfloor.core.breaker.rule import Forced
from ackfloor.core.engine.engine import Engine
from ackfloor.core.records.record import Now
from ackfloor.core.values.durations import format_duration
from ackfloor.core.values.suggestions import there_are
from ackfloor.errors import ConfigError
from ackfloor.live.frames import Answer
from ackfloor.live.requests import Change, Request, Requests
from ackfloor.runtime.supervision.channel import Kind
from ackfloor.runtime.supervision.supervisor import Tell

log = logging.getLogger("ackfloor.run")


class Action(StrEnum):
    """What an operator does to a breaker."""

    OPEN = "open"
    CLOSE = "close"
    AUTO = "auto"


_FORCED = {Action.OPEN: Forced.OPEN, Action.CLOSE: Forced.CLOSED, Action.AUTO: None}


@dataclass(frozen=True, slots=True)
class ForcedBreaker:
    """An order in force for one handler.

    Attributes:
        until_s: when it expires, in monotonic seconds; infinity for never.
        reason: why, for people.
    """

    forced: Forced
    until_s: float = inf
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ForcedBreakers:
    """One version of all orders in force, as the run sends it to the workers.

    Attributes:
        number: of the version; the answer repeats it.
        of: the orders, by handler.
    """

    number: int
    of: dict[str, ForcedBreaker]

    def to_bytes(self) -> bytes:
        """As a frame's body."""
        breakers = {
            name: [forced.forced, None if forced.until_s == inf else forced.until_s, forced.reason]
            for name, forced in self.of.items()
        }
        return json.dumps({"number": self.number, "breakers": breakers}).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> ForcedBreakers:
        """Read a frame's body."""
        tree = json.loads(body)
        breakers = {
            name: ForcedBreaker(Forced(forced), inf if until_s is None else until_s, reason)
            for name, (forced, until_s, reason) in tree["breakers"].items()
        }
        return cls(tree["number"], breakers)


class WorkerBreakers:
    """The worker's side; only the owner thread calls it.

    Args:
        engine: the worker's.
        send: sends a frame to the supervisor; False if the channel has no room for it now.
    """

    def __init__(self, engine: Engine, send: Callable[[Kind, bytes], bool]) -> None:
        self._engine = engine
        self._send = send
        #: The open breakers last reported to the supervisor: how many records had failed in a row.
        self._reported: dict[str, int] = {}

    def take(self, body: bytes, now: Now) -> bytes:
        """Carry out a frame's orders; returns the answer."""
        breakers = ForcedBreakers.from_bytes(body)
        handlers = self._engine.state.handlers
        for name, handler in handlers.items():
            forced = breakers.of.get(name)
            if forced is None:
                if handler.circuit.forced is not None:
                    self._engine.force(name, None, inf, "", now)
                continue
            before = (
                handler.circuit.forced,
                handler.circuit.forced_until_s,
                handler.circuit.forced_reason,
            )
            if before != (forced.forced, forced.until_s, forced.reason):
                self._engine.force(name, forced.forced, forced.until_s, forced.reason, now)
        unknown = sorted(breakers.of.keys() - handlers.keys())
        refused = f"it has no handler {', '.join(unknown)}" if unknown else ""
        return Answer(breakers.number, refused).to_bytes()

    def resume(self, body: bytes, now: Now) -> None:
        """Open the breakers that were open in the process before this one."""
        for name, (failing, error) in json.loads(body).items():
            if name in self._engine.state.handlers:
                self._engine.resume_open(name, failing, error, now)
                self._reported[name] = failing

    def tell(self) -> None:
        """Report the open breakers to the supervisor, if they have changed."""
        handlers = self._engine.state.handlers
        opened = {
            name: handler.circuit.failing
            for name, handler in handlers.items()
            if handler.circuit.breaker.is_open and handler.circuit.forced is None
        }
        if opened == self._reported:
            return
        errors = {
            name: [failing, handlers[name].circuit.breaker.error]
            for name, failing in opened.items()
        }
        if self._send(Kind.BREAKERS_OPEN, json.dumps(errors).encode()):
            self._reported = opened


#: A handler and the order for it; None returns its breaker to automatic.
_Asked = tuple[str, ForcedBreaker | None]


class RunBreakers:
    """The supervisor's side.

    The supervisor's loop calls everything but `force`, whose thread waits until the loop is done.

    Args:
        handlers: the names of the run's handlers.
    """

    def __init__(self, handlers: Callable[[], Iterable[str]]) -> None:
        self._handlers = handlers
        self._requests = Requests[_Asked, Answer]()
        self._newest = ForcedBreakers(0, {})
        #: Worker -> the version that was sent to it.
        self._sent: dict[int, int] = {}
        #: Worker -> its last report of open breakers.
        self._opened: dict[int, bytes] = {}

    def force(
        self, action: Action, handler: str, for_s: float | None, reason: str, wait_s: float
    ) -> Change:
        """Open or close a breaker in all workers, or return it to automatic; wait for answers.

        Args:
            for_s: seconds after which it returns to automatic; None for as long as the run lasts.
            wait_s: how long to wait for the workers, in seconds.

        Raises:
            SettingError: there is no such handler.
            TimeoutError: the supervisor's loop has not taken it yet.
        """
        state = _FORCED[action]
        until_s = inf if for_s is None else time.monotonic() + for_s
        forced = None if state is None else ForcedBreaker(state, until_s, reason)
        return Change.of(self._requests.ask((handler, forced), wait_s))

    # The supervisor's loop.

    def started(self, worker: int, tell: Tell) -> None:
        """Send a new worker process the orders in force, before it gets its settings."""
        if worker in self._opened:
            tell(worker, Kind.RESUME, self._opened[worker])
        self._sent[worker] = 0 if self._in_force() else self._newest.number
        self._send_newest(worker, tell)

    def received(self, worker: int, kind: Kind, body: bytes) -> None:
        """Take a worker's report or answer."""
        if kind is Kind.BREAKERS_OPEN:
            self._opened[worker] = body
        elif kind is Kind.BREAKERS_TAKEN:
            answer = Answer.from_bytes(body)
            for request in self._requests.pending():
                # A later version includes the orders of the earlier ones.
                if request.number <= answer.number:
                    request.answered(worker, answer)

    def left(self, worker: int) -> None:
        """This worker will not answer: no request waits for it."""
        self._requests.left(worker)

    def gone(self, worker: int) -> None:
        """A worker process ended."""
        self._sent.pop(worker, None)

    def step(self, running: Iterable[int], tell: Tell) -> None:
        """Take new requests, and send the newest version to workers that don't have it yet."""
        for request in self._requests.new():
            self._accept(request, running)
        for worker in list(self._sent):
            self._send_newest(worker, tell)
        self._requests.pending()

    def _accept(self, request: Request[_Asked, Answer], running: Iterable[int]) -> None:
        name, forced = request.asked
        known = list(self._handlers())
        if name not in known:
            why = f"no handler of this run; {there_are(name, known)}"
            request.refuse(ConfigError("HANDLER", name, why, "write the name of one of them"))
            return
        breakers = {each: kept for each, kept in self._in_force().items() if each != name}
        if forced is not None:
            breakers[name] = forced
        self._newest = ForcedBreakers(self._newest.number + 1, breakers)
        self._requests.sent(request, self._newest.number, running)
        _log(name, forced)

    def _in_force(self) -> dict[str, ForcedBreaker]:
        now_s = time.monotonic()
        return {name: forced for name, forced in self._newest.of.items() if forced.until_s > now_s}

    def _send_newest(self, worker: int, tell: Tell) -> None:
        """Send a worker the newest version, unless it has it or its channel has no room now."""
        number = self._newest.number
        if self._sent[worker] != number:
            sent = tell(worker, Kind.BREAKERS, self._newest.to_bytes())
            self._sent[worker] = number if sent else 0


def _log(name: str, forced: ForcedBreaker | None) -> None:
    if forced is None:
        log.warning("handler %s: an operator returned its circuit breaker to automatic", name)
        return
    for_s = forced.until_s - time.monotonic()
    how_long = "until it is taken back" if for_s == inf else f"for {format_duration(round(for_s))}"
    why = forced.reason or "no reason given"
    text = "handler %s: an operator forced its circuit breaker %s %s (%s)"
    log.warning(text, name, forced.forced, how_long, why)
