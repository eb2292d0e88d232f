"""Cluster: one Kafka cluster, its groups and the runs that can be reached, as a page shows them.

Runs and Kafka are two questions: runs answer from memory within seconds, Kafka may be slow or
away, and neither waits for the other. What is wrong, and its order, is what `ackfloor status` says.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ackfloor.cli.shared.parameters import Brokers
from ackfloor.cli.shared.run_address import trust_of
from ackfloor.cli.shared.run_tokens import tokens_of
from ackfloor.cli.status.entries import Entry, entries, with_handlers
from ackfloor.cli.status.group_look import looks
from ackfloor.cli.status.group_status import group_lines
from ackfloor.cli.status.next_commands import NextCommands
from ackfloor.cli.status.run_answers import RunAnswer, readers_of
from ackfloor.cli.status.run_status import run_lines
from ackfloor.cli.status.status_line import worst_first
from ackfloor.cli.status.working_off import with_working_off
from ackfloor.operations import ActionFilter, ActionLog, ActionNote, ControlFailed, Runs, Trust
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from ackfloor_monitoring.console.reads import history
from ackfloor_monitoring.console.reads.begun_jobs import BegunJobs
from ackfloor_monitoring.console.reads.history import History
from ackfloor_monitoring.console.reads.kafka_facts import OfKafka
from ackfloor_monitoring.console.reads.plots import Plots, PrometheusHistory
from ackfloor_monitoring.console.reads.prometheus import Prometheus
from ackfloor_monitoring.console.reads.refreshed import Answer, Refreshed
from ackfloor_monitoring.console.reads.runs.asked_runs import AskedRuns
from ackfloor_monitoring.console.reads.runs.run_facts import OfRuns
from ackfloor_monitoring.console.reads.spark_report import SparkReport

if TYPE_CHECKING:
    from ackfloor.redrive import KafkaOptions

T = TypeVar("T")

#: Seconds between two questions to runs, which have the answer in memory, and to Kafka.
RUNS_EVERY_S: Final = 2.0
KAFKA_EVERY_S: Final = 10.0
#: Actions that are shown: the newest.
MOST_ACTIONS: Final = 100
#: Seconds that the first page waits for its first answer.
PATIENCE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class OfActions:
    """What operators did, the newest first.

    Attributes:
        taken_ms: when it was asked, in milliseconds since 1970.
    """

    notes: Sequence[ActionNote]
    taken_ms: int


class AskedRun(NamedTuple):
    """A run that was asked just now.

    Attributes:
        group: its own, or that of when it answered last; "" where it never has.
        token: its own; "" where it is not known.
        why: why it can't be asked for more; "" where it can.
        trust: whom to trust there, where it has TLS.
    """

    answer: RunAnswer
    group: str
    token: str
    why: str
    trust: Trust


class Cluster:
    """One cluster.

    Args:
        name: in every address of its pages.
        brokers: how to reach it.
        listen: the addresses of runs, as `RunNames` takes them; None for the one in the settings.
        asking: where questions wait for their answers.
        index: of its dead letters; None for none.
        token_files: address of a run -> the file with its token, where that is not the run's own.
        report: what Spark has counted; None for none.
        prometheus: has the figures of the last hour; None for the console's own.

    Raises:
        ConfigError: the settings or a client property are refused.
    """

    def __init__(
        self,
        name: str,
        brokers: Brokers,
        listen: Sequence[str] | None,
        asking: Executor,
        index: DeadLetterIndex | None = None,
        token_files: Mapping[str, Path] = MappingProxyType({}),
        report: SparkReport | None = None,
        prometheus: Prometheus | None = None,
    ) -> None:
        self.name = name
        self.asking = asking
        self._brokers = brokers
        self.index = index
        self.report = report
        self._token_files = token_files
        self.commands = NextCommands.after(listen, brokers)
        self._asked = AskedRuns(listen, brokers.source, self.commands)
        self.rules = brokers.settings().redaction.rules()
        self._groups: Sequence[str] = ()
        #: Of each run that has answered, its group: a run that is away may still be of it.
        self._group_of: dict[str, str] = {}
        self._of_kafka: OfKafka | None = None
        self.runs = _refreshed(self._ask_runs, asking, RUNS_EVERY_S)
        self.kafka = _refreshed(self._ask_kafka, asking, KAFKA_EVERY_S)
        self.actions = _refreshed(self._ask_actions, asking, KAFKA_EVERY_S)
        self.history = History()
        self.begun_jobs = BegunJobs()
        self._of_prometheus = None if prometheus is None else PrometheusHistory(prometheus, asking)

    def plots(self) -> Plots:
        """The figures of the last hour."""
        if self._of_prometheus is not None:
            return self._of_prometheus.plots(self.history)
        return Plots(self.history.plots(), self.history.since_ms)

    def close(self) -> None:
        """Ask nobody any more."""
        for each in (self.runs, self.kafka, self.actions):
            each.close()

    async def keep_plots(self) -> None:
        """Ask Prometheus every few seconds, if there is one, until this is cancelled."""
        while self._of_prometheus is not None:
            runs, kafka = await asyncio.gather(self.runs.look(), self.kafka.look())
            groups = {*(runs.value.groups if runs.value is not None else ())}
            groups |= {
                each.group for each in (kafka.value.looks if kafka.value is not None else ())
            }
            await self._of_prometheus.renew(groups)
            # Without a group nobody was asked: one is known soon.
            await asyncio.sleep(history.EVERY_S if groups else RUNS_EVERY_S)

    async def keep_history(self) -> None:
        """Take a point of the history every few seconds, until this is cancelled."""
        while True:
            await asyncio.sleep(history.EVERY_S)
            runs, kafka = await asyncio.gather(
                self.runs.now(history.PATIENCE_S), self.kafka.now(history.PATIENCE_S)
            )
            with self.history.reading():
                self.history.add(_now_ms(), _figures(runs) | _figures(kafka))

    def options(self) -> KafkaOptions:
        """How its brokers are reached; raises ConfigError."""
        return self._brokers.options()

    def runs_of(self, group: str) -> Runs:
        """The runs of a group, asked now, with their tokens; one that is away is named as well.

        Raises:
            ControlFailed: no run of the group can be asked to do something.
            ConfigError: the settings are refused.
        """
        asked = self.asked_runs(group)
        tokens = {each.answer.run: each.token for each in asked if each.token}
        unreached = {each.answer.run: each.why for each in asked if not each.token}
        if not tokens:
            why = "; ".join(unreached.values()) or "the console knows none; name them with --run"
            raise ControlFailed(f"no run of {group} can be asked: {why}")
        return Runs(tokens, unreached, trust_of(self._brokers.source, *tokens))

    def asked_runs(self, group: str | None = None) -> Sequence[AskedRun]:
        """The runs of a group, or of all, asked now; one of which no group is known may be of any.

        Raises:
            ConfigError: the settings are refused.
        """
        asked = self._ask_runs()
        meant = [
            (each, of)
            for each in asked.answers
            if (of := each.group or self._group_of.get(each.run, group or "")) == group
            or group is None
        ]
        files = {
            each.run: self._token_files.get(asked.given.get(each.run, each.run))
            for each, _ in meant
            if not each.error
        }
        tokens, failed = tokens_of(files, self._brokers.source)
        whys = {run: _of_console(str(exc)) for run, exc in failed.items()}
        trust = trust_of(self._brokers.source, *files)
        return [
            AskedRun(
                each, of, tokens.get(each.run, ""), each.error or whys.get(each.run, ""), trust
            )
            for each, of in meant
        ]

    def _ask_runs(self) -> OfRuns:
        found = self._asked.now(_now_ms())
        self._group_of |= {each.run: each.group for each in found.answers if each.group}
        # A group whose runs are all away is just the one that somebody wants to see.
        self._groups = sorted({*found.groups, *self._group_of.values()})
        return found

    def _ask_kafka(self) -> OfKafka:
        taken_ms = _now_ms()
        # Runs may be of a group without a topic of ours, and a group may be without a run.
        found = list(looks(self.options(), None, self._groups))
        answered_ms = _now_ms()
        lines = [
            line
            for look in found
            for line in group_lines(look, self.commands, self.rules, taken_ms)
        ]
        before = None if self._of_kafka is None else replace(self._of_kafka, before=None)
        self._of_kafka = OfKafka(found, lines, taken_ms, answered_ms, before)
        return self._of_kafka

    def _ask_actions(self) -> OfActions:
        taken_ms = _now_ms()
        return OfActions(ActionLog(self.options()).newest(ActionFilter(), MOST_ACTIONS), taken_ms)

    def entries(self, runs: OfRuns | None, kafka: OfKafka | None) -> Sequence[Entry]:
        """What there is to say, the worst first, with what follows from it."""
        answers = [*runs.answers, *(each.answer for each in runs.silent)] if runs else []
        lines = [*run_lines(answers, self.commands), *(kafka.lines if kafka is not None else ())]
        found = with_working_off(with_handlers(lines, readers_of(answers)), answers)
        return entries(worst_first(found))


def _refreshed(ask: Callable[[], T], asking: Executor, every_s: float) -> Refreshed[T]:
    return Refreshed(ask, asking, time.monotonic, every_s=every_s, patience_s=PATIENCE_S)


def _figures(answer: Answer[OfRuns] | Answer[OfKafka] | None) -> dict[str, int]:
    """What the history keeps of an answer; nothing where there is none."""
    if answer is None or answer.value is None or answer.error:
        return {}
    return answer.value.figures()


def _of_console(why: str) -> str:
    """Why a run has no token, with the options of the console for those of a command."""
    return why.replace("--listen or --token", "--run-token")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
