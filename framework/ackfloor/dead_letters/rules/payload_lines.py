"""Payload lines: a payload as lines that can be compared, and what differs between two of them.

A JSON document is one long line mostly. It is shown field by field, each exactly as it is written,
so that no number is rounded and no repeated name is lost; white space between fields is not shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from itertools import takewhile
from typing import Final

#: A string, a bracket, a comma or colon, or anything else up to the next of these.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\[\]{},:"\s]+')
#: Lines that are compared one by one; of more, all that differ count as replaced.
_COMPARED: Final = 2_000


def payload_lines(payload: str) -> list[str]:
    """A payload as lines, of a JSON object or array one for each field."""
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return payload.splitlines()
    if not isinstance(document, dict | list):
        return payload.splitlines()
    return list(_fields(payload))


def _fields(document: str) -> Iterator[str]:
    depth, line = 0, ""
    for match in _TOKEN.finditer(document):
        part = match[0]
        if part in "]}":
            if line:
                yield " " * depth + line
            depth, line = depth - 1, part
        elif part in "[{":
            yield " " * depth + line + part
            depth, line = depth + 1, ""
        elif part == ",":
            yield " " * depth + line + part
            line = ""
        else:
            line += ": " if part == ":" else part
    yield " " * depth + line


def differing_lines(before: Sequence[str], after: Sequence[str], context: int) -> list[str]:
    """The lines that go, after a minus, and those that come, after a plus.

    Args:
        context: so many lines around them are shown as well.
    """
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))))
    at = max(0, same - context)
    end = _same_at_end(before[same:], after[same:])
    until = max(0, end - context)
    old, new = before[at : len(before) - until], after[at : len(after) - until]
    if max(len(old), len(new)) > _COMPARED:
        return [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    diff = unified_diff(old, new, lineterm="", n=context)
    return [line for line in list(diff)[2:] if not line.startswith("@@")]


def _same_at_end(before: Sequence[str], after: Sequence[str]) -> int:
    pairs = zip(reversed(before), reversed(after), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
