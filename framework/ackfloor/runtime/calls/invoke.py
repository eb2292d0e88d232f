"""Invocation: decode a record, call the user's function, turn what comes out into an outcome.

The only place where exceptions of user code are caught. `bind` puts the call together once, at
start, so that the path of a record is a closure with nothing left to decide; a handler without
middleware, state or delivery parameter pays for none of them.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from os.path import basename
from pathlib import Path
from typing import Any

from ackfloor.core.records.batch import Batch
from ackfloor.core.records.envelope import Reason, fingerprint
from ackfloor.core.records.outcomes import Discarded, Failed, Outcome, Paused, Rejected
from ackfloor.core.records.record import Failure, Record
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.declare.codec import raw
from ackfloor.declare.registration import Middleware
from ackfloor.declare.signature import Signature
from ackfloor.delivery import Delivery
from ackfloor.errors import DeadLetter, DecodeError, DecoderUnavailable, Discard, Pause, Retry
from ackfloor.runtime.calls.publishes import Handled, Publishes
from ackfloor.runtime.calls.results import Results
from ackfloor.runtime.calls.tracebacks import format_exception

current: ContextVar[TrackedDelivery] = ContextVar("ackfloor.current_delivery")
#: Of a batch handler, which has no current delivery.
current_batch: ContextVar[Batch | None] = ContextVar("ackfloor.current_batch", default=None)

#: How long a handler waits before it asks an unreachable decoder (a schema registry) again.
DECODER_AWAY_S = 5.0

#: Code that is not the user's: ours, the standard library's, and what was installed.
_NOT_THE_USERS = tuple(
    {str(Path(__file__).resolve().parents[2]), *map(sysconfig.get_path, ("stdlib", "purelib"))}
)


def current_delivery() -> Delivery | None:
    """The delivery being handled here, in async and thread handlers; None outside of one."""
    return current.get(None)


def being_handled() -> Handled | None:
    """What is being handled here; None outside of a handler, and in what has outlived its call."""
    delivery = current.get(None)
    if delivery is not None:
        return None if delivery.closed or delivery.outcome is not None else delivery
    batch = current_batch.get(None)
    return None if batch is None or batch.outcome is not None else batch


set_current = current.set

Call = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Invocation:
    """How one handler is called and its exceptions are judged.

    Attributes:
        handler: its name.
        call: called with a delivery, or with a batch of them; returns an awaitable where
            `is_async`.
        is_async: whether it runs on the event loop.
        manual: whether answers come through the delivery.
        dead_letter_on: exception classes that go straight to the dead-letter queue.
        publishes: what its calls publish, and have not waited for.
    """

    handler: str
    call: Call
    is_async: bool
    manual: bool = False
    dead_letter_on: tuple[type[BaseException], ...] = ()
    publishes: Publishes = field(default_factory=Publishes)

    def outcome_of(self, exc: BaseException) -> Outcome:
        """What an exception that left the handler means for the record. Never raises."""
        try:
            return self._judged(exc)
        except BaseException as failed:
            # A slot must outlive whatever a user raises, also while it is described.
            name = type(exc).__qualname__
            text = f"<can't be described: {type(failed).__name__}>"
            return Failed(Failure(name, text, "", fingerprint(name, ())))

    def _judged(self, exc: BaseException) -> Outcome:
        if isinstance(exc, Retry):
            return Failed(_asked("Retry", exc.reason), Reason.RETRY, exc.after_s)
        if isinstance(exc, DeadLetter):
            return Rejected(_asked("DeadLetter", exc.reason))
        if isinstance(exc, Discard):
            return Discarded(_text(exc.reason))
        if isinstance(exc, Pause):
            return Paused(exc.duration_s, _text(exc.reason) or "the handler raised Pause")
        if isinstance(exc, DecoderUnavailable):
            return Paused(DECODER_AWAY_S, f"decoder unavailable: {_text(exc)}")
        if isinstance(exc, DecodeError):
            failure = Failure(exc.error_type, _text(exc), "", fingerprint(exc.error_type, ()))
            return Rejected(failure, Reason.DECODE)
        if isinstance(exc, self.dead_letter_on):
            return Rejected(failure_of(exc))
        return Failed(failure_of(exc))


def _asked(name: str, reason: object) -> Failure:
    """What a handler asked for; a reason is often the exception that was caught."""
    text = _text(reason)
    return Failure(name, text, "", fingerprint(name, ((text[:80], ""),)))


def failure_of(exc: BaseException) -> Failure:
    """An exception as text, with the fingerprint that groups it with its like."""
    kind = type(exc)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    stack, frames = format_exception(exc)
    for file, function in reversed(frames):
        if not file.startswith(_NOT_THE_USERS):
            where = [(basename(file), function)]  # noqa: PTH119 - a fifth of all this as a Path
            return Failure(name, _text(exc), stack, fingerprint(name, where))
    return Failure(name, _text(exc), stack, fingerprint(name, ()))


def _text(value: object) -> str:
    """What an exception says of itself, which is user code and may fail as well."""
    try:
        return str(value)
    except BaseException as failed:
        return f"<no text: its __str__ raised {type(failed).__name__}>"


def bind(
    function: Callable[..., Any],
    signature: Signature,
    decode: Callable[[Record], object],
    *,
    state: object = None,
    middleware: Sequence[Middleware] = (),
    results: Results | None = None,
) -> Call:
    """Put one handler's call together.

    Args:
        function: the user's function.
        signature: which of its parameters takes what.
        decode: record -> value; raises `DecodeError`.
        state: what the lifespan yielded, for parameters annotated with its type.
        middleware: outermost first; each is called as `around(delivery, call_next)`.
        results: where what it returns or yields goes; None for nowhere.
    """
    call = _call(function, signature, decode, state)
    if results is not None:
        call = results.around(call, signature)
    for around in reversed(middleware):
        call = _wrapped(around, call)
    return call


def _call(
    function: Callable[..., Any],
    signature: Signature,
    decode: Callable[[Record], object],
    state: object,
) -> Call:
    value_param, delivery_param = signature.value_param, signature.delivery_param
    fixed = {name: state for name, _ in signature.state_params}
    if fixed:

        def with_state(delivery: TrackedDelivery) -> Any:
            arguments: dict[str, Any] = dict(fixed)
            if value_param is not None:
                arguments[value_param] = decode(delivery.record)
            if delivery_param is not None:
                arguments[delivery_param] = delivery
            return function(**arguments)

        return with_state
    if value_param is None:
        if delivery_param is None:
            return lambda _delivery: function()
        return function
    if delivery_param is None and decode is raw:
        return _with_bytes(function)
    if delivery_param is None:
        return lambda delivery: function(decode(delivery.record))

    def with_both(delivery: TrackedDelivery) -> Any:
        return function(**{value_param: decode(delivery.record), delivery_param: delivery})

    return with_both


def _with_bytes(function: Callable[..., Any]) -> Call:
    """The commonest call, without one for decoding what isn't decoded."""

    def with_bytes(delivery: TrackedDelivery) -> Any:
        data = delivery.record.value()
        return function(raw(delivery.record) if data is None else data)

    return with_bytes


def _wrapped(around: Middleware, inner: Call) -> Call:
    return lambda delivery: around(delivery, lambda: inner(delivery))
