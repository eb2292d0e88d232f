"""Tracing: whether there are spans at all. That is decided once, when handlers are bound.

Without the extra `otel`, or where the app has set no tracer provider, handlers are called as they
are and nothing of this costs anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackfloor.core.records.redaction import Redaction

if TYPE_CHECKING:
    from ackfloor.runtime.calls.spans import Spans


def spans_of(group: str, redaction: Redaction) -> Spans | None:
    """The maker of spans; None where tracing is off.

    Call it after the app was imported and its lifespan entered: either may set the provider.
    """
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    from ackfloor.runtime.calls.spans import Spans

    return Spans(provider, group, redaction)
