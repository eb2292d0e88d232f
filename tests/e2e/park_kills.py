"""Kills in the middle of parking: what a crash between a park and its ack leaves behind.

    python -m tests.e2e.park_kills transactional --kills 200
    python -m tests.e2e.park_kills at_least_once --kills 200

One worker fails every record it gets, so each is parked once in the retry topic and once in the
dead-letter topic, and it does little else. It is killed with SIGKILL at random instants, and the
next one takes its place. In the end, for each record that was produced and each of the two topics,
as a reader of committed records sees them: not there is lost, there more than once is doubled.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from ackfloor.testing import open_broker
from tests.framework.cli.command import environment
from tests.framework.kafka.wire import until
from tests.kafka_topics import delete_topics
from tests.processes import runs

REPOSITORY = Path(__file__).parents[2]
PARTITIONS = 4
PATIENCE_S = 120.0
#: Until the group gives a killed worker's partitions to the next one. Brokers of ours allow it.
SESSION_S = 1.0
BACKLOG = 2_000
#: The worker is killed at most so long after its first call of the handler.
WINDOW_S = 0.6
APP = """
import asyncio, os, time

from ackfloor import App, Delivery, RetryPolicy

calls = os.open("calls", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
app = App("GROUP", parking="PARKING", commit_interval="100ms")


@app.handler("TOPIC", concurrency=16, retry=RetryPolicy.fixed("200ms", 1), breaker=None)
async def fail(delivery: Delivery) -> None:
    os.write(calls, b".")
    await asyncio.sleep(0.005)
    raise ValueError("always")
"""
Place = tuple[int, int]


@dataclass(slots=True)
class Findings:
    """What was found; see the head of this file."""

    parking: str
    kills: int
    produced: int
    lost: dict[str, int] = field(default_factory=dict)
    doubled: dict[str, int] = field(default_factory=dict)
    back_s: list[float] = field(default_factory=list)
    took_s: float = 0.0

    def table(self) -> str:
        """The findings for people."""
        ordered = sorted(self.back_s)
        longest = f"longest {ordered[-1]:.2f} s (session {SESSION_S:g} s)"
        return "\n".join(
            [
                f"parking               {self.parking}",
                f"kills                 {self.kills}",
                f"records               {self.produced:,}",
                *(f"lost, {name:<15} {count}" for name, count in self.lost.items()),
                *(f"doubled, {name:<12} {count}" for name, count in self.doubled.items()),
                f"start to first call   median {ordered[len(ordered) // 2]:.2f} s, {longest}",
                f"took                  {self.took_s:.0f} s",
            ]
        )


class Kills:
    """One worker after the other in a folder of their own."""

    def __init__(self, folder: Path, servers: str, parking: str, seed: int) -> None:
        self.folder = folder
        self.parking = parking
        self.topic = f"kills-{uuid.uuid4().hex[:8]}"
        self.group = f"kills-{uuid.uuid4().hex[:8]}"
        self._random = random.Random(seed)
        self._servers = {"bootstrap.servers": servers}
        self._admin = AdminClient(self._servers)
        self._producer = Producer({**self._servers, "linger.ms": 5})
        self._environment = environment({"ACKFLOOR_BOOTSTRAP_SERVERS": servers})
        self.produced: set[Place] = set()
        self.back_s: list[float] = []
        self.pid = 0
        self._prepare()
        with (folder / "workers.log").open("wb") as log:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.nursery", "kills_app:app"],
                cwd=folder,
                env={
                    **self._environment,
                    "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{REPOSITORY}:{folder}",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def _prepare(self) -> None:
        text = APP.replace("TOPIC", self.topic).replace("GROUP", self.group)
        (self.folder / "kills_app.py").write_text(text.replace("PARKING", self.parking))
        session_ms = round(SESSION_S * 1000)
        (self.folder / "ackfloor.toml").write_text(
            f'[kafka.consumer]\n"session.timeout.ms" = {session_ms}\n'
            '"heartbeat.interval.ms" = 200\n[app]\nreplication_factor = 1\n'
        )
        self._admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(60)
        until(lambda: self.topic in self._admin.list_topics(timeout=60).topics)
        done = subprocess.run(
            [sys.executable, "-m", "ackfloor.cli.main", "topics", "apply", "kills_app:app", "-y"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    @property
    def targets(self) -> dict[str, str]:
        """The retry topic and the dead-letter topic by what they are called in the findings."""
        name = f"{self.topic}--{self.group}--"
        return {"retry topic": f"{name}retry-200ms", "DLQ": f"{name}dlq"}

    def produce(self, count: int) -> None:
        """Write records, and note where they are."""

        def written(error: object, message: object) -> None:
            assert error is None, error
            self.produced.add((message.partition(), message.offset()))  # type: ignore[attr-defined]

        for n in range(count):
            self._producer.produce(self.topic, b"{}", partition=n % PARTITIONS, on_delivery=written)
        assert self._producer.flush(60) == 0

    def calls(self) -> int:
        """How often a handler was called so far."""
        with suppress(FileNotFoundError):
            return (self.folder / "calls").stat().st_size
        return 0

    def start(self) -> None:
        """The next worker."""
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write("\n")
        self._nursery.stdin.flush()
        born = self._nursery.stdout.readline()
        assert born, f"the nursery is gone:\n{self._log()}"
        self.pid = int(born)

    def end(self, number: signal.Signals) -> None:
        """The worker ends; returns when it is gone."""
        assert runs(self.pid), f"the worker ended by itself:\n{self._log()}"
        os.kill(self.pid, number)
        self.until(lambda: not runs(self.pid), "the worker's end")

    def _log(self) -> str:
        """The last words of the workers, however they were cut off."""
        return (self.folder / "workers.log").read_text("utf-8", "replace")[-3000:]

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something."""
        until_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until_s, (
                f"{what} did not happen in {PATIENCE_S:g} s:\n{self._log()}"
            )
            time.sleep(0.005)

    def life(self) -> None:
        """One worker, from its start to its violent end."""
        # Two calls for each record: there is always more than a worker can park before its end.
        if 2 * len(self.produced) - self.calls() < BACKLOG:
            self.produce(BACKLOG)
        before, began_s = self.calls(), time.monotonic()
        self.start()
        self.until(lambda: self.calls() > before, "a call of the handler")
        self.back_s.append(time.monotonic() - began_s)
        time.sleep(self._random.uniform(0.0, WINDOW_S))
        self.end(signal.SIGKILL)

    def finish(self) -> None:
        """A last worker parks what is left and ends in order."""
        self.start()
        dlq = self.targets["DLQ"]
        self.until(lambda: self._end_of(dlq) >= len(self.produced), "the end of the backlog")
        self.until(lambda: self.read(dlq).keys() >= self.produced, "the last dead letters")
        self.end(signal.SIGTERM)

    def _end_of(self, topic: str) -> int:
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        return sum(f.result(60).offset for f in self._admin.list_offsets(asked).values())

    def read(self, topic: str) -> Counter[Place]:
        """How often each record is in a topic, as a reader of committed records sees it."""
        reader = Consumer(
            {
                **self._servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        found: Counter[Place] = Counter()
        try:
            for number in range(PARTITIONS):
                partition = TopicPartition(topic, number, 0)
                _, end = reader.get_watermark_offsets(partition, timeout=60)
                reader.assign([partition])
                position = 0
                while position < end:
                    for message in reader.consume(5000, 0.05):
                        assert message.error() is None, message.error()
                        headers = dict(message.headers() or ())
                        found[
                            int(headers["ackfloor.origin.partition"]),
                            int(headers["ackfloor.origin.offset"]),
                        ] += 1
                    position = reader.position([partition])[0].offset
        finally:
            reader.close()
        return found

    def findings(self) -> Findings:
        """Count."""
        found = Findings(self.parking, len(self.back_s), len(self.produced), back_s=self.back_s)
        for name, topic in self.targets.items():
            counts = self.read(topic)
            assert counts.keys() <= self.produced
            found.lost[name] = len(self.produced - counts.keys())
            found.doubled[name] = sum(count - 1 for count in counts.values())
        return found

    def close(self) -> None:
        """Leave no process and no topic behind."""
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.close()
        self._nursery.wait(60)
        self._nursery.stdout.close()
        names = [n for n in self._admin.list_topics(timeout=60).topics if self.topic in n]
        delete_topics(self._admin, names)
        del self._admin, self._producer


def park_kills(folder: Path, servers: str, parking: str, kills: int, seed: int) -> Findings:
    """Kill so many workers, and count."""
    began_s = time.monotonic()
    run = Kills(folder, servers, parking, seed)
    try:
        for number in range(kills):
            run.life()
            if __name__ == "__main__" and number % 20 == 19:
                sys.stderr.write(f"{number + 1} kills, {run.calls():,} calls\n")
        run.finish()
        found = run.findings()
    finally:
        run.close()
    found.took_s = time.monotonic() - began_s
    return found


def main() -> int:
    """Run it by hand; the table is on stdout."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.park_kills",
        description=__doc__.splitlines()[0] if __doc__ else "",
    )
    parser.add_argument("parking", choices=["transactional", "at_least_once"])
    parser.add_argument("--kills", type=int, default=200, help="of the one worker (200)")
    parser.add_argument("--seed", type=int, default=1, help="what decides when (1)")
    given = parser.parse_args()
    with open_broker() as broker, tempfile.TemporaryDirectory() as folder:
        found = park_kills(
            Path(folder), broker.bootstrap_servers, given.parking, given.kills, given.seed
        )
    sys.stdout.write(found.table() + "\n")
    doubled = sum(found.doubled.values()) if given.parking == "transactional" else 0
    return int(bool(sum(found.lost.values()) or doubled))


if __name__ == "__main__":
    sys.exit(main())
