"""WaitingQuery: what an address asks of the records in retry topics, checked, and as a command.

Each parameter is named as the option of `ackfloor retry` that means the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from ackfloor.cli.status.next_commands import NextCommands
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person, Right

#: Those that select among the records of a topic, in the order of the form.
FILTERS: Final = ("handler", "error", "reason", "release", "key")
#: Characters that a value may have.
_LONGEST: Final = 1_000


@dataclass(frozen=True, slots=True)
class WaitingQuery:
    """What is asked.

    Attributes:
        given: `topic`, `group` and the filters as they are written; "" where one is not.
        wanted: the filters, as the command line takes them.
    """

    given: Mapping[str, str]
    wanted: DeadLetterFilter

    @property
    def filters(self) -> bool:
        """Whether some records of a topic are asked for, and not all of them."""
        return any(self.given[name] for name in FILTERS)

    def address(self, **changes: str) -> str:
        """The part of an address behind `?`, with some values changed."""
        given = {**self.given, **changes}
        return urlencode({name: value for name, value in given.items() if value})

    def command(self, commands: NextCommands, topic: str) -> str:
        """The command that lists the same records of a topic."""
        flags = [f"--{name}={self.given[name]}" for name in FILTERS if self.given[name]]
        return commands.asks_kafka("retry show", topic, *flags)


def waiting_query(query: Mapping[str, str], person: Person, rules: Redaction) -> WaitingQuery:
    """What these parameters ask.

    Raises:
        Refused: a value can't be understood, or this person may not ask for it.
    """
    given = {name: query.get(name, "").strip() for name in ("topic", "group", *FILTERS)}
    for name, value in given.items():
        if len(value) > _LONGEST:
            raise Refused(400, f"{name} has {len(value):,} characters: at most {_LONGEST:,}")
    topic = parse_topic(given["topic"])
    if given["topic"] and (topic is None or topic.kind != "retry"):
        # Whoever may see retry topics may not see every topic that the console's user can read.
        raise Refused(400, f"topic={given['topic']!r} is no retry topic")
    if given["reason"] and given["reason"] not in set(Reason):
        raise Refused(400, f"reason={given['reason']!r} is none: there are {', '.join(Reason)}")
    if given["key"]:
        _refuse_hidden(given["key"].encode(), person, rules)
    wanted = DeadLetterFilter(
        handler=given["handler"] or None,
        error=given["error"] or None,
        reason=given["reason"] or None,
        release=given["release"] or None,
        key=given["key"] or None,
    )
    return WaitingQuery(given, wanted)


def _refuse_hidden(key: bytes, person: Person, rules: Redaction) -> None:
    """Who could search by what they may not see would find it out."""
    if not person.may(Right.see_payloads):
        raise Refused(403, "a viewer can't search by keys: that takes a reader")
    kept = rules.of_key(key)
    if kept is None or (rules.key == "keep" and kept != key):
        raise Refused(400, "key: [redaction] hides this key, so it can't be searched by")
