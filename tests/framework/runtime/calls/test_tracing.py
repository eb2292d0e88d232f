"""Spans: one for each call of a handler, in the trace that the record's producer began."""

from __future__ import annotations

import asyncio
import threading
from asyncio import CancelledError

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
from opentelemetry.semconv.attributes import error_attributes as error
from opentelemetry.semconv.attributes import exception_attributes as exception
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from ackfloor import App, DeadLetter, Delivery, Discard, Pause, Retry, RetryPolicy
from ackfloor.core.records.redaction import Redaction
from ackfloor.runtime.calls.tracing import spans_of
from ackfloor.testing import Harness
from tests.framework.runtime.live import live
from tests.framework.runtime.tracing import SPAN_ID, TRACE_ID, TRACEPARENT, attributes, traced

TWICE = RetryPolicy.fixed("1s", 1)


def test_without_a_provider_handlers_are_called_as_they_are() -> None:
    """The API is installed and nobody has set a provider: there is nothing to call in between."""
    assert spans_of("g", Redaction()) is None


def test_a_delivery_is_a_span_in_its_producers_trace() -> None:
    """Names, kind and attributes are those of the semantic conventions; no payload is in them."""
    app, current = App("billing"), []

    @app.handler("orders")
    async def bill(delivery: Delivery) -> None:
        await asyncio.sleep(1)
        current.append(get_current_span().get_span_context())

    with traced() as seen, Harness(app) as harness:
        harness.send("orders", b"SECRET", key=b"SECRET", headers=[TRACEPARENT, ("h", b"SECRET")])
        harness.advance("2s")
        span = seen.one()
    assert (span.name, span.kind) == ("process orders", SpanKind.CONSUMER)
    assert span.context is not None
    assert span.parent is not None
    assert current == [span.context]
    assert (span.context.trace_id, span.parent.span_id) == (TRACE_ID, SPAN_ID)
    assert [link.context.span_id for link in span.links] == [SPAN_ID]
    assert attributes(span) == {
        messaging.MESSAGING_SYSTEM: messaging.MessagingSystemValues.KAFKA.value,
        messaging.MESSAGING_OPERATION_NAME: "process",
        messaging.MESSAGING_OPERATION_TYPE: messaging.MessagingOperationTypeValues.PROCESS.value,
        messaging.MESSAGING_DESTINATION_NAME: "orders",
        messaging.MESSAGING_DESTINATION_PARTITION_ID: "0",
        messaging.MESSAGING_KAFKA_OFFSET: 0,
        messaging.MESSAGING_CONSUMER_GROUP_NAME: "billing",
        "ackfloor.handler": "bill",
        "ackfloor.attempt": 1,
        "ackfloor.outcome": "returned",
    }
    assert "SECRET" not in span.to_json()
    assert not get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("header", [None, ("traceparent", b"\xff"), ("traceparent", None)])
def test_a_record_without_a_trace_begins_one(header: tuple[str, bytes | None] | None) -> None:
    """As does one whose header can't be read; a tombstone is called one."""
    app = App("billing")

    @app.handler("orders")
    def bill(delivery: Delivery) -> None: ...

    with traced() as seen, Harness(app) as harness:
        harness.send("orders", None, headers=[] if header is None else [header])
        span = seen.one()
    assert span.parent is None
    assert not span.links
    assert attributes(span)[messaging.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] is True


