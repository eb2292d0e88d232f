"""A run and a Kafka for the console to show: a test puts in what they say."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ackfloor.cli.status.group_look import GroupLook
from ackfloor.core.acks.progress import Progress
from ackfloor.errors import KafkaUnreachable
from ackfloor.observe import BlockedLanes, NoisyKeys
from ackfloor_monitoring.console.reads import cluster_facts
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from tests.monitoring.samples import handler, snapshot


class Run:
    """A run at an address."""

    def __init__(self) -> None:
        self.metrics = RunMetrics("billing", 1)
        self.listen = self.metrics.start("127.0.0.1:0")
        self.show()

    def show(self, **changes: Any) -> None:
        """Its worker reports how its handler is."""
        quiet: dict[str, Any] = {
            "blocked": BlockedLanes(), "quarantined": BlockedLanes(), "noisy_keys": NoisyKeys(),
        }  # fmt: skip
        worker = WorkerMetrics()
        worker.snapshot(snapshot(handlers=(handler(**{**quiet, **changes}),), faults=()))
        self.metrics.update(0, worker.report())


class Kafka:
    """What Kafka says: a test puts it in."""

    def __init__(self) -> None:
        self.looks: list[GroupLook] = [GroupLook("billing", 1, [progress(end=400)])]
        self.answers = threading.Event()
        self.answers.set()
        self.error = ""
        self.asked = 0
        self.groups: tuple[object, Sequence[str]] = None, ()

    def __call__(
        self, _options: object, groups: object, more: Sequence[str]
    ) -> Iterator[GroupLook]:
        """Of all groups."""
        self.asked += 1
        self.groups = groups, more
        self.answers.wait(60)
        if self.error:
            raise KafkaUnreachable(self.error)
        yield from self.looks


def progress(**changes: Any) -> Progress:
    """A partition of the source, of which 100 records are settled."""
    return Progress("billing", "orders", 0, "source", **{"start": 0, "floor": 100, **changes})


@pytest.fixture
def run() -> Iterator[Run]:
    """One run whose worker has nothing to say."""
    made = Run()
    yield made
    made.metrics.stop()


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kafka]:
    """A cluster with one group."""
    made = Kafka()
    monkeypatch.setattr(cluster_facts, "looks", made)
    yield made
    made.answers.set()
