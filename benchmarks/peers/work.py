"""What a case's handler does with a record, and how its process tells that it began and ended.

Standard library only, and pydantic in the case that is about it: every peer imports this in its own
environment. `python -m benchmarks.peers.NAME BODY ORDER SERVERS TOPIC RECORDS`; see ../README.md.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import mmap
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

#: What 5 ms of waiting is in seconds.
IO_S = 0.005
CPU_S = 0.001
#: Worker processes of the CPU case.
PROCESSES = 2
#: Slots of the cases that wait, as coroutines and as threads.
COROUTINES = 1_000
THREADS = 256
#: One record in so many is a straggler, and how long it takes.
STRAGGLER = 10_000
STRAGGLER_S = 10.0
#: The form of ours in which two processes share the partitions.
TWO_WORKERS = "two workers"
#: The form of the case of stragglers in which no record is slow.
NONE_SLOW = "none slow"
#: One record in so many fails the first time it is handled.
FAILS = 5
#: The first tenth of the records is warm-up: caches, compilers, prefetch.
WARM_UP = 10

Handler = Callable[[bytes], None]
AsyncHandler = Callable[[bytes], Awaitable[None]]


class FirstTime(Exception):
    """The failure of the retry case."""


class Work:
    """One run: what is handled, and how many records are done.

    Attributes:
        body: what the handler does.
        order: "unordered" or "key".
        group: a group that nobody has used, or the one that is to be taken over.
    """

    def __init__(self) -> None:
        self.body, self.order, self.servers, self.topic = sys.argv[1:5]
        self.records = int(sys.argv[5])
        self.group = os.environ.get("BENCH_GROUP") or f"bench-{time.time_ns()}"
        #: Whether stragglers straggle; else theirs is the same handler for records like all others.
        self.straggles = sys.argv[6:] != [NONE_SLOW]
        if self.body == "stragglers" and self.straggles:
            self.records -= self.records // STRAGGLER
        self._numbers = itertools.count(1)
        self._warm_up = max(1, self.records // WARM_UP)
        self._failed: set[int] = set()
        self._late_ms: list[float] = []
        #: When each straggler's handler started, in monotonic seconds.
        self.stuck_at: dict[int, float] = {}
        #: What else is to be told at the end.
        self.findings: Callable[[], dict[str, float]] = dict
        self._seen = _shared(os.environ.get("BENCH_SEEN"))

    def done(self) -> None:
        """One more record is handled; from any thread."""
        number = next(self._numbers)
        if number == self._warm_up:
            tell("began", records=number)
        elif number == self.records:
            late_ms = self._late_ms[self._warm_up :]
            tell("ended", records=number, **percentiles(late_ms), **self.findings())

    def handler(self) -> Handler:
        """The body as a function."""
        return {
            "noop": self._noop,
            "idle": self._noop,
            "json": self._json(),
            "io": self._blocking,
            "blocking": self._blocking,
            "cpu": self._cpu,
            "retry": self._retry,
            "latency": self._arrive,
        }[self.body]

    def async_handler(self) -> AsyncHandler:
        """The body as a coroutine function."""
        if self.body in {"io", "mixed", "stragglers"}:
            return {"io": self._io, "mixed": self._mixed, "stragglers": self._straggle}[self.body]
        handle = self.handler()

        async def handle_async(value: bytes) -> None:
            handle(value)

        return handle_async

    def _noop(self, value: bytes) -> None:
        self.done()

    def _json(self) -> Handler:
        if self.body != "json":
            return self._noop
        from benchmarks.peers.order import Order

        def handle(value: bytes) -> None:
            Order.model_validate_json(value)
            self.done()

        return handle

    def _blocking(self, value: bytes) -> None:
        time.sleep(IO_S)
        self.done()

    def _cpu(self, value: bytes) -> None:
        spin(value)
        self.done()

    def _retry(self, value: bytes) -> None:
        number = number_of(value)
        if number % FAILS == 0 and number not in self._failed:
            self._failed.add(number)
            raise FirstTime
        self.done()

    def _arrive(self, value: bytes) -> None:
        self._late_ms.append((time.time_ns() - int(value[:19])) / 1e6)
        self.done()

    async def _io(self, value: bytes) -> None:
        await asyncio.sleep(IO_S)
        self.done()

    async def _mixed(self, value: bytes) -> None:
        await asyncio.sleep(number_of(value) % 6 / 1000)
        self.done()

    async def _straggle(self, value: bytes) -> None:
        number = number_of(value)
        slow = self.straggles and is_straggler(number)
        if slow:
            self.stuck_at[number] = time.monotonic()
        await asyncio.sleep(STRAGGLER_S if slow else IO_S)
        if self._seen is not None:
            self._seen[number] = min(255, self._seen[number] + 1)
        if not slow:
            self.done()


def percentiles(milliseconds: list[float], prefix: str = "") -> dict[str, float]:
    """The median and what few are above; nothing of nothing."""
    ordered = sorted(milliseconds)
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {
        prefix + name: ordered[int(len(ordered) * share)]
        for name, share in shares.items()
        if ordered
    }


def rest() -> None:
    """Wait to be killed, which whoever measures does."""
    while True:
        time.sleep(60)


def spin(value: bytes) -> None:
    """Use 1 ms of this thread's CPU time."""
    until = time.thread_time() + CPU_S
    while time.thread_time() < until:
        pass


def number_of(value: bytes) -> int:
    """The order's number: the value begins with it."""
    return int(value[10 : value.index(b",", 10)])


def is_straggler(number: int) -> bool:
    """Whether this record takes 10 s."""
    return number % STRAGGLER == STRAGGLER // 2


def _shared(path: str | None) -> mmap.mmap | None:
    """A byte for each record, counting how often it was handled; survives this process."""
    if path is None:
        return None
    with Path(path).open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def tell(word: str, **figures: float) -> None:
    """Say it to whoever measures; past whatever a framework has made of sys.stdout."""
    os.write(1, f"@{word} {json.dumps(figures)}\n".encode())