def test_every_delivery_of_a_record_is_in_one_trace_and_the_dead_letter_stays_in_it() -> None:
    """Retry topics carry the header on; each span says which attempt it is, and of what."""
    app = App("billing")

    @app.handler("orders", retry=TWICE, breaker=None)
    async def bill(delivery: Delivery) -> None:
        raise ValueError(f"no account, attempt {delivery.attempt}")

    with traced() as seen, Harness(app) as harness:
        harness.send("orders", b"x", headers=[TRACEPARENT])
        harness.advance("2s")
        first, second = seen.spans()
        (dead,) = harness.dlq("orders")
    assert TRACEPARENT in list(dead.headers)
    for span in (first, second):
        assert span.context is not None
        assert (span.context.trace_id, span.kind) == (TRACE_ID, SpanKind.CONSUMER)
        assert span.status.status_code is StatusCode.ERROR
        (event,) = span.events
        told = dict(event.attributes or {})
        assert told[exception.EXCEPTION_TYPE] == "ValueError" == attributes(span)[error.ERROR_TYPE]
        assert "no account, attempt" in str(told[exception.EXCEPTION_MESSAGE])
        assert "in bill" in str(told[exception.EXCEPTION_STACKTRACE])
    assert second.name == "process orders--billing--retry-1s"
    assert attributes(second)["ackfloor.attempt"] == 2
    assert attributes(second)["ackfloor.origin.topic"] == "orders"
    assert attributes(second)["ackfloor.origin.partition"] == 0
    assert attributes(second)["ackfloor.origin.offset"] == 0


@pytest.mark.parametrize(
    ("raised", "outcome", "kind"),
    [
        (Retry(reason="busy"), "failed", "Retry"),
        (DeadLetter("hopeless"), "rejected", "DeadLetter"),
        (Discard("a double"), "discarded", None),
        (Pause("1s", "bank away"), "held", None),
        (KeyError("id"), "rejected", "KeyError"),
        (SystemExit(3), "failed", "SystemExit"),
        (GeneratorExit(), "failed", "GeneratorExit"),
        (CancelledError(), "failed", "asyncio.exceptions.CancelledError"),
    ],
    ids=lambda value: getattr(value, "__class__", type(value)).__name__,
)
def test_a_span_says_what_the_handler_said(
    raised: BaseException, outcome: str, kind: str | None
) -> None:
    """What is no failure is no error; what says its own word has no stack."""
    app, told = App("billing"), [raised]

    @app.handler("orders", retry=TWICE, dead_letter_on=(KeyError,), breaker=None)
    def bill(delivery: Delivery) -> None:
        if told:
            raise told.pop()

    with traced() as seen, Harness(app) as harness:
        harness.send("orders", b"x")
        harness.advance("5s")
        span = seen.spans()[0]
    assert attributes(span)["ackfloor.outcome"] == outcome
    assert attributes(span).get(error.ERROR_TYPE) == kind
    assert (span.status.status_code is StatusCode.ERROR) == (kind is not None)
    assert bool(span.events) == (kind not in {None, "Retry", "DeadLetter"})


@pytest.mark.parametrize("raised", [GeneratorExit(), CancelledError(), SystemExit(0)], ids=repr)
def test_what_an_async_handler_raises_by_itself_is_no_cancellation(raised: BaseException) -> None:
    """Only what comes from outside releases the record, and its span."""
    app = App("billing")

    @app.handler("orders", retry=TWICE, breaker=None)
    async def bill(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise raised

    with traced() as seen, Harness(app) as harness:
        harness.send("orders", b"x")
        harness.advance("5s")
        span = seen.spans()[0]
    assert attributes(span)["ackfloor.outcome"] == "failed"
    assert attributes(span)[error.ERROR_TYPE].endswith(type(raised).__name__)


def test_a_handler_that_a_shutdown_cancels_is_released() -> None:
    """Its record comes again elsewhere, and nothing has failed."""
    app = App("billing")

    @app.handler("orders")
    async def bill(delivery: Delivery) -> None:
        await asyncio.Event().wait()

    with traced() as seen, live(app, shutdown_s=0.0) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: list(worker.executor("bill").running()))
        worker.close()
        span = seen.one("process")
    assert attributes(span)["ackfloor.outcome"] == "released"
    assert span.status.status_code is not StatusCode.ERROR


