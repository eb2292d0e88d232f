"""Payload edits: which payloads can be corrected in a browser, and what came of one.

Invariants. A payload that is sent back as it was shown is the same, byte for byte: what a browser
would change by itself (a zero character, line ends of several kinds) is not given to it. What was a
JSON document stays one. What a handler's model says of it is not known here.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from ackfloor import SettingError
from ackfloor.core.values.printable import plain
from ackfloor.dead_letters.commands.dead_letter_views import ONLY_SPACE
from ackfloor.dead_letters.rules.payload_lines import differing_lines, payload_lines

#: Bytes of a payload that can be corrected in a browser.
LONGEST: Final = 64 * 1024
#: Lines of a difference that are shown.
MOST_LINES: Final = 400
#: Lines around what differs.
CONTEXT: Final = 2


def why_not_editable(value: bytes | None) -> str:
    """Why a payload can't be corrected in a browser; "" where it can."""
    if value is None:
        return "it has none: it is a tombstone"
    if len(value) > LONGEST:
        return f"it has more than {LONGEST:,} bytes"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    if "\0" in text:
        return "it has a zero character, which a browser does not keep"
    if "\r" in text.replace("\r\n", "") or ("\r\n" in text and "\n" in text.replace("\r\n", "")):
        return "its lines end in several ways, which a browser does not keep"
    return ""


def edited_payload(before: bytes, sent: str) -> bytes:
    """The payload that a browser has sent back.

    Args:
        before: as it was shown; one that can be edited.
        sent: with the line ends that a form has.

    Raises:
        SettingError: it is too large.
    """
    text = sent.replace("\r\n", "\n").replace("\r", "\n")
    if b"\r\n" in before:
        text = text.replace("\n", "\r\n")
    after = text.encode("utf-8", "replace")
    if len(after) > LONGEST:
        fix = f"at most {LONGEST:,} here; `ackfloor dlq replay --edit` takes more"
        raise SettingError("value", f"{len(after):,} bytes", "too large for a browser", fix)
    return after


def fault_of(before: bytes, after: bytes) -> str:
    """Why an edited payload is not to be sent; "" where nothing is known against it."""
    if before == after:
        return "nothing is changed"
    if not isinstance(_document(before), dict | list):
        return ""
    try:
        _read(after)
    except json.JSONDecodeError as exc:
        return f"it was JSON and is none now: line {exc.lineno}, column {exc.colno}: {exc.msg}"
    except (ValueError, RecursionError) as exc:
        return f"it was JSON and is none now: {exc}"
    return ""


def kind_of(value: bytes) -> str:
    """What a payload is, in a word or two."""
    return "text" if _document(value) is None else "JSON"


def difference(before: bytes, after: bytes) -> list[str]:
    """What is changed, line by line, with nothing in it that is not seen."""
    old, new = (
        [plain(line) for line in payload_lines(value.decode())] for value in (before, after)
    )
    found = differing_lines(old, new, CONTEXT)
    if not found and before != after:
        return [ONLY_SPACE]
    more = len(found) - MOST_LINES
    return found[:MOST_LINES] + ([f"... and {more:,} lines more"] if more > 0 else [])


def _document(value: bytes) -> Any:
    """The JSON document that a payload is; None where it is none."""
    try:
        return _read(value)
    except (ValueError, RecursionError):
        return None


def _read(value: bytes) -> Any:
    """A payload as JSON, strictly; raises ValueError and RecursionError."""
    return json.loads(value.decode(), parse_constant=_no_constant)


def _no_constant(name: str) -> NoReturn:
    """Python reads NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{name} is no value of JSON")
