"""A tracer provider of a test's own, in the place of the process's: only one can ever be set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

#: The context of a producer that the records of a test come from, as its header says it.
TRACE_ID, SPAN_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = ("traceparent", f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01".encode())


class Seen:
    """The spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Those whose name begins so, in the order of their ends."""
        return [s for s in self._exporter.get_finished_spans() if s.name.startswith(name)]

    def one(self, name: str = "") -> ReadableSpan:
        """The only one whose name begins so."""
        (span,) = self.spans(name)
        return span


@contextmanager
def traced(*processors: SpanProcessor) -> Iterator[Seen]:
    """What is inside runs in a process that has set a tracer provider."""
    seen = Seen()
    for processor in processors:
        seen.provider.add_span_processor(processor)
    place: Any = trace
    before, place._TRACER_PROVIDER = place._TRACER_PROVIDER, seen.provider
    try:
        yield seen
    finally:
        place._TRACER_PROVIDER = before
        seen.provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes as a plain dictionary."""
    return dict(span.attributes or {})
