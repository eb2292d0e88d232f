"""What can be done to a run: one function for each kind of fault, bounded and undone at its end.

Each gets the stage and randomness of its own, does its harm, and returns in words what it hit.
Kinds that would get into each other's way share a *room*: only one of a room goes on at a time.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from ackfloor.testing import KafkaCluster
from tests.soak.cluster import Topics
from tests.soak.fleet import Fleet, Run
from tests.soak.producer import Feed, Transactions
from tests.soak.proxy import Proxy

_MOST_RUNS_ADDED = 2
#: A broker goes by a topic's new setting once it has read so far in the controller's log.
_TAKES_EFFECT_S = 2.0


class Scene(Protocol):
    """What faults reach."""

    kafka: KafkaCluster
    proxy: Proxy
    fleet: Fleet
    feed: Feed
    transactions: Transactions
    control: Path

    def topics(self) -> Topics:
        """A client of the calling thread."""

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than faults may last."""

    def frozen(self, pid: int, from_s: float, to_s: float) -> None:
        """A process stood still."""

    def recreated(self, topic: str, from_s: float, to_s: float, topic_id: str) -> None:
        """A topic was deleted and began anew."""


Fault = Callable[[Scene, Random], str]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: the family it is told under, and its room."""

    name: str
    family: str
    room: str
    do: Fault


# Workers and supervisors.


def kill_worker(scene: Scene, chance: Random) -> str:
    """SIGKILL: the supervisor starts another."""
    pid = _some_worker(scene, chance)
    _send(pid, signal.SIGKILL)
    return f"pid {pid}"


def kill_all_workers(scene: Scene, chance: Random) -> str:
    """SIGKILL to every worker that may be killed, at once."""
    pids = scene.fleet.victims()
    for pid in pids:
        _send(pid, signal.SIGKILL)
    return f"pids {pids}"


def freeze_worker(scene: Scene, chance: Random) -> str:
    """SIGSTOP, and SIGCONT after a while that may be longer than the session timeout."""
    pids = sorted(scene.fleet.worker_pids())
    pid, seconds = chance.choice(pids), chance.uniform(5, 15)
    from_s = time.monotonic()
    _send(pid, signal.SIGSTOP)
    try:
        scene.pause(seconds)
    finally:
        _send(pid, signal.SIGCONT)
        scene.frozen(pid, from_s, time.monotonic())
    return f"pid {pid} for {time.monotonic() - from_s:.1f} s"


def kill_supervisor(scene: Scene, chance: Random) -> str:
    """SIGKILL: its workers drain and end by themselves; whoever started it starts it again."""
    run = scene.fleet.named("beta")
    run.signal(signal.SIGKILL)
    run.ended()
    run.let_go()
    scene.pause(chance.uniform(0, 3))
    run.start()
    return run.name


def add_run(scene: Scene, chance: Random) -> str:
    """One more worker; where there are enough, one fewer."""
    if len(scene.fleet.added()) >= _MOST_RUNS_ADDED:
        return remove_run(scene, chance)
    return f"{scene.fleet.add()} added"


def remove_run(scene: Scene, chance: Random) -> str:
    """A worker ends in order; where none was added, one is."""
    added = scene.fleet.added()
    if not added:
        return add_run(scene, chance)
    name = chance.choice(added)
    return f"{name} removed, exit code {scene.fleet.remove(name)}"


# Brokers.


def kill_broker(scene: Scene, chance: Random) -> str:
    """SIGKILL to the leader of a source partition, and its restart; the next waits for the ISR."""
    topics = scene.topics()
    leader = topics.leader_of(chance.choice(("loose", "keyed", "threaded")), 0)
    node = leader if leader in scene.kafka.node_ids else chance.choice(scene.kafka.node_ids)
    topics.close()
    scene.kafka.kill(node)
    scene.pause(chance.uniform(1, 8))
    return f"node {node}, {_bring_back(scene, node)}"


def restart_broker(scene: Scene, chance: Random) -> str:
    """A node is shut down in order and started again."""
    node = chance.choice(scene.kafka.node_ids)
    scene.kafka.stop_node(node, grace_s=10)
    scene.pause(chance.uniform(0, 3))
    return f"node {node}, {_bring_back(scene, node)}"


# The network between clients and brokers.


def slow_network(scene: Scene, chance: Random) -> str:
    """Each step through a door takes longer."""
    node, seconds = chance.choice(sorted(scene.proxy.ports)), chance.uniform(0.02, 0.8)
    scene.proxy.delay(node, seconds)
    scene.pause(chance.uniform(4, 10))
    scene.proxy.delay(node, 0)
    return f"node {node}, {seconds * 1000:.0f} ms"


def cut_network(scene: Scene, chance: Random) -> str:
    """Every connection to a node, or to all of them, is reset."""
    nodes = sorted(scene.proxy.ports)
    hit = nodes if chance.random() < 0.3 else [chance.choice(nodes)]
    return f"{sum(scene.proxy.cut(node) for node in hit)} connections of nodes {hit}"


def half_close(scene: Scene, chance: Random) -> str:
    """One direction of every connection to a node ends; what is left is reset in the end."""
    node, towards = chance.choice(sorted(scene.proxy.ports)), chance.choice(("client", "broker"))
    count = scene.proxy.half_close(node, towards=towards)
    scene.pause(chance.uniform(3, 12))
    scene.proxy.clear()
    return f"{count} connections of node {node} towards the {towards}"


def hold_network(scene: Scene, chance: Random) -> str:
    """Nothing goes through to a node, or to any, and nobody is told."""
    nodes = sorted(scene.proxy.ports)
    hit = nodes if chance.random() < 0.3 else [chance.choice(nodes)]
    for node in hit:
        scene.proxy.hold(node)
    scene.pause(chance.uniform(2, 12))
    for node in hit:
        scene.proxy.release(node)
    return f"nodes {hit}"


# Retry and dead-letter topics.


def read_only(scene: Scene, chance: Random) -> str:
    """A retry or dead-letter topic takes no writes."""
    topics = scene.topics()
    topic = chance.choice(sorted([*topics.tiers(), *topics.dead_letter_topics()]))
    with _without_writes(scene, topics, topic):
        scene.pause(chance.uniform(4, 10))
    topics.close()
    return topic


def recreate_tier(scene: Scene, chance: Random) -> str:
    """A retry topic is deleted while it is empty, and created again.

    It is read-only from before the look until it is gone, so nothing can be written in between.
    Only a first tier: what fails in the last one is parked there again, so that never gets empty.
    """
    topics = scene.topics()
    topic = chance.choice([name for name in sorted(topics.tiers()) if name.endswith("-300ms")])
    config = topics.config_of(topic)
    with _without_writes(scene, topics, topic):
        until_s = time.monotonic() + 25
        while topics.unsettled([topic]):
            if time.monotonic() > until_s:
                return f"{topic}: not empty in time, left alone"
            scene.pause(0.2)
        from_s = time.monotonic()
        topics.recreate(topic, config)
        scene.recreated(topic, from_s, time.monotonic(), topics.id_of(topic))
    topics.close()
    return topic


@contextmanager
def _without_writes(scene: Scene, topics: Topics, topic: str) -> Iterator[None]:
    """A topic is read-only for the length of the block, whatever becomes of it."""
    topics.allow_writes(topic, allowed=False)
    try:
        time.sleep(_TAKES_EFFECT_S)
        yield
    finally:
        topics.allow_writes(topic, allowed=True)


# Handlers, settings, clocks.


def slow_handlers(scene: Scene, chance: Random) -> str:
    """Every call takes longer."""
    return _while_there(scene, "slow", chance.uniform(4, 10))


def stuck_handlers(scene: Scene, chance: Random) -> str:
    """A quarter of all calls outlives its deadline."""
    return _while_there(scene, "stuck", chance.uniform(2, 5))


def reload(scene: Scene, chance: Random) -> str:
    """Other settings, and SIGHUP."""
    timeout_ms, slots = chance.randint(1500, 3000), chance.choice((8, 16, 32, 48))
    _reload(scene, f'consume_timeout = "{timeout_ms}ms"\nconcurrency = {slots}')
    return f"consume_timeout {timeout_ms} ms, concurrency {slots}"


def reload_bad(scene: Scene, chance: Random) -> str:
    """Settings that must be refused, and SIGHUP; then good ones again."""
    bad = chance.choice(("consume_timeout = 5", 'concurrency = "many"', 'consum_timeout = "2s"'))
    # A run that starts with such a file is refused, as it should be, and is none any more.
    until_s = time.monotonic() + 20
    while not all(_listens(run) for run in scene.fleet.runs()):
        if time.monotonic() > until_s:
            return "left alone: a run was still starting"
        scene.pause(0.2)
    _reload(scene, bad)
    scene.pause(chance.uniform(1, 3))
    _reload(scene, "")
    return bad


def jump_clock(scene: Scene, chance: Random) -> str:
    """The wall clock of one worker jumps, and back after a while."""
    pid = chance.choice(sorted(scene.fleet.worker_pids()))
    ahead_ms = int(chance.choice((-1, 1)) * chance.uniform(2_000, 3_600_000))
    file = scene.control / f"clock-{pid}"
    draft = file.with_suffix(".new")
    draft.write_text(str(ahead_ms))
    draft.rename(file)
    scene.pause(chance.uniform(3, 8))
    file.unlink()
    return f"pid {pid} by {ahead_ms / 1000:.0f} s"


# What is in the source topics.


def transactions(scene: Scene, chance: Random) -> str:
    """Bursts in transactions, some of them aborted: markers and records that never arrive."""
    for _ in range(chance.randint(3, 10)):
        scene.transactions.burst(chance.randint(1, 20), abort=chance.random() < 0.4)
        scene.pause(chance.uniform(0.05, 0.4))
    scene.transactions.settle()
    done = scene.transactions
    return f"so far {done.committed} committed, {done.aborted} aborted, {done.doubtful} in doubt"


def compaction(scene: Scene, chance: Random) -> str:
    """Records of few keys, again and again, which the cleaner removes within seconds."""
    count = chance.randint(200, 1000)
    for _ in range(4):
        scene.feed.filler(count // 4)
        scene.pause(1.5)
    return f"{count} records of filler keys"


KINDS = (
    Kind("kill worker", "workers", "workers", kill_worker),
    Kind("kill all workers", "workers", "workers", kill_all_workers),
    Kind("freeze worker", "workers", "freeze", freeze_worker),
    Kind("kill supervisor", "workers", "runs", kill_supervisor),
    Kind("add run", "workers", "runs", add_run),
    Kind("remove run", "workers", "runs", remove_run),
    Kind("kill broker", "brokers", "cluster", kill_broker),
    Kind("restart broker", "brokers", "cluster", restart_broker),
    Kind("slow network", "network", "network", slow_network),
    Kind("cut network", "network", "network", cut_network),
    Kind("half-close", "network", "network", half_close),
    Kind("hold network", "network", "network", hold_network),
    Kind("read-only topic", "topics", "cluster", read_only),
    Kind("recreate tier", "topics", "cluster", recreate_tier),
    Kind("slow handlers", "handlers", "handlers", slow_handlers),
    Kind("stuck handlers", "handlers", "handlers", stuck_handlers),
    Kind("reload", "settings", "runs", reload),
    Kind("reload refused", "settings", "runs", reload_bad),
    Kind("clock jump", "clock", "clock", jump_clock),
    Kind("transactions", "log", "log", transactions),
    Kind("compaction", "log", "compaction", compaction),
)
#: Those for which a topic takes no writes.
CLOSE_TOPICS = frozenset({"read-only topic", "recreate tier"})


def _some_worker(scene: Scene, chance: Random) -> int:
    pids = sorted(scene.fleet.victims())
    if not pids:
        raise LookupError("no worker runs")
    return chance.choice(pids)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _bring_back(scene: Scene, node: int) -> str:
    """Start a node and wait until all replicas are in sync; says how long either took."""
    from_s = time.monotonic()
    scene.kafka.start_node(node)
    up_s = time.monotonic()
    topics = scene.topics()
    while not topics.in_sync():
        if time.monotonic() > up_s + 90:
            raise TimeoutError("the replicas did not catch up")
        time.sleep(0.2)
    topics.close()
    return f"up in {up_s - from_s:.1f} s, in sync in {time.monotonic() - up_s:.1f} s"


def _while_there(scene: Scene, name: str, seconds: float) -> str:
    file = scene.control / name
    file.touch()
    scene.pause(seconds)
    file.unlink()
    return f"for {seconds:.1f} s"


def _reload(scene: Scene, loose: str) -> None:
    scene.fleet.write_settings(loose)
    for run in scene.fleet.runs():
        # A program that is still being loaded would die of it, as any would.
        if _listens(run):
            run.signal(signal.SIGHUP)


def _listens(run: Run) -> bool:
    """Whether it has started so far that its settings are read and its address answers."""
    return run.page("/livez") != (0, None)
