"""`app.publishing()` while Kafka is silent, and when it is back: each call gets a true answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ackfloor import App, PublishFailed
from ackfloor.testing import KafkaCluster
from tests.framework.kafka.wire import make_topic, silent
from tests.framework.test_publishing_on_kafka import everything

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("publishing_outages")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A broker that may be stopped."""
    with KafkaCluster() as running:
        yield running


def shop(cluster: KafkaCluster, **producer: object) -> App:
    """An app that only publishes."""
    servers = cluster.bootstrap_servers
    return App("shop", kafka={"bootstrap_servers": servers, "producer": producer})


def test_what_was_under_way_at_the_end_may_have_been_written(cluster: KafkaCluster) -> None:
    """The error says so; what comes after it is written once the broker goes on."""
    topic = make_topic(cluster.bootstrap_servers)
    app = shop(cluster)
    publishing = app.publishing(close_timeout="200ms")
    publishing.__enter__()
    app.publish_sync(topic, "first")
    with ThreadPoolExecutor() as pool, silent(cluster):
        waiting = pool.submit(app.publish_sync, topic, "second")
        with pytest.raises(TimeoutError):
            waiting.result(1)
        publishing.__exit__(None, None, None)
        with pytest.raises(PublishFailed, match=f"{topic}: not confirmed before the end; perhaps"):
            waiting.result(5)
    with app.publishing():
        app.publish_sync(topic, "third")
    found = [record.value() for record in everything(cluster.bootstrap_servers, topic, 2)]
    assert found[0] == b"first"
    assert found[1] in (b"second", b"third")


def test_a_silence_that_ends_in_time_costs_nothing(cluster: KafkaCluster) -> None:
    """All are confirmed, each is written once, in order."""
    topic = make_topic(cluster.bootstrap_servers)
    app = shop(cluster, **{"socket.timeout.ms": 1000})
    with app.publishing(), ThreadPoolExecutor(1) as pool:
        app.publish_sync(topic, "0")
        with silent(cluster):
            waiting = [pool.submit(app.publish_sync, topic, str(n)) for n in range(1, 20)]
            with pytest.raises(TimeoutError):
                waiting[0].result(3)
        assert [call.result(60) for call in waiting] == [None] * 19
    found = [record.value() for record in everything(cluster.bootstrap_servers, topic, 20)]
    assert found == [str(n).encode() for n in range(20)]


def test_the_delivery_timeout_bounds_the_wait(cluster: KafkaCluster) -> None:
    """A silence that lasts is an error of the call, without any timeout of the caller's."""
    topic = make_topic(cluster.bootstrap_servers)
    app = shop(cluster, **{"delivery.timeout.ms": 2000})
    with app.publishing():
        app.publish_sync(topic, "0")
        with silent(cluster), pytest.raises(PublishFailed, match=f"{topic}: .*TIMED_OUT"):
            app.publish_sync(topic, "1", timeout_s=30)
        app.publish_sync(topic, "2", timeout_s=60)
    values = {record.value() for record in everything(cluster.bootstrap_servers, topic, 2)}
    assert {b"0", b"2"} <= values
