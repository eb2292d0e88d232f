"""Entries of `ackfloor status`: what is wrong, with what follows from it.

A dependency that is away opens a handler's circuit breaker, its lanes wait, and its retry topics
become overdue. What fails of the same error until its retries are spent is dead-lettered. That is
one thing to mend, so it is one entry, with one command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ackfloor.cli.status.status_line import State, StatusLine
from ackfloor.core.parking.topic_names import parse_topic

#: What may come first of several lines about one handler: the others follow from it.
CAUSES: Final = frozenset({"breaker", "keys", "blocked", "quarantined", "overdue"})
#: What waits: for whatever is wrong with the handler.
WAITS: Final = frozenset({"blocked", "quarantined", "overdue"})


@dataclass(slots=True)
class Entry:
    """One thing.

    Attributes:
        line: the most likely cause, whose command comes next.
        follows: what is told under it.
    """

    line: StatusLine
    follows: list[StatusLine] = field(default_factory=list)

    def without_keys(self) -> Entry:
        """It for who may not see keys of records."""
        return Entry(self.line.without_keys(), [each.without_keys() for each in self.follows])


def entries(lines: Sequence[StatusLine]) -> list[Entry]:
    """Lines, the worst first, as entries in the same order."""
    found: list[Entry] = []
    causes: dict[tuple[str, str], Entry] = {}
    for line in lines:
        whose = line.group, line.handler
        cause = causes.get(whose)
        if cause is not None and _follows(line, cause):
            cause.follows.append(line)
            continue
        found.append(Entry(line))
        if _joins(line):
            causes.setdefault(whose, found[-1])
    return found


def _joins(line: StatusLine) -> bool:
    return line.state is State.wrong and line.about in CAUSES and bool(line.handler)


def _follows(line: StatusLine, cause: Entry) -> bool:
    """Whether a line of the same handler follows from its cause."""
    if line.about == "dlq":
        return any(line.errors & each.errors for each in (cause.line, *cause.follows))
    return _joins(line) and (line.about in WAITS or line.next == cause.line.next)


def with_handlers(
    lines: Sequence[StatusLine], known: dict[tuple[str, str], str]
) -> list[StatusLine]:
    """The same lines; those about overdue retry topics with the handler that reads them.

    Args:
        known: group and topic -> handler, as far as runs say. Retry topics of a source topic that
            no run reads belong together all the same.
    """
    return [
        replace(line, handler=_reader(line, known)) if line.about == "overdue" else line
        for line in lines
    ]


def _reader(line: StatusLine, known: dict[tuple[str, str], str]) -> str:
    parsed = parse_topic(line.subject)
    source = line.subject if parsed is None else parsed.topic
    handler = known.get((line.group, line.subject)) or known.get((line.group, source))
    return handler or source
