"""Which trace a record belongs to, whatever its headers hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.records.trace_context import sampled_trace

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE}-b7ad6b7169203331-01".encode()
OTHER = SAMPLED.replace(b"0af7", b"ffff")


@pytest.mark.parametrize(
    ("headers", "trace"),
    [
        ([], ""),
        ([("traceparent", SAMPLED)], TRACE),
        ([("a", b"1"), ("traceparent", SAMPLED), ("b", None)], TRACE),
        ([("traceparent", OTHER), ("traceparent", SAMPLED)], TRACE),
        ([("traceparent", SAMPLED), ("traceparent", None)], ""),
        ([("traceparent", SAMPLED[:-1] + b"0")], ""),
        ([("traceparent", SAMPLED + b"-more")], ""),
        ([("tracestate", SAMPLED)], ""),
    ],
)
def test_the_last_header_counts_where_the_trace_is_kept(
    headers: list[tuple[str, bytes | None]], trace: str
) -> None:
    """As tracers read it; a trace that is not sampled leads nowhere."""
    assert sampled_trace(headers) == trace


@given(st.binary(max_size=80))
def test_no_bytes_break_it(value: bytes) -> None:
    """What comes out is an id or nothing."""
    assert len(sampled_trace([("traceparent", value)])) in {0, 32}
