"""A consumer is killed while stragglers keep its floor back: what is handled twice?

Two processes of one group share a file with a byte for each record, counting how often its handler
ended. The first is killed without warning; the second takes over when the broker has noticed
(session timeout), and goes on until it has come well past what the first one had handled.
"""

from __future__ import annotations

import mmap
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from benchmarks.cases import USUAL, Run
from benchmarks.measured import RunFailed, end, heard, started
from benchmarks.peers.installed import PEERS, NotInstalled
from benchmarks.peers.work import STRAGGLER, is_straggler
from benchmarks.speed import Entry, Found
from benchmarks.topic import filled

TITLE = "killed while 0.01 % take 10 s"
#: The first tenth of these is warm-up; how many there are in the topic is another matter.
COUNT = 100_000
RUNS = (Run("ackfloor", COUNT), Run("parallel_consumer", COUNT), Run("pyrallel", COUNT))
#: The first process works for so long after its warm-up: more than two commit intervals of the
#: slowest to commit (5 s), and no multiple of anybody's.
WORKS_S = 12.4
#: The second one is done when so many records more were handled than before it came.
FURTHER = 20_000
LONGEST_S = 240.0
LOOK_S = 0.5


def crash(servers: str, peers: set[str], rounds: int, step: Callable[[str], None]) -> Found:
    """Everybody in turn, in interleaved rounds."""
    topic = filled(servers, USUAL)
    entries = [Entry(run) for run in RUNS if run.peer in peers]
    for number in range(rounds):
        for entry in entries:
            step(f"round {number + 1}: {TITLE}: {entry.name}")
            try:
                entry.rounds[number] = _one(entry, servers, topic)
            except (NotInstalled, RunFailed, EOFError) as error:
                entry.failed.append(str(error) or "it ended without a word")
    return {TITLE: entries}


def _one(entry: Entry, servers: str, topic: str) -> dict[str, float]:
    peer = PEERS[entry.run.peer]
    argv = [*peer.command(), "stragglers", "unordered", servers, topic, str(COUNT)]
    with tempfile.TemporaryDirectory() as folder:
        shared = Path(folder, "seen")
        shared.write_bytes(bytes(USUAL.records))
        group = f"crash-{uuid.uuid4().hex[:8]}"
        env = {**peer.env, "BENCH_GROUP": group, "BENCH_SEEN": str(shared)}
        with shared.open("r+b") as file, mmap.mmap(file.fileno(), 0) as seen:
            first = started(argv, env=env)
            try:
                heard(first, "began")
                time.sleep(WORKS_S)
            finally:
                end(first)
            before = _handled(seen)
            second = started(argv, env=env)
            try:
                took_s = _come_past(seen, before + FURTHER)
            finally:
                end(second)
            again = sum(count > 1 for n, count in enumerate(seen[:]) if not is_straggler(n))
    return {"handled_before": before, "handled_again": again, "back_s": took_s}


def _handled(seen: mmap.mmap) -> int:
    return USUAL.records - seen[:].count(0)


def _come_past(seen: mmap.mmap, count: int) -> float:
    """Seconds until so many records were handled, by whoever.

    Raises:
        RunFailed: that takes too long.
    """
    began_s = time.monotonic()
    while _handled(seen) < min(count, USUAL.records - USUAL.records // STRAGGLER):
        if time.monotonic() - began_s > LONGEST_S:
            raise RunFailed(f"{_handled(seen)} records handled after {LONGEST_S:g} s")
        time.sleep(LOOK_S)
    return time.monotonic() - began_s
