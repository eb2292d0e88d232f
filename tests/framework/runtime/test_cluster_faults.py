"""Nodes of a cluster die and come back under a worker: it goes on by itself, and loses nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka import KafkaException

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.testing import KafkaCluster
from tests.framework.kafka.wire import until
from tests.framework.runtime import on_kafka as patience
from tests.framework.runtime.on_kafka import Place, consumer_of, on_kafka

# Three nodes want the machine for themselves, like whole processes; all tests have the same ones.
pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.xdist_group("cluster faults")]

NONE = RetryPolicy(max_redeliveries=0)
REPLICAS = "min.insync.replicas"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Three nodes, three replicas of everything, two of which must be in sync."""
    with KafkaCluster(nodes=3) as made:
        yield made


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes take their time."""
    monkeypatch.setattr(patience, "PATIENCE_S", 90.0)


@contextmanager
def without(cluster: KafkaCluster, *nodes: int) -> Iterator[None]:
    """Kill nodes, and start them again."""
    for node in nodes:
        cluster.kill(node)
    try:
        yield
    finally:
        cluster.start_nodes(nodes)


def spare(place: Place, targets: list[str]) -> int:
    """A node that leads none of these topics, nor the source, and does not coordinate."""
    busy = {place.leader(name) for name in [*targets, place.topic]}
    free = {1, 2, 3} - busy - {coordinator(place)}
    # With every node busy an election is part of the test.
    return min(free or {1, 2, 3})


def coordinator(place: Place) -> int:
    """The node that coordinates the group, as soon as one says that it does."""
    found: list[int] = []

    def is_known() -> bool:
        # A group moves with its node's leadership: the one that was asked is not it any more.
        with suppress(KafkaException):
            groups = place.admin.describe_consumer_groups([place.group])
            found.append(int(groups[place.group].result(60).coordinator.id))
        return bool(found)

    until(is_known, patience.PATIENCE_S)
    return found[0]


def counting(place: Place, handled: Counter[int]) -> App:
    """A handler that counts what it handles."""
    app = App(place.group)

    @app.handler(place.topic, retry=NONE)
    async def handle(delivery: Delivery) -> None:
        handled[delivery.offset] += 1

    return app


@pytest.mark.parametrize(
    ("role", "protocol"), [("leader", "cooperative"), ("coordinator", "broker")]
)
def test_a_leader_election_and_a_coordinator_that_moves_stop_nobody(
    cluster: KafkaCluster, role: str, protocol: str
) -> None:
    """Records and commits go on through another node, without a restart of the worker."""
    with on_kafka(cluster.bootstrap_servers) as crowd:
        place, handled = crowd.place, Counter[int]()
        worker = crowd.start(counting(place, handled), consumer=consumer_of(protocol))
        crowd.until(lambda: worker.owns(place.topic) == [0])
        place.send(50)
        crowd.until(lambda: place.committed() == 50, "the first commit")
        with without(
            cluster, place.leader(place.topic) if role == "leader" else coordinator(place)
        ):
            place.send(50)
            crowd.until(lambda: place.committed() == 100, "the commit without the node")
        place.send(50)
        crowd.until(lambda: place.committed() == 150, "the commit with all nodes")
        crowd.until(lambda: worker.faults() == "", "the end of every fault")
        assert set(handled) == set(range(150))


def test_what_too_few_replicas_confirm_leaves_its_record_open(cluster: KafkaCluster) -> None:
    """A park and a publish: floors wait, readiness names the tier, both go on by themselves.

    Not acked before it is confirmed: what parks a record and what a handler publishes.
    """
    with on_kafka(cluster.bootstrap_servers) as crowd:
        place = crowd.place
        target, notes = f"{place.topic}--notes--retry-1h", f"{place.topic}-notes"
        place.create(target, **{REPLICAS: "3"})
        place.create(notes)
        app = App(place.group)
        retried: list[int] = []
        begun: list[int] = []
        ended: list[int] = []

        @app.handler(place.topic, retry=RetryPolicy.fixed("100ms", 1))
        async def bill(delivery: Delivery) -> None:
            if delivery.attempt == 1:
                raise ValueError("once")
            retried.append(delivery.origin.offset)

        @app.handler(notes, retry=NONE)
        async def copy(value: bytes, delivery: Delivery) -> None:
            begun.append(delivery.offset)
            # Longer than anything here: the client itself tries again until it works.
            await app.publish(target, value, key="k")
            ended.append(delivery.offset)

        worker = crowd.start(app, producer={"delivery.timeout.ms": 60_000})
        tier = place.our("retry-100ms")
        place.set_topic(tier, REPLICAS, "3")
        crowd.until(lambda: (place.committed(), place.committed(notes)) == (0, 0))
        with without(cluster, spare(place, [tier, target, notes])):
            place.send(3)
            place.send(3, topic=notes)
            crowd.until(lambda: len(begun) == 3, "the handlers")
            crowd.until(lambda: tier in worker.faults(), "the fault")
            assert (worker.floor(place.topic), worker.floor(notes)) == (0, 0)
            assert (place.committed(), place.committed(notes), ended) == (0, 0, [])
        crowd.until(lambda: place.committed() == 3, "the parks")
        crowd.until(lambda: place.committed(notes) == 3, "the publishes")
        crowd.until(lambda: set(retried) == {0, 1, 2}, "the retries")
        crowd.until(lambda: worker.faults() == "", "the end of the fault")
        assert sorted(ended) == [0, 1, 2]
        assert place.end(target) == 3
