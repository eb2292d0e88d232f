"""From produce to the start of the handler, at a trickle, at a stream and at a flood."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.cases import Run
from benchmarks.measured import RunFailed, end, measure, started
from benchmarks.peers.installed import PEERS, ROOT, NotInstalled
from benchmarks.speed import Entry, Found
from benchmarks.topic import make

#: Records per second -> how many are sent; the first tenth does not count.
RATES = {20: 300, 1_000: 10_000, 50_000: 400_000}
#: Who takes part, and the highest rate that it keeps up with.
FASTEST = {
    "confluent": 50_000,
    "ackfloor": 50_000,
    "aiokafka": 50_000,
    "quixstreams": 50_000,
    "arroyo": 50_000,
    "parallel_consumer": 1_000,
    "faust": 1_000,
    "faststream": 1_000,
    "pyrallel": 1_000,
}
#: A consumer starts, joins its group and settles down in this time, in seconds.
SETTLE_S = 6.0
LONGEST_S = 90.0


def latency(servers: str, peers: set[str], rounds: int, step: Callable[[str], None]) -> Found:
    """Every rate with everybody who keeps up with it, in interleaved rounds."""
    found = {
        title(rate): [
            Entry(Run(peer, count))
            for peer, fastest in FASTEST.items()
            if peer in peers and fastest >= rate
        ]
        for rate, count in RATES.items()
    }
    for number in range(rounds):
        for rate in RATES:
            for entry in found[title(rate)]:
                step(f"round {number + 1}: {title(rate)}: {entry.name}")
                _one(entry, servers, rate, number)
    return found


def title(rate: int) -> str:
    """What the case is called."""
    return f"{rate:,} records/s"


def _one(entry: Entry, servers: str, rate: int, number: int) -> None:
    topic = f"bench-latency-{uuid.uuid4().hex[:8]}"
    make(servers, topic)
    peer, count = PEERS[entry.run.peer], entry.run.records
    pace = [sys.executable, "-m", "benchmarks.pace", servers, topic]
    try:
        argv = [*peer.command(), "latency", "unordered", servers, topic, str(count)]
        writer = started(
            [*pace, str(rate), str(count), str(SETTLE_S)], env={"PYTHONPATH": str(ROOT)}
        )
        try:
            run = measure(argv, env=peer.env, timeout_s=LONGEST_S)
        finally:
            end(writer)
        entry.rounds[number] = {**run.told, "cores": run.cpu_s / run.seconds}
    except (NotInstalled, RunFailed) as error:
        entry.failed.append(str(error))
    finally:
        _delete(servers, topic)


def _delete(servers: str, prefix: str) -> None:
    """The run's topic and what was made beside it; one that is left behind harms nobody."""
    admin = AdminClient({"bootstrap.servers": servers})
    with suppress(KafkaException):
        names = [n for n in admin.list_topics(timeout=20).topics if n.startswith(prefix)]
        for future in admin.delete_topics(names).values() if names else ():
            future.result(30)
