"""A local Kafka starts on either Java, survives the loss of nodes, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ackfloor.testing import KafkaCluster
from ackfloor.testing.local_kafka import cluster as cluster_module
from ackfloor.testing.local_kafka.cluster import ClusterFailed
from ackfloor.testing.local_kafka.java import JavaChoice
from ackfloor.testing.local_kafka.node import BrokerConfigRefused, Node, free_ports, place_nodes
from ackfloor.testing.local_kafka.processes import ProcessIdentity
from tests.processes import kill

pytestmark = [pytest.mark.kafka]


def _write(servers: str, topic: str, values: list[bytes]) -> None:
    failed: list[KafkaError] = []

    def reported(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value, on_delivery=reported)
    assert producer.flush(60) == 0
    assert failed == []


def _read(servers: str, topic: str, count: int) -> list[bytes]:
    options = {
        "bootstrap.servers": servers,
        "group.id": f"g-{uuid.uuid4()}",
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer(options)
    consumer.subscribe([topic])
    values: list[bytes] = []
    give_up = time.monotonic() + 60
    while len(values) < count and time.monotonic() < give_up:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


def _create(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(60)


def _identities(pids: list[int]) -> list[ProcessIdentity]:
    found = [ProcessIdentity.of(pid) for pid in pids]
    assert None not in found
    return [identity for identity in found if identity is not None]


def _alive_after(processes: list[ProcessIdentity], wait_s: float) -> list[ProcessIdentity]:
    return [process for process in processes if not process.gone_within(wait_s)]


@pytest.mark.parametrize("java", ["installed", "bundled"])
def test_records_go_through_and_nothing_stays(java: JavaChoice) -> None:
    """On an installed Java and on the bundled one, records go in and out; then all is gone."""
    with KafkaCluster(java=java) as cluster:
        _create(cluster.bootstrap_servers, "orders")
        _write(cluster.bootstrap_servers, "orders", [b"a", b"b"])
        assert _read(cluster.bootstrap_servers, "orders", 2) == [b"a", b"b"]
        processes = _identities([cluster.guard_pid, *cluster.pids.values()])
        data_dir = cluster.data_dir
        assert data_dir.is_dir()
    assert _alive_after(processes, wait_s=0) == []
    assert not data_dir.exists()


#: One cluster for all of them.
THREE = pytest.mark.xdist_group("three nodes")


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    """Three nodes, for the tests that take some of them away."""
    with KafkaCluster(nodes=3) as cluster:
        yield cluster


@THREE
def test_three_nodes_replicate(three: KafkaCluster) -> None:
    """Three nodes know each other, and topics get three replicas of which two must be in sync."""
    _create(three.bootstrap_servers, "replicated")
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers, "log_level": 0})
    listed = admin.list_topics("replicated", timeout=60)
    until_s = time.monotonic() + 60
    # A node that was not asked to make it may hear of it a moment later.
    while not listed.topics["replicated"].partitions:
        assert time.monotonic() < until_s, "nobody told of the topic"
        time.sleep(0.05)
        listed = admin.list_topics("replicated", timeout=60)
    assert set(listed.brokers) == {1, 2, 3} == set(three.node_ids)
    assert sorted(listed.topics["replicated"].partitions[0].replicas) == [1, 2, 3]


@THREE
def test_killed_node_comes_back_with_its_data(three: KafkaCluster) -> None:
    """With one of three nodes killed writing goes on; started again it is at the same address."""
    servers = three.bootstrap_servers
    _create(servers, "kept")
    _write(servers, "kept", [b"before"])
    killed = _identities([three.pids[2]])
    three.kill(2)
    assert _alive_after(killed, wait_s=0) == []
    assert sorted(three.pids) == [1, 3]
    _write(servers, "kept", [b"while it was away"])
    three.start_node(2)
    assert three.bootstrap_servers == servers
    assert _read(servers.split(",")[1], "kept", 2) == [b"before", b"while it was away"]


def test_stopped_single_node_keeps_its_records() -> None:
    """A single node that is stopped in order and then killed keeps its port and records."""
    with KafkaCluster() as cluster:
        servers = cluster.bootstrap_servers
        _create(servers, "kept")
        _write(servers, "kept", [b"one"])
        cluster.stop_node(1)
        assert cluster.pids == {}
        cluster.start_node(1)
        _write(servers, "kept", [b"two"])
        cluster.kill(1)
        cluster.start_node(1)
        assert cluster.bootstrap_servers == servers
        assert _read(servers, "kept", 2) == [b"one", b"two"]
        with pytest.raises(ClusterFailed, match="node 1 is running already"):
            cluster.start_node(1)


def test_topics_are_not_created_unasked_but_config_may() -> None:
    """Extra broker properties win over the defaults for tests."""
    with KafkaCluster(config={"auto.create.topics.enable": "true"}) as cluster:
        _write(cluster.bootstrap_servers, "unasked", [b"a"])
        assert _read(cluster.bootstrap_servers, "unasked", 1) == [b"a"]


def test_client_listener_takes_sasl() -> None:
    """The listener CLIENT can be given SASL while the brokers talk plainly among themselves."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    config = {
        "listener.security.protocol.map": (
            "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f'{module} required user_app="secret";',
    }
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password": "secret",
    }
    with KafkaCluster(config=config) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **login})
        assert set(admin.list_topics(timeout=60).brokers) == {1}


