"""Outages on a real broker: a dependency fails for a while, and what becomes of the records.

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
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages.events import (
    BreakerClosed,
    BreakerOpened,
    RecordDeadLettered,
    RecordParked,
    RecordWithheld,
)
from ackfloor.testing.local_kafka.bootstrap import open_broker
from tests.framework.runtime.on_kafka import Crowd, OnKafka, on_kafka

#: Seconds of ordinary work before an outage, and until its end is called over.
QUIET_S = 2.0
PARTITIONS = 4
#: Short waits and a large budget: what is parked in an outage comes again, and fails, in it.
SHORT = RetryPolicy(delays=["2s"], max_redeliveries=50)
#: By kind of outage: the handler's own options.
KINDS: dict[str, dict[str, Any]] = {
    "park": {"retry": SHORT},
    "dlq": {"retry": RetryPolicy(max_redeliveries=0)},
    "hang": {"retry": SHORT, "consume_timeout": "2s"},
}


@dataclass
class Dependency:
    """What the handler calls."""

    hangs: bool = False
    up: bool = True
    refused: int = 0

    async def call(self) -> None:
        """Answer, refuse, or hang until it is up again."""
        if self.up:
            return
        self.refused += 1
        if not self.hangs:
            raise ConnectionError("the bank is away")
        while not self.up:  # noqa: ASYNC110 -- another thread sets it
            await asyncio.sleep(0.05)


class Writer:
    """Writes numbered records; a record's value is its number and when it was written."""

    def __init__(self, crowd: Crowd, partitions: int = PARTITIONS) -> None:
        self._partitions = partitions
        self._topic = crowd.place.topic
        self._producer = Producer({"bootstrap.servers": crowd.place.servers, "linger.ms": 2})
        self.sent = 0

    def write(self, count: int) -> None:
        """Write the next records, spread over the partitions; the broker has them afterwards."""
        for number in range(self.sent, self.sent + count):
            value = f"{number} {time.monotonic()}"
            self._producer.produce(self._topic, value, partition=number % self._partitions)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0
        self.sent += count


def written(delivery: Delivery) -> tuple[int, float]:
    """The number of a record, and when it was written (monotonic seconds)."""
    number, at_s = (delivery.value or b"").split()
    return int(number), float(at_s)


@contextmanager
def traffic(writer: Writer, rate: float) -> Iterator[None]:
    """Write so many records a second, from a thread, while the body runs."""
    ending, begun_s, before = threading.Event(), time.monotonic(), writer.sent

    def run() -> None:
        while not ending.wait(0.02):
            due = int((time.monotonic() - begun_s) * rate)
            writer.write(before + due - writer.sent)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(60)


@dataclass
class Ledger:
    """What a handler did.

    Attributes:
        handled: number of a record -> how often.
        waits: number of a record -> seconds from its writing to its first start.
        begun_s: number -> when it was first started (monotonic).
        ended_s: number -> when it was last handled (monotonic).
    """

    handled: Counter[int] = field(default_factory=Counter[int])
    ended_s: dict[int, float] = field(default_factory=dict[int, float])
    waits: dict[int, float] = field(default_factory=dict[int, float])
    begun_s: dict[int, float] = field(default_factory=dict[int, float])

    def begin(self, delivery: Delivery) -> int:
        """Enter a start; returns the record's number."""
        now_s, (number, at_s) = time.monotonic(), written(delivery)
        self.begun_s.setdefault(number, now_s)
        self.waits.setdefault(number, now_s - at_s)
        return number

    def end(self, number: int) -> None:
        """Enter that a record was handled."""
        self.handled[number] += 1
        self.ended_s[number] = time.monotonic()


@dataclass(frozen=True)
class Outcome:
    """The figures of one outage.

    Attributes:
        during: records produced while it lasted.
        sent: all of them.
        left: records that reached retry topics in that time, each as often as it did.
        dead: dead letters of that time; `dead_in_the_end`: of all the time.
        for_s: how long it lasted, in seconds.
        refused: calls that the dependency refused.
        withheld: failed deliveries that were withheld.
        failing: the run of failures that opened the breaker: what came in the turn that opened it
            is in it, as many as a starved worker's slots had meanwhile.
        resumed_s: from its return to the first record handled.
        full_rate_s: from its return to the last moment at which a new record waited for over a
            second.
        caught_up_s: from its return to the end of the last record that was written before it.
        once, again: records that were handled once, or more often.
    """

    during: int
    sent: int
    left: int
    dead: int
    for_s: float
    refused: int
    withheld: int
    opened: int
    failing: int
    closed: int
    resumed_s: float
    full_rate_s: float
    caught_up_s: float
    once: int
    again: int
    dead_in_the_end: int

    def told(self) -> str:
        """For people."""
        return (
            f"{self.during} records in {self.for_s:.1f} s of outage: {self.left} parked "
            f"({self.left / self.during:.3%}), {self.dead} dead-lettered "
            f"({self.dead / self.during:.3%}); {self.refused} calls refused, {self.withheld} "
            f"withheld, opened {self.opened} times, closed {self.closed}; work resumed "
            f"{self.resumed_s:.1f} s after the return, was at its full rate after "
            f"{self.full_rate_s:.1f} s and had caught up after {self.caught_up_s:.1f} s; "
            f"{self.once} of {self.sent} handled once, {self.again} more often, "
            f"{self.dead_in_the_end} dead letters"
        )


