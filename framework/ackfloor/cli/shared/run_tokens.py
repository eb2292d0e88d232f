"""Runs with their tokens: those that `--listen` names, or any others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ackfloor.cli.shared.parameters import SettingsSource
from ackfloor.cli.shared.run_address import credentials, runs_of, trust_of
from ackfloor.operations.run_client import ControlFailed, NoAddress
from ackfloor.operations.runs import Runs


def runs_with_tokens(
    listen: list[str] | None,
    token_file: Path | None = None,
    source: SettingsSource | None = None,
) -> Runs:
    """From the options of a command.

    Raises:
        ControlFailed: an address is none, or no run has a token.
        ConfigError: the settings are refused.
    """
    asked = runs_of(listen, source)
    tokens, failed = tokens_of(dict.fromkeys(asked, token_file), source)
    if failed and len(asked) == 1:
        raise failed[asked[0]]
    if not tokens:
        raise ControlFailed("; ".join(map(str, failed.values())))
    unreached = {run: str(exc) for run, exc in failed.items()}
    return Runs(tokens, unreached, trust_of(source, *tokens))


def tokens_of(
    files: Mapping[str, Path | None], source: SettingsSource | None
) -> tuple[dict[str, str], dict[str, ControlFailed]]:
    """Address -> token, and address -> why a run has none.

    A run that has ended has taken its token with it: the others can be reached all the same.

    Args:
        files: address -> the file of its token; None for the run's own.

    Raises:
        NoAddress: one of them is none.
    """
    tokens, failed = dict[str, str](), dict[str, ControlFailed]()
    for run, file in files.items():
        try:
            tokens[run] = credentials(run, file, source)[1]
        except NoAddress:
            raise
        except ControlFailed as exc:
            failed[run] = exc
    return tokens, failed
