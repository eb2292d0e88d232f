"""A coordinator whose answers take longer than a heartbeat has not given anybody up (KIP-848)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.testing import KafkaCluster
from tests.framework.kafka.consume.test_membership import opened
from tests.framework.kafka.wire import fresh, make_topic, produce, pump
from tests.soak.proxied_broker import NODE, proxied_broker
from tests.soak.proxy import Proxy

pytestmark = pytest.mark.kafka

SESSION_S, HEARTBEAT_S = 4.0, 1.0
#: Of an answer; a request takes as long before.
LATE_S = 0.65


@pytest.fixture
def broker() -> Iterator[tuple[Proxy, KafkaCluster]]:
    """A broker with a proxy in front of it, which only those pass who are given its address."""
    with proxied_broker({"group.consumer.min.session.timeout.ms": "1000"}) as both:
        yield both


def set_session(servers: str, group: str) -> None:
    """Have a group's brokers count a short session, with the heartbeats of a usual test."""
    times_s = {"heartbeat.interval": HEARTBEAT_S, "session.timeout": SESSION_S}
    entries = [
        ConfigEntry(
            f"consumer.{name}.ms",
            f"{1000 * seconds:.0f}",
            incremental_operation=AlterConfigOpType.SET,
        )
        for name, seconds in times_s.items()
    ]
    admin = AdminClient({"bootstrap.servers": servers})
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def test_a_slow_coordinator_takes_nothing(
    broker: tuple[Proxy, KafkaCluster], sources: list[KafkaSource]
) -> None:
    """Each answer takes longer than a heartbeat, for three sessions: the member keeps its work."""
    proxy, cluster = broker
    servers, group = cluster.internal_servers, fresh("g")
    topic = make_topic(servers)
    set_session(servers, group)
    source, seen = opened(sources, proxy.servers, group, topic, "broker")
    pump(source, lambda: seen.starts)
    watch = source._session_watch
    assert watch is not None
    pump(source, lambda: watch.session == (SESSION_S, HEARTBEAT_S))
    proxy.delay(NODE, LATE_S)
    end_s = time.monotonic() + 3 * SESSION_S
    while time.monotonic() < end_s:
        source.poll(0.05)
        assert not source.troubles()
    produce(servers, topic, 3)
    pump(source, lambda: len(seen.records) == 3)
    assert (seen.lost, seen.revoked) == ([], [])
    proxy.delay(NODE, 0.0)
