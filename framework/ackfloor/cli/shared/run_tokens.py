"""The runs that `--listen` names, with their tokens."""

from __future__ import annotations

from pathlib import Path

from ackfloor.cli.shared.parameters import SettingsSource
from ackfloor.cli.shared.run_address import credentials, runs_of
from ackfloor.operations.run_client import ControlFailed, NoAddress
from ackfloor.operations.runs import Runs


def runs_with_tokens(
    listen: list[str] | None,
    token_file: Path | None = None,
    source: SettingsSource | None = None,
) -> Runs:
    """From the options of a command.

    A run that has ended has taken its token with it: the others can be reached all the same.

    Raises:
        ControlFailed: an address is none, or no run has a token.
    """
    tokens, unreached = dict[str, str](), dict[str, str]()
    asked = runs_of(listen, source)
    for run in asked:
        try:
            _, tokens[run] = credentials(run, token_file, source)
        except NoAddress:
            raise
        except ControlFailed as exc:
            if len(asked) == 1:
                raise
            unreached[run] = str(exc)
    if not tokens:
        raise ControlFailed("; ".join(unreached.values()))
    return Runs(tokens, unreached)
