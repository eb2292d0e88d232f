"""An unclean election cuts records off a log below the floor, and others take their place.

They have offsets that the group has settled, and were once passed over: only the leader epoch tells
them from those that were handled.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

import pytest
from confluent_kafka.admin import NewTopic

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.records.record import TopicPartition
from ackfloor.testing import KafkaCluster
from tests.framework.runtime import on_kafka as patience
from tests.framework.runtime.on_kafka import Crowd, OnKafka, Place, consumer_of, on_kafka

# Three nodes want the machine for themselves, like whole processes.
pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.xdist_group("cluster faults")]

#: The nodes with a replica of the log; the third keeps the group's offsets.
FIRST, SECOND = 2, 3
KEPT, CUT, NEW = 10, 20, 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Three nodes; one that is killed is soon noticed."""
    with KafkaCluster(nodes=3, config={"broker.session.timeout.ms": "3000"}) as made:
        yield made


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes take their time."""
    monkeypatch.setattr(patience, "PATIENCE_S", 90.0)


def make_log(place: Place) -> str:
    """A topic on two of the nodes, one of which is enough, also if it has not got everything."""
    topic = f"{place.topic}-log"
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    new = NewTopic(topic, 1, replica_assignment=[[FIRST, SECOND]], config=config)
    place.admin.create_topics([new])[topic].result(60)
    led_by(place, topic, FIRST)
    # A node that was away before may lag behind: what is kept has to be on both.
    until_s = time.monotonic() + patience.PATIENCE_S
    while in_sync(place, topic) != {FIRST, SECOND}:
        assert time.monotonic() < until_s, f"not both nodes have {topic}"
        time.sleep(0.05)
    return topic


def in_sync(place: Place, topic: str) -> set[int]:
    """The nodes that have all of the log; none where the node that is asked does not know it."""
    found = place.admin.list_topics(topic, timeout=60).topics[topic].partitions.get(0)
    return set() if found is None else {*found.isrs}


def led_by(place: Place, topic: str, node: int) -> None:
    """Wait until a node leads the log."""
    until_s = time.monotonic() + patience.PATIENCE_S
    while place.leader(topic) != node:
        assert time.monotonic() < until_s, f"node {node} does not lead {topic}"
        time.sleep(0.05)


def app_of(
    place: Place,
    topic: str,
    handled: Counter[bytes],
    mode: Literal["group", "broadcast"] = "group",
    keys: dict[str, set[bytes]] | None = None,
) -> App:
    """A handler that counts what it handles, and notes the idempotency keys."""
    app = App(place.group, mode=mode)
    named: dict[str, set[bytes]] = {} if keys is None else keys

    @app.handler(topic, retry=RetryPolicy(max_redeliveries=0))
    async def handle(value: bytes, delivery: Delivery) -> None:
        handled[value] += 1
        named.setdefault(delivery.idempotency_key, set()).add(value)

    return app


def send(place: Place, topic: str, name: str, count: int) -> None:
    """Write records with a name and a number."""
    for number in range(count):
        place.send(1, f"{name}{number}".encode(), topic=topic)


def cut(cluster: KafkaCluster, place: Place, topic: str) -> None:
    """Have the node lead that has not got the last records."""
    cluster.kill(FIRST)
    cluster.start_nodes([SECOND])
    led_by(place, topic, SECOND)
    cluster.start_nodes([FIRST])


def names(name: str, count: int) -> set[bytes]:
    """What `send` writes."""
    return {f"{name}{number}".encode() for number in range(count)}


@contextmanager
def held(worker: OnKafka, topic: str) -> Iterator[None]:
    """The log is not fetched, as while limits are reached, and goes on where it was."""
    source, partition = worker.loop._source, TopicPartition(topic, 0)
    source.pause([partition])
    yield
    source.resume([(partition, KEPT + CUT)])


@pytest.mark.parametrize("worker", ["away", "there", "held"])
@pytest.mark.parametrize("protocol", ["cooperative", "broker"])
def test_what_takes_the_place_of_settled_records_is_handled(
    cluster: KafkaCluster, worker: str, protocol: str
) -> None:
    """Whether a worker is there, fetches or not, or starts later; all of the log comes again."""
    with on_kafka(cluster.bootstrap_servers) as crowd:
        place, handled, keys = crowd.place, Counter[bytes](), dict[str, set[bytes]]()
        topic = make_log(place)
        app = app_of(place, topic, handled, keys=keys)
        first = crowd.start(app, consumer=consumer_of(protocol))
        send(place, topic, "kept", KEPT)
        cluster.kill(SECOND)
        send(place, topic, "cut", CUT)
        crowd.until(lambda: place.committed(topic) == KEPT + CUT, "the commit of what is cut")
        if worker == "away":
            first.close()
        with held(first, topic) if worker == "held" else nullcontext():
            cut(cluster, place, topic)
            send(place, topic, "new", NEW)
        assert place.end(topic) == KEPT + NEW
        if worker == "away":
            app = app_of(place, topic, handled, keys=keys)
            crowd.start(app, consumer=consumer_of(protocol))
        until_handled(crowd, handled, names("new", NEW))
        crowd.until(lambda: place.committed(topic) == KEPT + NEW, "the last commit")
        assert handled.keys() == names("kept", KEPT) | names("cut", CUT) | names("new", NEW)
        assert each_has_one(keys, handled)


@pytest.mark.parametrize("read", [True, False], ids=["has read", "idle"])
def test_what_takes_the_place_of_others_is_broadcast(cluster: KafkaCluster, read: bool) -> None:
    """Whether a worker has read what was cut off, or began at the end behind it and read nothing.

    Nobody commits there: what the worker itself knows of the log has to do.
    """
    with on_kafka(cluster.bootstrap_servers) as crowd:
        place, handled, keys = crowd.place, Counter[bytes](), dict[str, set[bytes]]()
        topic = make_log(place)
        app = app_of(place, topic, handled, mode="broadcast", keys=keys)
        if read:
            worker = crowd.start(app)
            crowd.until(lambda: worker.owns(topic), "its start")
        send(place, topic, "kept", KEPT)
        cluster.kill(SECOND)
        send(place, topic, "cut", CUT)
        if read:
            until_handled(crowd, handled, names("kept", KEPT) | names("cut", CUT))
        else:
            worker = crowd.start(app)
            crowd.until(lambda: worker.floor(topic) == KEPT + CUT, "its start")
        with held(worker, topic):
            cut(cluster, place, topic)
            send(place, topic, "new", NEW)
        until_handled(crowd, handled, names("new", NEW))
        assert each_has_one(keys, handled)


def each_has_one(keys: dict[str, set[bytes]], handled: Counter[bytes]) -> bool:
    """Whether each record has one key in all its deliveries, and no other record has it."""
    return all(len(values) == 1 for values in keys.values()) and len(keys) == len(handled)


def test_a_clean_election_has_nothing_read_again(cluster: KafkaCluster) -> None:
    """The epoch of the commit is an old one, and the log below it is still the same."""
    with on_kafka(cluster.bootstrap_servers) as crowd:
        place, handled = crowd.place, Counter[bytes]()
        topic = make_log(place)
        first = crowd.start(app_of(place, topic, handled))
        send(place, topic, "kept", KEPT)
        crowd.until(lambda: place.committed(topic) == KEPT, "the first commit")
        first.close()
        cluster.kill(FIRST)
        led_by(place, topic, SECOND)
        cluster.start_nodes([FIRST])
        send(place, topic, "new", NEW)
        crowd.start(app_of(place, topic, handled))
        crowd.until(lambda: place.committed(topic) == KEPT + NEW, "the last commit")
        assert handled == Counter(names("kept", KEPT) | names("new", NEW))


def until_handled(crowd: Crowd, handled: Counter[bytes], wanted: set[bytes]) -> None:
    """Turn until these are handled; says which are not."""
    try:
        crowd.until(lambda: wanted <= handled.keys(), "all handled")
    except AssertionError:
        missing = sorted(wanted - handled.keys())
        pytest.fail(f"never handled: {missing}")
