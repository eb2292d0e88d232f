"""JobDesk: what desks share whose orders are jobs on dead letters, each on a thread of its own.

Invariants. A job is noted before it begins, and does not begin where that fails. One job of this
console runs at a time on a topic. When the console ends, its jobs end after their transaction.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from ackfloor import SettingError
from ackfloor.cli.shared.run_address import checked_reason
from ackfloor.operations import ActionNote, noted
from ackfloor.operations.noted import end_by_tallies
from ackfloor.redrive import Tally, Wanted
from ackfloor_monitoring.console.acts.first_noted import (
    carrying,
    confirmed,
    console_note,
    writer_of,
)
from ackfloor_monitoring.console.acts.kept_forms import KeptForms
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

if TYPE_CHECKING:
    from ackfloor.redrive import RedriveJob

#: Orders that are kept: each may hold the places of what it means, eight bytes for each.
MOST_KEPT: Final = 50
#: Jobs of this console that may run at once.
MOST_JOBS: Final = 8
#: Seconds that an ending console waits for the transactions of its jobs.
GRACE_S: Final = 15.0


class JudgedJob(Protocol):
    """A job that somebody asked for."""

    @property
    def note(self) -> ActionNote:
        """As which it would be noted."""

    @property
    def topic(self) -> str:
        """The dead-letter topic that it works on."""

    @property
    def job(self) -> str:
        """Its name."""


J = TypeVar("J", bound=JudgedJob)


@dataclass(slots=True)
class CarriedJob:
    """A job that was confirmed.

    Attributes:
        reason: why, as whoever confirmed it says.
        address: from where they did.
        tally: how far it is.
        error: why it was not begun, or failed.
        over: whether it has ended.
        is_noted: whether the job has a note of its own, by which it can be gone on with.
        stop: set to end it after its transaction.
        stopped_for: why somebody had it end; empty where nobody has.
    """

    reason: str
    address: str
    tally: Tally = field(default_factory=Tally)
    error: str = ""
    over: bool = False
    is_noted: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    stopped_for: str = ""

    def tell(self, why: str) -> None:
        """Have its page say that something of it is not noted."""
        self.error = why


@dataclass(frozen=True, slots=True)
class _Running:
    topic: str
    job: str
    carried: CarriedJob
    thread: threading.Thread


class JobThreads:
    """The jobs of a cluster that run in this console, whichever desk began them."""

    def __init__(self) -> None:
        #: Held while one is begun: a job is begun once, and none while the console ends.
        self.beginning = threading.Lock()
        self._begun: list[_Running] = []
        self._ending = False

    def refuse_too_many(self, topic: str) -> None:
        """Raises SettingError where another job has to end first, or the console ends."""
        running = self._running()
        if self._ending or len(running) >= MOST_JOBS:
            why = "the console ends" if self._ending else "so many run in this console"
            raise SettingError("jobs", len(running), why, "try again later")
        for each in running:
            if each.topic == topic:
                why = "runs on this topic already"
                raise SettingError("job", each.job, why, "wait for its end, or end it")

    def begin(self, topic: str, job: str, made: CarriedJob, run: Callable[[], None]) -> None:
        """Run a job; whoever begins it holds `beginning`."""
        thread = threading.Thread(target=run, name=f"console:{job}", daemon=True)
        self._begun = [*self._running(), _Running(topic, job, made, thread)]
        thread.start()

    def close(self) -> None:
        """Have the jobs end after their transaction, and begin no other one."""
        with self.beginning:
            self._ending = True
        running = self._running()
        for each in running:
            each.carried.stop.set()
        until_s = time.monotonic() + GRACE_S
        for each in running:
            each.thread.join(max(0.0, until_s - time.monotonic()))

    def _running(self) -> list[_Running]:
        return [each for each in self._begun if not each.carried.over]


class JobDesk(ABC, Generic[J]):
    """One desk of a cluster. Its methods block, and belong to threads of the console."""

    def __init__(self, cluster: Cluster, threads: JobThreads) -> None:
        self._cluster = cluster
        self._threads = threads
        #: Where its methods are to be called.
        self.asking = cluster.asking
        self.kept = KeptForms[J, CarriedJob](MOST_KEPT)

    @abstractmethod
    def _begun(self, judged: J) -> tuple[RedriveJob, Wanted]:
        """The job, and what it is to work on; raises AckfloorError where it is not to begin."""

    def searches(self, form: Fields) -> bool:  # noqa: ARG002 -- desks are alike
        """Whether judging a form reads as much as a search: it looks at some dead letters alone."""
        return False

    def carry_out(self, judged: J, reason: str, address: str) -> None:
        """Begin it, once.

        Args:
            address: from where it is confirmed.

        Raises:
            SettingError: the reason is missing or too long, or too many jobs run.
        """
        made = CarriedJob(checked_reason("reason", " ".join(reason.split())), address)
        with self._threads.beginning:
            if self.kept.carried(judged.note.id) is not None:
                return
            self._threads.refuse_too_many(judged.topic)
            self.kept.begin(judged.note.id, made)
            self._cluster.begun_jobs.begin(judged.topic, judged.job)
            self._threads.begin(judged.topic, judged.job, made, lambda: self._run(judged, made))

    def stop(self, judged: J, reason: str, address: str) -> None:
        """End its job after the transaction under way, once.

        Args:
            address: from where.

        Raises:
            SettingError: the reason is too long.
            AckfloorError: it can't be noted, and the job goes on.
        """
        text = checked_reason("reason", " ".join(reason.split()))
        carried = self.kept.carried(judged.note.id)
        with self._threads.beginning:
            if carried is None or carried.over or carried.stopped_for:
                return
            carried.stopped_for = text
        note = console_note(
            "dlq stop",
            judged.note.by,
            address,
            target=judged.topic,
            group=judged.note.group,
            arguments={"job": judged.job},
            reason=text,
        )
        try:
            with noted(note, writer_of(self._cluster, carried.tell), job=True):
                carried.stop.set()
        except BaseException:
            # Whatever it was: the job goes on, and may be stopped again.
            carried.stopped_for = ""
            raise

    def _run(self, judged: J, carried: CarriedJob) -> None:
        """In its thread: note it, run the job, note how it ended."""
        with carrying(carried, judged.note):
            write = writer_of(self._cluster, carried.tell)
            begun = confirmed(judged.note, carried.reason, carried.address)
            with noted(begun, write, job=True) as ending:
                job, wanted = self._begun(judged)
                tally = job.run(
                    wanted,
                    progress=lambda tally: setattr(carried, "tally", tally),
                    stopping=carried.stop.is_set,
                )
                carried.is_noted, carried.tally = job.is_noted, tally
                end_by_tallies(ending, [carried.tally])
        if carried.error or not carried.tally.sent:
            # It may have written no note of its own.
            self._cluster.begun_jobs.forget(judged.job)
