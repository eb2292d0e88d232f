"""Redrives: what a form of the dead-letter pages asks for, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ackfloor import SettingError
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.dead_letters.commands.dlq_replay import Replay
from ackfloor.dead_letters.commands.selection import Places
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.redrive_rules import MAX_REPLAYS, TO_RETRY, TO_SOURCE
from ackfloor.redrive import Disposition, Order, job_name, parse_rate, select
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.places import place_in, ticked
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from ackfloor_monitoring.console.pages.dead_letter_query import FILTERS, DeadLetterQuery, query_of

#: Characters of a target or rate that count; no sound one is as long.
LONGEST: Final = 40
#: What a form may ask for, and under which name it is noted.
ACTIONS: Final = {
    "replay": (Disposition.REPLAYED, "dlq replay"),
    "discard": (Disposition.DISCARDED, "dlq discard"),
}


@dataclass(frozen=True, slots=True)
class Redrive:
    """Dead letters of one topic, and what is to be done with them.

    Attributes:
        action: "replay" or "discard".
        query: which of them; without `places`, all that match.
        places: partition and offset of single ones.
        to: where they are sent: "retry" or "source".
        rate: at most so many, such as "50/s"; "" for no limit.
        topic_id: as in `Choice`.
    """

    topic: str
    action: str
    query: DeadLetterQuery
    places: Sequence[tuple[int, int]] = ()
    to: str = TO_RETRY
    rate: str = ""
    topic_id: str = ""

    @property
    def name(self) -> str:
        """Under which it is noted."""
        return ACTIONS[self.action][1]

    @property
    def group(self) -> str:
        """Whose dead letters these are."""
        parsed = parse_topic(self.topic)
        return "" if parsed is None else parsed.group

    def order(self, by: str) -> Order:
        """The order of the job; raises SettingError for what is no rate."""
        disposition, _ = ACTIONS[self.action]
        sends = disposition is Disposition.REPLAYED
        return Order(
            self.topic,
            self.to if sends else "",
            job_name(),
            by,
            parse_rate(self.rate) if self.rate and sends else None,
            action=disposition,
        )

    def arguments(self) -> dict[str, Any]:
        """What its note says of it."""
        given = {"to": self.to, "rate": self.rate} if self.action == "replay" else {}
        selects = {**self._selects().to_dict(), "text": self.query.given["text"]}
        return {"places": self._named().texts(), "filter": selects, **given}

    @property
    def selects_alike(self) -> bool:
        """Whether the command line selects the same by what the job's note says.

        Where a filter selects, it may not: it knows no text, and what the index has of a dead
        letter is bounded and redacted: its headers, its cause, its key, its time.
        """
        filters = (value for name, value in self.query.given.items() if name != "topic")
        return bool(self.places) or not any(filters)

    def asked(
        self, ends: Mapping[int, int], topic_id: str, *, selection_kept: bool
    ) -> dict[str, Any]:
        """What the job's own note says, so that whoever resumes it goes on with the same.

        Args:
            selection_kept: whether the job keeps the places that are meant.
        """
        disposition, _ = ACTIONS[self.action]
        selects = DeadLetterFilter() if self.places else self._selects()
        return Replay(
            self._named(), selects, self.to, None, MAX_REPLAYS, dict(ends), topic_id,
            action=disposition, selection_kept=selection_kept,
        ).to_dict()  # fmt: skip

    def _selects(self) -> DeadLetterFilter:
        """Which of them, as the command line says it."""
        given, wanted = self.query.given, self.query.wanted
        name, equals, value = given["header"].partition("=")
        return DeadLetterFilter(
            handler=given["handler"] or None,
            error=given["error"] or None,
            reason=given["reason"] or None,
            key=given["key"] or None,
            headers=((name, value if equals else None),) if name else (),
            since_ms=wanted.since_ms,
            until_ms=wanted.until_ms,
            release=given["release"] or None,
        )

    def _named(self) -> Places:
        return Places(self.topic, select(self.places) if self.places else None)


class Choice(NamedTuple):
    """Dead letters of one topic that a form means.

    Attributes:
        query: which of them; without `places`, all that match.
        places: partition and offset of single ones.
        topic_id: Kafka's id of the topic that the form's page has shown; "" where it says none.
    """

    topic: str
    query: DeadLetterQuery
    places: Sequence[tuple[int, int]] = ()
    topic_id: str = ""


def read_choice(form: Fields, person: Person, index: DeadLetterIndex) -> Choice:
    """Which dead letters a form means.

    Raises:
        SettingError: a field has no value, or an invalid one.
        Refused: a filter is not understood, or may not be used by this person.
    """
    topic = form.get("topic")
    parsed = parse_topic(topic)
    if parsed is None or parsed.kind != "dlq":
        fix = "choose the topic whose dead letters are meant"
        raise SettingError("topic", topic, "is no dead-letter topic", fix)
    texts = ticked(form, "dead letters")
    query = query_of({name: form.get(name) for name in FILTERS}, person, index, datetime.now(UTC))
    places = [place_in(topic, text) for text in texts]
    return Choice(topic, query, places, form.get("topic_id"))


def read_redrive(form: Fields, person: Person, index: DeadLetterIndex) -> Redrive:
    """What a form asks for.

    Raises:
        SettingError, Refused: as `read_choice` does.
    """
    action = form.get("action")
    if action not in ACTIONS:
        raise SettingError("action", action, "there is no such action", " or ".join(ACTIONS))
    choice = read_choice(form, person, index)
    to, rate = form.get("to")[:LONGEST] or TO_RETRY, form.get("rate").strip()[:LONGEST]
    if to not in {TO_RETRY, TO_SOURCE}:
        raise SettingError("to", to, "is no target", f"{TO_RETRY} or {TO_SOURCE}")
    if rate:
        parse_rate(rate)
    return Redrive(choice.topic, action, choice.query, choice.places, to, rate, choice.topic_id)
