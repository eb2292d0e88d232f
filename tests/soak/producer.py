"""Producing: numbered records for each key, and which of them the brokers have acknowledged.

`Feed` writes at a steady rate through one idempotent producer. `Transactions` writes bursts
under keys of its own, some of them aborted; nobody may ever handle those.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from confluent_kafka import KafkaException, Message, Producer

from tests.soak.ledger import Identity, Place
from tests.soak.plan import LOOSE, SOURCES, Plan

KEYS = 40
#: kind -> share of all records; the rest is "ok". `garbage` is what no handler can decode.
SHARES = {
    "slow": 0.02,
    "flaky": 0.03,
    "poison": 0.008,
    "stuck": 0.006,
    "deaf": 0.002,
    "garbage": 0.002,
}
IDENTITY = "soak.id"
_TICK_S = 0.02


@dataclass(slots=True)
class Produced:
    """What was written, by what is known of it.

    Attributes:
        acked: confirmed by the brokers, and where; None where only a retry of the same write was
            answered, which does not say where.
        unknown: no answer, or a transaction whose end is not known: may be there or not.
        aborted: written in a transaction that was aborted: must never be handled.
        kinds: of everything that was written.
        garbage: acknowledged, and to be dead-lettered without being handled.
    """

    acked: dict[Identity, Place | None] = field(default_factory=dict)
    unknown: set[Identity] = field(default_factory=set)
    aborted: set[Identity] = field(default_factory=set)
    kinds: dict[Identity, str] = field(default_factory=dict)
    acked_at_s: list[float] = field(default_factory=list)

    def by_kind(self) -> Counter[str]:
        """How many of each kind were acknowledged."""
        return Counter(self.kinds[identity] for identity in self.acked)


class Sequences:
    """The next number of each key."""

    def __init__(self) -> None:
        self._next: Counter[tuple[str, str]] = Counter()

    def take(self, topic: str, key: str) -> Identity:
        """The next record of a key."""
        self._next[topic, key] += 1
        return topic, key, self._next[topic, key]


def draw_kind(chance: Random) -> tuple[str, float]:
    """A kind, and the number that belongs to it."""
    roll = chance.random()
    for kind, share in SHARES.items():
        if roll < share:
            return kind, {"flaky": chance.randint(1, 2), "slow": 400}.get(kind, 0)
        roll -= share
    return "ok", chance.choice((0, 0, 1, 5, 20))


def value_of(identity: Identity, kind: str, number: float) -> bytes:
    """What the handler reads."""
    if kind == "garbage":
        return b"{garbage"
    return json.dumps({"key": identity[1], "seq": identity[2], "kind": kind, "n": number}).encode()


def key_of(identity: Identity) -> bytes:
    """The record's key. The loose topic is compacted: each record there has a key of its own."""
    topic, key, seq = identity
    return f"{key}-{seq}".encode() if topic == LOOSE else key.encode()


class Feed:
    """Writes at the plan's rate on a thread of its own, between `start` and `stop`."""

    def __init__(self, plan: Plan, servers: str, produced: Produced) -> None:
        self._plan = plan
        self._chance = plan.chance("feed")
        self._produced = produced
        self._sequences = Sequences()
        self._pending: set[Identity] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._producer = Producer(
            {
                **quiet(servers),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                # Long enough that only the end of the run makes a record's fate unknown.
                "message.timeout.ms": 600_000,
                "request.timeout.ms": 5_000,
            }
        )
        self.failure: str = ""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, within_s: float = 60.0) -> None:
        """End, and wait for the answers to what was written."""
        self._stop.set()
        if not self._thread.is_alive():
            self.failure = self.failure or "the producer's thread has ended"
        self._thread.join()
        self._producer.flush(within_s)
        self._produced.unknown |= self._pending

    def filler(self, count: int, keys: int = 5) -> None:
        """Records for compaction to remove: few keys, again and again, outside the ledger."""
        for number in range(count):
            key = f"filler-{number % keys}"
            value = json.dumps({"key": key, "seq": number, "kind": "filler"}).encode()
            self._producer.produce(LOOSE, value, key=key)

    def _run(self) -> None:
        started_s, written = time.monotonic(), 0
        while not self._stop.wait(_TICK_S):
            due = int((time.monotonic() - started_s) * self._plan.rate)
            while written < due and len(self._pending) < 20_000:
                self._write()
                written += 1
            # What could not be written in time is not made up for.
            written = max(written, due)
            self._producer.poll(0)

    def _write(self) -> None:
        topic = self._chance.choice(SOURCES)
        identity = self._sequences.take(topic, f"k{self._chance.randrange(KEYS):02}")
        kind, number = draw_kind(self._chance)
        self._produced.kinds[identity] = kind
        self._pending.add(identity)

        def reported(error: object, message: Message) -> None:
            self._pending.discard(identity)
            if error is not None:
                self._produced.unknown.add(identity)
                self.failure = self.failure or str(error)
                return
            self._produced.acked[identity] = place_of(message)
            self._produced.acked_at_s.append(time.monotonic())

        value = value_of(identity, kind, number)
        self._producer.produce(
            topic, value, key=key_of(identity), headers=headers_of(identity), on_delivery=reported
        )


