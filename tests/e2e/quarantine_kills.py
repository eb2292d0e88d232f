"""Kills and rebalances while keys are quarantined: what becomes of their order.

    python -m tests.e2e.quarantine_kills continue transactional --kills 34 --rebalances 34
    python -m tests.e2e.quarantine_kills hold at_least_once --seed 7 --keep build/kills

Workers are real processes on a real broker, under a steady load of numbered records for each key;
some of them fail once or twice, some for ever. Workers are killed with SIGKILL and replaced, and
others join and leave. A ledger outside of the processes says when each record was started, when it
failed and when it was handled. `quarantine_account` judges it.

In the end nothing may be held: all is committed, and a record more of each key is handled from its
source topic, so its key was not quarantined. With `hold`, the keys with a dead letter stay: what
follows is parked and not begun. Then workers start whose handler goes on after a dead letter, and
all of it has to be handled.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from ackfloor.core.acks.gap_set import decode
from ackfloor.core.records.envelope import Reason, read_envelope
from ackfloor.testing import open_broker
from tests.e2e.quarantine_account import (
    AT_ONCE,
    NEVER,
    OK,
    ONCE,
    TWICE,
    Facts,
    Findings,
    Letter,
    Line,
    Name,
    find,
    resolutions,
)
from tests.framework.cli.command import environment
from tests.framework.kafka.wire import committed_records, until
from tests.kafka_topics import delete_topics
from tests.processes import runs
from tests.written import whole_lines

REPOSITORY = Path(__file__).parents[2]
AFTER = ("continue", "dead_letter", "hold")
PARKING = ("transactional", "at_least_once")
PARTITIONS, KEYS = 4, 40
#: With `hold`, the keys that have records which die.
MORTAL = 6
MEMBERS = (2, 4)
#: Until the group gives a killed worker's partitions to others. Brokers of ours allow it.
SESSION_S = 1.0
PATIENCE_S = 120.0
RATE = 150.0
Place = tuple[str, int]
APP = """
import asyncio, os, time

from ackfloor import App, Delivery, RetryPolicy

