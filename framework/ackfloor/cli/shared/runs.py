"""Runs: those of a group that `--listen` names, and one request to all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ackfloor.cli.shared.parameters import ConfigOption
from ackfloor.cli.shared.run_address import (
    ControlFailed,
    ListensOption,
    NoAddress,
    TokenFileOption,
    credentials,
    post,
    runs_of,
)


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs to ask.

    Attributes:
        tokens: address -> token.
        unreached: address -> why it has no token; of some of the runs.
    """

    tokens: Mapping[str, str]
    unreached: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        listen: ListensOption = None,
        token_file: TokenFileOption = None,
        config: ConfigOption = None,
    ) -> Runs:
        """From the options; raises ControlFailed where an address is none, or no run has a token.

        A run that has ended has taken its token with it: the others can be reached all the same.
        """
        tokens, unreached = dict[str, str](), dict[str, str]()
        asked = runs_of(listen, config)
        for run in asked:
            try:
                _, tokens[run] = credentials(run, token_file, config)
            except NoAddress:
                raise
            except ControlFailed as exc:
                if len(asked) == 1:
                    raise
                unreached[run] = str(exc)
        if not tokens:
            raise ControlFailed("; ".join(unreached.values()))
        return cls(tokens, unreached)

    @property
    def alone(self) -> bool:
        """Whether a single run is asked: what it says against it is the failure."""
        return len(self.tokens) + len(self.unreached) == 1

    def post(
        self, path: str, body: Mapping[str, Any], refused: dict[str, str]
    ) -> Iterator[tuple[str, Any]]:
        """Ask all runs for something; each run's address with its answer.

        Args:
            path: which of their controls.
            body: what to do.
            refused: gets address -> why, of the runs that don't do it.

        Raises:
            ControlFailed: the only run does not answer, or refuses.
        """
        refused |= self.unreached
        for run, token in self.tokens.items():
            try:
                answer = post(run, token, path, body)
            except ControlFailed as exc:
                if self.alone:
                    raise
                refused[run] = str(exc)
            else:
                yield run, answer
