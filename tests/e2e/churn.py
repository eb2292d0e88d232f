"""Churn: a group whose members come, go and are killed under load; what its ledger says after.

    python -m tests.e2e.churn eager --changes 50

Members are real worker processes on a real broker. Handlers append each start and end to a ledger
outside the process; the broker's own log of commits (`commit_log`) says what was settled when.
What is found afterwards is told by `churn_account`.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ackfloor.testing import open_broker
from tests.e2e.churn_account import Change, Facts, Findings, Line, find
from tests.e2e.commit_log import read_commits
from tests.framework.cli.command import environment
from tests.framework.kafka.wire import until
from tests.kafka_topics import delete_topics
from tests.written import whole_lines

PROTOCOLS = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "broker": {"group.protocol": "consumer"},
}
#: A killed member's partitions move on after it.
SESSION_S = 6.0
#: What may pass, beyond the session's timeout after a kill, until every partition moves again.
PROMISED_S = 5.0
PARTITIONS = 6
#: Each partition has as many of them.
KEYS = 10 * PARTITIONS
KINDS = ("join", "kill", "leave")
PATIENCE_S = 180.0
APP = """
import asyncio, os, time

from ackfloor import App, Delivery, RetryPolicy

ledger = os.open("ledger", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
app = App("GROUP")


def note(what, d):
    origin = d.origin
    os.write(
        ledger,
        f"{what} {time.time_ns()} {os.getpid()} {d.topic} {d.partition} {d.offset} "
        f"{origin.partition} {origin.offset}\\n".encode(),
    )


@app.handler("TOPIC", concurrency=32, retry=RetryPolicy.fixed("1s", 6)MORE)
async def work(value: bytes, delivery: Delivery) -> None:
    note("S", delivery)
    await asyncio.sleep(float(value[1:]))
    if value[:1] == b"f" and delivery.attempt == 1:
        raise ValueError("once")
    note("E", delivery)
"""


@dataclass(slots=True)
class Churn:
    """A group under load in a folder of its own.

    Attributes:
        more: further arguments of the handler, each behind a comma.
        settings: further lines of the settings, of their section `[app]`.
    """

    folder: Path
    servers: str
    protocol: str
    seed: int
    session_s: float = SESSION_S
    more: str = ""
    settings: str = ""
    topic: str = field(default_factory=lambda: f"churn-{uuid.uuid4().hex[:8]}")
    group: str = field(default_factory=lambda: f"churn-{uuid.uuid4().hex[:8]}")
    members: list[subprocess.Popen[bytes]] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    produced: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    #: What the group was like while something took longer than it should.
    stops: list[str] = field(default_factory=list)
    _number: int = 0

    def prepare(self) -> None:
        """Write the app and its settings, and create the source topic."""
        text = APP.replace("TOPIC", self.topic).replace("GROUP", self.group)
        text = text.replace("MORE", self.more)
        (self.folder / "churn_app.py").write_text(text)
        own = dict(PROTOCOLS[self.protocol])
        session_ms = str(round(self.session_s * 1000))
        # The heartbeat first: a broker refuses a session that is shorter.
        timing = {"heartbeat.interval.ms": "500", "session.timeout.ms": session_ms}
        admin = AdminClient({"bootstrap.servers": self.servers})
        if self.protocol == "broker":
            for name, value in timing.items():
                _set_group(admin, self.group, f"consumer.{name}", value)
        else:
            own |= timing
        settings = "".join(f'"{name}" = "{value}"\n' for name, value in own.items())
        (self.folder / "ackfloor.toml").write_text(
            f'[kafka.consumer]\n{settings}[app]\ncommit_interval = "200ms"\ndrain_timeout = "2s"\n'
            f"replication_factor = 1\n{self.settings}"
        )
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(60)
        until(lambda: self.topic in admin.list_topics(timeout=60).topics)
        # `run` would see to the tiers before it starts workers.
        done = subprocess.run(
            [sys.executable, "-m", "ackfloor.cli.main", "topics", "apply", "churn_app:app", "-y"],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def _environment(self, servers: str = "") -> dict[str, str]:
        return environment({"ACKFLOOR_BOOTSTRAP_SERVERS": servers or self.servers})

    def join(self, servers: str = "") -> None:
        """One more member, which connects to other addresses if they are given."""
        self._number += 1
        with (self.folder / f"worker-{self._number}.log").open("wb") as log:
            command = [sys.executable, "-m", "ackfloor.worker", "churn_app:app"]
            self.members.append(
                subprocess.Popen(
                    [*command, "--number", str(self._number)],
                    cwd=self.folder,
                    env=self._environment(servers),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def end(self, number: signal.Signals, chosen: random.Random) -> None:
        """One member fewer; returns when its process is gone."""
        member = self.members.pop(chosen.randrange(len(self.members)))
        member.send_signal(number)
        code = member.wait(PATIENCE_S)
        # One that is still importing has no handler for the signal yet.
        expected = (0, -number) if number == signal.SIGTERM else (-number,)
        assert code in expected, f"a member exited with {code}"

    def change(self, chosen: random.Random, number: int) -> Change:
        """Change the membership in one way; the change is noted before it is made."""
        kinds = ["join"] if len(self.members) < 4 else []
        if len(self.members) > 1:
            kinds += ["leave", "kill"]
        # One of each kind first, so that a short run has them all.
        kind = KINDS[number] if number < len(KINDS) else chosen.choice(kinds)
        made = Change(kind, time.time() * 1000, len(self.members))
        self.changes.append(made)
        if kind == "join":
            self.join()
        else:
            self.end(signal.SIGTERM if kind == "leave" else signal.SIGKILL, chosen)
        return made

    def ledger(self) -> list[Line]:
        """The ledger so far, in the order in which it was written."""
        lines = []
        for line in whole_lines(self.folder / "ledger"):
            what, ns, pid, topic, *numbers = line.split(" ")
            partition, offset, from_partition, from_offset = map(int, numbers)
            origin = (from_partition, from_offset)
            at_ms = int(ns) / 1e6
            lines.append(Line(what, at_ms, int(pid), topic, partition, offset, origin))
        return lines

    def facts(self) -> Facts:
        """What there is to be judged."""
        return Facts(
            self.protocol, self.topic, self.session_s, self.changes, self.produced, self.ledger()
        )

    def moved_since(self, at_ms: float) -> bool:
        """Whether something of each partition has started and ended since a moment."""
        lines = [line for line in self.ledger() if line.at_ms > at_ms and line.topic == self.topic]
        begun = {line.partition: line.at_ms for line in reversed(lines) if line.what == "S"}
        return len(begun) == PARTITIONS

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something, as long as every member lives."""
        until_s = time.monotonic() + PATIENCE_S
        tell_s = time.monotonic() + self.session_s + 2 * PROMISED_S
        while not condition():
            for member in self.members:
                assert member.poll() is None, f"a member exited with {member.returncode}"
            if time.monotonic() > tell_s:
                self.stops.append(f"waiting for {what}: {self._described()}")
                tell_s += 2 * PROMISED_S
            failed = f"{what} did not happen in {PATIENCE_S:g} s"
            assert time.monotonic() < until_s, "\n".join([failed, *self.stops])
            time.sleep(0.1)

    def _described(self) -> str:
        """Whom the group may be waiting for, and whether there is anything to be handled."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        found = admin.describe_consumer_groups([self.group])[self.group].result(60)
        members = ", ".join(
            f"{m.client_id} {m.member_id[-8:]} ({len(m.assignment.topic_partitions)} partitions)"
            for m in found.members
        )
        wanted = {TopicPartition(self.topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
        ends = [future.result(60).offset for future in admin.list_offsets(wanted).values()]
        ended = {line.origin for line in self.ledger() if line.what == "E"}
        return (
            f"{found.state.name} of {members or 'nobody'}; alive {[m.pid for m in self.members]}; "
            f"to be handled {sum(ends) - len(ended)} of {sum(ends)}"
        )

    @contextmanager
    def load(self, rate: float) -> Iterator[None]:
        """Write records at a steady rate meanwhile, to each partition in turn."""
        done = threading.Event()
        chosen = random.Random(self.seed + 1)
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5})

        def write() -> None:
            start_s, written = time.monotonic(), 0
            while not done.wait(0.01):
                for _ in range(int((time.monotonic() - start_s) * rate) - written):
                    value = _value(chosen)
                    key = b"%d" % (written % KEYS)
                    producer.produce(self.topic, value, key, partition=written % PARTITIONS)
                    self.produced[written % PARTITIONS] += 1
                    written += 1
                producer.poll(0)
            assert producer.flush(60) == 0

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            done.set()
            writer.join()

    def settled(self) -> bool:
        """Whether the group has committed the end of every topic it reads."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        topics = admin.list_topics(timeout=60).topics
        names = [n for n in topics if n.startswith(self.topic) and not n.endswith("--dlq")]
        wanted = {
            TopicPartition(n, p): OffsetSpec.latest() for n in names for p in topics[n].partitions
        }
        ends = {
            (p.topic, p.partition): future.result(60).offset
            for p, future in admin.list_offsets(wanted).items()
        }
        reader = Consumer({"bootstrap.servers": self.servers, "group.id": self.group})
        try:
            found = reader.committed([TopicPartition(*key) for key in ends], timeout=60)
        finally:
            reader.close()
        have = {(p.topic, p.partition): p.offset for p in found}
        return all(have.get(key, -1) == end for key, end in ends.items())

    def close(self) -> None:
        """Leave no process and no topic behind."""
        for member in self.members:
            if member.poll() is None:
                member.kill()
            member.wait()
        admin = AdminClient({"bootstrap.servers": self.servers})
        names = [n for n in admin.list_topics(timeout=60).topics if n.startswith(self.topic)]
        delete_topics(admin, names)


def _set_group(admin: AdminClient, group: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def _value(chosen: random.Random) -> bytes:
    """What a record does: most are quick, a few hold the floor for a while, some fail once."""
    what = chosen.random()
    if what < 0.04:
        return b"w%.2f" % chosen.uniform(0.5, 3.0)
    if what < 0.07:
        return b"f0.005"
    return b"w%.3f" % chosen.uniform(0.002, 0.02)


def churn(
    folder: Path,
    servers: str,
    protocol: str,
    changes: int,
    *,
    seed: int = 1,
    rate: float = 150.0,
    session_s: float = SESSION_S,
    say: Callable[[str], None] = lambda _: None,
) -> Findings:
    """Change a group's membership so many times under load, and find out what became of it."""
    group = Churn(folder, servers, protocol, seed, session_s)
    chosen = random.Random(seed)
    began_s = time.monotonic()
    try:
        group.prepare()
        with group.load(rate):
            for _ in range(2):
                group.join()
            group.until(lambda: group.moved_since(0), "the first start of every partition")
            for number in range(changes):
                made = group.change(chosen, number)
                say(f"{number + 1}/{changes} {made.kind} of {made.members}")
                if number >= len(KINDS) and chosen.random() < 0.15:
                    # Another one before this one has been digested.
                    time.sleep(chosen.uniform(0.1, 1.5))
                    continue
                time.sleep(session_s if made.kind == "kill" else 3.0)
                since_ms = time.time() * 1000
                group.until(lambda at=since_ms: group.moved_since(at), "work on every partition")
        group.until(group.settled, "the last commit")
        group.end(signal.SIGTERM, chosen)
        log = read_commits(servers, group.group)
        findings = find(group.facts(), log)
        findings.took_s = time.monotonic() - began_s
        findings.stops = group.stops
    finally:
        group.close()
    return findings


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.churn", description=__doc__)
    parser.add_argument("protocol", choices=PROTOCOLS, help="broker is KIP-848")
    parser.add_argument("--changes", type=int, default=50, help="joins, leaves and kills (50)")
    parser.add_argument("--seed", type=int, default=1, help="what decides over them (1)")
    parser.add_argument("--rate", type=float, default=150.0, help="records per second (150)")
    given = parser.parse_args()
    with open_broker() as broker, tempfile.TemporaryDirectory() as folder:
        found = churn(
            Path(folder), broker.bootstrap_servers, given.protocol, given.changes,
            seed=given.seed, rate=given.rate, say=lambda line: _say(sys.stderr, line),
        )  # fmt: skip
    lost = [f"lost: {line}" for line in found.lost]
    _say(sys.stdout, found.table(), *found.settled_again[:20], *found.back[:20], *lost[:20])
    raise SystemExit(bool(found.lost or found.settled_again or found.back))


def _say(stream: TextIO, *lines: str) -> None:
    stream.write("\n".join(lines) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()