def test_a_deadline_is_the_error_of_the_span() -> None:
    """The span of a handler that was cancelled for it ends with it."""
    app = App("billing")

    @app.handler("orders", consume_timeout="5s", retry=TWICE)
    async def bill(delivery: Delivery) -> None:
        await asyncio.sleep(60 if delivery.attempt == 1 else 0)

    with traced() as seen, Harness(app) as harness:
        harness.send("orders", b"x")
        harness.advance("10s")
        first, second = seen.spans()
    assert attributes(first)["ackfloor.outcome"] == "timeout"
    assert attributes(first)[error.ERROR_TYPE] == "ConsumeTimeout"
    assert attributes(second)["ackfloor.outcome"] == "returned"


def test_a_batch_is_one_span_linked_to_all_its_producers() -> None:
    """A record without a trace has no link; the span is in a trace of its own."""
    app = App("billing")

    @app.handler("orders", batch=3, batch_wait="1s")
    async def store(items: list[bytes], deliveries: list[Delivery]) -> None: ...

    with traced() as seen, Harness(app) as harness:
        harness.send("orders", b"1", headers=[TRACEPARENT])
        harness.send("orders", b"2")
        other = f"00-{TRACE_ID + 1:032x}-{SPAN_ID:016x}-01".encode()
        harness.send("orders", b"3", headers=[TRACEPARENT, ("traceparent", other)])
        harness.advance("2s")
        span = seen.one()
    assert span.parent is None
    assert (span.name, attributes(span)[messaging.MESSAGING_BATCH_MESSAGE_COUNT]) == (
        "process orders",
        3,
    )
    assert [link.context.trace_id for link in span.links] == [TRACE_ID, TRACE_ID + 1]
    links = [dict(link.attributes or {}) for link in span.links]
    assert [link[messaging.MESSAGING_KAFKA_OFFSET] for link in links] == [0, 2]


@pytest.mark.parametrize("kind", ["async", "def"])
def test_what_is_published_carries_the_trace_on(kind: str) -> None:
    """From the handler's span through the one of the publish to whoever reads the record."""
    app, read = App("billing"), []

    async def bill(delivery: Delivery) -> None:
        await app.publish("bills", b"x", headers=list(delivery.headers))

    def bill_sync(delivery: Delivery) -> None:
        app.publish_sync("bills", b"x", headers=list(delivery.headers))

    app.handler("orders", name="bill")(bill if kind == "async" else bill_sync)

    @app.handler("bills")
    def ship(delivery: Delivery) -> None:
        read.append(delivery.headers)

    with traced() as seen, Harness(app) as harness:
        harness.send("orders", b"x", headers=[("a", b"1"), TRACEPARENT])
        process, send, ship_ = (seen.one(n) for n in ("process orders", "send", "process bills"))
    assert (send.name, send.kind) == ("send bills", SpanKind.PRODUCER)
    assert send.parent is not None
    assert ship_.parent is not None
    assert send.parent.span_id == process.get_span_context().span_id
    assert ship_.parent.span_id == send.get_span_context().span_id
    (headers,) = read
    # The trace that was passed on by hand was brought up to date, not doubled.
    assert [name for name, _ in headers] == ["a", "traceparent"]


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_result_carries_the_trace_on(kind: str) -> None:
    """As what is published by hand; the headers that it takes over are brought up to date."""
    app, read = App("billing"), []

    async def bill(value: bytes) -> bytes:
        return value

    def bill_sync(value: bytes) -> bytes:
        return value

    app.handler("orders", name="bill", to="bills")(bill if kind == "async" else bill_sync)

    @app.handler("bills")
    def ship(delivery: Delivery) -> None:
        read.append(delivery.headers)

    with traced() as seen, Harness(app) as harness:
        harness.send("orders", b"x", headers=[TRACEPARENT, ("a", b"1")])
        process, send, ship_ = (seen.one(n) for n in ("process orders", "send", "process bills"))
    assert send.parent is not None
    assert ship_.parent is not None
    assert send.parent.span_id == process.get_span_context().span_id
    assert send.get_span_context().trace_id == TRACE_ID
    assert ship_.parent.span_id == send.get_span_context().span_id
    (headers,) = read
    assert [name for name, _ in headers] == ["a", "traceparent"]


