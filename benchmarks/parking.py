"""What parking costs in each mode: `python benchmarks/parking.py` writes results/parking.md.

A worker whose handler fails every record parks them all, in two ways: as fast as it can, and at 20
records/s. Each run is a process of its own on topics of its own; the modes take turns. Times are
from the failure to the park's confirmation, in transactional mode that of its ack as well.
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
from ackfloor.core.messages.events import Event, RecordParked
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.launch import Launch
from ackfloor.runtime.executors.event_loop import EventLoopThread
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
VALUE = b"x" * 200

Figures = dict[str, float]


class Watch:
    """Notes how long each park took."""

    def __init__(self) -> None:
        self.took_s: list[float] = []

    def observe(self, events: Sequence[Event]) -> None:
        """Events of one turn."""
        self.took_s += [e.since_failure_s for e in events if isinstance(e, RecordParked)]

    def snapshot(self, snapshot: Snapshot) -> None:
        """Not needed."""


def case(servers: str, mode: str) -> Figures:
    """One run in this process."""
    topic = f"parking-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    app = App(topic)

    @app.handler(topic, concurrency=64, retry=RetryPolicy.fixed("1h", 1), breaker=None)
    async def fail(_: Delivery) -> None:
        raise ValueError("always")

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
        figures = measure(loop, watch, servers, topic)
    finally:
        worker.close(lambda: True)
        names = [name for name in admin.list_topics(timeout=20).topics if topic in name]
        for future in admin.delete_topics(names).values():
            future.result(20)
    return figures


def measure(loop: Loop, watch: Watch, servers: str, topic: str) -> Figures:
    """Both loads on one worker."""
    turn_until(loop, lambda: len(loop.engine.assignments) >= 2 * PARTITIONS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "compression.type": "lz4"})
    write(producer, topic, TRICKLE, RATE)
    turn_until(loop, lambda: len(watch.took_s) >= TRICKLE)
    trickle = [1000 * took_s for took_s in watch.took_s]
    watch.took_s.clear()
    for _ in range(FLOOD):
        producer.produce(topic, VALUE)
        producer.poll(0)
    producer.flush(30)
    turn_until(loop, lambda: bool(watch.took_s))
    began_s, before = time.monotonic(), len(watch.took_s)
    turn_until(loop, lambda: len(watch.took_s) >= FLOOD)
    rate = (FLOOD - before) / (time.monotonic() - began_s)
    return {
        "parks_per_s": rate,
        "median_ms": median(trickle),
        "p99_ms": quantiles(trickle, n=100)[98],
    }


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
        rate, middle, late = (
            median(run[name] for run in runs) for name in ("parks_per_s", "median_ms", "p99_ms")
        )
        rows.append(f"| `{mode}` | {rate:,.0f} | {middle:.0f} | {late:.0f} |")
    lines = [
        "# Parking",
        "",
        f"One worker, one broker on the same machine, {PARTITIONS} partitions, {len(VALUE)}-byte",
        f"records, medians of {ROUNDS} runs; load before the run {load:.1f}. The handler has no",
        "circuit breaker, which would withhold most of the failed records. Repeat:",
        "`.venv/bin/python benchmarks/parking.py`.",
        "",
        f"| parking | parks/s, flat out | failure to park at {RATE:g}/s: median, ms | p99, ms |",
        "|---|--:|--:|--:|",
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
