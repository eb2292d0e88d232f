"""What an edit changes in a dead letter, line by line, without what `[redaction]` hides."""

from __future__ import annotations

import json
from difflib import unified_diff

from ackfloor.cli.dlq_shown import text_of
from ackfloor.core.envelope import PREFIX
from ackfloor.core.printable import plain
from ackfloor.core.redaction import Redaction
from ackfloor.core.redrive import DeadLetter

MOST_LINES = 40


def changed_lines(before: DeadLetter, after: DeadLetter, rules: Redaction) -> list[str]:
    """The lines that go, after a minus, and those that come, after a plus."""
    diff = unified_diff(_lines(before, rules), _lines(after, rules), lineterm="", n=1)
    found = [line for line in list(diff)[2:] if not line.startswith("@@")]
    if not found:
        return ["what is changed is hidden by [redaction]"]
    more = len(found) - MOST_LINES
    return found[:MOST_LINES] + ([f"... and {more:,} lines more"] if more > 0 else [])


def _lines(letter: DeadLetter, rules: Redaction) -> list[str]:
    own = [(name, value) for name, value in letter.headers or () if not name.startswith(PREFIX)]
    headers = [f"header {name}: {text_of(value)}" for name, value in rules.of_headers(own)]
    payload = text_of(rules.of_payload(letter.value))
    return [plain(line) for line in [*headers, *_payload_lines(payload)]]


def _payload_lines(payload: str | None) -> list[str]:
    """A JSON document field by field: it is one long line mostly."""
    if payload is None:
        return []
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return payload.splitlines()
    if not isinstance(document, dict | list):
        return payload.splitlines()
    return json.dumps(document, indent=1, ensure_ascii=False).splitlines()
