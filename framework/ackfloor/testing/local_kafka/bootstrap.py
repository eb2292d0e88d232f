"""Which broker to use: a given one, else one in Docker, else a local one of our own.

The tests and the demo take theirs from `open_broker`. The choice is logged, and
`Broker.description` names it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from ackfloor.errors import KafkaUnreachable
from ackfloor.testing.local_kafka.cluster import DEFAULT_JVM_ARGS, KafkaCluster
from ackfloor.testing.local_kafka.jars import KAFKA_VERSION
from ackfloor.testing.local_kafka.node import defaults

BOOTSTRAP_VARIABLE = "ACKFLOOR_BOOTSTRAP_SERVERS"
_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
_PROBE_TIMEOUT_S = 1.0
_GIVEN_TIMEOUT_S = 5.0
_CONTAINER_START_TIMEOUT_S = 60

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker to connect to, and where it came from.

    `cluster` is set only for origin "local": other people's brokers are not ours to kill.
    """

    bootstrap_servers: str
    origin: Literal["given", "docker", "local"]
    cluster: KafkaCluster | None = None

    @property
    def description(self) -> str:
        """One line for people: which broker, and why this one."""
        reason = {
            "given": f"given by {BOOTSTRAP_VARIABLE}",
            "docker": f"{_IMAGE} in Docker",
            "local": f"a local Kafka {KAFKA_VERSION}",
        }[self.origin]
        return f"{self.bootstrap_servers} ({reason})"


@contextmanager
def open_broker(
    nodes: int = 1,
    *,
    config: Mapping[str, str] | None = None,
    jvm_args: Sequence[str] = DEFAULT_JVM_ARGS,
) -> Iterator[Broker]:
    """A broker for the length of the block; what was started for it is removed at the end.

    In this order: ACKFLOOR_BOOTSTRAP_SERVERS where it is set; with `nodes=1`, Kafka in Docker
    where testcontainers is installed and an engine answers within a second; `KafkaCluster`.

    Args:
        nodes: 1 or 3, and `config`: extra broker properties; both as in `KafkaCluster`. A given
            broker is taken as it is.
        jvm_args: as in `KafkaCluster`, for one of our own.

    Raises:
        AckfloorError: no broker is available; the message says how to give one.
    """
    with ExitStack() as stack:
        broker = _given() or (_in_docker(stack, config or {}) if nodes == 1 else None)
        if broker is None:
            cluster = stack.enter_context(KafkaCluster(nodes, config=config, jvm_args=jvm_args))
            broker = Broker(cluster.bootstrap_servers, "local", cluster)
        _log.info("using the broker %s", broker.description)
        yield broker


def check_answers(broker: Broker) -> None:
    """Refuse a given broker at whose addresses nobody listens, before tests wait for it.

    Only the connection is tried: what the broker demands of its clients is theirs to know.

    Raises:
        KafkaUnreachable: none of its addresses takes a connection within five seconds.
    """
    if broker.origin != "given":
        return
    failed = []
    for server in broker.bootstrap_servers.split(","):
        address = urlsplit(f"//{server.strip()}")
        try:
            where = (address.hostname or "localhost", address.port or 9092)
            socket.create_connection(where, _GIVEN_TIMEOUT_S).close()
        except (OSError, ValueError) as exc:
            failed.append(f"{server.strip()}: {exc}")
        else:
            return
    raise KafkaUnreachable(
        f"no broker answers at {BOOTSTRAP_VARIABLE}={broker.bootstrap_servers} "
        f"({'; '.join(failed)}); start it, or unset the variable for a local one"
    )


def _given() -> Broker | None:
    servers = os.environ.get(BOOTSTRAP_VARIABLE, "").strip()
    return Broker(servers, "given") if servers else None


def _in_docker(stack: ExitStack, config: Mapping[str, str]) -> Broker | None:
    if not docker_answers():
        return None
    try:
        return Broker(stack.enter_context(_container(config)), "docker")
    # No image, no room, no network: whatever the error, the local broker is still there.
    except Exception as error:  # noqa: BLE001
        _log.warning(
            "Docker answers but %s did not start (%s); taking a local broker", _IMAGE, error
        )
        return None


def docker_answers() -> bool:
    """Whether testcontainers is installed and the engine it would use answers within a second.

    Asked over our own socket: Docker's client leaves one open when no engine answers. Engines
    behind ssh count as absent.
    """
    try:
        settings = import_module("testcontainers.core.docker_client")
    except ImportError:
        return False
    address = urlsplit(settings.get_docker_host() or "unix:///var/run/docker.sock")
    try:
        with _connected(address) as engine:
            engine.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return engine.recv(64).startswith((b"HTTP/1.0 200", b"HTTP/1.1 200"))
    except OSError as error:
        _log.debug("no Docker engine at %s: %s", address.geturl(), error)
        return False


def _connected(address: SplitResult) -> socket.socket:
    if address.scheme == "tcp":
        where = (address.hostname or "localhost", address.port or 2375)
        return socket.create_connection(where, _PROBE_TIMEOUT_S)
    if address.scheme != "unix":
        raise OSError(f"{address.scheme} is not asked")
    engine = socket.socket(socket.AF_UNIX)
    try:
        engine.settimeout(_PROBE_TIMEOUT_S)
        engine.connect(address.path)
    except OSError:
        engine.close()
        raise
    return engine


@contextmanager
def _container(config: Mapping[str, str]) -> Iterator[str]:
    """Kafka's own image under testcontainers' Kafka, with the settings of a local node.

    testcontainers knows how to reach the container and advertises that address; its defaults are
    another vendor's image of an older Kafka, so the image and its start command are ours.
    """
    kafka: Any = import_module("testcontainers.community.kafka")
    container = kafka.KafkaContainer(_IMAGE)
    container.kraft_enabled = True
    for key, value in {**defaults(1), **config}.items():
        container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)

    def start_kafka() -> None:
        address = container.get_bootstrap_server()
        listeners = f"{container.listener_name}://{address},BROKER://$(hostname -i):9092"
        script = (
            f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={listeners}\n"
            "exec /etc/kafka/docker/run\n"
        )
        container.create_file(script.encode(), container.TC_START_SCRIPT)

    container.tc_start = start_kafka
    try:
        container.start(timeout=_CONTAINER_START_TIMEOUT_S)
        yield container.get_bootstrap_server()
    finally:
        container.stop()
