"""The workers' app: each record says how its handler is to behave, and every call is entered.

What concerns all handlers at once comes by files in the control folder: `slow`, `stuck`, and
`clock-<pid>`, which moves that worker's wall clock by so many milliseconds.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ackfloor import App, CircuitBreaker, Delivery, RetryPolicy
from ackfloor.core.records.record import Now
from ackfloor.observe import Event, PartitionsAssigned, PartitionsRevoked, Snapshot
from ackfloor.runtime.loop.clock import SystemClock
from tests.soak.ledger import Pen
from tests.soak.plan import ATTEMPTS, GROUP, KEYED, LATE_S, LOOSE, THREADED, TIMEOUT_S

FOLDER = Path(os.environ["SOAK_FOLDER"])
CONTROL = FOLDER / "control"
SLOW, STUCK = CONTROL / "slow", CONTROL / "stuck"
RETRY = RetryPolicy("300ms", 6, "1800ms", ATTEMPTS - 1, 0.15)
#: As short as everything else here: a breaker with nothing but bad records left gives in soon.
BREAKER = CircuitBreaker(gives_in_after="30s")

pen = Pen(FOLDER / "ledger")


class Job(BaseModel):
    """What a record asks of its handler: a kind, and a number that belongs to it."""

    key: str
    seq: int
    kind: str
    n: float = 0


class Refused(Exception):
    """What a handler raises because its record says so."""


class Turns:
    """Enters every partition that comes or leaves."""

    def observe(self, events: Sequence[Event]) -> None:
        """Write down what concerns the assignment."""
        for event in events:
            if isinstance(event, PartitionsAssigned):
                self._enter("assigned", event.partitions)
            elif isinstance(event, PartitionsRevoked):
                self._enter("lost" if event.lost else "revoked", event.partitions)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Nothing to do."""

    def _enter(self, what: str, partitions: Sequence[Any]) -> None:
        for partition in partitions:
            pen.turn(what, partition.topic, partition.partition)


app = App(GROUP, observers=[Turns()], commit_interval="500ms", drain_timeout="5s")


@app.handler(LOOSE, concurrency=32, consume_timeout=f"{TIMEOUT_S:g}s", retry=RETRY, breaker=BREAKER)
async def loose(job: Job, delivery: Delivery) -> None:
    """In any order."""
    with entered(LOOSE, job, delivery):
        await behave(job, delivery.attempt)


@app.handler(
    KEYED,
    ordering="key",
    on_failure="block",
    concurrency=32,
    consume_timeout=f"{TIMEOUT_S:g}s",
    retry=RETRY,
    breaker=BREAKER,
)
async def keyed(job: Job, delivery: Delivery) -> None:
    """In key order."""
    with entered(KEYED, job, delivery):
        await behave(job, delivery.attempt)


@app.handler(
    THREADED, concurrency=16, consume_timeout=f"{TIMEOUT_S:g}s", retry=RETRY, breaker=BREAKER
)
def threaded(job: Job, delivery: Delivery) -> None:
    """In any order, on threads."""
    with entered(THREADED, job, delivery):
        if (wait_s := waits_s(job, delivery.attempt)) > 0:
            time.sleep(wait_s)
        complain(job, delivery.attempt)


@contextmanager
def entered(source: str, job: Job, delivery: Delivery) -> Iterator[None]:
    """Enter the start and the end of a call."""
    place = (delivery.topic, delivery.partition, delivery.offset)
    number = pen.start((source, job.key, job.seq), place, delivery.attempt)
    late_s = time.monotonic() + LATE_S
    outcome = "cancelled"
    try:
        yield
        # Whether its deadline has been judged is what counts: a worker that is held up is late
        # with that, and takes an answer that comes before.
        outcome = "late" if delivery.closed and time.monotonic() > late_s else "ok"
    except Refused:
        outcome = "error"
        raise
    finally:
        pen.end(number, outcome)


async def behave(job: Job, attempt: int) -> None:
    """Wait as long as the record says, and fail where it says so."""
    wait_s = waits_s(job, attempt)
    if job.kind == "deaf" and attempt == 1:
        await swallow(wait_s)
    elif wait_s > 0:
        await asyncio.sleep(wait_s)
    complain(job, attempt)


def waits_s(job: Job, attempt: int) -> float:
    """How long the handler takes."""
    if STUCK.exists() and job.seq % 4 == 0:
        return 3 * TIMEOUT_S
    hurdle_s = 0.2 if SLOW.exists() else 0.0
    if job.kind in ("stuck", "deaf"):
        return hurdle_s + (2.5 * TIMEOUT_S if attempt == 1 else 0)
    return hurdle_s + job.n / 1000 if job.kind in ("ok", "slow") else hurdle_s


def complain(job: Job, attempt: int) -> None:
    """Fail as the record says: a flaky one the first `n` times, a poisonous one always."""
    if job.kind == "poison" or (job.kind == "flaky" and attempt <= job.n):
        raise Refused(job.kind)


async def swallow(wait_s: float) -> None:
    """Take no notice of being cancelled."""
    until_s = time.monotonic() + wait_s
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left_s)
        except asyncio.CancelledError:
            continue


class WallClock:
    """The machine's wall clock, moved by what the control file of this process says."""

    def __init__(self) -> None:
        self._file = CONTROL / f"clock-{os.getpid()}"
        self._look_at_s = 0.0
        self._ahead_ms = 0

    def now(self) -> Now:
        """Both clocks: the monotonic one is never moved."""
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + 0.1
            self._ahead_ms = self._told_ms()
        return Now(now_s, time.time_ns() // 1_000_000 + self._ahead_ms)

    def _told_ms(self) -> int:
        # One look, not two: the file may go between them.
        try:
            return int(self._file.read_text())
        except FileNotFoundError:
            return 0


def move_clock() -> None:
    """The workers' clock reads the moved one."""
    clock = WallClock()

    def now(self: SystemClock) -> Now:
        return clock.now()

    setattr(SystemClock, "now", now)  # noqa: B010 -- a method is replaced on purpose


move_clock()
