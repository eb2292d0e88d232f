"""ChangeDesk: judges changes of settings while runs run, and carries them out.

It is what `ackfloor config set` does, for all runs of a group at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ackfloor import AckfloorError, SettingError
from ackfloor.cli.shared.run_address import checked_reason
from ackfloor.operations import ActionNote, ChangeOutcome, Runs, SettingChange, noted
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.change_effects import effect_of
from ackfloor_monitoring.console.acts.first_noted import (
    by_of,
    carrying,
    confirmed,
    console_note,
    writer_of,
)
from ackfloor_monitoring.console.acts.kept_forms import KeptForms
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

#: Characters of a name or a value.
LONGEST: Final = 1_000


@dataclass(frozen=True, slots=True)
class JudgedChange:
    """A change that somebody wants, and what it would do.

    Attributes:
        note: as which it would be noted; its id names it.
        group: whose runs get it.
        would: what they say.
        runs: the addresses that would get it.
        unreached: address -> why not.
        at_ms: when they were asked, in milliseconds since 1970.
    """

    note: ActionNote
    group: str
    change: SettingChange
    would: ChangeOutcome
    runs: Sequence[str]
    unreached: Mapping[str, str]
    at_ms: int

    @property
    def needs_reason(self) -> bool:
        """Whoever finds another value there than the file has wants to know why."""
        return True

    @property
    def effect(self) -> str:
        """What it does to what is in flight, beside what it ends."""
        return effect_of(self.change.setting)


@dataclass(slots=True)
class CarriedChange:
    """One that was confirmed.

    Attributes:
        outcome: what the runs did; None while they are asked, and where that failed.
        error: why it was not done, or not noted to its end.
    """

    outcome: ChangeOutcome | None = None
    error: str = ""
    over: bool = False


class ChangeDesk:
    """The changes of a cluster. Its methods block, and belong to threads of the console."""

    template: Final = "change.html"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Where its methods are to be called.
        self.asking = cluster.asking
        self.kept = KeptForms[JudgedChange, CarriedChange]()

    def searches(self, form: Fields) -> bool:  # noqa: ARG002 -- desks are alike
        """Whether judging a form reads as much as a search: runs are asked alone."""
        return False

    def judge(self, form: Fields, person: Person, address: str) -> JudgedChange:
        """What a change would do; nothing is changed.

        Raises:
            SettingError: a field has no value, or one that is too long.
            ControlFailed: no run of the group can be asked, or the only one refuses it.
        """
        group, setting, value = (_given(form, name) for name in ("group", "setting", "value"))
        change, runs = SettingChange(setting, value), self._cluster.runs_of(group)
        at_ms = time.time_ns() // 1_000_000
        would = change.judge(runs)
        note = console_note(
            change.name,
            by_of(person),
            address,
            target=change.target,
            group=group,
            arguments={**would.noted(), "runs": list(runs.tokens)},
        )
        judged = JudgedChange(note, group, change, would, list(runs.tokens), runs.unreached, at_ms)
        self.kept.keep(note.id, judged)
        return judged

    def carry_out(self, judged: JudgedChange, reason: str, address: str) -> None:
        """Do it, once; raises SettingError for a reason that is too long."""
        text = checked_reason("reason", " ".join(reason.split()))
        made = CarriedChange()
        if not self.kept.begin(judged.note.id, made):
            return
        begun = confirmed(judged.note, text, address)
        with carrying(made, begun):
            write = writer_of(self._cluster, lambda why: setattr(made, "error", why))
            runs = self._cluster.runs_of(judged.group)
            _refuse_another_value(judged, runs)
            with noted(begun, write, job=True) as ending:
                made.outcome = judged.change.act(runs, ending)

    def stop(self, judged: JudgedChange, reason: str, address: str) -> None:
        """There is nothing to end: runs answer within seconds."""


def _given(form: Fields, name: str) -> str:
    value = form.get(name).strip()
    if not value:
        raise SettingError(name, value, "is missing", "fill in the form of the page of settings")
    if len(value) > LONGEST:
        fix = f"write at most {LONGEST:,} characters"
        raise SettingError(name, f"{value[:20]}...", "too long", fix)
    return value


def _refuse_another_value(judged: JudgedChange, runs: Runs) -> None:
    """Refuse to change another value than somebody has seen.

    Raises:
        AckfloorError: it was changed meanwhile, or a run with another one has come.
    """
    shown = judged.would.changed
    for run, changed in judged.change.judge(runs).changed.items():
        if shown.get(run) != changed:
            before = changed[0]["before"] or "unset"
            raise AckfloorError(
                f"nothing was done: in {run} it is {before} now, which is not what was shown: "
                "ask again"
            )
