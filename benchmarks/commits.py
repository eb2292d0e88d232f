"""What a commit costs with many gaps above the floor: `python -m benchmarks.commits`.

One partition on a real broker. Every other record of the first ones is never answered, so each
commit says in its metadata which of the others are settled. Then one record after the other is
settled, and each leads to a commit. Writes results/commits.md: CPU time of the owner thread from
one commit to the next, and the time until the broker has answered.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer

from ackfloor import App, Delivery
from ackfloor.core.messages.events import Event, PositionsCommitted
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.testing.local_kafka.bootstrap import open_broker
from benchmarks import machine
from benchmarks.results import FOLDER
from benchmarks.topic import make
from benchmarks.worker import worker_of

GAPS = (0, 1_000, 10_000)
COMMITS = 30
LONGEST_S = 120.0

Figures = dict[str, float]


class Watch:
    """When commits were sent and answered."""

    def __init__(self) -> None:
        self.sent_s = 0.0
        self.took_s: list[float] = []

    def observe(self, events: Sequence[Event]) -> None:
        """Events of one turn."""
        if self.sent_s and any(isinstance(event, PositionsCommitted) for event in events):
            self.took_s.append(time.monotonic() - self.sent_s)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Not needed."""


def case(servers: str, gaps: int) -> Figures:
    """One worker, with so many gaps."""
    topic = f"bench-commits-{uuid.uuid4().hex[:8]}"
    make(servers, topic, 1)
    kafka = {"bootstrap_servers": servers}
    app = App(group=topic, kafka=kafka, log_level="error", commit_interval="50ms")

    @app.handler(topic, ack="manual", concurrency=gaps + 8, consume_timeout="1h")
    async def handle(delivery: Delivery) -> None:
        if delivery.offset % 2 or delivery.offset >= 2 * gaps:
            delivery.ack()

    watch = Watch()
    worker = worker_of(app, watch)
    loop = worker.start()

    def until(condition: Callable[[], object]) -> None:
        end_s = time.monotonic() + LONGEST_S
        while not condition():
            if time.monotonic() > end_s:
                raise TimeoutError(f"{gaps} gaps: the benchmark does not get on")
            loop.turn(0.01)

    _watch_commits(loop, watch)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for _ in range(2 * gaps):
        producer.produce(topic, b"x")
    producer.flush(30)
    flow = loop.engine.flow
    until(lambda: (topic, 0) in loop.engine.assignments)
    tracker = loop.engine.assignments[topic, 0].tracker
    until(lambda: tracker.position >= 2 * gaps and flow.open_count == gaps)
    cpu_ms: list[float] = []
    for _ in range(COMMITS):
        answered, began_s = len(watch.took_s), time.thread_time()
        producer.produce(topic, b"x")
        producer.flush(30)
        until(lambda answered=answered: len(watch.took_s) > answered)
        cpu_ms.append(1000 * (time.thread_time() - began_s))
    bytes_ = loop.engine.assignments[topic, 0].commit.metadata_length
    worker.close(lambda: True)
    took_ms = [1000 * took_s for took_s in watch.took_s[-COMMITS:]]
    return {"metadata": bytes_, "cpu_ms": median(cpu_ms), "took_ms": median(took_ms)}


def _watch_commits(loop: Any, watch: Watch) -> None:
    commit = loop._source.commit

    def stamped(positions: Any, *, wait: bool) -> None:
        watch.sent_s = time.monotonic()
        commit(positions, wait=wait)

    loop._source.commit = stamped


def main() -> None:
    """All cases, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER / "commits.md")
    out = parser.parse_args().out
    lines = ["# Commits with gaps", "", *machine.told()[:2], ""]
    lines += [
        "CPU time of the owner thread from one commit to the next, with a record read and settled",
        "in between, and the time from the commit to the broker's answer; medians.",
        "",
        "| gaps | characters of metadata | ms of CPU | ms until it is answered |",
        "|--:|--:|--:|--:|",
    ]
    with open_broker() as broker:
        for gaps in GAPS:
            found = case(broker.bootstrap_servers, gaps)
            lines.append(
                f"| {gaps:,} | {found['metadata']:,.0f} | {found['cpu_ms']:.2f} "
                f"| {found['took_ms']:.1f} |"
            )
    text = "\n".join(lines) + "\n"
    out.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