ledger = os.open("ledger", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
app = App("GROUP", parking="PARKING", commit_interval="100ms")


class Fatal(Exception):
    pass


def note(what, key, number, d):
    line = f"{what} {time.time_ns()} {os.getpid()} {key} {number} {d.attempt} {d.topic}\\n"
    os.write(ledger, line.encode())


@app.handler(
    "TOPIC",
    ordering="key",
    on_failure="quarantine",
    after_dead_letter="AFTER",
    concurrency=16,
    retry=RetryPolicy(delays=("100ms", "300ms", "1s"), max_redeliveries=3),
    dead_letter_on=(Fatal,),
    breaker=None,
)
async def work(value: bytes, delivery: Delivery) -> None:
    key, number, kind, seconds = value.decode().split()
    note("S", key, number, delivery)
    await asyncio.sleep(float(seconds))
    if kind in ("dead", "fatal") or (kind[0] == "f" and delivery.attempt <= int(kind[1:])):
        note("F", key, number, delivery)
        raise Fatal() if kind == "fatal" else ValueError("again")
    note("E", key, number, delivery)
"""


@dataclass(slots=True)
class Report:
    """What came of a run."""

    after: str
    parking: str
    kills: int
    rebalances: int
    ended: list[str]
    found: Findings
    #: Of `hold`: what was held before others went on with it.
    held: int = 0
    freed: Findings = field(default_factory=Findings)
    took_s: float = 0.0

    @property
    def wrong(self) -> dict[str, list[str]]:
        """Everything that must not be."""
        return {
            **self.found.wrong,
            **{f"{k}, freed": v for k, v in self.freed.wrong.items()},
            **self._doubled(),
        }

    def _doubled(self) -> dict[str, list[str]]:
        """With transactions a dead letter is there once, whatever becomes of those behind it."""
        counts = {
            name: found.doubled + found.doubled_behind
            for name, found in (("doubled", self.found), ("doubled, freed", self.freed))
        }
        transactional = self.parking == "transactional"
        return {name: [str(n)] for name, n in counts.items() if n and transactional}

    def table(self) -> str:
        """The findings for people."""
        found, seen = self.found, sorted(self.found.quarantined) or [0]
        middle, behind = seen[len(seen) // 2], self.found.behind
        wrong = [f"{rule}: {len(names)}: {names[:5]}" for rule, names in self.wrong.items()]
        return "\n".join(
            [
                f"after a dead letter   {self.after}, parking {self.parking}",
                f"kills, rebalances     {self.kills}, {self.rebalances}",
                f"quarantined at a kill {seen[0]} to {seen[-1]} keys, median {middle}",
                f"records               {found.records:,}, failures {found.failures:,}",
                f"dead letters          {found.letters:,}, {behind:,} of them behind another",
                f"held, then handled    {self.held:,}",
                f"handled again         {found.repeated:,}",
                f"dead letters doubled  {found.doubled}, behind another {found.doubled_behind}",
                f"ended by themselves   {self.ended}",
                f"wrong                 {wrong or 'nothing'}",
                f"took                  {self.took_s:.0f} s",
            ]
        )


class Fleet:
    """Workers of one app in a folder of their own, and the load on them."""

    def __init__(self, folder: Path, servers: str, after: str, parking: str, seed: int) -> None:
        self.folder, self.servers = folder, servers
        self.after, self.parking = after, parking
        self.topic = f"quarantine-{uuid.uuid4().hex[:8]}"
        self.group = f"quarantine-{uuid.uuid4().hex[:8]}"
        self.random = random.Random(seed)
        self.produced: dict[int, list[str]] = {key: [] for key in range(KEYS)}
        #: Worker number -> its pid.
        self.workers: dict[int, int] = {}
        self.kills_ns: list[int] = []
        self.ended: list[str] = []
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 2, "enable.idempotence": True}
        )
        self._environment = environment({"ACKFLOOR_BOOTSTRAP_SERVERS": servers})
        self._lines: list[Line] = []
        self._read_to = 0
        self._prepare()
        self._nursery = self._start_nursery()

    def _prepare(self) -> None:
        self._write_app(self.after)
        (self.folder / "ackfloor.toml").write_text(
            f'[kafka.consumer]\n"session.timeout.ms" = {SESSION_S * 1000:.0f}\n'
            '"heartbeat.interval.ms" = 200\n[app]\nreplication_factor = 1\ndrain_timeout = "2s"\n'
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

    def _write_app(self, after: str) -> None:
        text = APP.replace("TOPIC", self.topic).replace("GROUP", self.group)
        text = text.replace("PARKING", self.parking).replace("AFTER", after)
        (self.folder / "kills_app.py").write_text(text)

    def _start_nursery(self) -> subprocess.Popen[str]:
        with (self.folder / "workers.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.nursery", "kills_app:app"],
                cwd=self.folder,
                env={
                    **self._environment,
                    "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{REPOSITORY}:{self.folder}",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    # Workers.

    def join(self, number: int | None = None) -> None:
        """One more worker; or the successor of one, under its number."""
        if number is None:
            number = min(set(range(1, 10)) - self.workers.keys())
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(f"--number {number}\n")
        self._nursery.stdin.flush()
        born = self._nursery.stdout.readline()
        assert born, f"the nursery is gone:\n{self.log()}"
        self.workers[number] = int(born)

    def end(self, number: signal.Signals) -> int:
        """A worker ends; returns its own number when its process is gone."""
        chosen = self.random.choice(sorted(self.workers))
        pid = self.workers.pop(chosen)
        if number == signal.SIGKILL:
            self.kills_ns.append(time.time_ns())
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        self.until(lambda: not runs(pid), "a worker's end")
        return chosen

    def kill(self) -> None:
        """A worker is killed; another one takes its place in a moment, as a run would see to it."""
        number = self.end(signal.SIGKILL)
        time.sleep(self.random.uniform(0.0, 1.0))
        self.join(number)

    def rebalance(self) -> None:
        """A worker joins, or one leaves in order."""
        least, most = MEMBERS
        if len(self.workers) == least or (len(self.workers) < most and self.random.random() < 0.5):
            self.join()
        else:
            self.end(signal.SIGTERM)

    def replace_dead(self) -> None:
        """Workers that have ended by themselves are replaced, as a run would, and noted."""
        for number, pid in list(self.workers.items()):
            if not runs(pid):
                self.ended.append(self._last_words(pid))
                self.join(number)

    def _last_words(self, pid: int) -> str:
        lines = [line for line in self.log(1 << 22).splitlines() if line.strip()]
        own = [line for line in lines if f"pid={pid}" in line or f"[{pid}]" in line]
        return (own or lines or ["nothing"])[-1][:300]

    def log(self, most: int = 3000) -> str:
        """The last words of the workers, however they were cut off."""
        return (self.folder / "workers.log").read_text("utf-8", "replace")[-most:]

    def close(self) -> None:
        """Leave no process and no topic behind."""
        self._close_nursery()
        names = [n for n in self._admin.list_topics(timeout=60).topics if self.topic in n]
        delete_topics(self._admin, names)
        del self._admin, self._producer

    def _close_nursery(self) -> None:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.close()
        self._nursery.wait(60)
        self._nursery.stdout.close()

    def leave_all(self) -> None:
        """All workers end in order."""
        while self.workers:
            self.end(signal.SIGTERM)

    def go_on_after_dead_letters(self) -> None:
        """Others start, whose handler goes on with what is behind a dead letter."""
        self.leave_all()
        self._close_nursery()
        self._write_app("continue")
        self._nursery = self._start_nursery()
        for _ in range(MEMBERS[0]):
            self.join()

    # Records.

    @contextmanager
    def load(self) -> Iterator[None]:
        """Write records at a steady rate meanwhile."""
        done = threading.Event()
        chosen = random.Random(self.random.random())

        def write() -> None:
            start_s, written = time.monotonic(), 0
            while not done.wait(0.01):
                for _ in range(int((time.monotonic() - start_s) * RATE) - written):
                    key = chosen.randrange(KEYS)
                    self._produce(key, self._kind(key, chosen), chosen.uniform(0.0, 0.01))
                    written += 1
                self._producer.poll(0)
            assert self._producer.flush(60) == 0

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            done.set()
            writer.join()

    def _kind(self, key: int, chosen: random.Random) -> str:
        dying = 0.02
        if self.after == "hold":
            dying = 0.06 if key < MORTAL else 0.0
        if chosen.random() < dying:
            return chosen.choice([NEVER, AT_ONCE])
        return chosen.choices([OK, ONCE, TWICE], [95, 3, 2])[0]

    def _produce(self, key: int, kind: str, takes_s: float) -> None:
        number = len(self.produced[key])
        self.produced[key].append(kind)
        self._producer.produce(
            self.topic,
            f"{key} {number} {kind} {takes_s:.4f}".encode(),
            key=b"k%d" % key,
            partition=key % PARTITIONS,
        )

    def probe(self) -> set[Name]:
        """One record more of each key."""
        for key in range(KEYS):
            self._produce(key, OK, 0.0)
        assert self._producer.flush(60) == 0
        return {Name(key, len(kinds) - 1) for key, kinds in self.produced.items()}

    def lines(self) -> list[Line]:
        """The ledger so far."""
        for line in whole_lines(self.folder / "ledger")[self._read_to :]:
            what, ns, pid, key, number, attempt, topic = line.split(" ")
            name = Name(int(key), int(number))
            self._lines.append(Line(what, int(ns), int(pid), name, int(attempt), topic))
            self._read_to += 1
        return self._lines

    def moved_since(self, at_ns: int) -> bool:
        """Whether something of each partition was handled since a moment."""
        moved = set()
        for line in reversed(self.lines()):
            if line.at_ns < at_ns - 1_000_000_000:
                break
            if line.what == "E" and line.at_ns > at_ns:
                moved.add(line.name.key % PARTITIONS)
        return len(moved) == PARTITIONS

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something."""
        until_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until_s, (
                f"{what} did not happen in {PATIENCE_S:g} s:\n{self.log()}"
            )
            self.replace_dead()
            time.sleep(0.05)

    # What there is to be judged.

    @property
    def dlq(self) -> str:
        """The dead-letter topic."""
        return f"{self.topic}--{self.group}--dlq"

    def tiers(self) -> list[str]:
        """The retry topics."""
        names = self._admin.list_topics(timeout=60).topics
        return [name for name in names if name.startswith(f"{self.topic}--{self.group}--retry")]

    def letters(self) -> list[Letter]:
        """The dead letters."""
        found = []
        for message in committed_records(self.servers, self.dlq):
            key, number, *_ = message.value().decode().split()
            behind = read_envelope(message.headers()).reason is Reason.BEHIND
            at_ns = message.timestamp()[1] * 1_000_000
            found.append(Letter(Name(int(key), int(number)), message.partition(), at_ns, behind))
        return found

    def parked(self) -> frozenset[Name]:
        """What no commit of the retry topics has settled."""
        found = set()
        for tier in self.tiers():
            places = {p.partition: p for p in self._committed([tier])}
            runs_of = {
                number: decode(p.metadata, tier, number).runs if p.metadata else ()
                for number, p in places.items()
            }
            for message in committed_records(self.servers, tier):
                at, number = message.offset(), message.partition()
                settled = any(start <= at < end for start, end in runs_of[number])
                if at >= places[number].offset and not settled:
                    key, count, *_ = message.value().decode().split()
                    found.add(Name(int(key), int(count)))
        return frozenset(found)

    def keep(self, folder: Path) -> None:
        """Copy what shows why something went wrong: ledger, log, and every topic as text."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("ledger", "workers.log"):
            shutil.copy(self.folder / name, folder / name)
        for topic in [self.topic, *self.tiers(), self.dlq]:
            with (folder / f"{topic}.txt").open("w", encoding="utf-8") as out:
                for m in committed_records(self.servers, topic):
                    headers = dict(m.headers() or ())
                    place = f"{m.partition()}@{m.offset()} {m.timestamp()[1]}"
                    print(place, m.value().decode(), headers, file=out)

    def _committed(self, topics: list[str]) -> list[TopicPartition]:
        asked = [TopicPartition(name, number) for name in topics for number in range(PARTITIONS)]
        reader = Consumer({"bootstrap.servers": self.servers, "group.id": self.group})
        try:
            return list(reader.committed(asked, timeout=60))
        finally:
            reader.close()

    def settled(self) -> bool:
        """Whether the group has committed the end of every topic it reads."""
        names = [self.topic, *self.tiers()]
        return self._positions(names) == self._ends(names)

    def _positions(self, topics: list[str]) -> dict[Place, int]:
        return {(p.topic, p.partition): max(0, p.offset) for p in self._committed(topics)}

    def _ends(self, topics: list[str]) -> dict[Place, int]:
        every = [TopicPartition(name, number) for name in topics for number in range(PARTITIONS)]
        asked = self._admin.list_offsets({place: OffsetSpec.latest() for place in every})
        return {(p.topic, p.partition): f.result(60).offset for p, f in asked.items()}

    def facts(self, after: str) -> Facts:
        """All of it."""
        produced = {key: tuple(kinds) for key, kinds in self.produced.items()}
        parked = self.parked() if after == "hold" else frozenset()
        return Facts(
            after, produced, PARTITIONS, list(self.lines()), self.letters(), parked, self.kills_ns
        )

    def resolved(self) -> bool:
        """Whether each record was handled or is a dead letter, as far as it may be."""
        facts = self.facts("continue")
        resolved = resolutions(facts)
        open_names = {
            Name(key, number)
            for key, kinds in self.produced.items()
            for number in range(len(kinds))
            if Name(key, number) not in resolved
        }
        if self.after == "hold":
            dead: dict[int, int] = {}
            for letter in facts.letters:
                key, number = letter.name
                dead[key] = min(number, dead.get(key, number))
            open_names = {n for n in open_names if n.number < dead.get(n.key, n.number + 1)}
            # What is held is parked where the source has no lag.
            source = [self.topic]
            return not open_names and self._positions(source) == self._ends(source)
        return not open_names


def quarantine_kills(
    folder: Path,
    servers: str,
    after: str,
    parking: str,
    *,
    kills: int,
    rebalances: int,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
    keep: Path | None = None,
) -> Report:
    """Kill so many workers, let so many join and leave, and judge what they left.

    `keep` is a folder for what shows why something went wrong, where something did.
    """
    began_s = time.monotonic()
    fleet = Fleet(folder, servers, after, parking, seed)
    try:
        _disturb(fleet, kills, rebalances, say)
        fleet.until(fleet.resolved, "the end of the backlog")
        found = find(fleet.facts(after))
        report = Report(after, parking, kills, rebalances, fleet.ended, found)
        if after == "hold":
            report.held = sum(map(len, fleet.produced.values())) - len(
                resolutions(fleet.facts("continue"))
            )
            fleet.after = "continue"
            fleet.go_on_after_dead_letters()
            fleet.until(fleet.resolved, "the end of what was held")
        _judge_the_end(fleet)
        report.freed = find(fleet.facts("dead_letter" if after == "dead_letter" else "continue"))
        fleet.leave_all()
        if report.wrong and keep is not None:
            fleet.keep(keep)
    except AssertionError:
        if keep is not None:
            fleet.keep(keep)
        raise
    finally:
        fleet.close()
    report.took_s = time.monotonic() - began_s
    return report


def _disturb(fleet: Fleet, kills: int, rebalances: int, say: Callable[[str], None]) -> None:
    """Kills and rebalances in any order, under load."""
    for _ in range(MEMBERS[0]):
        fleet.join()
    changes = [fleet.kill] * kills + [fleet.rebalance] * rebalances
    fleet.random.shuffle(changes)
    with fleet.load():
        fleet.until(lambda: fleet.moved_since(0), "the first start of every partition")
        for number, change in enumerate(changes):
            if fleet.random.random() < 0.8:
                time.sleep(fleet.random.uniform(0.2, 1.5))
            change()
            fleet.replace_dead()
            if fleet.random.random() < 0.7:
                since_ns = time.time_ns()
                fleet.until(lambda at=since_ns: fleet.moved_since(at), "work on every partition")
            say(f"{number + 1}/{len(changes)} {change.__name__} of {len(fleet.workers)}")


def _judge_the_end(fleet: Fleet) -> None:
    """Nothing is held: all is committed, and no key is quarantined."""
    fleet.until(fleet.settled, "the last commit")
    probes = fleet.probe()

    def handled() -> dict[Name, str]:
        return {line.name: line.topic for line in fleet.lines() if line.what == "E"}

    fleet.until(lambda: probes <= handled().keys(), "one more record of each key")
    topics = {handled()[name] for name in probes}
    assert topics == {fleet.topic}, f"a key was still quarantined: {topics}"


def main() -> int:
    """Run it by hand; the table is on stdout."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.quarantine_kills",
        description=__doc__.splitlines()[0] if __doc__ else "",
    )
    parser.add_argument("after", choices=AFTER, help="what becomes of what is behind a dead letter")
    parser.add_argument("parking", choices=PARKING)
    parser.add_argument("--kills", type=int, default=34, help="with SIGKILL (34)")
    parser.add_argument("--rebalances", type=int, default=34, help="joins and leaves (34)")
    parser.add_argument("--seed", type=int, default=1, help="what decides over them (1)")
    parser.add_argument(
        "--keep", type=Path, help="folder for ledger, log and records, where something is wrong"
    )
    given = parser.parse_args()
    with open_broker() as broker, tempfile.TemporaryDirectory() as folder:
        report = quarantine_kills(
            Path(folder), broker.bootstrap_servers, given.after, given.parking,
            kills=given.kills, rebalances=given.rebalances, seed=given.seed,
            say=lambda line: _say(sys.stderr, line), keep=given.keep,
        )  # fmt: skip
    _say(sys.stdout, report.table())
    return int(bool(report.wrong))


def _say(stream: object, line: str) -> None:
    print(line, file=stream, flush=True)  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())