class Transactions:
    """Writes bursts in transactions; made anew after anything that leaves a doubt."""

    def __init__(self, plan: Plan, servers: str, produced: Produced) -> None:
        self._servers = servers
        self._produced = produced
        self._sequences = Sequences()
        self._producer: Producer | None = None
        self._chance = plan.chance("transactions")
        self.committed = self.aborted = self.doubtful = 0

    def burst(self, records: int, *, abort: bool) -> None:
        """One transaction."""
        places: dict[Identity, Place | None] = {}
        identities: list[Identity] = []
        try:
            producer = self._ready()
            producer.begin_transaction()
            for _ in range(records):
                identity = self._draw()
                identities.append(identity)
                self._write(producer, identity, places)
            producer.flush(20)
            if abort:
                producer.abort_transaction(20)
                self._produced.aborted.update(identities)
                self.aborted += 1
            else:
                producer.commit_transaction(20)
                self._produced.acked.update(places)
                self._produced.unknown.update(set(identities) - set(places))
                self.committed += 1
        except KafkaException:
            # Whether it was committed is not known: the next producer fences or ends it.
            self._producer = None
            self._produced.unknown.update(identities)
            self.doubtful += 1

    def settle(self) -> None:
        """End what a failed burst may have left open: an open transaction hides what follows."""
        for _ in range(5):
            try:
                self._ready()
                return
            except KafkaException:
                self._producer = None
                time.sleep(1)

    def _draw(self) -> Identity:
        topic = self._chance.choice(SOURCES)
        identity = self._sequences.take(topic, f"t{self._chance.randrange(4)}")
        self._produced.kinds[identity] = "ok"
        return identity

    @staticmethod
    def _write(
        producer: Producer, identity: Identity, places: dict[Identity, Place | None]
    ) -> None:
        def reported(error: object, message: Message) -> None:
            if error is None:
                places[identity] = place_of(message)

        value = value_of(identity, "ok", 1)
        producer.produce(
            identity[0],
            value,
            key=key_of(identity),
            headers=headers_of(identity),
            on_delivery=reported,
        )

    def _ready(self) -> Producer:
        if self._producer is None:
            producer = Producer(
                {
                    **quiet(self._servers),
                    "transactional.id": "soak-source",
                    "transaction.timeout.ms": 15_000,
                    "message.timeout.ms": 14_000,
                }
            )
            producer.init_transactions(30)
            self._producer = producer
        return self._producer


def headers_of(identity: Identity) -> list[tuple[str, str | bytes | None]]:
    """By which a record is known wherever it is parked, whatever its value is."""
    return [(IDENTITY, json.dumps(identity))]


def identity_in(headers: Mapping[str, str]) -> Identity:
    """The record that these headers are of; fillers are of no ledger."""
    topic, key, seq = json.loads(headers.get(IDENTITY, '["", "filler", 0]'))
    return topic, key, seq


def place_of(message: Message) -> Place | None:
    """Where a record was written, if the answer says so."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None or offset < 0:
        return None
    return topic, partition, offset


def quiet(servers: str) -> dict[str, Any]:
    """What every client of the soak is made with: it has no words for faults that are ours."""
    return {
        "bootstrap.servers": servers,
        "client.id": "soak",
        "log_level": 0,
        "allow.auto.create.topics": False,
        "reconnect.backoff.max.ms": 500,
        "socket.timeout.ms": 10_000,
        "error_cb": lambda _error: None,
    }
