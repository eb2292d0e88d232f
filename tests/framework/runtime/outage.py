"""An outage on a real broker: a dependency is down for a while, and what becomes of the records.

    python -m tests.framework.runtime.outage SECONDS RATE [park | dlq | hang]

Records come at a steady rate from a producer's thread, before, during and after the outage. Run as
a script it prints the figures of one outage, on a broker that is started for it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.guard_events import GuardReset, GuardTripped
from ackfloor.core.messages import RecordDeadLettered, RecordParked
from ackfloor.testing.bootstrap import open_broker
from tests.framework.runtime.on_kafka import Crowd, OnKafka, on_kafka

#: Seconds of ordinary work before and after an outage.
QUIET_S = 2.0
PARTITIONS = 4
#: By kind of outage: the handler's own options.
KINDS: dict[str, dict[str, Any]] = {
    "park": {},
    "dlq": {"retry": RetryPolicy(max_redeliveries=0)},
    "hang": {"consume_timeout": "2s"},
}


@dataclass
class Dependency:
    """What the handler calls."""

    hangs: bool = False
    up: bool = True
    calls: int = 0
    refused: int = 0

    async def call(self) -> None:
        """Answer, refuse, or hang until it is up again."""
        self.calls += 1
        if self.up:
            return
        self.refused += 1
        if not self.hangs:
            raise ConnectionError("the bank is away")
        while not self.up:  # noqa: ASYNC110 -- another thread sets it
            await asyncio.sleep(0.05)


@dataclass(frozen=True)
class Outcome:
    """The figures of one outage.

    Attributes:
        during: records produced while it lasted.
        sent: all of them.
        parked, dead: records that reached retry topics and the dead-letter topic in that time.
        refused: calls that the dependency refused.
        resumed_s: from its return to the first record handled.
        caught_up_s: from its return to everything handled.
        handled: offsets handled, by partition and offset of the origin.
    """

    during: int
    sent: int
    parked: int
    dead: int
    refused: int
    trips: int
    resets: int
    resumed_s: float
    caught_up_s: float
    handled: int
    dead_in_the_end: int

    def told(self) -> str:
        """For people."""
        return (
            f"{self.during} records in the outage: {self.parked} parked "
            f"({self.parked / self.during:.3%}), {self.dead} dead-lettered "
            f"({self.dead / self.during:.3%}); {self.refused} calls refused, {self.trips} trips, "
            f"{self.resets} resets; work resumed {self.resumed_s:.1f} s after the return and had "
            f"caught up after {self.caught_up_s:.1f} s; {self.handled} of {self.sent} handled, "
            f"{self.dead_in_the_end} dead letters"
        )


class Traffic:
    """A producer's thread that writes at a steady rate until told to stop."""

    def __init__(self, crowd: Crowd, rate: float) -> None:
        self._crowd = crowd
        self._rate = rate
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self._thread.start()

    def _run(self) -> None:
        started_s = time.monotonic()
        while not self._ending.wait(0.02):
            due = int((time.monotonic() - started_s) * self._rate)
            self._crowd.place.send(due - self.sent)
            self.sent = due

    def stop(self) -> int:
        """Return how many records were written."""
        self._ending.set()
        self._thread.join(60)
        return self.sent


def outage(servers: str, seconds: float, rate: float, kind: str) -> Outcome:
    """Let a dependency be down for some seconds, and wait until everything is handled."""
    with on_kafka(servers, PARTITIONS) as crowd:
        bank, seen = Dependency(hangs=kind == "hang"), set[tuple[int, int]]()
        app = App(group=crowd.place.group)

        @app.handler(crowd.place.topic, name="bill", **KINDS[kind])
        async def bill(delivery: Delivery) -> None:
            await bank.call()
            seen.add((delivery.origin.partition, delivery.origin.offset))

        worker = crowd.start(app, guarded=True)
        traffic = Traffic(crowd, rate)
        try:
            _turn(crowd, QUIET_S)
            before, bank.up = traffic.sent, False
            _turn(crowd, seconds)
            during, known, bank.up = traffic.sent - before, len(seen), True
            parked, dead = _count(worker, RecordParked), _count(worker, RecordDeadLettered)
            back_s = time.monotonic()
            crowd.until(lambda: len(seen) > known, "the first record after the return")
            resumed_s = time.monotonic() - back_s
            _turn(crowd, QUIET_S)
        finally:
            sent = traffic.stop()
        finished = _everything(worker, seen, sent)
        crowd.until(finished, "the end of every record")
        return Outcome(
            during,
            sent,
            parked,
            dead,
            bank.refused,
            _count(worker, GuardTripped),
            _count(worker, GuardReset),
            resumed_s,
            time.monotonic() - back_s,
            len(seen),
            _count(worker, RecordDeadLettered),
        )


def _turn(crowd: Crowd, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        crowd.turn()


def _count(worker: OnKafka, kind: type[Any]) -> int:
    return len(worker.watcher.told(kind))


def _everything(worker: OnKafka, seen: set[tuple[int, int]], sent: int) -> Callable[[], bool]:
    return lambda: len(seen) + _count(worker, RecordDeadLettered) >= sent


def main() -> None:
    """One outage as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.framework.runtime.outage")
    parser.add_argument("seconds", type=float, help="how long the dependency is down")
    parser.add_argument("rate", type=float, help="records per second")
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", choices=KINDS,
        help="park (the default policy), dlq (no redelivery) or hang (calls outlive their timeout)",
    )  # fmt: skip
    given = parser.parse_args()
    with open_broker() as broker:
        for kind in given.kinds or ["park"]:
            found = outage(broker.bootstrap_servers, given.seconds, given.rate, kind)
            sys.stdout.write(f"{kind}: {found.told()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
