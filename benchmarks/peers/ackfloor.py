"""This project: a worker with metrics, tracking, deadlines and commits on, as in its own process.

A last argument says what runs the handler: "async", "thread" or "process"; or "two workers", which
are two processes with the first of these.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ackfloor import App, RetryPolicy
from ackfloor.core.messages.events import Event, RecordParked, RedeliveriesStarted
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.runtime.loop.garbage_collection import look_less_often
from ackfloor.runtime.loop.loop import Loop
from ackfloor.runtime.loop.worker_assembly import Worker
from benchmarks.peers import fleet
from benchmarks.peers.order import Order
from benchmarks.peers.work import (
    COROUTINES,
    IO_S,
    PROCESSES,
    THREADS,
    TWO_WORKERS,
    WARM_UP,
    Work,
    number_of,
    percentiles,
    rest,
    spin,
    tell,
)
from benchmarks.topic import PARTITIONS
from benchmarks.worker import settled_of, worker_of

#: Bodies whose handler tells itself when it is done; of the others the worker's floors tell it.
TELL_THEMSELVES = {"retry", "stragglers", "latency"}


class Watch:
    """What the worker tells: parks, and redeliveries after their due time."""

    def __init__(self) -> None:
        self.parked = 0
        self.parked_at: dict[tuple[int, int], float] = {}
        self.lateness_ms: list[float] = []

    def observe(self, events: Sequence[Event]) -> None:
        """Events of one turn."""
        for event in events:
            if isinstance(event, RecordParked):
                self.parked += 1
                self.parked_at[event.partition, event.offset] = time.monotonic()
            elif isinstance(event, RedeliveriesStarted):
                self.lateness_ms += [1000 * late_s for late_s in event.lateness_s]

    def snapshot(self, snapshot: Snapshot) -> None:
        """Not needed."""

    def findings(self, work: Work) -> dict[str, float]:
        """How late redeliveries started, and how long each straggler held the floor.

        Others are parked, too, where the machine keeps this process waiting for a second.
        """
        passed_ms = [
            1000 * (at - work.stuck_at[number])
            for (partition, offset), at in self.parked_at.items()
            if (number := offset * PARTITIONS + partition) in work.stuck_at
        ]
        return {**percentiles(self.lateness_ms, "due_"), **percentiles(passed_ms, "passed_")}


def registered(app: App, work: Work, form: str) -> None:
    """The handler of a case, with nothing in it that the case is not about."""
    key: dict[str, Any] = {"ordering": "key", "on_failure": "park"} if work.order == "key" else {}

    async def noop(value: bytes) -> None:
        pass

    def noop_thread(value: bytes) -> None:
        pass

    async def decoded(order: Order) -> None:
        pass

    async def io(value: bytes) -> None:
        await asyncio.sleep(IO_S)

    async def mixed(value: bytes) -> None:
        await asyncio.sleep(number_of(value) % 6 / 1000)

    def blocking(value: bytes) -> None:
        time.sleep(IO_S)

    async def fail(value: bytes) -> None:
        raise ValueError

    async def as_all(value: bytes) -> None:
        await handle(value)

    handle = work.async_handler() if work.body in TELL_THEMSELVES else noop
    later = RetryPolicy.fixed("1h", 1)
    slots = COROUTINES // (2 if fleet.SHARED in os.environ else 1)
    given: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "noop": (noop_thread if form == "thread" else noop, key),
        "idle": (noop, key),
        "json": (decoded, key),
        "io": (io, {"concurrency": slots, **key}),
        "mixed": (mixed, {"concurrency": COROUTINES, **key}),
        "blocking": (blocking, {"concurrency": THREADS, **key}),
        "cpu": (spin, {"concurrency": PROCESSES, "executor": form}),
        "parking": (fail, {"retry": later, "breaker": None}),
        "retry": (as_all, {"retry": RetryPolicy.fixed("1s", 6)}),
        "latency": (as_all, {}),
        "stragglers": (
            as_all,
            {"concurrency": COROUTINES, "consume_timeout": "1s", "retry": later},
        ),
    }
    function, options = given[work.body]
    app.handler(work.topic, name="bench", **options)(function)


def main() -> None:
    """Work until killed."""
    work = Work()
    form = sys.argv[6] if len(sys.argv) > 6 else "async"
    if form == TWO_WORKERS:
        fleet.lead(work, "async", 2)
    app = App(
        group=work.group,
        kafka={"bootstrap_servers": work.servers},
        log_level="error",
        parking="transactional" if form == "transactional" else "at_least_once",
    )
    registered(app, work, form)
    if fleet.SHARED in os.environ:
        member = fleet.Member()
        member.follow(begun(worker_of(app, member)), work.topic)
    watch = Watch()
    work.findings = lambda: watch.findings(work)
    follow(worker_of(app, watch), work, watch)


def begun(worker: Worker) -> Loop:
    """Its loop, once the worker has started as its process would start it."""
    look_less_often()
    return worker.start()


def follow(worker: Worker, work: Work, watch: Watch) -> None:
    """Turn the worker's loop and tell when the records are settled."""
    loop = begun(worker)
    warm_up, began = work.records // WARM_UP, False
    while True:
        loop.turn()
        if work.body in TELL_THEMSELVES:
            continue
        settled = watch.parked if work.body == "parking" else settled_of(worker, work.topic)
        if settled >= warm_up and not began:
            began = True
            tell("began", records=settled)
        if settled >= work.records:
            tell("ended", records=settled)
            rest()


if __name__ == "__main__":
    main()
