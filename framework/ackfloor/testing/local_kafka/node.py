"""One node of a local cluster: its ports, its folder and its configuration file.

Three listeners on loopback: CLIENT is what users connect to and may be given SASL or TLS; INTERNAL
stays plaintext for the brokers among themselves and for the check that a node answers; CONTROLLER
is KRaft's.
"""

from __future__ import annotations

import base64
import random
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ackfloor.errors import AckfloorError

HOST = "127.0.0.1"
# Below the ephemeral ports of Linux and macOS: while a node is stopped, no outgoing connection
# takes its port, and a client that tries to reconnect cannot connect to itself.
_PORTS = range(20_000, 32_000)
STARTED_MARK = b"Kafka Server started"
STARTED_LOGGER = "kafka.server.KafkaRaftServer"
_OURS = {
    "advertised.listeners": "use port= or advertised_ports=",
    "controller.quorum.voters": "use nodes=",
    "listeners": "use port=",
    "log.dirs": "the data folder is the cluster's own",
    "node.id": "use nodes=",
    "process.roles": "use nodes=",
}


class BrokerConfigRefused(AckfloorError):
    """A broker property or port that a local cluster cannot take."""


@dataclass(frozen=True, slots=True)
class Node:
    """Where one node listens and keeps its data. Ids start at 1.

    `advertised_port` is advertised to clients: the client port (0 stands for it), or the port of
    a proxy in front of it.
    """

    id: int
    client_port: int
    internal_port: int
    controller_port: int
    folder: Path
    advertised_port: int = 0

    @property
    def properties_file(self) -> Path:
        return self.folder / "server.properties"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def temporary(self) -> Path:
        """For the native libraries that Java unpacks: a killed one never removes them itself."""
        return self.folder / "tmp"

    def log_size(self) -> int:
        """How much was logged so far, in bytes."""
        return self.log.stat().st_size if self.log.exists() else 0

    def has_started(self, since: int) -> bool:
        """Whether the broker logged, `since` that size of the log, that all its listeners are up.

        INTERNAL answers before the others are bound, so an answer alone proves too little.
        """
        with self.log.open("rb") as log:
            log.seek(since)
            return STARTED_MARK in log.read()

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of the broker's log, or a note that it is empty."""
        try:
            text = self.log.read_text("utf-8", "replace").strip()
        except OSError:
            text = ""
        return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"


def log_tails(nodes: Iterable[Node]) -> str:
    """The last lines of every node's log, each under its node."""
    return "\n".join(f"--- end of the log of node {node.id}\n{node.log_tail()}" for node in nodes)


def place_nodes(count: int, data_dir: Path, first_port: int | None) -> list[Node]:
    """Choose free ports for `count` nodes; `first_port` fixes the client ports from there on."""
    wanted = [] if first_port is None else list(range(first_port, first_port + count))
    free = iter(free_ports(2 * count + (count if not wanted else 0), taken=wanted))
    clients = wanted or [next(free) for _ in range(count)]
    return [
        Node(index, clients[index - 1], next(free), next(free), data_dir / f"node-{index}")
        for index in range(1, count + 1)
    ]


def free_ports(count: int, taken: Sequence[int] = ()) -> list[int]:
    """Different free loopback ports; each of `taken` must be free as well.

    Raises:
        BrokerConfigRefused: a port of `taken` is in use, or no free ones are left.
    """
    with ExitStack() as listeners:
        for port in taken:
            if not 1 <= port <= 65_535 or not _bind(port, listeners):
                raise BrokerConfigRefused(
                    f"port {port} on {HOST} cannot be used or is taken: "
                    "give another one, or none to have a free one chosen"
                )
        found: list[int] = []
        for port in random.sample(_PORTS, len(_PORTS)):
            if len(found) == count:
                return found
            if _bind(port, listeners):
                found.append(port)
    raise BrokerConfigRefused(f"no free port on {HOST} in {_PORTS.start} to {_PORTS.stop}")


def _bind(port: int, listeners: ExitStack) -> bool:
    listener = listeners.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError:
        return False
    return True


def check_extra(config: Mapping[str, str]) -> None:
    """Refuse extra properties that would break the cluster's own wiring."""
    for key, value in config.items():
        if key in _OURS:
            raise BrokerConfigRefused(f"config[{key!r}]={value!r} is set here: {_OURS[key]}")
        if "\n" in f"{key}{value}":
            raise BrokerConfigRefused(f"config[{key!r}]={value!r}: one line is needed")


def properties(node: Node, nodes: Sequence[Node], extra: Mapping[str, str]) -> str:
    """The node's configuration file: our wiring, defaults for tests, then the user's `extra`."""
    voters = ",".join(f"{n.id}@{HOST}:{n.controller_port}" for n in nodes)
    internal = f"INTERNAL://{HOST}:{node.internal_port}"
    controller = f"CONTROLLER://{HOST}:{node.controller_port}"
    advertised = node.advertised_port or node.client_port
    wiring = {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CLIENT://{HOST}:{node.client_port},{internal},{controller}",
        "advertised.listeners": f"CLIENT://{HOST}:{advertised},{internal}",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": (
            "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "log.dirs": str(node.data),
    }
    entries = {**wiring, **defaults(len(nodes)), **extra}
    return "".join(f"{key}={_escaped(value)}\n" for key, value in entries.items())


def defaults(nodes: int) -> dict[str, str]:
    """What differs from Kafka's defaults: small, quick to rebalance, nothing created unasked."""
    replicas, in_sync = ("3", "2") if nodes >= 3 else ("1", "1")
    return {
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        # A killed broker is noticed, and may come back, after this; Kafka's default is 9 s.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        # Kafka takes 128 MB of heap for this, half of what a test broker has.
        "log.cleaner.dedupe.buffer.size": "16777216",
    }


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def new_id() -> str:
    """A random id of a cluster or a folder, in Kafka's form.

    22 characters, and no leading dash, which reads as an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
        if not text.startswith("-"):
            return text
