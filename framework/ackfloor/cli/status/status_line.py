"""StatusLine: one thing that `ackfloor status` says, how bad it is, and what to type next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final


class State(StrEnum):
    """How something is: somebody has to act, it is worth knowing, or all is well."""

    wrong = "wrong"
    note = "note"
    ok = "ok"


#: What lines are about. Of two that are wrong, the earlier one is more likely the other's cause.
ABOUT: Final = (
    *("kafka", "run", "group", "fault", "settings", "breaker", "slots", "keys", "blocked"),
    *("quarantined", "overdue", "log", "dlq", "paused", "inflight", "retry", "lag"),
)
COLUMNS: Final = ("state", "about", "group", "subject", "count", "detail", "next", "runs")


@dataclass(frozen=True, slots=True)
class StatusLine:
    """One line.

    Attributes:
        about: one of `ABOUT`.
        subject: the handler, topic or address that it is about; empty for a whole group.
        count: how many of what it is about there are: lanes, records, dead letters.
        detail: how it is, in a sentence.
        keyless: the same without keys of records, for who may not see them; empty where it has
            none.
        next: the command that looks closer or mends it; empty where nothing is to be done.
        runs: the addresses of the runs that say so; empty where Kafka does.
        handler: whose records wait or fail, where it is known; for `entries`.
        errors: the types of the errors that they fail with, where they are known; for `entries`.
        quiet_s: for how long nothing of it has failed, where that is known; for `working_off`.
        open_in: partitions of the topic that have open records, where that is known; likewise.
    """

    state: State
    about: str
    detail: str
    subject: str = ""
    count: int = 0
    next: str = ""
    group: str = ""
    runs: tuple[str, ...] = ()
    handler: str = ""
    errors: frozenset[str] = frozenset()
    quiet_s: float | None = None
    open_in: frozenset[int] = frozenset()
    keyless: str = ""

    def without_keys(self) -> StatusLine:
        """It for who may not see keys."""
        return replace(self, detail=self.keyless, keyless="") if self.keyless else self

    def row(self) -> dict[str, Any]:
        """It as a row for programs."""
        facts = asdict(self)
        return {name: list(self.runs) if name == "runs" else facts[name] for name in COLUMNS}


def worst_first(lines: Iterable[StatusLine]) -> list[StatusLine]:
    """Lines in the order in which to look at them."""
    states = tuple(State)
    return sorted(lines, key=lambda line: (states.index(line.state), ABOUT.index(line.about)))


def counted(count: int, one: str, many: str = "") -> str:
    """A number and what it counts: "1 lane", "2 lanes"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
