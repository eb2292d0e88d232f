"""Sampling: what the group has committed, what is left, open and in gaps, and memory, over time.

Commits are read past the proxies, so that faults of the network do not blind the oracle.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
from confluent_kafka import KafkaException

from tests.soak.cluster import Commit, Topics
from tests.soak.fleet import Fleet

_COMMITS_EVERY_S = 0.5
_STATE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class CommitSample:
    """The group's commits, as they were at some moment between the two times."""

    asked_s: float
    answered_s: float
    commits: dict[tuple[str, int], Commit]


@dataclass(frozen=True, slots=True)
class StateSample:
    """The whole fleet, and the log, at a moment.

    Attributes:
        lag: offsets between the committed floors and the logs' ends.
        open: records that are open in the workers.
        gaps: settled records above the floors.
        rss: memory of each worker, in bytes, by pid.
    """

    at_s: float
    lag: int
    open: int
    gaps: int
    rss: dict[int, int]


@dataclass(slots=True)
class Samples:
    """Everything that was sampled."""

    commits: list[CommitSample] = field(default_factory=list)
    states: list[StateSample] = field(default_factory=list)
    pids: dict[int, str] = field(default_factory=dict)


class Sampler:
    """Samples on two threads between `start` and `stop`.

    Args:
        topics: makes an object for each thread.
    """

    def __init__(self, topics: Callable[[], Topics], fleet: Fleet) -> None:
        self._make_topics = topics
        self._fleet = fleet
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._sample_commits, name="commits", daemon=True),
            threading.Thread(target=self._sample_states, name="states", daemon=True),
        ]
        self.samples = Samples()
        self.latest: StateSample | None = None

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _sample_commits(self) -> None:
        topics = self._make_topics()
        while not self._stop.wait(_COMMITS_EVERY_S):
            try:
                consumed = topics.consumed()
                asked_s = time.monotonic()
                commits = topics.committed(consumed)
            except KafkaException:
                continue  # the oracle does without this sample
            self.samples.commits.append(CommitSample(asked_s, time.monotonic(), commits))
        topics.close()

    def _sample_states(self) -> None:
        topics = self._make_topics()
        lag = 0
        while not self._stop.wait(_STATE_EVERY_S):
            with suppress(KafkaException):
                lag = sum(topics.unsettled().values())
            self.latest = self._state(lag)
            self.samples.states.append(self.latest)
        topics.close()

    def _state(self, lag: int) -> StateSample:
        open_count = gaps = 0
        for run in self._fleet.runs():
            _, tree = run.page("/state")
            for worker in (tree or {}).get("workers", {}).values():
                for partition in (worker or {}).get("partitions", ()):
                    open_count += partition["open_count"]
                    gaps += partition["gap_count"]
        rss = {}
        for pid, name in self._fleet.worker_pids().items():
            self.samples.pids[pid] = name
            with suppress(psutil.Error):
                rss[pid] = psutil.Process(pid).memory_info().rss
        return StateSample(time.monotonic(), lag, open_count, gaps, rss)
