"""KeptOrders: what operators want of handlers, which a run keeps for workers that start later.

The run keeps each order until it expires or is taken back. All orders in force make up one numbered
version, which the run sends to each worker until it has it; a worker that is started gets it before
it has a partition. Times are monotonic seconds, which are the same in all processes of a machine.

Each kind of order says how its versions are written as a frame, and what is logged about it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from ackfloor.core.values.durations import LONGEST_S, format_duration
from ackfloor.core.values.suggestions import there_are
from ackfloor.errors import ConfigError
from ackfloor.live.frames import Answer
from ackfloor.live.requests import Change, Requests
from ackfloor.live.run_control import WAIT_S, BadRequest, TokenControl

if TYPE_CHECKING:
    from ackfloor.live.requests import Request
    from ackfloor.runtime.supervision.channel import Kind
    from ackfloor.runtime.supervision.supervisor import Tell

#: Characters of a reason.
LONGEST_REASON = 200
_KEYS = {"action", "handler", "for_s", "reason"}


class HandlerOrder(Protocol):
    """An order for one handler."""

    @property
    def until_s(self) -> float:
        """When it expires, in monotonic seconds; infinity for never."""

    @property
    def reason(self) -> str:
        """Why, for people."""


Order = TypeVar("Order", bound=HandlerOrder)


class KeptOrders(ABC, Generic[Order]):
    """The supervisor's side of one kind of order.

    The supervisor's loop calls everything but `ask`, whose thread waits until the loop is done.

    Args:
        handlers: the names of the run's handlers.

    Attributes:
        kind: of the frame that a worker is sent.
        taken: of the frame with its answer.
    """

    kind: ClassVar[Kind]
    taken: ClassVar[Kind]

    def __init__(self, handlers: Callable[[], Iterable[str]]) -> None:
        self._handlers = handlers
        self._requests = Requests[tuple[str, Order | None], Answer]()
        self._number = 0
        self._newest: dict[str, Order] = {}
        #: Worker -> the version that was sent to it.
        self._sent: dict[int, int] = {}

    @abstractmethod
    def frame(self, number: int, orders: Mapping[str, Order]) -> bytes:
        """A version as the body of a frame: all orders in force, by handler."""

    @abstractmethod
    def log(self, handler: str, order: Order | None) -> None:
        """Log that an order came, or that one was taken back (None)."""

    def log_expired(self, handler: str) -> None:
        """Log that an order has expired."""

    def ask(self, handler: str, order: Order | None, wait_s: float) -> Change:
        """Give all workers an order for a handler; wait for their answers.

        Args:
            handler: its name.
            order: None takes the last one back.
            wait_s: how long to wait for the workers, in seconds.

        Raises:
            SettingError: there is no such handler.
            TimeoutError: the supervisor's loop has not taken it yet.
        """
        return Change.of(self._requests.ask((handler, order), wait_s))

    # The supervisor's loop.

    def started(self, worker: int, tell: Tell) -> None:
        """Send a new worker process the orders in force, before it gets its settings."""
        self._drop_expired()
        self._sent[worker] = 0 if self._newest else self._number
        self._send_newest(worker, tell)

    def received(self, worker: int, kind: Kind, body: bytes) -> None:
        """Take a worker's answer."""
        if kind is not self.taken:
            return
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
        self._drop_expired()
        for request in self._requests.new():
            self._accept(request, running)
        for worker in list(self._sent):
            self._send_newest(worker, tell)
        self._requests.pending()

    def _accept(
        self, request: Request[tuple[str, Order | None], Answer], running: Iterable[int]
    ) -> None:
        name, order = request.asked
        known = list(self._handlers())
        if name not in known:
            why = f"no handler of this run; {there_are(name, known)}"
            request.refuse(ConfigError("HANDLER", name, why, "write the name of one of them"))
            return
        self._newest.pop(name, None)
        if order is not None:
            self._newest[name] = order
        self._number += 1
        self._requests.sent(request, self._number, running)
        self.log(name, order)

    def _drop_expired(self) -> None:
        """Forget the orders that have expired; workers end them by themselves."""
        now_s = time.monotonic()
        for name in [name for name, order in self._newest.items() if order.until_s <= now_s]:
            del self._newest[name]
            self.log_expired(name)

    def _send_newest(self, worker: int, tell: Tell) -> None:
        """Send a worker the newest version, unless it has it or its channel has no room now."""
        if self._sent[worker] != self._number:
            sent = tell(worker, self.kind, self.frame(self._number, self._newest))
            self._sent[worker] = self._number if sent else 0


def until_s_of(for_s: float | None) -> float:
    """When an order expires that is given now, for so many seconds, or for good (None)."""
    return inf if for_s is None else time.monotonic() + for_s


def shown_until_s(until_s: float) -> float | None:
    """The same in a frame: JSON has no infinity."""
    return None if until_s == inf else until_s


def read_until_s(until_s: float | None) -> float:
    """From a frame."""
    return inf if until_s is None else until_s


def how_long(order: HandlerOrder, end: str) -> str:
    """For how long an order is given, and why, for the log; `end` is what ends it otherwise."""
    for_s = order.until_s - time.monotonic()
    text = f"until {end}" if for_s == inf else f"for {format_duration(round(for_s))}"
    return f"{text} ({order.reason or 'no reason given'})"


def refusal_of(unknown: Iterable[str]) -> str:
    """A worker's refusal of orders for handlers that it does not have; empty without any."""
    names = ", ".join(sorted(unknown))
    return f"it has no handler {names}" if names else ""


Act = TypeVar("Act", bound=StrEnum)
#: Carries out an action on a handler, for so many seconds, with a reason, and waits that long.
Does = Callable[[Act, str, float | None, str, float], Change]


class HandlerControl(TokenControl[Does[Act]], Generic[Act]):
    """Answers what is posted to one path about one handler of the run.

    Attributes:
        actions: what may be asked for.
        form: what a valid body is.
    """

    actions: ClassVar[type[StrEnum]]
    form: ClassVar[str]

    def answer(self, tree: Any) -> object:
        """Carry out the action."""
        action, handler, for_s, reason = self._read(tree)
        change = self._does(action, handler, for_s, reason, WAIT_S)
        return {
            "handler": handler,
            "action": action.value,
            "for_s": for_s,
            "reason": reason,
            "workers": change.workers(),
        }

    def _read(self, tree: Any) -> tuple[Any, str, float | None, str]:
        """Check the body and take it apart."""
        if not isinstance(tree, dict) or not {"action", "handler"} <= tree.keys() <= _KEYS:
            raise BadRequest(self.form)
        action, handler = tree["action"], tree["handler"]
        for_s, reason = tree.get("for_s"), tree.get("reason", "")
        if action not in list(self.actions):
            raise BadRequest(f"action {str(action)[:20]!r}: one of {', '.join(self.actions)}")
        if not (isinstance(handler, str) and isinstance(reason, str)):
            raise BadRequest(self.form)
        if for_s is not None and (type(for_s) not in {int, float} or not 0 < for_s <= LONGEST_S):
            raise BadRequest(f"for_s {str(for_s)[:20]!r}: seconds above 0, a year at most")
        if len(reason) > LONGEST_REASON:
            raise BadRequest(f"reason: at most {LONGEST_REASON} characters")
        # One line: it is shown in tables and logged.
        return self.actions(action), handler, for_s, " ".join(reason.split())
