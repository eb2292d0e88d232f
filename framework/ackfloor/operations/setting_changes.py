"""SettingChange: changes one setting of some runs while they run, until each of them ends.

Each run checks a change against its app before any of its workers gets it, and sends it to those
that start later. A run that is not asked, or starts later, does not have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ackfloor.live.run_control import PATH
from ackfloor.operations.noted import counts_of
from ackfloor.operations.run_orders import JudgedOrder
from ackfloor.operations.runs import Runs


@dataclass(slots=True)
class ChangeOutcome:
    """What a change did in all runs, or would do.

    Attributes:
        setting: its name.
        dry_run: whether nothing was changed.
        answers: run -> what it said, as `POST /config` answers.
        refused: run, and worker -> why it did nothing.
        unknown: run -> why nobody knows whether it did it: it got the change, and has not answered.
    """

    setting: str
    dry_run: bool
    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def applied(self) -> Mapping[str, list[int]]:
        """Run -> its workers that have it, or could."""
        return {run: answer["workers"]["applied"] for run, answer in self.answers.items()}

    @property
    def silent(self) -> list[str]:
        """Run and worker, of those that have not answered: they get it later."""
        return [
            f"{run} worker {worker}"
            for run, answer in self.answers.items()
            for worker in answer["workers"]["silent"]
        ]

    @property
    def changed(self) -> Mapping[str, Sequence[Mapping[str, str]]]:
        """Run -> the settings that change there, with their values before and after.

        The one that is meant comes first; others follow from it, such as `breaker.quiet_failures`.
        """
        return {
            run: sorted(answer["changed"], key=lambda each: not self.setting.endswith(each["name"]))
            for run, answer in self.answers.items()
            if answer["changed"]
        }

    @property
    def ends(self) -> int:
        """How many deliveries in flight it ended, or would end, at once."""
        return sum(answer["ends"] for answer in self.answers.values())

    def overdue(self) -> Iterator[Mapping[str, Any]]:
        """The longest running of these; each run names some."""
        rows = [
            {**row, "run": run} for run, answer in self.answers.items() for row in answer["overdue"]
        ]
        yield from sorted(rows, key=lambda row: -row["running_s"])

    @property
    def whole(self) -> bool:
        """Whether every worker has it."""
        return not (self.refused or self.silent or self.unknown)

    @property
    def counts(self) -> dict[str, int]:
        """How many workers have it and how many have not, and what it ended."""
        done = sum(map(len, self.applied.values()))
        refused, silent, unknown = map(len, (self.refused, self.silent, self.unknown))
        return counts_of(done, refused=refused, silent=silent, unknown=unknown, parked=self.ends)

    def noted(self) -> dict[str, str]:
        """What a note says of the value: what it was and is, where several differ all of them."""
        first = [changed[0] for changed in self.changed.values()]
        if not first:
            return {}
        values = {when: dict.fromkeys(each[when] for each in first) for when in ("before", "after")}
        return {when: " or ".join(each) for when, each in values.items()}


@dataclass(frozen=True, slots=True)
class SettingChange(JudgedOrder[ChangeOutcome]):
    """An order to change a setting.

    Attributes:
        setting: its name, such as "handlers.bill.rate".
        value: the new one, as in `ackfloor.toml`.
    """

    setting: str
    value: str

    @property
    def name(self) -> str:
        """Under which it is noted."""
        return "config set"

    @property
    def target(self) -> str:
        """What it is done to."""
        return self.setting

    def _ask(self, runs: Runs, *, dry_run: bool) -> ChangeOutcome:
        outcome = ChangeOutcome(self.setting, dry_run)
        body = {"set": {self.setting: self.value}, "dry_run": dry_run}
        for run, answer in runs.post(PATH, body, outcome.refused, outcome.unknown):
            outcome.answers[run] = answer
            refused = answer["workers"]["refused"]
            outcome.refused |= {f"{run} worker {number}": why for number, why in refused.items()}
        return outcome
