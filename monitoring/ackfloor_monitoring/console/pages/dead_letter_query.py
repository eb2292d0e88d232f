"""DeadLetterQuery: what an address asks of the dead letters, checked, and as a command.

Each parameter is named as the option of `ackfloor dlq` that means the same; `text`, which is in the
error's message, has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

import typer

from ackfloor.cli.shared.times import time_of
from ackfloor.cli.status.next_commands import NextCommands
from ackfloor.core.records.envelope import Reason
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person, Right
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from ackfloor_monitoring.console.index.index_search import Conditions, Place, Progress

#: The parameters that select, in the order of the form.
FILTERS: Final = (
    "topic", "group", "handler", "error", "reason", "release", "key", "header", "text", "since",
    "until",
)  # fmt: skip
#: Those that causes are shown of; any other one lists dead letters.
_OF_CAUSES: Final = frozenset({"topic", "group"})
#: Where the list goes on, and that it is asked for without any filter.
BEHIND: Final = "behind"
LIST: Final = "list"
#: Digits of a number that SQLite can hold.
_DIGITS: Final = 18
#: Characters that a value may have.
_LONGEST: Final = 1_000


@dataclass(frozen=True, slots=True)
class DeadLetterQuery:
    """What is asked.

    Attributes:
        given: the filters as they are written; "" where one is not.
        wanted: the same, as the index takes them.
        behind: the last dead letter of the page before this one.
        lists: whether dead letters are listed, and not their causes.
    """

    given: Mapping[str, str]
    wanted: Conditions
    behind: Place | None
    lists: bool

    def address(self, **changes: str) -> str:
        """The part of an address behind `?`, with some values changed."""
        given = {LIST: "1" if self.lists else "", **self.given, **changes}
        return urlencode({name: value for name, value in given.items() if value})

    def command(self, commands: NextCommands, progress: Progress) -> str:
        """The command that shows what a redrive of these would do; empty where there is none."""
        if self.given["text"]:
            return ""
        topic, group = self.given["topic"], self.given["group"]
        if not topic and not group and len(progress.topics) == 1:
            [topic] = progress.topics
        if not topic and not group and len(progress.groups) == 1:
            [group] = progress.groups
        if not topic and not group:
            return ""
        where = topic or f"--group={group}"
        return commands.asks_kafka("dlq replay", where, *self.flags(), "--dry-run")

    def flags(self) -> list[str]:
        """The options of `ackfloor dlq` that select the same in a topic; it knows no text."""
        return [
            f"--{name}={self.given[name]}"
            for name in FILTERS
            if name not in {"topic", "group", "text"} and self.given[name]
        ]


def query_of(
    query: Mapping[str, str], person: Person, index: DeadLetterIndex, now: datetime
) -> DeadLetterQuery:
    """What these parameters ask.

    Raises:
        Refused: a value can't be understood, or this person may not ask for it.
    """
    given = {name: query.get(name, "").strip() for name in FILTERS}
    for name, value in given.items():
        if len(value) > _LONGEST:
            raise Refused(400, f"{name} has {len(value):,} characters: at most {_LONGEST:,}")
    if given["reason"] and given["reason"] not in set(Reason):
        raise Refused(400, f"reason={given['reason']!r} is none: there are {', '.join(Reason)}")
    since_ms, until_ms = (_time_ms(name, given[name], now) for name in ("since", "until"))
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise Refused(400, "nothing lies between since and until: give an earlier since")
    wanted = Conditions(
        topic=given["topic"],
        group=given["group"],
        handler=given["handler"],
        error=given["error"],
        reason=given["reason"],
        release=given["release"],
        key=_key(given["key"], person, index) if given["key"] else None,
        header=_header(given["header"], person, index) if given["header"] else "",
        text=given["text"],
        since_ms=since_ms,
        until_ms=until_ms,
    )
    behind = _place(query[BEHIND]) if query.get(BEHIND) else None
    lists = query.get(LIST) or any(given[name] for name in FILTERS if name not in _OF_CAUSES)
    return DeadLetterQuery(given, wanted, behind, bool(lists))


def _time_ms(name: str, text: str, now: datetime) -> int | None:
    if not text:
        return None
    try:
        return round(time_of(name, text, now.astimezone(UTC)).timestamp() * 1000)
    except typer.BadParameter as exc:
        raise Refused(400, f"{name}: {exc.message}") from None


def _key(text: str, person: Person, index: DeadLetterIndex) -> bytes:
    _refuse_viewer(person)
    key = index.stored_key(text)
    if key is None:
        raise Refused(400, "key: [redaction] hides this key, so the index does not have it")
    return key


def _header(text: str, person: Person, index: DeadLetterIndex) -> str:
    _refuse_viewer(person)
    if text.startswith("="):
        raise Refused(400, f"header={text!r} names no header: write NAME or NAME=VALUE")
    header = index.stored_header(text)
    if header is None:
        raise Refused(400, "header: [redaction] hides this value, so the index does not have it")
    return header


def _refuse_viewer(person: Person) -> None:
    """Who could search by what they may not see would find it out."""
    if not person.may(Right.see_payloads):
        raise Refused(403, "a viewer can't search by keys and headers: that takes a reader")


def place_text(place: Place) -> str:
    """A place as an address has it."""
    return ".".join(map(str, place))


def _place(text: str) -> Place:
    try:
        numbers = [int(each) for each in text.split(".") if len(each) <= _DIGITS]
        return Place(*numbers)
    except (TypeError, ValueError):
        raise Refused(400, f"{BEHIND}={text[:80]!r} is no place: begin the list anew") from None
