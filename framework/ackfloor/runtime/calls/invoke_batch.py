"""The call of a batch handler: decode each record, call the user's function once with lists.

A record that does not decode ends alone, before the call, and is in neither list. A decoder that
is away concerns all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import Paused
from ackfloor.core.records.record import Record
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.declare.signature import Signature
from ackfloor.runtime.calls.batch_results import BatchResults, Judge
from ackfloor.runtime.calls.invoke import Invocation
from ackfloor.runtime.calls.publishes import Publishes
from ackfloor.runtime.calls.results import Results


def bind_batch(
    handler: str,
    function: Callable[..., Any],
    signature: Signature,
    decode: Callable[[Record], object],
    *,
    dead_letter_on: tuple[type[BaseException], ...] = (),
    state: object = None,
    publishes: Publishes | None = None,
    results: Results | None = None,
) -> Invocation:
    """Put a batch handler's call together; see `invoke.bind`."""
    fixed = {name: state for name, _ in signature.state_params}
    arguments = partial(_arguments, signature, decode, fixed)

    async def call_async(batch: Batch) -> None:
        if (found := arguments(batch, invocation.outcome_of)) is None:
            return
        named, deliveries = found
        returned = await function(**named)
        if batch_results is None:
            _check_nothing(returned)
        else:
            await batch_results.publish(deliveries, returned)

    def call(batch: Batch) -> None:
        if (found := arguments(batch, invocation.outcome_of)) is None:
            return
        named, deliveries = found
        returned = function(**named)
        if batch_results is None:
            _check_nothing(returned)
        else:
            batch_results.publish_sync(deliveries, returned)

    invocation = Invocation(
        handler,
        call_async if signature.is_async else call,
        signature.is_async,
        dead_letter_on=dead_letter_on,
        publishes=publishes or Publishes(),
    )
    batch_results = None if results is None else BatchResults(results, invocation.outcome_of)
    return invocation


def _arguments(
    signature: Signature,
    decode: Callable[[Record], object],
    fixed: Mapping[str, object],
    batch: Batch,
    judge: Judge,
) -> tuple[dict[str, Any], list[TrackedDelivery]] | None:
    """What the function is called with, and of which deliveries; None where nothing decodes."""
    deliveries = batch.items
    found = dict(fixed)
    if signature.value_param is not None:
        values: list[object] = []
        deliveries = _decoded(deliveries, values, decode, judge)
        found[signature.value_param] = values
    if signature.delivery_param is not None:
        found[signature.delivery_param] = list(deliveries)
    return (found, deliveries) if deliveries else None


def _decoded(
    deliveries: list[TrackedDelivery],
    values: list[object],
    decode: Callable[[Record], object],
    judge: Judge,
) -> list[TrackedDelivery]:
    """The deliveries whose values were added; the others have ended."""
    good: list[TrackedDelivery] = []
    for delivery in deliveries:
        try:
            values.append(decode(delivery.record))
        except BaseException as exc:
            outcome = judge(exc)
            if isinstance(outcome, Paused):
                raise
            delivery.end(outcome)
        else:
            good.append(delivery)
    return good


def _check_nothing(returned: object) -> None:
    if returned is not None:
        raise TypeError(
            f"a batch handler returned {type(returned).__name__}: return nothing, which settles "
            "what was not answered; answer single records through their deliveries"
        )
