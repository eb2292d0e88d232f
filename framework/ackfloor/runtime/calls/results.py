"""Results: what a handler returns or yields, published within its call.

So a result is confirmed by the broker before the call has ended, and its record is settled after
that: the consume timeout, failures and spans are those of the handler. It is done inside of the
middleware, which sees the whole of it.

What a generator yields is written as it comes, at most `MOST_UNCONFIRMED` ahead of what is
confirmed. Where it fails in its middle, what it has yielded stays published, and its redelivery
publishes it again.

A delivery that has ended already, because its time was up or its partition has left, publishes
nothing more: its record is delivered again. It may end while a write is on its way; so there may
be two results of one record, and there is never none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, aclosing, closing, nullcontext
from typing import Any, Protocol

from ackfloor.core.records.envelope import PREFIX
from ackfloor.core.records.record import Headers
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.declare.encoders import SchemaEncoder
from ackfloor.declare.outgoing import HeadersGiven, header_pairs
from ackfloor.declare.result_topic import To
from ackfloor.declare.signature import Signature

#: Results of one generator that are written and not confirmed.
MOST_UNCONFIRMED = 500
#: Copies of our headers for other tools, where they stand behind ours.
_COPIES = ("kafka_dlt-", "__dlq.errors.")

Written = Future[None]
_Call = Callable[[TrackedDelivery], Any]
_Named = tuple[list[tuple[str, bytes | None]], frozenset[str]]


class Write(Protocol):
    """Starts to write a record; see `App.write`."""

    def __call__(
        self,
        topic: str,
        value: Any,
        encoder: SchemaEncoder | None,
        key: bytes | str | None,
        headers: HeadersGiven,
    ) -> Written: ...


class Results:
    """Where the results of one handler go.

    Args:
        to: what the user has declared.
        write: starts to write a record.
        trace_of: opens the trace that a delivery came with, where that of the call is another one:
            in a batch.
    """

    def __init__(
        self,
        to: To[Any],
        write: Write,
        trace_of: Callable[[TrackedDelivery], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._to = to
        self._write = write
        self.trace_of = trace_of
        self._given = _given(to)

    def around(self, call: _Call, signature: Signature) -> _Call:
        """The call of a handler of single records, which ends once its results are confirmed."""
        if signature.is_async:
            return self._yielded_async(call) if signature.yields else self._returned_async(call)
        return self._yielded(call) if signature.yields else self._returned(call)

    def _returned_async(self, call: _Call) -> _Call:
        async def returned(delivery: TrackedDelivery) -> None:
            written = self.start(delivery, await call(delivery))
            if written is not None:
                await asyncio.wrap_future(written)

        return returned

    def _returned(self, call: _Call) -> _Call:
        def returned(delivery: TrackedDelivery) -> None:
            written = self.start(delivery, call(delivery))
            if written is not None:
                written.result()

        return returned

    def _yielded_async(self, call: Callable[[TrackedDelivery], AsyncGenerator[Any]]) -> _Call:
        async def yielded(delivery: TrackedDelivery) -> None:
            unconfirmed: deque[Written] = deque()
            async with aclosing(call(delivery)) as results:
                async for result in results:
                    if delivery.closed:
                        return
                    self._start_next(delivery, result, unconfirmed)
                    for written in _due(unconfirmed):
                        await asyncio.wrap_future(written)
            for written in unconfirmed:
                await asyncio.wrap_future(written)

        return yielded

    def _yielded(self, call: Callable[[TrackedDelivery], Generator[Any]]) -> _Call:
        def yielded(delivery: TrackedDelivery) -> None:
            unconfirmed: deque[Written] = deque()
            with closing(call(delivery)) as results:
                for result in results:
                    if delivery.closed:
                        return
                    self._start_next(delivery, result, unconfirmed)
                    for written in _due(unconfirmed):
                        written.result()
            for written in unconfirmed:
                written.result()

        return yielded

    def _start_next(
        self, delivery: TrackedDelivery, result: object, unconfirmed: deque[Written]
    ) -> None:
        written = self.start(delivery, result)
        if written is not None:
            unconfirmed.append(written)

    def start(self, delivery: TrackedDelivery, result: Any) -> Written | None:
        """Start to write one result; None where there is nothing to write.

        Raises:
            TypeError: it is no result, or its key is no key.
            Exception: what a function of the user's raised, or JSON can't hold the value.
        """
        if result is None or delivery.closed:
            return None
        if isinstance(result, Iterator | AsyncIterator):
            raise TypeError(
                f"the handler's result is an iterator ({type(result).__name__}): yield results "
                "one by one in the handler itself, or return a list to publish as one record"
            )
        to = self._to
        key = delivery.key if to.key is None else _checked_key(to.key(result))
        headers = self._headers(delivery, result)
        if delivery.assignment.handler.rules.exactly_once:
            delivery.publish(to.topic, result, key=key, headers=headers)
            return None
        return self._write(to.topic, result, to.encoder, key, headers)

    def _headers(self, delivery: TrackedDelivery, result: object) -> Headers:
        """The record's own, then those that were declared, in place of those of the same name."""
        given, names = self._given(result)
        own = own_headers(delivery.headers)
        return [header for header in own if header[0] not in names] + given


def own_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The headers that a record came with: not ours, nor their copies, which stand behind ours."""
    own: list[tuple[str, bytes | None]] = []
    parked_before = False
    for header in headers:
        if header[0].startswith(PREFIX):
            parked_before = True
        elif not (parked_before and header[0].startswith(_COPIES)):
            own.append(header)
    return own


def _given(to: To[Any]) -> Callable[[Any], _Named]:
    """What says which headers a result is given."""
    headers = to.headers
    if callable(headers):
        return lambda result: _named(headers(result))
    fixed = _named(headers)
    return lambda _result: fixed


def _named(headers: HeadersGiven) -> _Named:
    """Headers as they are written, and their names."""
    pairs = list(header_pairs(headers))
    for name, _ in pairs:
        if name.startswith(PREFIX):
            raise ValueError(f"to.headers has {name}, and those of that prefix say what was parked")
    return pairs, frozenset(name for name, _ in pairs)


def _checked_key(key: object) -> bytes | str | None:
    if key is None or isinstance(key, bytes | str):
        return key
    raise TypeError(
        f"the function to.key returned {type(key).__name__}: return bytes, text or None"
    )


def _due(unconfirmed: deque[Written]) -> Iterator[Written]:
    """What is to be waited for now: what has its answer, and what is over the bound."""
    while unconfirmed and (unconfirmed[0].done() or len(unconfirmed) > MOST_UNCONFIRMED):
        yield unconfirmed.popleft()
