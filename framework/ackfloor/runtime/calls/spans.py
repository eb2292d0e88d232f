"""OpenTelemetry spans of deliveries and of published records, through its API alone.

Each call of a handler is a span. The span of one record belongs to the trace that the record's
producer began, by the record's own headers (`traceparent`). Those headers pass through retry and
dead-letter topics as they are, so all deliveries of a record, and its redrive, are in one trace.
A batch has many producers: its span is linked to all of them. Names and attributes are those of the
semantic conventions for messaging; no key, value or header is among them, and the rules of
`[redaction]` hold for what an exception says.

Nothing here ends a record: what a propagator, sampler or span processor raises is logged once, and
the handler is called as if there were no span.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError, current_task
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Token
from dataclasses import replace
from typing import Any, NamedTuple

from opentelemetry import propagate, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Link, Span, SpanKind, StatusCode

from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import CONSUME_TIMEOUT, Discarded, Outcome, Paused, Rejected
from ackfloor.core.records.record import Headers
from ackfloor.core.records.redaction import Redaction
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.errors import DeadLetter, Retry
from ackfloor.ports import Publisher
from ackfloor.runtime.calls.invoke import Call, Invocation

log = logging.getLogger("ackfloor.tracing")

#: Of exceptions that say what is to happen, where they were raised is of no interest.
_CONTROL_EXCEPTIONS = (Retry, DeadLetter)

Attributes = dict[str, str | int | bool]
#: (delivery or batch, handler) -> its span, and the context that came with it.
_Begin = Callable[[Any, str], tuple[Span, Context]]


class _Reads(Getter[Headers]):
    """Reads a record's headers for a propagator; of a repeated name the last one counts."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        found = [value for name, value in carrier if name == key and value is not None]
        return [found[-1].decode("utf-8", "replace")] if found else None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


class _Writes(Setter[list[tuple[str, bytes | None]]]):
    """Writes headers for a propagator, in place of those that were there."""

    def set(self, carrier: list[tuple[str, bytes | None]], key: str, value: str) -> None:
        carrier[:] = [pair for pair in carrier if pair[0] != key]
        carrier.append((key, value.encode()))


_READS, _WRITES = _Reads(), _Writes()


class _Open(NamedTuple):
    """A span that is current, and how what was current before comes back."""

    span: Span
    token: Token[Context]


