"""OfRuns: what the runs of a cluster said, as rows and figures of all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ackfloor.cli.handlers.handler_list import handler_rows, paused_text
from ackfloor.cli.lanes.lane_list import STATES, lane_rows, lane_totals
from ackfloor.cli.run.inflight import running_rows
from ackfloor.cli.status.run_answers import RunAnswer
from ackfloor_monitoring.console.reads.runs.last_answers import LastAnswer


@dataclass(frozen=True, slots=True)
class OfRuns:
    """What the runs said.

    Attributes:
        answers: of all runs, now.
        silent: what those that do not answer now said a while ago.
        taken_ms: when they were asked, in milliseconds since 1970.
        given: address -> how it was given: as an address or by a name.
    """

    answers: Sequence[RunAnswer]
    silent: Sequence[LastAnswer]
    taken_ms: int
    given: Mapping[str, str]

    @property
    def groups(self) -> Sequence[str]:
        """Those of the runs that answered."""
        return sorted({each.group for each in self.known() if each.group})

    def handlers(self) -> Iterator[Mapping[str, Any]]:
        """A row for each handler of each run that answered; "paused" says by whom and why."""
        for answer in self.known():
            for row in handler_rows(answer.state, answer.run):
                paused = paused_text(row) if row["paused_in"] else row["held_reason"]
                yield {**row, "group": answer.group, "paused": paused}

    def running(self) -> Iterator[Mapping[str, Any]]:
        """A row for each delivery in flight that a run names."""
        for answer in self.known():
            for row in running_rows(answer.state):
                yield {**row, "group": answer.group, "run": answer.run}

    def lanes(self) -> Iterator[Mapping[str, Any]]:
        """A row for each blocked lane and quarantined key that a run names."""
        for answer in self.known():
            for row in lane_rows(answer.state, answer.run):
                yield {**row, "group": answer.group}

    def lane_counts(self) -> Counter[tuple[str, str]]:
        """Group and handler -> how many lanes and keys wait, also those that no run names."""
        found = Counter[tuple[str, str]]()
        for answer in self.known():
            for kind in STATES:
                for name, (count, _) in lane_totals(answer.state, kind).items():
                    found[answer.group, name] += count
        return found

    def figures(self) -> dict[str, int]:
        """What the history keeps of those that are known; nothing where none is."""
        if not any(self.known()):
            return {}
        return {
            "running": sum(row["running"] for row in self.handlers()),
            "waiting": self.lane_counts().total(),
        }

    def known(self) -> Iterator[RunAnswer]:
        """What each run said last."""
        yield from (each for each in self.answers if not each.error)
        yield from (each.answer for each in self.silent)
