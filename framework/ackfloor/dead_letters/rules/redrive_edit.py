"""Edits: an operator's corrections of a dead letter before it is redriven.

    def repair(dead_letter: DeadLetter) -> DeadLetter:
        value = (dead_letter.value or b"").replace(b"EURO", b"EUR")
        return replace(dead_letter, value=value)

Only the new record is changed; the dead letter stays as it was written.

Invariants. Value and own headers can be edited. Key, place and our headers can't: they identify the
message and its history. An edited record is marked: the header `ackfloor.edited` holds the SHA-256
of the value that the message had at first, and keeps it through later failures and edits; and when
it was edited last, and by whom. A record that an edit returns unchanged is not marked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ackfloor.core.records.envelope import EDITED, PREFIX
from ackfloor.core.records.record import Headers
from ackfloor.core.records.redaction import MASK, Redaction
from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.rules.kept_edits import KeptEdit
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter

#: Given a dead letter, returns it as it is to be sent: the same one, or one with other contents.
#: It may be asked more than once for the same, and must then give the same.
Edit = Callable[[DeadLetter], DeadLetter]

_NUMBER: Final = re.compile(r"[0-9]{1,15}")
_KEPT: Final = ("topic", "partition", "offset", "key", "timestamp_ms")


@dataclass(frozen=True, slots=True)
class EditMark:
    """What the header `ackfloor.edited` says.

    Attributes:
        was: the SHA-256 of the value that the message had at first, in hexadecimal digits.
        at_ms: when it was edited last, in wall-clock ms; None where that is not said.
        by: who edited it last; "" where that is not said.
    """

    was: str
    at_ms: int | None = None
    by: str = ""

    @property
    def text(self) -> str:
        """The header's value."""
        return self.was if self.at_ms is None else f"{self.was} {self.at_ms} {self.by}"


def read_mark(text: str) -> EditMark:
    """What a header says; of one that another program wrote, what can be read of it."""
    match text.split(" ", 2):
        case [was, at_ms, by] if _NUMBER.fullmatch(at_ms):
            return EditMark(was, int(at_ms), by)
        case parts:
            return EditMark(parts[0])


def shown_mark(text: str | None, rules: Redaction) -> str | None:
    """The header's value as it may be kept: whoever can guess a payload can check its hash."""
    if text is None or not rules.active:
        return text
    return replace(read_mark(text), was=MASK).text


def unedited(dead_letter: DeadLetter) -> DeadLetter:
    """The edit that changes nothing."""
    return dead_letter


def with_kept(kept: KeptEdit) -> Edit:
    """The edit that gives one dead letter the payload that was kept for it."""

    def edit(dead_letter: DeadLetter) -> DeadLetter:
        if (dead_letter.partition, dead_letter.offset) != (kept.partition, kept.offset):
            return dead_letter
        return replace(dead_letter, value=kept.value)

    return edit


def edited(dead_letter: DeadLetter, edit: Edit, by: str, at_ms: int) -> DeadLetter:
    """A dead letter as it is to be sent.

    Args:
        dead_letter: with headers that can be read.
        by: who edits it.
        at_ms: when, in wall-clock ms.

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
    return replace(made, headers=_marked(dead_letter, after, by, at_ms))


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
    dead_letter: DeadLetter, headers: list[tuple[str, bytes | None]], by: str, at_ms: int
) -> list[tuple[str, bytes | None]]:
    """The headers with the hash of the first value, and who edited it when, among ours."""
    before = dead_letter.envelope.edited
    first = hashlib.sha256(dead_letter.value or b"").hexdigest()
    mark = EditMark(read_mark(before).was if before else first, at_ms, by)
    left = [header for header in headers if header[0] != EDITED]
    names = [name.startswith(PREFIX) for name, _ in left]
    at = names.index(True) if True in names else len(left)
    return [*left[:at], (EDITED, mark.text.encode("utf-8", "replace")), *left[at:]]


def _refused(dead_letter: DeadLetter, why: str, fix: str) -> SettingError:
    place = f"{dead_letter.topic}/{dead_letter.partition}/{dead_letter.offset}"
    return SettingError("edit", place, why, fix)
