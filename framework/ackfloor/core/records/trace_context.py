"""Trace context: the trace that a record's producer began, by the W3C header `traceparent`."""

from __future__ import annotations

import re

from ackfloor.core.records.record import Headers

#: Version, trace, span, flags; of the flags the last bit says that the trace is kept.
_SAMPLED = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f][13579bdf]")


def sampled_trace(headers: Headers) -> str:
    """The trace's id, 32 hexadecimal digits; nothing where there is none, or it was not kept."""
    # Of a repeated header the last one counts.
    found = _SAMPLED.fullmatch(dict(headers).get("traceparent") or b"")
    return found[1].decode() if found else ""
