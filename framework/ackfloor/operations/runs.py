"""Runs: those of a group that an order is meant for, and one request to all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ackfloor.operations.run_client import ControlFailed, NotKnown, post
from ackfloor.operations.run_tls import SYSTEM, Trust


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs to ask.

    Attributes:
        tokens: address -> token.
        unreached: address -> why it has no token; of some of the runs.
        trust: whom to trust at an https address.
    """

    tokens: Mapping[str, str]
    unreached: Mapping[str, str] = field(default_factory=dict)
    trust: Trust = SYSTEM

    @property
    def alone(self) -> bool:
        """Whether a single run is asked: what it says against it is the failure."""
        return len(self.tokens) + len(self.unreached) == 1

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        refused: dict[str, str],
        unknown: dict[str, str],
    ) -> Iterator[tuple[str, Any]]:
        """Ask all runs for something; each run's address with its answer.

        Args:
            path: which of their controls.
            body: what to do.
            refused: gets address -> why, of the runs that don't do it.
            unknown: gets address -> why, of the runs that got it and have not answered: they may
                have done it. Those that are in one of the two are not asked again.

        Raises:
            ControlFailed: the only run does not answer, or refuses.
            ConfigError: whom to trust can't be read.
        """
        refused |= self.unreached
        for run, token in self.tokens.items():
            if run in refused or run in unknown:
                continue
            try:
                answer = post(run, token, path, body, self.trust)
            except ControlFailed as exc:
                if self.alone:
                    raise
                (unknown if isinstance(exc, NotKnown) else refused)[run] = str(exc)
            else:
                yield run, answer
