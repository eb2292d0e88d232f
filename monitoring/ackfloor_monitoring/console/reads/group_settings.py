"""Group settings: what the runs of each group go by, and where they differ.

Each run says its own, with the source of each value. Runs of one group should go by the same: a
rate or a retry policy that only some have is found nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from ackfloor.operations import ControlFailed, EffectiveSettings, SettingValue, ask_settings
from ackfloor_monitoring.console.reads.cluster_facts import AskedRun, Cluster

#: So many runs are asked at once.
AT_ONCE: Final = 16
#: The source of what was set nowhere, as runs name it.
BUILT_IN: Final = "built-in"
#: That of a client property which only other runs have.
NOT_SET: Final = "not set"
#: What each run has for itself: its address, and names that no two may share.
OWN: Final = frozenset(
    (
        "app.listen",
        "app.control_token_file",
        "app.instance_id_prefix",
        "app.transactional_id_prefix",
    )
)


@dataclass(frozen=True, slots=True)
class Held:
    """One value of a setting, and the runs that have it.

    Attributes:
        sources: where they have it from, each once.
    """

    value: str
    sources: Sequence[str]
    runs: Sequence[str]


@dataclass(frozen=True, slots=True)
class ComparedSetting:
    """One setting of a group.

    Attributes:
        held: its values, that of most runs first.
        live: whether it may change while the runs run.
    """

    name: str
    held: Sequence[Held]
    live: bool

    @property
    def differs(self) -> bool:
        """Whether the runs differ in what they should have alike."""
        return len(self.held) > 1 and self.name not in OWN

    @property
    def given(self) -> bool:
        """Whether it was set anywhere."""
        return any(each.sources != [BUILT_IN] for each in self.held)


@dataclass(frozen=True, slots=True)
class Section:
    """The settings of one table of `ackfloor.toml`.

    Attributes:
        name: of the table, or of the handler.
        of_handler: whether it is a handler's.
        without: the runs that do not run this handler.
    """

    name: str
    of_handler: bool
    settings: Sequence[ComparedSetting]
    without: Sequence[str] = ()

    @property
    def given(self) -> Sequence[ComparedSetting]:
        """Those that were set anywhere."""
        return [each for each in self.settings if each.given]

    @property
    def built_in(self) -> Sequence[ComparedSetting]:
        """The others."""
        return [each for each in self.settings if not each.given]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Those of one group.

    Attributes:
        group: "" for runs that have never answered.
        runs: the addresses of those that told theirs.
        unknown: address -> why a run's are not known.
        notes: address and what the run says of its settings: a file that was refused, a worker that
            has not taken them, what needs a restart.
    """

    group: str
    runs: Sequence[str]
    sections: Sequence[Section]
    unknown: Mapping[str, str]
    notes: Sequence[tuple[str, str]]

    @property
    def differing(self) -> Sequence[ComparedSetting]:
        """Where the runs differ."""
        return [each for section in self.sections for each in section.settings if each.differs]

    @property
    def partial(self) -> Sequence[Section]:
        """The handlers that only some of the runs have."""
        return [section for section in self.sections if section.without]

    @property
    def live(self) -> Sequence[str]:
        """The names of those that may change while the runs run."""
        return [each.name for section in self.sections for each in section.settings if each.live]


def look(cluster: Cluster, group: str) -> Sequence[GroupSettings]:
    """Those of all groups, or of one; asked now.

    Args:
        group: "" for all.

    Raises:
        ConfigError: the console's own settings are refused.
    """
    asked = cluster.asked_runs(group or None)
    with ThreadPoolExecutor(AT_ONCE, "console-settings") as asking:
        answers = list(asking.map(_settings_of, asked))
    found = list(zip(asked, answers, strict=True))
    return [
        _of_group(name, [each for each in found if each[0].group == name])
        for name in sorted({run.group for run in asked})
    ]


def _settings_of(run: AskedRun) -> EffectiveSettings | str:
    """A run's settings, or why they are not known."""
    if not run.token:
        return run.why
    try:
        return ask_settings(run.answer.run, run.token, run.trust)
    except ControlFailed as exc:
        return str(exc)


def _of_group(
    group: str, answers: Sequence[tuple[AskedRun, EffectiveSettings | str]]
) -> GroupSettings:
    known = [what for _, what in answers if isinstance(what, EffectiveSettings)]
    return GroupSettings(
        group,
        [each.run for each in known],
        list(sections_of(known)),
        {run.answer.run: what for run, what in answers if isinstance(what, str)},
        [
            (run.answer.run, str(note.get("message", "")))
            for run, _ in answers
            for note in run.answer.readiness.get("notes", ())
            if note.get("check") == "settings"
        ],
    )


def sections_of(runs: Sequence[EffectiveSettings]) -> Iterator[Section]:
    """The settings of these runs by table, in the order of the reference, then by handler."""
    compared = _compared({each.run: each.settings for each in runs})
    for table in dict.fromkeys(each.name.partition(".")[0] for each in compared):
        rows = [each for each in compared if each.name.startswith(f"{table}.")]
        yield Section(table, of_handler=False, settings=rows)
    for name in dict.fromkeys(name for each in runs for name in each.handlers):
        having = {each.run: each.handlers[name] for each in runs if name in each.handlers}
        without = [each.run for each in runs if name not in each.handlers]
        yield Section(name, of_handler=True, settings=_compared(having), without=without)


def _compared(runs: Mapping[str, Sequence[SettingValue]]) -> Sequence[ComparedSetting]:
    """The settings of these runs, each with its values; what a run has not is not set there."""
    by_run = {run: {value.name: value for value in values} for run, values in runs.items()}
    live = {value.name: value.live for values in runs.values() for value in values}
    return [
        ComparedSetting(
            name,
            _held({run: by.get(name, SettingValue(name, "", NOT_SET, live=live[name]))
                   for run, by in by_run.items()}),
            live[name],
        )
        for name in live
    ]  # fmt: skip


def _held(of_run: Mapping[str, SettingValue]) -> Sequence[Held]:
    by_value: dict[str, list[str]] = {}
    for run, found in of_run.items():
        by_value.setdefault(found.value, []).append(run)
    held = [
        Held(value, list(dict.fromkeys(of_run[run].source for run in runs)), runs)
        for value, runs in by_value.items()
    ]
    return sorted(held, key=lambda each: -len(each.runs))
