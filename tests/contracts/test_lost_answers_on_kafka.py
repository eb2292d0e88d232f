"""What a client can't know when its broker is silent, on a real broker behind a proxy.

The simulation counts on it: see docs/simulation-broker.md. The same is shown of its own network by
tests/simulation/test_network.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ackfloor.core.records.record import CommitPosition
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.produce.sink import KafkaSink
from tests.contracts.sink_contract import Listener as SinkListener
from tests.contracts.sink_contract import parcel_of
from tests.contracts.sink_contract import pump as pump_sink
from tests.contracts.source_contract import BOUND_S, Listener, pump
from tests.contracts.test_kafka_contract import KafkaWorld
from tests.soak.proxied_broker import NODE, proxied_broker
from tests.soak.proxy import Proxy

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("lost answers")]

SESSION_MS = 6_000


class Stand:
    """A broker, a proxy in front of it, and a world that does not go through the proxy."""

    def __init__(self, proxy: Proxy, servers: str) -> None:
        self.proxy = proxy
        self.world = KafkaWorld(servers)
        self._admin = AdminClient({"bootstrap.servers": servers})

    def source(self, group: str, topic: str) -> tuple[KafkaSource, Listener]:
        """A member of the group behind the proxy, with every partition."""
        consumer = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300}
        source, listener = KafkaSource(self._options(consumer=consumer), group), Listener()
        source.subscribe([topic], listener)
        pump(lambda: listener.starts, source)
        return source, listener

    def sink(self) -> tuple[KafkaSink, SinkListener]:
        """An open sink behind the proxy, which soon gives up."""
        sink, listener = (
            KafkaSink(self._options(producer={"delivery.timeout.ms": 2000})),
            SinkListener(),
        )
        sink.open(listener)
        return sink, listener

    def values(self, topic: str) -> list[bytes | None]:
        """What a topic has."""
        return [record.value() for record in self.world.records(topic)]

    def _options(
        self, consumer: dict[str, Any] | None = None, producer: dict[str, Any] | None = None
    ) -> KafkaOptions:
        common: dict[str, Any] = {"bootstrap.servers": self.proxy.servers, "log_level": 0}
        return KafkaOptions(
            consumer=common | (consumer or {}), producer=common | (producer or {}), admin=common
        )

    def members(self, group: str) -> int:
        """How many members the broker knows."""
        found = self._admin.describe_consumer_groups([group])[group].result(BOUND_S)
        return len(found.members)


@pytest.fixture(scope="module")
def broker() -> Iterator[Stand]:
    """One broker for this file."""
    with proxied_broker() as (proxy, cluster):
        yield Stand(proxy, cluster.internal_servers)


@pytest.fixture
def stand(broker: Stand) -> Iterator[Stand]:
    """With nothing in the way at the end of a test."""
    yield broker
    broker.proxy.clear()


def until(done: Callable[[], object]) -> None:
    """Wait, and poll nothing."""
    end_s = time.monotonic() + BOUND_S
    while not done():
        assert time.monotonic() < end_s, "it did not come about in time"
        time.sleep(0.05)


def test_a_commit_whose_answer_is_lost_may_have_been_stored(stand: Stand) -> None:
    """Nobody has said so, and the next owner begins there."""
    topic, group = stand.world.create_topic(), stand.world.new_group()
    stand.world.produce(topic, [b"0", b"1", b"2"])
    source, listener = stand.source(group, topic)
    stand.proxy.silence(NODE)
    source.commit([CommitPosition(topic, 0, 2, "unheard", 1)], wait=False)
    pump(lambda: stand.world.committed(group, topic) == (2, "unheard"), source)
    assert listener.answers == []
    stand.proxy.clear()
    source.close()


def test_a_write_that_was_not_confirmed_may_be_there_and_comes_twice(stand: Stand) -> None:
    """It has failed as far as the client knows; to lose nothing it is written again."""
    topic = stand.world.create_topic()
    sink, listener = stand.sink()
    first = parcel_of(topic, value=b"before")
    while not listener.published:
        # On a busy machine the first one may time out.
        listener.failed.clear()
        sink.publish(first)
        pump_sink(sink, lambda: listener.published or listener.failed)
    stand.proxy.silence(NODE)
    unheard = parcel_of(topic, value=b"unheard")
    sink.publish(unheard)
    pump_sink(sink, lambda: listener.failed)
    assert [parcel for parcel, _, _ in listener.failed] == [unheard]
    assert [v for v in stand.values(topic) if v != b"before"] == [b"unheard"]
    stand.proxy.clear()
    sink.publish(unheard)
    pump_sink(sink, lambda: sink.pending() == 0)
    values = stand.values(topic)
    sink.close(BOUND_S)
    assert unheard in listener.published
    assert [v for v in values if v != b"before"] == [b"unheard", b"unheard"]


def test_a_member_beyond_its_session_is_refused_and_told_and_joins_again(stand: Stand) -> None:
    """What it sent before it was expelled, and arrives after that, changes nothing."""
    topic, group = stand.world.create_topic(), stand.world.new_group()
    stand.world.produce(topic, [b"0", b"1", b"2"])
    source, listener = stand.source(group, topic)
    stand.proxy.hold(NODE)
    source.commit([CommitPosition(topic, 0, 2, "too late", 1)], wait=False)
    until(lambda: stand.members(group) == 0)
    stand.proxy.release(NODE)
    pump(lambda: listener.log[-2:] == ["lost", "assigned"], source)
    assert [error is None for _, error in listener.answers] in ([], [False])
    assert stand.world.committed(group, topic) is None
    source.commit([CommitPosition(topic, 0, 1, "", 1)], wait=True)
    assert listener.answers[-1][1] is None
    source.close()
