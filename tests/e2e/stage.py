"""A stage for whole runs: a topic on a real broker, an app in a folder, and what it wrote down."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.framework.cli.command import PATIENCE_S, Running
from tests.framework.kafka.wire import until
from tests.kafka_topics import delete_topics
from tests.processes import gone_within, kill, works_in
from tests.written import whole_lines

#: What every app here begins with: each handled record becomes a line of a file.
HEAD = """
import asyncio, os, sys, threading, time
from contextlib import asynccontextmanager
from pathlib import Path

from ackfloor import App, Delivery, RetryPolicy

handled = os.open("handled", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
started = os.open("started", os.O_APPEND | os.O_CREAT | os.O_WRONLY)


def note(file, delivery):
    origin = delivery.origin
    os.write(file, f"{origin.partition}/{origin.offset}#{delivery.attempt}\\n".encode())


def opened(gate):
    return Path(gate).exists()


"""


class Stage:
    """One source topic and one app; groups and topics are its own."""

    def __init__(self, folder: Path, servers: str, partitions: int, session_s: int) -> None:
        self.folder = folder
        self.servers = servers
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        self.group = f"shop-{uuid.uuid4().hex[:8]}"
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._runs: list[Running] = []
        # A killed worker's partitions move on after it; 6 is the shortest that brokers allow.
        (folder / "ackfloor.toml").write_text(
            f'[kafka.consumer]\n"session.timeout.ms" = {session_s}000\n'
            '"heartbeat.interval.ms" = 500\n'
        )
        self._create(self.topic, partitions)

    def app(self, body: str) -> None:
        """Write the app; TOPIC and GROUP in it are the source topic and the group."""
        # A new file takes the old one's place: who follows the old one never finds half of it.
        fresh = self.folder / "stage_app.fresh"
        fresh.write_text(HEAD + body.replace("TOPIC", self.topic).replace("GROUP", self.group))
        fresh.replace(self.folder / "stage_app.py")

    def run(self, *arguments: str, **given: str) -> Running:
        """Start `ackfloor run` of the app on any free port."""
        environment = {
            "ACKFLOOR_BOOTSTRAP_SERVERS": self.servers,
            "ACKFLOOR_RUN_LISTEN": "127.0.0.1:0",
            **given,
        }
        self._runs.append(Running("stage_app:app", *arguments, cwd=self.folder, **environment))
        return self._runs[-1]

    def produce(
        self,
        count: int,
        value: bytes = b"{}",
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        topic: str | None = None,
    ) -> None:
        """Write records, to the source topic or another, and return when the broker has them."""
        for _ in range(count):
            self._producer.produce(
                topic or self.topic, value, key=key, headers=list(headers), on_delivery=_written
            )
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def produce_to(self, partitions: Iterable[int], value: bytes) -> None:
        """Write one record to each of these partitions, however new they are."""
        wanted = set(partitions)
        # A broker takes a moment to know of them, and what is written until then is refused.
        until(lambda: wanted <= self._partitions(self.topic))
        # A client of its own: the other one may not know them yet.
        producer = Producer({"bootstrap.servers": self.servers})
        for partition in wanted:
            producer.produce(self.topic, value, partition=partition, on_delivery=_written)
        assert producer.flush(60) == 0

    @contextmanager
    def flow(self, rate: float) -> Iterator[None]:
        """Write records at a steady rate meanwhile."""
        done = threading.Event()

        def write() -> None:
            start_s, written = time.monotonic(), 0
            while not done.wait(0.01):
                for _ in range(int((time.monotonic() - start_s) * rate) - written):
                    self._producer.produce(self.topic, b"{}")
                    written += 1
                self._producer.poll(0)
            self._producer.flush(60)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            done.set()
            writer.join()

    def noted(self, name: str = "handled") -> Counter[str]:
        """`partition/offset#attempt` -> how often a handler wrote it down."""
        return Counter(whole_lines(self.folder / name))

    def records(self) -> int:
        """How many different records were handled."""
        return len({name.partition("#")[0] for name in self.noted()})

    def open_gate(self, name: str = "gate") -> None:
        """Let handlers pass that wait for `opened(name)`."""
        (self.folder / name).touch()

    def committed(self, topic: str | None = None) -> int:
        """The sum of the group's committed positions of the source topic, or of another one."""
        name = topic or self.topic
        asked = [TopicPartition(name, number) for number in self._partitions(name)]
        # Not the admin client: it crashes where the coordinator is just moving.
        reader = Consumer({"bootstrap.servers": self.servers, "group.id": self.group})
        try:
            found = reader.committed(asked, timeout=60)
        finally:
            reader.close()
        return sum(p.offset for p in found if p.offset > 0)

    def make_topic(self, suffix: str, joint: str = "--", partitions: int = 1) -> str:
        """One more topic."""
        name = f"{self.topic}{joint}{suffix}"
        self._create(name, partitions)
        return name

    def delete_topic(self, name: str) -> None:
        """One topic less."""
        delete_topics(self._admin, [name])

    def _create(self, name: str, partitions: int) -> None:
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
        # What is created is known to the broker a moment later.
        until(lambda: len(self._partitions(name)) == partitions)

    def _partitions(self, topic: str) -> set[int]:
        found = self._admin.list_topics(timeout=60).topics.get(topic)
        return set() if found is None else set(found.partitions)

    def end_of(self, topic: str, number: int = 0) -> int:
        """Where the log of one of a topic's partitions ends."""
        partition = TopicPartition(topic, number)
        return int(
            self._admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(60).offset
        )

    def topics(self) -> set[str]:
        """The topics that belong to the source, itself included."""
        return {name for name in self._admin.list_topics(timeout=60).topics if self.topic in name}

    def close(self) -> None:
        """Leave no process and no topic behind."""
        outlived = []
        for run in self._runs:
            run.close()
            left = [pid for pid in worker_pids(run) if works_in(pid, self.folder)]
            outlived += [pid for pid in left if not gone(pid)]
        delete_topics(self._admin, self.topics())
        # The broker may go before this object does, and its clients would complain.
        del self._admin, self._producer
        assert outlived == [], "workers outlived their run"


def worker_pids(run: Running) -> list[int]:
    """The pids of all workers that a run has started so far."""
    found = [re.search(r" started, pid (\d+)", line) for line in run.drain()]
    return [int(match[1]) for match in found if match]


def started(run: Running, workers: int) -> list[int]:
    """The pids of all its workers, once it has said of so many that they were started."""
    # What a worker does may be seen before the run's word of its start is.
    run.until(lambda: len(worker_pids(run)) >= workers, f"the start of {workers} workers")
    return worker_pids(run)


def gone(pid: int) -> bool:
    """Whether a process ends within the time allowed; killed if not."""
    ended = gone_within(pid, PATIENCE_S)
    if not ended:
        kill(pid)
    return ended


def page(run: Running, name: str) -> tuple[int, Any]:
    """Status and JSON of a page of the run."""
    address = run.logged("metrics and health on ").rpartition(" ")[2]
    try:
        with urllib.request.urlopen(f"{address}{name}", timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def reasons(run: Running) -> list[str]:
    """Why the run is not ready; nothing where it is."""
    status, told = page(run, "/readyz")
    assert (status == 200) == told["ready"]
    return [f"{reason['check']}: {reason['message']}" for reason in told["reasons"]]


def ready(run: Running) -> Callable[[], bool]:
    """Whether the run is ready, for waiting."""
    return lambda: reasons(run) == []


def _written(error: KafkaError | None, _message: Message) -> None:
    assert error is None, error
