"""Traces through a real Kafka and real processes, from the producer to the last handler."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.stage import Stage
from tests.framework.runtime.tracing import SPAN_ID, TRACE_ID, TRACEPARENT
from tests.written import whole_lines

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

# A provider as an app would set it, with spans as lines of a file.
APP = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

spans = os.open("spans", os.O_APPEND | os.O_CREAT | os.O_WRONLY)


class Lines(SpanExporter):
    def export(self, done):
        os.write(spans, "".join(span.to_json(None) + "\\n" for span in done).encode())
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Lines()))
trace.set_tracer_provider(provider)

app = App("GROUP")


@app.handler("TOPIC", retry=RetryPolicy.fixed("50ms", 1))
async def bill(delivery: Delivery) -> None:
    if delivery.attempt == 1:
        raise ConnectionError("away")
    await app.publish("TOPIC-bills", delivery.value)


@app.handler("TOPIC-bills", name="ship", executor="process", concurrency=1)
def ship(delivery: Delivery) -> None:
    note(handled, delivery)
"""


def test_a_record_is_in_one_trace_from_its_producer_to_the_handler_of_what_it_led_to(
    make_stage: Callable[..., Stage],
) -> None:
    """A failed delivery, its retry, what that publishes, and a handler in a process of its own."""
    stage = make_stage(APP, partitions=1)
    bills = stage.make_topic("bills", joint="-")
    stage.produce(1, b"x", headers=[TRACEPARENT])
    run = stage.run()
    run.until(lambda: len(spans(stage)) == 4, "four spans")
    found = {each["name"]: each for each in spans(stage)}
    first = found[f"process {stage.topic}"]
    second = found[f"process {stage.topic}--{stage.group}--retry-50ms"]
    send, ship = found[f"send {bills}"], found[f"process {bills}"]
    assert {each["context"]["trace_id"] for each in found.values()} == {f"0x{TRACE_ID:032x}"}
    assert first["parent_id"] == second["parent_id"] == f"0x{SPAN_ID:016x}"
    assert send["parent_id"] == second["context"]["span_id"]
    assert ship["parent_id"] == send["context"]["span_id"]
    assert (first["kind"], send["kind"]) == ("SpanKind.CONSUMER", "SpanKind.PRODUCER")
    assert first["attributes"]["error.type"] == "ConnectionError"
    assert second["attributes"]["ackfloor.attempt"] == 2


def spans(stage: Stage) -> list[dict[str, Any]]:
    """The spans so far."""
    return [json.loads(line) for line in whole_lines(stage.folder / "spans")]
