"""RunAnswer: what a run says of itself, or why it says nothing; all runs are asked at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ackfloor.cli.shared.run_address import (
    ControlFailed,
    address_of,
    read_readiness,
    read_state,
    runs_of,
)

#: So many are asked at once: one that is away may take five seconds to say nothing.
AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """One run.

    Attributes:
        run: its address.
        named: the command line or the environment names it: it should answer.
        state: its `/state`; empty where it does not answer.
        readiness: its `/readyz`, likewise.
        error: why it does not answer; empty where it does.
    """

    run: str
    named: bool
    state: Mapping[str, Any] = field(default_factory=dict)
    readiness: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def group(self) -> str:
        """Its consumer group; empty where it does not answer."""
        return str(self.state.get("group", ""))


def answers_of(
    listen: list[str] | None, config: Path | None, group: str | None = None
) -> Sequence[RunAnswer]:
    """What each run answers, in the order in which they are named.

    Args:
        listen: the addresses; None for the one in the settings.
        config: the settings file.
        group: the runs have to be of this group; None for any.

    Raises:
        NoAddress: one of them is not an address.
        ConfigError: the settings are refused.
    """
    runs = runs_of(listen, config)
    for run in runs:
        address_of(run)
    with ThreadPoolExecutor(AT_ONCE) as asking:
        return list(asking.map(lambda run: _answer(run, config, group, bool(listen)), runs))


def _answer(run: str, config: Path | None, group: str | None, named: bool) -> RunAnswer:
    try:
        state, readiness = read_state(run, config), read_readiness(run)
    except ControlFailed as exc:
        return RunAnswer(run, named, error=f"{exc}")
    if group not in {None, state.get("group")}:
        text = f"{run} is a run of group {state.get('group')!r}, not of {group!r}"
        return RunAnswer(run, named, error=text)
    return RunAnswer(run, named, state, readiness)
