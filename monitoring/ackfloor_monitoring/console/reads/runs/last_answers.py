"""LastAnswers: what a run said last stays for a while where the run does not answer.

A busy run misses an answer now and then. Its records do not go away with it, nor does what somebody
has opened or selected there; what is shown says from when it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ackfloor.cli.status.run_answers import RunAnswer

#: Milliseconds for which a run's last answer stays: longer than it takes to start it again.
KEPT_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class LastAnswer:
    """What a run said when it answered last.

    Attributes:
        taken_ms: when it was asked, in milliseconds since 1970.
    """

    answer: RunAnswer
    taken_ms: int


class LastAnswers:
    """Those of the runs of one cluster."""

    def __init__(self) -> None:
        self._last: dict[str, LastAnswer] = {}

    def recent(self, now_ms: int) -> set[str]:
        """The addresses at which a run has answered within the time for which an answer stays."""
        return {run for run, last in self._last.items() if now_ms - last.taken_ms <= KEPT_MS}

    def of_silent(self, answers: Sequence[RunAnswer], taken_ms: int) -> list[LastAnswer]:
        """The last answers of the runs that do not answer now, as far as they are not too old.

        Args:
            answers: of all runs, now.
            taken_ms: when they were asked, in milliseconds since 1970.
        """
        silent = {each.run for each in answers if each.error}
        self._last = {
            run: last
            for run, last in self._last.items()
            if run in silent and taken_ms - last.taken_ms <= KEPT_MS
        } | {each.run: LastAnswer(each, taken_ms) for each in answers if not each.error}
        return [self._last[run] for run in sorted(silent & self._last.keys())]
