"""FairKey: what a handler's records are grouped by, so that noisy and hanging keys wait for others.

By default that is the Kafka key. A function of the delivery may say otherwise: the tenant of an
order, say. It is called on the owner thread, often several times for a record, so it has to be
quick, and must not wait for anything. A record for which it returns None, fails, or returns
something else than text or bytes is in no group, and waits for no other. Nothing that it raises,
and no method of what it returns, can end the worker.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from typing import cast

from ackfloor.core.queues.fair_order import Key
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.delivery import Delivery

log = logging.getLogger("ackfloor.fairness")

#: Seconds between two lines about one handler's function.
SAY_AGAIN_S = 60.0


def kafka_key(delivery: TrackedDelivery) -> bytes | None:
    """The raw key of a record."""
    return delivery.record.key()


def why_unfit(function: Callable[..., object]) -> str:
    """Why a function can't say what a delivery is grouped by; empty if it may."""
    for each in (function, getattr(function, "__call__", None)):  # noqa: B004 -- an object's own
        if inspect.iscoroutinefunction(each):
            return "an async function, and nothing waits for it"
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            return "a generator, which returns no key"
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return "it can't be called with a delivery alone"
    except ValueError:
        # Of some built-in functions nothing is known.
        pass
    return ""


class FairKey:
    """A user's function, whose failures are logged and do no harm.

    Args:
        handler: whose it is, for the log.
        function: what it calls.
    """

    __slots__ = ("_function", "_handler", "_say_s", "_unsaid")

    def __init__(self, handler: str, function: Callable[[Delivery], Key | None]) -> None:
        self._handler = handler
        self._function = function
        self._say_s = 0.0
        #: How often it has failed since the last line.
        self._unsaid = 0

    def __eq__(self, other: object) -> bool:
        """Whether records are grouped alike: by the same function of the same handler."""
        if not isinstance(other, FairKey):
            return NotImplemented
        return (self._handler, self._function) == (other._handler, other._function)

    def __hash__(self) -> int:
        return hash((self._handler, self._function))

    def __call__(self, delivery: TrackedDelivery) -> Key | None:
        """The group of a record; None for no group."""
        try:
            key: object = self._function(delivery)
        except BaseException as exc:  # noqa: BLE001 -- user code may raise anything, also to exit
            self._say(delivery, _in_a_line(exc))
            return None
        kind = type(key)
        if key is None or kind is bytes or kind is str:
            return cast("Key | None", key)
        # Methods of a class of its own may fail, in the middle of the worker's loop. What only says
        # that it is text, as proxies do, is not asked: `isinstance` would.
        if issubclass(kind, str):
            return str.__str__(cast("str", key))
        if issubclass(kind, bytes):
            return memoryview(cast("bytes", key)).tobytes()
        self._say(delivery, f"it returned {type.__repr__(kind)}, not str, bytes or None")
        return None

    def _say(self, delivery: TrackedDelivery, why: str) -> None:
        now_s = time.monotonic()
        if now_s < self._say_s:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} more calls since the last such line)" if self._unsaid else ""
        self._say_s, self._unsaid = now_s + SAY_AGAIN_S, 0
        log.warning(
            "handlers.%s.fairness: the function gave no group for %s/%d/%d: %s%s",
            self._handler, delivery.topic, delivery.partition, delivery.offset, why, more,
        )  # fmt: skip


def _in_a_line(exc: BaseException) -> str:
    """An exception in a line, also where its own text fails."""
    try:
        return f"{type(exc).__name__}: {exc}"
    except BaseException:  # noqa: BLE001 -- user code again
        return type(exc).__name__