_PARENT = """
import sys, time
from ackfloor.testing import KafkaCluster
cluster = KafkaCluster().start()
if sys.argv[1] == "forked":
    import os
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    print(pid)
else:
    print(0)
print(cluster.guard_pid, *cluster.pids.values())
print(cluster.data_dir, flush=True)
if sys.argv[1] == "returns":
    # Not before it is known who there is: with this process they are gone.
    sys.stdin.readline()
else:
    time.sleep(600)
"""


@pytest.mark.parametrize("how", ["killed", "forked", "returns"])
def test_nothing_outlives_its_parent(how: str) -> None:
    """A parent that is killed, has forked, or just ends without stop() leaves no process."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        processes = _identities([int(pid) for pid in parent.stdout.readline().split()])
        data_dir = Path(parent.stdout.readline().strip())
        if how == "returns":
            parent.stdin.close()
        else:
            parent.send_signal(signal.SIGKILL)
        try:
            assert _alive_after(processes, wait_s=60) == []
        finally:
            if child:
                kill(child)
    assert not data_dir.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent's death")
def test_nodes_die_with_a_killed_guard() -> None:
    """When the guard itself is killed its nodes die too, and the next call says so."""
    cluster = KafkaCluster().start()
    nodes = _identities(list(cluster.pids.values()))
    data_dir = cluster.data_dir
    os.kill(cluster.guard_pid, signal.SIGKILL)
    assert _alive_after(nodes, wait_s=60) == []
    with pytest.raises(Exception, match="took the broker with it"):
        cluster.kill(1)
    cluster.stop()
    for path in sorted(data_dir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    data_dir.rmdir()


def test_broker_that_cannot_start_shows_its_log() -> None:
    """A broker that refuses its configuration fails at once, with the end of its log."""
    with pytest.raises(ClusterFailed, match=r"node 1 .*(?s:.)*num\.network\.threads"):
        KafkaCluster(config={"num.network.threads": "-1"}).start()


def test_slow_start_is_bounded() -> None:
    """A start that takes too long ends at start_timeout_s and removes everything."""
    cluster = KafkaCluster(start_timeout_s=0.1)
    with pytest.raises(ClusterFailed, match=r"start_timeout_s=0\.1"):
        cluster.start()
    with pytest.raises(ClusterFailed, match="not running"):
        _ = cluster.data_dir


def test_port_lost_before_the_start_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """When somebody takes a chosen port before the broker does, others are chosen."""
    with socket.create_server(("127.0.0.1", 0)) as thief:
        stolen = thief.getsockname()[1]
        first_choice = [stolen]

        def place(count: int, data_dir: Path, first_port: int | None) -> list[Node]:
            placed = place_nodes(count, data_dir, first_port)
            if first_choice:
                placed = [replace(placed[0], client_port=first_choice.pop())]
            return placed

        monkeypatch.setattr(cluster_module, "place_nodes", place)
        with KafkaCluster() as cluster:
            assert first_choice == []
            assert cluster.bootstrap_servers != f"127.0.0.1:{stolen}"
            _create(cluster.bootstrap_servers, "orders")


def _told_ports(servers: str) -> list[int]:
    """The brokers' ports as a client is told them, also where nobody listens there."""
    until_s = time.monotonic() + 60
    while True:
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        try:
            return [broker.port for broker in admin.list_topics(timeout=10).brokers.values()]
        except KafkaException:
            # It may ask for itself first, and then goes where it was told to.
            if time.monotonic() > until_s:
                raise


def test_a_proxy_in_front_is_advertised() -> None:
    """Clients are told the advertised port, the brokers among themselves their own ones."""
    (proxy,) = free_ports(1)
    with KafkaCluster(advertised_ports={1: proxy}) as cluster:
        for servers, port in (
            (cluster.bootstrap_servers, proxy),
            (cluster.internal_servers, int(cluster.internal_servers.rpartition(":")[2])),
        ):
            assert _told_ports(servers) == [port]
    with pytest.raises(ValueError, match=r"no node: \[2\]"):
        KafkaCluster(advertised_ports={2: proxy})


def test_taken_port_is_refused_by_number() -> None:
    """A port that is in use is named; a free one is used as given."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BrokerConfigRefused, match=f"port {port} .* taken"):
            KafkaCluster(port=port).start()
    (free,) = free_ports(1)
    with KafkaCluster(port=free) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{free}"


@pytest.mark.parametrize("config", [{"listeners": "PLAINTEXT://:9092"}, {"a": "b\nc=d"}])
def test_wiring_is_not_configurable(config: dict[str, str]) -> None:
    """Properties that would break the cluster's own wiring are refused by name."""
    with pytest.raises(BrokerConfigRefused, match=r"config\['"):
        KafkaCluster(config=config)


@pytest.mark.parametrize("nodes", [0, 2, 4])
def test_one_or_three_nodes(nodes: int) -> None:
    """Other numbers of nodes are refused."""
    with pytest.raises(ValueError, match="1 or 3"):
        KafkaCluster(nodes=nodes)
