"""Paused handlers: operators' orders, from `POST /handlers` at the run's address to the workers.

    POST /handlers
    Authorization: Bearer <token>

    {"action": "pause", "handler": "bill", "for_s": 1800, "reason": "a migration"}

Actions are `pause` and `resume`. Without `for_s`, it lasts until `resume` or until the run ends.
The token is that of settings, see `run_control`; how the run keeps the orders, see `kept_orders`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from ackfloor.core.engine.engine import Engine
from ackfloor.core.records.record import Now
from ackfloor.live.frames import Answer
from ackfloor.live.kept_orders import (
    HandlerControl,
    KeptOrders,
    how_long,
    read_until_s,
    refusal_of,
    shown_until_s,
    until_s_of,
)
from ackfloor.live.requests import Change
from ackfloor.runtime.supervision.channel import Kind

log = logging.getLogger("ackfloor.run")

PATH = "/handlers"


class PauseAction(StrEnum):
    """What an operator does to a handler."""

    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class PausedHandler:
    """An operator's pause of one handler.

    Attributes:
        until_s: when it ends by itself, in monotonic seconds; infinity for never.
        reason: why, for people.
    """

    until_s: float = inf
    reason: str = ""


class RunPauses(KeptOrders[PausedHandler]):
    """The supervisor's side."""

    kind = Kind.PAUSES
    taken = Kind.PAUSES_TAKEN

    def order(
        self, action: PauseAction, handler: str, for_s: float | None, reason: str, wait_s: float
    ) -> Change:
        """Pause a handler in all workers, or resume it; wait for answers.

        Args:
            action: which of the two.
            handler: its name.
            for_s: seconds after which a pause ends; None for as long as the run lasts.
            reason: why, for people.
            wait_s: how long to wait for the workers, in seconds.

        Raises:
            SettingError: there is no such handler.
            TimeoutError: the supervisor's loop has not taken it yet.
        """
        paused = None
        if action is PauseAction.PAUSE:
            paused = PausedHandler(until_s_of(for_s), reason)
        return self.ask(handler, paused, wait_s)

    def frame(self, number: int, orders: Mapping[str, PausedHandler]) -> bytes:
        """A version as the body of a frame."""
        paused = {name: [shown_until_s(o.until_s), o.reason] for name, o in orders.items()}
        return json.dumps({"number": number, "paused": paused}).encode()

    def log(self, handler: str, order: PausedHandler | None) -> None:
        """Log that a handler was paused or resumed."""
        if order is None:
            log.warning("handler %s: an operator resumed it", handler)
            return
        text = "handler %s: an operator paused it %s"
        log.warning(text, handler, how_long(order, "it is resumed"))

    def log_expired(self, handler: str) -> None:
        """Log that a pause has ended by itself."""
        log.warning("handler %s: the operator's pause is over; it goes on", handler)


class WorkerPauses:
    """The worker's side; only the owner thread calls it.

    Args:
        engine: the worker's.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(self, body: bytes, now: Now) -> bytes:
        """Carry out a frame's orders; returns the answer."""
        tree = json.loads(body)
        paused = {
            name: (read_until_s(until_s), reason)
            for name, (until_s, reason) in tree["paused"].items()
        }
        handlers = self._engine.state.handlers
        for name, handler in handlers.items():
            until_s, reason = paused.get(name, (0.0, ""))
            if until_s <= now.mono_s:
                if handler.paused_until_s:
                    self._engine.resume(name, now)
            elif (until_s, reason) != (handler.paused_until_s, handler.paused_reason):
                self._engine.pause(name, until_s, reason, now)
        return Answer(tree["number"], refusal_of(paused.keys() - handlers.keys())).to_bytes()


class PauseControl(HandlerControl[PauseAction]):
    """Answers `POST /handlers` by `RunPauses.order`."""

    actions = PauseAction
    form = 'the body is {"action": "pause", "handler": name, "for_s": 1800, "reason": text}'
