"""What parking costs in each mode: `python benchmarks/parking.py` writes results/parking.md.

A worker has a handler that fails every record and parks them all, in two ways: as fast as it can,
and at 20 records/s. Another one fails a fifth of its records once, and handles them a second later.
Each run is a process of its own on topics of its own; the modes take turns. Times are from the
failure to the park's confirmation, in transactional mode that of its ack as well; CPU is that of
the whole process, so also of the client's threads and of what reads the records.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages.events import Event, RecordParked, RecordsAcked
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.launch import Launch
from ackfloor.runtime.executors.event_loop import EventLoopThread
from ackfloor.runtime.loop.garbage_collection import look_less_often
from ackfloor.runtime.loop.loop import Loop
from ackfloor.runtime.loop.worker_assembly import Worker
from ackfloor.settings import Settings
from ackfloor.testing.local_kafka.bootstrap import open_broker

RESULT = Path(__file__).parent / "results" / "parking.md"
MODES = ("at_least_once", "transactional")
ROUNDS = 3
PARTITIONS = 8
FLOOD = 20_000
TRICKLE = 200
RATE = 20.0
#: Of the other handler one of so many records fails once.
FAILS = 5
VALUE = b"x" * 200
#: Of the table.
TITLES = (
    "| parking | parks/s, flat out | CPU of a park, us "
    f"| of a record, where 1 of {FAILS} fails once, us "
    f"| failure to park at {RATE:g}/s: median, ms | p99, ms |"
)

Figures = dict[str, float]


class Watch:
    """Notes how long each park took, and counts what was handled."""

    def __init__(self) -> None:
        self.took_s: list[float] = []
        self.handled = 0

    def observe(self, events: Sequence[Event]) -> None:
        """Events of one turn."""
        self.took_s += [e.since_failure_s for e in events if isinstance(e, RecordParked)]
        self.handled += sum(len(e.durations_s) for e in events if isinstance(e, RecordsAcked))

    def snapshot(self, snapshot: Snapshot) -> None:
        """Not needed."""


def case(servers: str, mode: str) -> Figures:
    """One run in this process."""
    look_less_often()
    topic = f"parking-{uuid.uuid4().hex[:8]}"
    other = f"{topic}-once"
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(n, PARTITIONS, 1) for n in (topic, other)]).values():
        made.result(20)
    app = App(topic)

    @app.handler(topic, concurrency=64, retry=RetryPolicy.fixed("1h", 1), breaker=None)
    async def fail(_: Delivery) -> None:
        raise ValueError("always")

    @app.handler(other, concurrency=64, retry=RetryPolicy.fixed("1s", 3), breaker=None)
    async def once(delivery: Delivery) -> None:
        if delivery.attempt == 1 and delivery.offset % FAILS == 0:
            raise ValueError("once")

    own = {"group": topic, "parking": mode, "log_level": "error"}
    settings = Settings.from_code({"kafka": {"bootstrap_servers": servers}, "app": own})
    launch = Launch(app, settings, settings.applied(app.handlers))
    launch.prepare_topics("30s")
    events, watch = EventLoopThread(), Watch()
    topology = launch.topology()
    outside = launch.outside(events, "bench", topology)
    worker = Worker(app, launch.handlers, launch.worker_config(), topology, outside, [watch])
    loop = worker.start()
    try:
        figures = measure(loop, watch, servers, topic, other)
    finally:
        worker.close(lambda: True)
        names = [name for name in admin.list_topics(timeout=20).topics if topic in name]
        for future in admin.delete_topics(names).values():
            future.result(20)
    return figures


def measure(loop: Loop, watch: Watch, servers: str, topic: str, other: str) -> Figures:
    """All loads on one worker."""
    turn_until(loop, lambda: len(loop.engine.assignments) >= 4 * PARTITIONS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "compression.type": "lz4"})
    write(producer, topic, TRICKLE, RATE)
    turn_until(loop, lambda: len(watch.took_s) >= TRICKLE)
    trickle = [1000 * took_s for took_s in watch.took_s]
    watch.took_s.clear()
    flood(producer, topic)
    turn_until(loop, lambda: bool(watch.took_s))
    began_s, cpu_s, before = time.monotonic(), time.process_time(), len(watch.took_s)
    turn_until(loop, lambda: len(watch.took_s) >= FLOOD)
    rate = (FLOOD - before) / (time.monotonic() - began_s)
    park_us = 1e6 * (time.process_time() - cpu_s) / (FLOOD - before)
    flood(producer, other)
    cpu_s = time.process_time()
    turn_until(loop, lambda: watch.handled >= FLOOD)
    return {
        "parks_per_s": rate,
        "park_us": park_us,
        "once_us": 1e6 * (time.process_time() - cpu_s) / FLOOD,
        "median_ms": median(trickle),
        "p99_ms": quantiles(trickle, n=100)[98],
    }


def flood(producer: Producer, topic: str) -> None:
    """Write all records before the worker goes on."""
    for _ in range(FLOOD):
        producer.produce(topic, VALUE)
        producer.poll(0)
    producer.flush(30)


def write(producer: Producer, topic: str, count: int, rate: float) -> None:
    """Write records at a steady rate meanwhile."""

    def run() -> None:
        for _ in range(count):
            producer.produce(topic, VALUE)
            producer.flush(10)
            time.sleep(1 / rate)

    threading.Thread(target=run, daemon=True).start()


def turn_until(loop: Loop, condition: Callable[[], bool]) -> None:
    """Turn the worker's loop."""
    until_s = time.monotonic() + 120
    while not condition():
        if time.monotonic() > until_s:
            raise TimeoutError("the benchmark does not get on")
        loop.turn()


def main() -> None:
    """All runs, and the table."""
    load = os.getloadavg()[0]
    found: dict[str, list[Figures]] = {mode: [] for mode in MODES}
    with open_broker() as broker:
        for _ in range(ROUNDS):
            for mode in MODES:
                argv = [sys.executable, __file__, broker.bootstrap_servers, mode]
                done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=400)
                found[mode].append(json.loads(done.stdout.splitlines()[-1]))
    rows = []
    for mode, runs in found.items():
        rate, park, once, middle, late = (
            median(run[name] for run in runs)
            for name in ("parks_per_s", "park_us", "once_us", "median_ms", "p99_ms")
        )
        rows.append(
            f"| `{mode}` | {rate:,.0f} | {park:.1f} | {once:.1f} | {middle:.0f} | {late:.0f} |"
        )
    lines = [
        "# Parking",
        "",
        f"One worker, one broker on the same machine, {PARTITIONS} partitions, {len(VALUE)}-byte",
        f"records, medians of {ROUNDS} runs; load before the run {load:.1f}. The handler has no",
        "circuit breaker, which would withhold most of the failed records. Repeat:",
        "`.venv/bin/python benchmarks/parking.py`.",
        "",
        TITLES,
        "|---|--:|--:|--:|--:|--:|",
        *rows,
        "",
    ]
    RESULT.write_text("\n".join(lines))
    sys.stdout.write("\n".join(lines))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(case(sys.argv[1], sys.argv[2])) + "\n")
    else:
        main()
