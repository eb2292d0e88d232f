"""What a worker costs that has partitions and nothing to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from benchmarks.cases import Run
from benchmarks.measured import end, peak_mib, share_of_a_core, started
from benchmarks.peers.installed import PEERS, NotInstalled
from benchmarks.speed import Entry, Found
from benchmarks.topic import make

#: Partitions of a topic, and what that makes: ours reads five retry topics of as many beside it.
TOPICS = {
    17: "idle, a topic of 17 partitions (102 of ours, with retry topics)",
    100: "idle, a topic of 100 partitions (600 of ours, with retry topics)",
}
#: A consumer has joined and settled down after this time, in seconds; then it is watched.
SETTLE_S = 10.0
WATCHED_S = 10.0


def idle(servers: str, peers: set[str], rounds: int, step: Callable[[str], None]) -> Found:
    """Everybody in turn, in interleaved rounds."""
    found: Found = {title: [Entry(Run(peer, 0)) for peer in PEERS if peer in peers]
                    for title in TOPICS.values()}  # fmt: skip
    for partitions in TOPICS:
        make(servers, _topic(partitions), partitions)
    for number in range(rounds):
        for partitions, title in TOPICS.items():
            step(f"round {number + 1}: {title}")
            _round(number, found[title], servers, _topic(partitions))
    return found


def _topic(partitions: int) -> str:
    return f"bench-idle-{partitions}"


def _round(number: int, entries: Sequence[Entry], servers: str, topic: str) -> None:
    for entry in entries:
        peer = PEERS[entry.run.peer]
        try:
            argv = [*peer.command(), "idle", "unordered", servers, topic, "1000"]
        except NotInstalled as error:
            entry.failed.append(str(error))
            continue
        process = started(argv, env=peer.env)
        try:
            time.sleep(SETTLE_S)
            if process.poll() is not None:
                entry.failed.append(f"ended with {process.returncode}")
                continue
            share = share_of_a_core(process.pid, WATCHED_S)
            entry.rounds[number] = {"core_percent": 100 * share, "peak_mib": peak_mib(process.pid)}
        finally:
            end(process)