class Spans:
    """Makes the spans of one group's handlers.

    Args:
        provider: whose tracer makes them.
        group: the consumer group.
        redaction: what is taken from an exception's text.
    """

    def __init__(self, provider: trace.TracerProvider, group: str, redaction: Redaction) -> None:
        self._tracer = provider.get_tracer("ackfloor")
        self._group = group
        self._redaction = redaction
        self._failure_logged = False

    # Handlers.

    def around(self, invocation: Invocation, *, batch: bool) -> Invocation:
        """The same handler, with a span around each of its calls."""
        call, handler = invocation.call, invocation.handler
        begin: _Begin = self._batch if batch else self._single
        publishes = invocation.publishes

        async def call_async(what: Any) -> None:
            opened = self._open(begin, what, handler)
            try:
                await call(what)
                if what in publishes.open:
                    await publishes.settle(what)
            except BaseException as exc:
                self._close(opened, what, exc, invocation)
                raise
            self._close(opened, what, None, invocation)

        def call_sync(what: Any) -> None:
            opened = self._open(begin, what, handler)
            try:
                call(what)
                if what in publishes.open:
                    publishes.settle_sync(what)
            except BaseException as exc:
                self._close(opened, what, exc, invocation)
                raise
            self._close(opened, what, None, invocation)

        traced: Call = call_async if invocation.is_async else call_sync
        return replace(invocation, call=traced)

    def _open(self, begin: _Begin, what: Any, handler: str) -> _Open | None:
        try:
            span, context = begin(what, handler)
            # In the place of the slot's own context, which is not this record's.
            return _Open(span, attach(trace.set_span_in_context(span, context)))
        except BaseException as exc:
            self._log_failure(exc)
            return None

    def _single(self, delivery: TrackedDelivery, handler: str) -> tuple[Span, Context]:
        context = propagate.extract(delivery.headers, Context(), _READS)
        producer = trace.get_current_span(context).get_span_context()
        attributes = self._about(handler, delivery.topic, "process")
        attributes |= _place(delivery)
        attributes["ackfloor.attempt"] = delivery.attempt
        if delivery.attempt > 1:
            origin = delivery.origin
            attributes["ackfloor.origin.topic"] = origin.topic
            attributes["ackfloor.origin.partition"] = origin.partition
            attributes["ackfloor.origin.offset"] = origin.offset
        if delivery.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        links = [Link(producer)] if producer.is_valid else None
        name = f"process {delivery.topic}"
        span = self._tracer.start_span(name, context, SpanKind.CONSUMER, attributes, links)
        return span, context

    def _batch(self, batch: Batch, handler: str) -> tuple[Span, Context]:
        topics = {delivery.topic for delivery in batch.items}
        name = topics.pop() if len(topics) == 1 else None
        attributes = self._about(handler, name, "process")
        attributes["messaging.batch.message_count"] = len(batch.items)
        links = []
        for delivery in batch.items:
            context = propagate.extract(delivery.headers, Context(), _READS)
            producer = trace.get_current_span(context).get_span_context()
            if producer.is_valid:
                links.append(Link(producer, _place(delivery)))
        span = self._tracer.start_span(
            f"process {name or handler}", Context(), SpanKind.CONSUMER, attributes, links
        )
        return span, Context()

    def _about(self, handler: str | None, topic: str | None, operation: str) -> Attributes:
        attributes: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
        }
        if topic is not None:
            attributes["messaging.destination.name"] = topic
        if handler is not None:
            attributes["messaging.consumer.group.name"] = self._group
            attributes["ackfloor.handler"] = handler
        return attributes

    def _close(
        self, opened: _Open | None, what: Any, exc: BaseException | None, invocation: Invocation
    ) -> None:
        if opened is None:
            return
        try:
            if opened.span.is_recording():
                self._set_outcome(opened.span, _first(what), exc, invocation)
            opened.span.end()
        except BaseException as failed:
            self._log_failure(failed)
        finally:
            detach(opened.token)

    def _set_outcome(
        self,
        span: Span,
        delivery: TrackedDelivery,
        exc: BaseException | None,
        invocation: Invocation,
    ) -> None:
        """Set the span's outcome."""
        due_s = delivery.deadline_s
        if delivery.closed and due_s is not None and delivery.assignment.clock() >= due_s:
            span.set_attribute("ackfloor.outcome", "timeout")
            _failed(span, CONSUME_TIMEOUT, "no answer before the deadline")
        elif exc is None:
            span.set_attribute("ackfloor.outcome", "returned")
        elif invocation.is_async and _cut_short(delivery, exc):
            span.set_attribute("ackfloor.outcome", "released")
        else:
            self._set_exception_outcome(span, exc, invocation.outcome_of(exc))

    def _set_exception_outcome(self, span: Span, exc: BaseException, outcome: Outcome) -> None:
        if isinstance(outcome, Paused | Discarded):
            kind = "held" if isinstance(outcome, Paused) else "discarded"
            span.set_attribute("ackfloor.outcome", kind)
            span.set_attribute("ackfloor.reason", self._shown(outcome.reason))
            return
        span.set_attribute(
            "ackfloor.outcome", "rejected" if isinstance(outcome, Rejected) else "failed"
        )
        failure = getattr(outcome, "failure", None)
        kind = type(exc).__qualname__ if failure is None else failure.error_type
        text = "" if failure is None else self._shown(failure.message)
        _failed(span, kind, text)
        if failure is not None and not isinstance(exc, _CONTROL_EXCEPTIONS):
            event = {
                "exception.type": kind,
                "exception.message": text,
                "exception.stacktrace": self._shown(failure.stack),
            }
            span.add_event("exception", event)

    def _shown(self, text: object) -> str:
        return self._redaction.of_text(str(text)) or ""

    # Published records.

    def publisher(self, inner: Publisher) -> Publisher:
        """The same publisher, with a span for each record, which the record carries on."""
        return _TracedPublisher(self, inner)

    @contextmanager
    def trace_of(self, delivery: TrackedDelivery) -> Iterator[None]:
        """The trace that a record came with is current: for what a batch publishes of it."""
        token = self._enter(delivery)
        try:
            yield
        finally:
            if token is not None:
                detach(token)

    def _enter(self, delivery: TrackedDelivery) -> Token[Context] | None:
        try:
            context = propagate.extract(delivery.headers, Context(), _READS)
            producer = trace.get_current_span(context).get_span_context()
            return attach(context) if producer.is_valid else None
        except BaseException as exc:
            self._log_failure(exc)
            return None

    def sending(self, topic: str, headers: Headers) -> tuple[Span | None, Headers]:
        """The span of a record that is published now, and its headers."""
        try:
            attributes = self._about(None, topic, "send")
            span = self._tracer.start_span(
                f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes
            )
            carried = list(headers)
            propagate.inject(carried, trace.set_span_in_context(span), _WRITES)
        except BaseException as exc:
            self._log_failure(exc)
            return None, headers
        return span, carried

    def sent(self, span: Span | None, error: BaseException | None) -> None:
        """A record was confirmed, or was not written."""
        if span is None:
            return
        try:
            if error is not None:
                _failed(span, type(error).__qualname__, self._shown(error))
            span.end()
        except BaseException as exc:
            self._log_failure(exc)

    def _log_failure(self, exc: BaseException) -> None:
        if not self._failure_logged:
            self._failure_logged = True
            log.error(
                "OpenTelemetry failed: a span is missing, and the record is handled", exc_info=exc
            )


class _TracedPublisher:
    """Publishes through another publisher, in the context of whoever calls."""

    def __init__(self, spans: Spans, inner: Publisher) -> None:
        self._spans = spans
        self._inner = inner

    def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        on_done: Callable[[BaseException | None], None],
        partition: int | None = None,
    ) -> None:
        """Start writing one record; see `ports.Publisher`."""
        span, carried = self._spans.sending(topic, headers)

        def done(error: BaseException | None) -> None:
            self._spans.sent(span, error)
            on_done(error)

        self._inner.publish(topic, value, key, carried, done, partition)

    def close(self, timeout_s: float) -> None:
        """Wait for outstanding confirmations; see `ports.Publisher`."""
        self._inner.close(timeout_s)


def _first(what: TrackedDelivery | Batch) -> TrackedDelivery:
    """The delivery whose deadline is the call's."""
    return what.items[0] if isinstance(what, Batch) else what


def _cut_short(delivery: TrackedDelivery, exc: BaseException) -> bool:
    """Whether an async call was cancelled from outside, or thrown away with its event loop.

    What its own code raises under the same names is an error.
    """
    try:
        task = current_task()
    except RuntimeError:
        task = None
    if task is None:
        return isinstance(exc, GeneratorExit)
    unwanted = delivery.closed or delivery.assignment.stopping
    return isinstance(exc, CancelledError) and unwanted and task.cancelling() > 0


def _place(delivery: TrackedDelivery) -> Attributes:
    return {
        "messaging.destination.partition.id": str(delivery.partition),
        "messaging.kafka.offset": delivery.offset,
    }


def _failed(span: Span, kind: str, text: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, text)