def outage(servers: str, seconds: float, rate: float, kind: str, **options: Any) -> Outcome:
    """Let a dependency be down for some seconds, and wait until everything is handled.

    Args:
        servers: the broker's addresses.
        seconds: how long it is down.
        rate: records a second.
        kind: see `KINDS`.
        options: of the handler, in place of that kind's.
    """
    with on_kafka(servers, PARTITIONS) as crowd:
        bank, ledger = Dependency(hangs=kind == "hang"), Ledger()
        app = App(group=crowd.place.group)

        @app.handler(crowd.place.topic, name="bill", **(KINDS[kind] | options))
        async def bill(delivery: Delivery) -> None:
            number = ledger.begin(delivery)
            await bank.call()
            ledger.end(number)

        worker, writer = crowd.start(app, breakers=True), Writer(crowd)
        with traffic(writer, rate):
            crowd.turn_for(QUIET_S)
            begun_s, before, bank.up = time.monotonic(), writer.sent, False
            crowd.turn_for(seconds)
            end, known, bank.up = writer.sent, len(ledger.handled), True
            for_s = time.monotonic() - begun_s
            left, dead = count(worker, RecordParked), count(worker, RecordDeadLettered)
            back_s = time.monotonic()
            crowd.until(lambda: len(ledger.handled) > known, "the first record after the return")
            resumed_s = time.monotonic() - back_s
            # Long enough to see whether it is at its full rate in time.
            crowd.turn_for(QUIET_S + 5)
        crowd.until(_everything(worker, ledger, writer), "the end of every record")
        often = Counter(ledger.handled.values())
        return Outcome(
            during=end - before,
            sent=writer.sent,
            left=left,
            dead=dead,
            for_s=for_s,
            refused=bank.refused,
            withheld=count(worker, RecordWithheld),
            opened=count(worker, BreakerOpened),
            failing=sum(each.failing for each in worker.watcher.told(BreakerOpened)),
            closed=count(worker, BreakerClosed),
            resumed_s=resumed_s,
            full_rate_s=_full_rate_s(ledger, back_s),
            caught_up_s=_caught_up_s(ledger, end, back_s),
            once=often.pop(1, 0),
            again=often.total(),
            dead_in_the_end=count(worker, RecordDeadLettered),
        )


def count(worker: OnKafka, kind: type[Any]) -> int:
    """How many events of a kind a worker has told."""
    return len(worker.watcher.told(kind))


def _full_rate_s(ledger: Ledger, back_s: float) -> float:
    """Seconds from a return to the last start of a record that had waited for over a second."""
    late = [ledger.begun_s[n] - back_s for n, wait_s in ledger.waits.items() if wait_s > 1.0]
    return max(0.0, *late, 0.0)


def _caught_up_s(ledger: Ledger, end: int, back_s: float) -> float:
    """Seconds from a return to the end of the last of the records below a number."""
    ended_s = [at_s - back_s for number, at_s in ledger.ended_s.items() if number < end]
    return max(0.0, *ended_s, 0.0)


def _everything(worker: OnKafka, ledger: Ledger, writer: Writer) -> Callable[[], bool]:
    return lambda: len(ledger.handled) + count(worker, RecordDeadLettered) >= writer.sent


def main() -> None:
    """One outage as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.framework.runtime.outage")
    parser.add_argument("seconds", type=float, help="how long the dependency is down")
    parser.add_argument("rate", type=float, help="records per second")
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", choices=KINDS,
        help="park (the default), dlq (no redelivery) or hang (calls outlive their timeout)",
    )  # fmt: skip
    given = parser.parse_args()
    with open_broker() as broker:
        for kind in given.kinds or ["park"]:
            found = outage(broker.bootstrap_servers, given.seconds, given.rate, kind)
            sys.stdout.write(f"{kind}: {found.told()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
