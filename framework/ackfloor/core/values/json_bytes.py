"""JSON as bytes, of text that may hold what UTF-8 has no bytes for."""

from __future__ import annotations

import json


def json_bytes(value: object, indent: int | None = None) -> bytes:
    """A value as JSON: half a surrogate pair stays the escape that JSON has for it."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace")
