"""AskedRuns: the runs of one cluster, asked again and again.

An answer that no page could show counts as none: it is named, and the others are shown.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Lock

from ackfloor import AckfloorError
from ackfloor.cli.shared.parameters import SettingsSource
from ackfloor.cli.status.next_commands import NextCommands
from ackfloor.cli.status.run_answers import RunAnswer, answers_of, readers_of
from ackfloor.cli.status.run_status import run_lines
from ackfloor.cli.status.working_off import moved_ago_s
from ackfloor_monitoring.console.reads.partition_facts import partitions_of
from ackfloor_monitoring.console.reads.runs.last_answers import LastAnswers
from ackfloor_monitoring.console.reads.runs.run_facts import OfRuns
from ackfloor_monitoring.console.reads.runs.run_identities import RunIdentities
from ackfloor_monitoring.console.reads.runs.run_names import Named, RunNames

log = logging.getLogger("ackfloor.console")

#: What reading a tree leads to that has another shape.
_ODD = ArithmeticError, AttributeError, LookupError, TypeError, ValueError, AckfloorError


class AskedRuns:
    """Those of one cluster; any thread may ask.

    Args:
        listen: their addresses, as `RunNames` takes them; None for the one in the settings.
        source: where the settings are.
        commands: named by what is said of them.
    """

    def __init__(
        self, listen: Sequence[str] | None, source: SettingsSource, commands: NextCommands
    ) -> None:
        self._names = RunNames(listen) if listen else None
        self._source = source
        self._commands = commands
        #: Held while what is known of them is looked at, and not while they are asked.
        self._lock = Lock()
        self._last = LastAnswers()
        self._identities = RunIdentities()
        #: Those whose last answer could not be read: it is logged once.
        self._odd: set[str] = set()

    def now(self, taken_ms: int) -> OfRuns:
        """What they say now, and what those that are silent said a while ago.

        Args:
            taken_ms: the wall clock.

        Raises:
            ConfigError: the settings are refused.
        """
        named, answers = self._answers(taken_ms)
        with self._lock:
            self._odd &= {each.run for each in answers}
            readable = [self._readable(each) for each in answers]
            once = self._identities.once(readable, named)
            silent = self._last.of_silent(once, taken_ms)
        return OfRuns(once, silent, taken_ms, named.given)

    def _answers(self, taken_ms: int) -> tuple[Named, Sequence[RunAnswer]]:
        if self._names is None:
            return Named({}, frozenset(), ()), answers_of(None, self._source)
        with self._lock:
            named = self._names.now(self._last.recent(taken_ms))
        answers = answers_of(list(named.given), self._source) if named.given else ()
        return named, [*answers, *named.failed]

    def _readable(self, answer: RunAnswer) -> RunAnswer:
        """The same; without what it says where no page could show that."""
        if answer.error:
            return answer
        try:
            _read_all(answer, self._commands)
        except _ODD as exc:
            why = f"{answer.run} answers what can't be read: {type(exc).__name__}: {exc}"
            if answer.run not in self._odd:
                self._odd.add(answer.run)
                log.exception("%s", why)
            version = answer.state.get("version", "unknown")
            return RunAnswer(answer.run, answer.named, error=f"{why}; its version is {version}")
        self._odd.discard(answer.run)
        return answer


def _read_all(answer: RunAnswer, commands: NextCommands) -> None:
    """Read whatever a page shows of a run; raises one of `_ODD` where that can't be."""
    alone = OfRuns([answer], (), 0, {})
    alone.figures()
    for facts in partitions_of(alone, None):
        facts.row(1)
        facts.troubles()
    for _ in (*alone.running(), *run_lines([answer], commands)):
        pass
    readers_of([answer])
    moved_ago_s([answer])