def test_a_result_of_a_batch_stays_in_the_trace_of_its_record() -> None:
    """The span of the call has a trace of its own, which is for records that came without one."""
    app = App("billing")

    @app.handler("orders", batch=2, batch_wait="1s", to="bills")
    async def bill(values: list[bytes]) -> list[bytes]:
        return values

    with traced() as seen, Harness(app) as harness:
        harness.send("orders", b"1", headers=[TRACEPARENT])
        harness.send("orders", b"2")
        process, first, second = seen.spans()
        carried = [dict(record.headers)["traceparent"] for record in harness.published("bills")]
    if process.name != "process orders":
        first, second, process = process, first, second
    assert first.parent is not None
    assert (first.get_span_context().trace_id, first.parent.span_id) == (TRACE_ID, SPAN_ID)
    assert second.parent is not None
    assert second.parent.span_id == process.get_span_context().span_id
    for span, header in zip((first, second), carried, strict=True):
        assert header is not None
        assert f"{span.get_span_context().span_id:016x}" in header.decode()


def test_without_tracing_the_record_s_own_trace_is_passed_on() -> None:
    """As it came: whoever reads the result is in the trace of the record."""
    app = App("billing")

    @app.handler("orders", to="bills")
    async def bill(value: bytes) -> bytes:
        return value

    with Harness(app) as harness:
        harness.send("orders", b"x", headers=[TRACEPARENT])
        (record,) = harness.published("bills")
    assert record.headers == (TRACEPARENT,)


def test_what_exceptions_say_is_redacted() -> None:
    """Message, stack and status; a payload is often part of an error's text."""
    app = App("billing")

    @app.handler("orders", retry=TWICE, breaker=None)
    def bill(delivery: Delivery) -> None:
        raise ValueError("card 4111111111111111 refused")

    with traced() as seen, Harness(app, settings={"redaction": {"patterns": [r"\d{16}"]}}) as h:
        h.send("orders", b"x")
        span = seen.one()
    assert "card *** refused" in span.to_json()
    assert "4111111111111111" not in span.to_json()


class Broken(SpanProcessor):
    """Raises wherever it can."""

    def __init__(self, fault: BaseException) -> None:
        self._fault = fault

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if "process" in span.name:
            raise self._fault

    def on_end(self, span: ReadableSpan) -> None:
        raise self._fault


@pytest.mark.parametrize(
    "fault", [RuntimeError("no room for spans"), SystemExit(0), GeneratorExit()], ids=repr
)
def test_a_record_is_handled_whatever_opentelemetry_does(
    fault: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Its fault is told once and costs no record an attempt."""
    app, handled = App("billing"), []

    @app.handler("orders")
    async def bill(delivery: Delivery) -> None:
        await app.publish("elsewhere", b"x")
        handled.append(delivery.attempt)

    with traced(Broken(fault)), Harness(app) as harness:
        for _ in range(3):
            harness.send("orders", b"x")
    assert handled == [1, 1, 1]
    assert caplog.text.count("OpenTelemetry failed") == 1


def test_nothing_of_a_span_is_left_to_the_next_record() -> None:
    """The same slot handles both."""
    app, left = App("billing"), []

    @app.handler("orders", concurrency=1)
    def bill(delivery: Delivery) -> None:
        left.append((threading.get_ident(), get_current_span().get_span_context().trace_id))

    with traced(), Harness(app) as harness:
        harness.send("orders", b"x", headers=[TRACEPARENT])
        harness.send("orders", b"x")
    (one, first), (other, second) = left
    assert one == other
    assert first == TRACE_ID != second
