"""Several workers of ours in one group, as `--workers` starts them, told of as one.

Each is a process of its own that runs `peers/ackfloor.py`, and writes what it has settled into a
file that all share. None starts a handler before each has its share of the partitions: who came
first would handle everything.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile

from ackfloor.core.messages.events import Event, RecordsAcked
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.runtime.loop.loop import Loop
from benchmarks.peers.work import WARM_UP, Work, rest, tell
from benchmarks.topic import PARTITIONS

#: Names the shared file and a worker's number in it.
SHARED = "BENCH_FLEET"
#: How often the sum is looked at, in seconds.
LOOK_S = 0.002
#: Monotonic seconds that do not come.
NEVER_S = 1e12
#: Of each worker: records settled, partitions it has.
WORDS = 2


def _words(path: str) -> memoryview:
    with Path(path).open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")


class Member:
    """One worker's side; an observer of its events."""

    def __init__(self) -> None:
        path, number = os.environ[SHARED].rsplit(":", 1)
        self._words = _words(path)
        self._mine = int(number) * WORDS

    def observe(self, events: Sequence[Event]) -> None:
        """Add up what was settled."""
        for event in events:
            if isinstance(event, RecordsAcked):
                self._words[self._mine] += len(event.durations_s)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Not needed."""

    def follow(self, loop: Loop, topic: str) -> None:
        """Turn the worker's loop until killed."""
        handlers = loop.engine.state.handlers.values()
        for handler in handlers:
            # As in a pause, but that records are read meanwhile.
            handler.held_until_s = NEVER_S
        while sum(shares := self._words[1::WORDS]) < PARTITIONS or not all(shares):
            loop.turn()
            self._words[self._mine + 1] = sum(name == topic for name, _ in loop.engine.assignments)
        for handler in handlers:
            handler.held_until_s = 0.0
        while True:
            loop.turn()


def lead(work: Work, form: str, count: int) -> None:
    """Start so many workers and tell of them as of one; until killed."""
    with NamedTemporaryFile() as shared:
        shared.truncate(8 * WORDS * count)
        argv = [sys.executable, "-m", "benchmarks.peers.ackfloor", *sys.argv[1:6], form]
        members = [
            subprocess.Popen(
                argv,
                env={**os.environ, "BENCH_GROUP": work.group, SHARED: f"{shared.name}:{number}"},
            )
            for number in range(count)
        ]
        settled, began = _words(shared.name)[::WORDS], False
        while (done := sum(settled)) < work.records:
            if not began and done >= work.records // WARM_UP:
                began = True
                tell("began", records=done)
            if any(member.poll() is not None for member in members):
                sys.exit("a worker has ended")
            time.sleep(LOOK_S)
    tell("ended", records=done)
    rest()
