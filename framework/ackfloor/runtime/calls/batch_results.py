"""BatchResults: the results of a batch, one an item, each confirmed before its record is settled.

A batch fails item by item here: who knows which result was refused need not have all of them tried
again, which would publish the others twice. So the items whose results are confirmed, or that have
none, are ended as handled; those that failed end with what they failed with. The first of them is
left, and its exception is raised: that is the outcome of the call, for the one item that is left,
and so it is logged and counted like any failure of a handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ackfloor.core.records.outcomes import ACKED, Outcome, Paused
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.runtime.calls.results import Results, Written

#: What an exception means for a record; see `Invocation.outcome_of`.
Judge = Callable[[BaseException], Outcome]


class BatchResults:
    """Where the results of one batch handler go.

    Args:
        results: writes a single one.
        judge: what an exception means for a record.
    """

    def __init__(self, results: Results, judge: Judge) -> None:
        self._results = results
        self._judge = judge

    async def publish(self, deliveries: Sequence[TrackedDelivery], returned: object) -> None:
        """Publish what an `async def` handler has returned; see `publish_sync`."""
        started = self._start(deliveries, returned)
        for delivery, written in started.writes:
            try:
                await asyncio.wrap_future(written)
            except Exception as exc:
                started.failed.append((delivery, exc))
        self._end(deliveries, started.failed)

    def publish_sync(self, deliveries: Sequence[TrackedDelivery], returned: object) -> None:
        """Publish what a `def` handler has returned, one result an item.

        Args:
            deliveries: what it was called with.
            returned: what came out of the call.

        Raises:
            TypeError: it is no list of one result an item; nothing was published.
            Exception: results were not written. All items but one have ended by then.
        """
        started = self._start(deliveries, returned)
        for delivery, written in started.writes:
            try:
                written.result()
            except Exception as exc:
                started.failed.append((delivery, exc))
        self._end(deliveries, started.failed)

    def _start(self, deliveries: Sequence[TrackedDelivery], returned: object) -> _Started:
        started = _Started([], [])
        for delivery, result in zip(deliveries, _checked(returned, deliveries), strict=True):
            try:
                with self._results.trace_of(delivery):
                    written = self._results.start(delivery, result)
            except BaseException as exc:
                started.failed.append((delivery, exc))
            else:
                if written is not None:
                    started.writes.append((delivery, written))
        return started

    def _end(
        self,
        deliveries: Sequence[TrackedDelivery],
        failed: Sequence[tuple[TrackedDelivery, BaseException]],
    ) -> None:
        """End all items but the first that failed, and raise what that failed with."""
        if not failed:
            return
        outcomes = {id(delivery): self._judge(exc) for delivery, exc in failed}
        for delivery, exc in failed:
            if isinstance(outcomes[id(delivery)], Paused):
                # It concerns the handler and not an item, as where the handler raises it.
                raise exc
        first, exc = failed[0]
        for delivery in deliveries:
            if delivery is not first and delivery.outcome is None and not delivery.closed:
                delivery.end(outcomes.get(id(delivery), ACKED))
        raise exc


class _Started(NamedTuple):
    """The writes of a batch, and what failed before there was one."""

    writes: list[tuple[TrackedDelivery, Written]]
    failed: list[tuple[TrackedDelivery, BaseException]]


def _checked(returned: object, deliveries: Sequence[TrackedDelivery]) -> Sequence[Any]:
    """The results of a batch; raises TypeError where they are not one an item."""
    want = f"return a list with one result for each of its {len(deliveries)} item(s)"
    if not isinstance(returned, list | tuple):
        raise TypeError(f"a batch handler with to= returned {type(returned).__name__}: {want}")
    if len(returned) != len(deliveries):
        raise TypeError(
            f"a batch handler with to= returned {len(returned)} results: {want}, None for those "
            "that have none"
        )
    for number, (delivery, result) in enumerate(zip(deliveries, returned, strict=True)):
        if result is not None and delivery.outcome is not None:
            raise TypeError(
                f"result {number} of a batch is that of {delivery}, which the handler has answered "
                "itself: return None for it, or leave the answer to the return"
            )
    return returned
