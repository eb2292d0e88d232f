"""RunAnswer: what a run says of itself, or why it says nothing; all runs are asked at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ackfloor.cli.shared.parameters import SettingsSource
from ackfloor.cli.shared.run_address import read_state, read_trust, runs_of
from ackfloor.errors import ConfigError
from ackfloor.operations.run_client import ControlFailed, address_of, read_readiness, workers_of
from ackfloor.operations.run_tls import SYSTEM, Trust

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


def answers_of(listen: list[str] | None, source: SettingsSource) -> Sequence[RunAnswer]:
    """What each run answers, in the order in which they are named.

    Settings that are refused are no answer of the runs with TLS, where they say whom to trust.

    Args:
        listen: the addresses; None for the one in the settings.
        source: where the settings are; it may name the group of which the runs have to be.

    Raises:
        NoAddress: one of them is not an address.
        ConfigError: the settings are to name the address, and are refused.
    """
    from concurrent.futures import ThreadPoolExecutor

    runs = runs_of(listen, source)
    trust, refused = _trust(runs, source)

    def answer(run: str) -> RunAnswer:
        if refused and address_of(run).secure:
            return RunAnswer(run, bool(listen), error=refused)
        return _answer(run, source, trust, named=bool(listen))

    with ThreadPoolExecutor(AT_ONCE) as asking:
        return list(asking.map(answer, runs))


def readers_of(answers: Sequence[RunAnswer]) -> dict[tuple[str, str], str]:
    """Group and topic -> the handler that these runs give its records to."""
    return {
        (answer.group, part["topic"]): part["handler"]
        for answer in answers
        if not answer.error
        for _, worker in workers_of(answer.state)
        for part in worker["partitions"]
    }


def _trust(runs: Sequence[str], source: SettingsSource) -> tuple[Trust, str]:
    """Whom to trust where there is TLS, and why that is not known; raises NoAddress."""
    try:
        return read_trust(source, *runs), ""
    except ConfigError as exc:
        return SYSTEM, str(exc)


def _answer(run: str, source: SettingsSource, trust: Trust, *, named: bool) -> RunAnswer:
    try:
        state = read_state(run, source, trust)
        readiness = read_readiness(run, trust)
    except (ControlFailed, ConfigError) as exc:
        return RunAnswer(run, named, error=f"{exc}")
    return RunAnswer(run, named, state, readiness)
