"""Edits: an operator's corrections of a dead letter before it is redriven.

    def repair(dead_letter: DeadLetter) -> DeadLetter:
        value = (dead_letter.value or b"").replace(b"EURO", b"EUR")
        return replace(dead_letter, value=value)

Only the new record is changed; the dead letter stays as it was written.

Invariants. Value and own headers can be edited. Key, place and our headers can't: they identify the
message and its history. An edited record is marked: the header `ackfloor.edited` holds the SHA-256
of the value that the message had at first, and keeps it through later failures and edits. A record
that an edit returns unchanged is not marked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ackfloor.core.records.envelope import EDITED, PREFIX
from ackfloor.core.records.record import Headers
from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter

#: Given a dead letter, returns it as it is to be sent: the same one, or one with other contents.
#: It may be asked more than once for the same, and must then give the same.
Edit = Callable[[DeadLetter], DeadLetter]

_KEPT: Final = ("topic", "partition", "offset", "key", "timestamp_ms")


def unedited(dead_letter: DeadLetter) -> DeadLetter:
    """The edit that changes nothing."""
    return dead_letter


def edited(dead_letter: DeadLetter, edit: Edit) -> DeadLetter:
    """A dead letter as it is to be sent.

    Args:
        dead_letter: with headers that can be read.

    Raises:
        SettingError: the edit changed what can't be, or gave something else than a dead letter.
    """
    made: object = edit(dead_letter)
    if made is dead_letter:
        return dead_letter
    if not isinstance(made, DeadLetter):
        gave = "None" if made is None else f"a {type(made).__name__}"
        raise _refused(
            dead_letter, f"it returned {gave}", "return the dead letter, or a copy of it"
        )
    for name in _KEPT:
        if getattr(made, name) != getattr(dead_letter, name):
            raise _refused(dead_letter, f"its {name} is changed", "edit value and headers only")
    if not (made.value is None or isinstance(made.value, bytes)):
        kind = type(made.value).__name__
        raise _refused(dead_letter, f"its value is made {kind}", "make it bytes, or None")
    before, after = list(dead_letter.headers or ()), _headers(dead_letter, made.headers)
    if (dead_letter.value, before) == (made.value, after):
        return dead_letter
    return replace(made, headers=_marked(dead_letter, after))


def with_own_headers(
    dead_letter: DeadLetter, own: Sequence[tuple[str, bytes | None]]
) -> DeadLetter:
    """A dead letter with other headers of its own; ours, and copies behind ours, stay.

    Args:
        own: all headers but those of ours; that ends in the copies as they were, or has none.
    """
    headers = list(dead_letter.headers or ())
    places = [n for n, (name, _) in enumerate(headers) if name.startswith(PREFIX)]
    if not places:
        return replace(dead_letter, headers=list(own))
    ours = [headers[n] for n in places]
    behind = [each for each in headers[places[0] :] if not each[0].startswith(PREFIX)]
    front, copies = list(own), behind
    if behind and front[-len(behind) :] == behind:
        del front[-len(behind) :]
    else:
        copies = []
    return replace(dead_letter, headers=[*front, *ours, *copies])


def _headers(dead_letter: DeadLetter, headers: object) -> list[tuple[str, bytes | None]]:
    """The headers of an edited dead letter, each of them one that Kafka can carry."""
    found: list[tuple[str, bytes | None]] = []
    for each in headers if isinstance(headers, Sequence) else [headers]:
        match each:
            case (str() as name, bytes() | None as value):
                found.append((name, value))
            case _:
                raise _refused(
                    dead_letter, f"{each!r} is no header", "make it (name, bytes or None)"
                )
    if _ours(found) != _ours(dead_letter.headers or ()):
        raise _refused(
            dead_letter,
            f"a header under {PREFIX} is changed",
            "leave them as they are, in their order",
        )
    return found


def _ours(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [header for header in headers if header[0].startswith(PREFIX)]


def _marked(
    dead_letter: DeadLetter, headers: list[tuple[str, bytes | None]]
) -> list[tuple[str, bytes | None]]:
    """The headers with the hash of the first value, among ours."""
    first = dead_letter.envelope.edited or hashlib.sha256(dead_letter.value or b"").hexdigest()
    left = [header for header in headers if header[0] != EDITED]
    names = [name.startswith(PREFIX) for name, _ in left]
    at = names.index(True) if True in names else len(left)
    return [*left[:at], (EDITED, first.encode()), *left[at:]]


def _refused(dead_letter: DeadLetter, why: str, fix: str) -> SettingError:
    place = f"{dead_letter.topic}/{dead_letter.partition}/{dead_letter.offset}"
    return SettingError("edit", place, why, fix)
