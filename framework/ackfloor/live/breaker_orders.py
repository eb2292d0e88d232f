"""Forced circuit breakers: operators' orders, from the run's address to the workers.

How the run keeps the orders, and sends all that are in force, is said in `kept_orders`.

In the other direction, a worker reports which breakers opened by themselves. If its process is
replaced, because handlers were abandoned or it crashed, the next one begins with these open.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from ackfloor.core.breaker.rule import Forced
from ackfloor.core.engine.engine import Engine
from ackfloor.core.records.record import Now
from ackfloor.live.frames import Answer
from ackfloor.live.kept_orders import (
    KeptOrders,
    how_long,
    read_until_s,
    refusal_of,
    shown_until_s,
    until_s_of,
)
from ackfloor.live.requests import Change
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
            name: [forced.forced, shown_until_s(forced.until_s), forced.reason]
            for name, forced in self.of.items()
        }
        return json.dumps({"number": self.number, "breakers": breakers}).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> ForcedBreakers:
        """Read a frame's body."""
        tree = json.loads(body)
        breakers = {
            name: ForcedBreaker(Forced(forced), read_until_s(until_s), reason)
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
        refused = refusal_of(breakers.of.keys() - handlers.keys())
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


class RunBreakers(KeptOrders[ForcedBreaker]):
    """The supervisor's side: operators' orders, and which breakers opened by themselves."""

    kind = Kind.BREAKERS
    taken = Kind.BREAKERS_TAKEN

    def __init__(self, handlers: Callable[[], Iterable[str]]) -> None:
        super().__init__(handlers)
        #: Worker -> its last report of open breakers.
        self._opened: dict[int, bytes] = {}

    def force(
        self, action: Action, handler: str, for_s: float | None, reason: str, wait_s: float
    ) -> Change:
        """Open or close a breaker in all workers, or return it to automatic; wait for answers.

        Args:
            action: which of these.
            handler: its name.
            for_s: seconds after which it returns to automatic; None for as long as the run lasts.
            reason: why, for people.
            wait_s: how long to wait for the workers, in seconds.

        Raises:
            SettingError: there is no such handler.
            TimeoutError: the supervisor's loop has not taken it yet.
        """
        state = _FORCED[action]
        forced = None if state is None else ForcedBreaker(state, until_s_of(for_s), reason)
        return self.ask(handler, forced, wait_s)

    def started(self, worker: int, tell: Tell) -> None:
        """Send a new worker process what was open before it, and the orders in force."""
        if worker in self._opened:
            tell(worker, Kind.RESUME, self._opened[worker])
        super().started(worker, tell)

    def received(self, worker: int, kind: Kind, body: bytes) -> None:
        """Take a worker's report or answer."""
        if kind is Kind.BREAKERS_OPEN:
            self._opened[worker] = body
        super().received(worker, kind, body)

    def frame(self, number: int, orders: Mapping[str, ForcedBreaker]) -> bytes:
        """A version as the body of a frame."""
        return ForcedBreakers(number, dict(orders)).to_bytes()

    def log(self, handler: str, order: ForcedBreaker | None) -> None:
        """Log that a breaker was forced or returned to automatic."""
        if order is None:
            log.warning(
                "handler %s: an operator returned its circuit breaker to automatic", handler
            )
            return
        text = "handler %s: an operator forced its circuit breaker %s %s"
        log.warning(text, handler, order.forced, how_long(order, "it is taken back"))
