"""Action notes: one JSON record for what an operator did; a job has one when it begins as well.

Each is a record of the topic `ackfloor--actions`: key the correlation id, value the note. No source
topic can have that name, and no pattern of topics matches it, because of its two dashes. A reader
leaves out what it can't read, and takes what a newer version adds for nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from ackfloor.core.records.redaction import MASK, Redaction
from ackfloor.core.values.json_bytes import json_bytes

#: One for all groups of a cluster.
TOPIC: Final = "ackfloor--actions"
VERSION: Final = 1
#: Characters of an error, and places or keys of an action, that a note holds.
LONGEST_ERROR: Final = 500
MOST_NAMED: Final = 100


class ActionState(StrEnum):
    """How far an action came."""

    #: Of a job only: it has begun, and no note says how it ended.
    BEGUN = "begun"
    DONE = "done"
    #: Not all that was meant was reached.
    PARTIAL = "partial"
    FAILED = "failed"
    #: The only run that was asked got it, and has not said whether it did it.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ActionNote:
    """The note of one action.

    Attributes:
        id: the correlation id, the same in both notes of a job.
        at_ms: when this was written, in wall-clock ms.
        by: who acted, as user@host.
        host: the machine that it was done from.
        program: what it was done with, such as "command line".
        action: what was done, such as "lanes retry".
        group: the consumer group; "" where it is not known.
        targets: what it was done to: handlers, topics or settings.
        arguments: what else was asked for.
        reason: why, in the operator's words; "" where they gave none.
        counts: how many of what were done, or were not.
        error: why it failed, or failed in part.
    """

    id: str
    at_ms: int
    state: ActionState
    by: str
    host: str
    program: str
    action: str
    group: str = ""
    targets: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    error: str = ""

    @property
    def key(self) -> bytes:
        """The record's key."""
        return self.id.encode("utf-8", "replace")

    def to_bytes(self) -> bytes:
        """The record's value."""
        facts = asdict(self) | {"state": self.state.value, "error": self.error[:LONGEST_ERROR]}
        return json_bytes({"version": VERSION, **facts})


def read_note(value: bytes | None) -> ActionNote | None:
    """The note that a record is; None where it is none, or is not readable."""
    try:
        facts = json.loads(value or b"")
        return ActionNote(
            **{name: _text(facts[name]) for name in _TEXTS},
            at_ms=_number(facts["at_ms"]),
            state=ActionState(facts["state"]),
            targets=tuple(map(_text, facts["targets"])),
            arguments=dict(facts["arguments"]),
            counts={_text(name): _number(count) for name, count in facts["counts"].items()},
        )
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None


_TEXTS: Final = ("id", "by", "host", "program", "action", "group", "reason", "error")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value


@dataclass(frozen=True, slots=True)
class ActionFilter:
    """Which notes are meant; None matches any.

    Attributes:
        by: who acted: the user, or user@host.
        action: the action, or its first words: "dlq" is "dlq replay" and "dlq discard".
        group: the consumer group.
        since_ms: from when on, in wall-clock ms.
    """

    by: str | None = None
    action: str | None = None
    group: str | None = None
    since_ms: int | None = None

    def matches(self, note: ActionNote) -> bool:
        """Whether this one is meant."""
        return (
            self.by in {None, note.by, note.by.partition("@")[0]}
            and (self.action is None or f"{note.action} ".startswith(f"{self.action} "))
            and self.group in {None, note.group}
            and (self.since_ms is None or note.at_ms >= self.since_ms)
        )


def latest_of_each(newest_first: Iterable[ActionNote]) -> Iterator[ActionNote]:
    """One note for each action: a job that has ended is not named a second time as begun.

    Whoever may write the topic may write a note under any id. So a note hides no other one but the
    beginning of the same action, in the same words, and itself where it was written twice.
    """
    ended, shown = set[bytes](), set[bytes]()
    for note in newest_first:
        asked, whole = _digest(_asked(note)), _digest(note)
        begins = note.state is ActionState.BEGUN
        if whole in shown or (begins and asked in ended):
            continue
        shown.add(whole)
        if not begins:
            ended.add(asked)
        yield note


def _asked(note: ActionNote) -> ActionNote:
    """What the note of an action says from its beginning on."""
    return replace(note, at_ms=0, state=ActionState.BEGUN, counts={}, error="")


def _digest(note: ActionNote) -> bytes:
    """Tells a note from others; small, for there may be very many."""
    return sha256(note.to_bytes()).digest()


def redacted(note: ActionNote, rules: Redaction) -> ActionNote:
    """A note as it may be written: its texts and arguments as `[redaction]` leaves them."""
    given = {k: value for k, value in note.arguments.items() if value not in (None, "", [], {})}
    reason, error = rules.of_text(note.reason) or "", rules.of_text(note.error) or ""
    return replace(note, reason=reason, error=error, arguments=masked(given, rules))


def masked(arguments: Mapping[str, Any], rules: Redaction) -> dict[str, Any]:
    """Arguments as they may be noted: few places, keys as `[redaction]` leaves them, no header."""
    found = {name: _masked(name, value, rules) for name, value in arguments.items()}
    for name, value in arguments.items():
        if isinstance(value, list | tuple) and len(value) > MOST_NAMED:
            found[f"{name}_in_all"] = len(value)
    return found


def _masked(name: str, value: Any, rules: Redaction) -> Any:
    if name == "filter":
        return masked(value, rules)
    if name == "headers":
        # Of a condition on a header: its value may be a secret.
        return [header if text is None else f"{header}={MASK}" for header, text in value]
    if name == "key":
        return _key(value, rules)
    if name == "keys":
        return [_key(each, rules) for each in value[:MOST_NAMED]]
    if name == "keys_base64":
        return [_key_in_base64(each, rules) for each in value[:MOST_NAMED]]
    if isinstance(value, list | tuple):
        return list(value[:MOST_NAMED])
    return rules.of_text(value) if isinstance(value, str) else value


def _key(text: str, rules: Redaction) -> str:
    kept = rules.of_key(text.encode())
    return MASK if kept is None else kept.decode("utf-8", "replace")


def _key_in_base64(text: str, rules: Redaction) -> str:
    """As the key itself, once a rule has changed it."""
    key = base64.b64decode(text)
    kept = rules.of_key(key)
    if kept == key:
        return text
    return MASK if kept is None else kept.decode("utf-8", "replace")
