"""What a worker costs that has 100 partitions and nothing to do."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.cases import Run
from benchmarks.measured import end, peak_mib, share_of_a_core, started
from benchmarks.peers.installed import PEERS, NotInstalled
from benchmarks.speed import Entry, Found
from benchmarks.topic import make

TITLE = "idle, 100 partitions"
TOPIC = "bench-idle"
PARTITIONS = 100
#: A consumer has joined and settled down after this time, in seconds; then it is watched.
SETTLE_S = 10.0
WATCHED_S = 10.0


def idle(servers: str, peers: set[str], rounds: int, step: Callable[[str], None]) -> Found:
    """Everybody in turn, in interleaved rounds."""
    make(servers, TOPIC, PARTITIONS)
    entries = [Entry(Run(peer, 0)) for peer in PEERS if peer in peers]
    for number in range(rounds):
        for entry in entries:
            step(f"round {number + 1}: {TITLE}: {entry.name}")
            peer = PEERS[entry.run.peer]
            try:
                argv = [*peer.command(), "idle", "unordered", servers, TOPIC, "1000"]
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
                entry.rounds[number] = {"cores": share, "peak_mib": peak_mib(process.pid)}
            finally:
                end(process)
    return {TITLE: entries}
