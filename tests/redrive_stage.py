"""A group's topics on a real broker, dead letters in them, and what a redrive made of them."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import (
    KafkaError,
    Message,
    Producer,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from ackfloor.core.records.envelope import Envelope, Reason, read_envelope, write_headers
from ackfloor.core.records.record import Headers
from ackfloor.dead_letters.kafka.redrive_job import RedriveJob
from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor.dead_letters.rules.kept_edits import KeptEdit
from ackfloor.redrive import Order, select
from tests.framework.kafka.wire import committed_records, fresh, options, until

PARTITIONS = 2
StoredDeadLetter = tuple[bytes | None, bytes | None, Headers]


class Stage:
    """One source topic and one group, as `ackfloor topics apply` would leave them."""

    def __init__(self, servers: str) -> None:
        self._name(servers, fresh("redrive"))
        for name in (self.source, self.tier, f"{self.source}--{self.group}--retry-5s", self.dlq):
            self.topic(name)

    @classmethod
    def of(cls, servers: str, source: str) -> Stage:
        """The stage that another process has made."""
        stage = cls.__new__(cls)
        stage._name(servers, source)
        return stage

    def _name(self, servers: str, source: str) -> None:
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.source = source
        # A group of its own, for what is asked of groups.
        self.group = source.replace("redrive", "billing")
        self.tier = f"{self.source}--{self.group}--retry-1s"
        self.dlq = f"{self.source}--{self.group}--dlq"
        self.dispositions = f"{self.source}--{self.group}--dispositions"
        self.places: list[tuple[int, int]] = []
        self.died = Envelope(
            origin_topic=self.source, origin_partition=1, group=self.group, handler="bill",
            attempt=7, failures=7, reason=Reason.EXHAUSTED, error_type="shop.Boom",
            first_failed_at_ms=1, failed_at_ms=2,
        )  # fmt: skip

    def topic(self, name: str, **config: str) -> str:
        """Create a topic; a name without dashes is made fresh."""
        full = name if name.startswith("redrive-") else fresh(name)
        new = NewTopic(full, PARTITIONS, 1, config=config)
        self.admin.create_topics([new])[full].result(60)
        until(lambda: full in self.admin.list_topics(timeout=60).topics)
        return full

    def allow(self, topic: str, size: int) -> None:
        """Let a topic take batches of so many bytes."""
        entry = ConfigEntry(
            "max.message.bytes",
            str(size),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(60)

    def copy_of_dlq(self) -> str:
        """Another dead-letter topic with the same records at the same places."""
        copy = self.topic(f"{self.source}--copy--dlq")
        producer = Producer({"bootstrap.servers": self.servers})
        for message in sorted(self.read(self.dlq), key=lambda each: each.offset() or 0):
            producer.produce(
                copy,
                message.value(),
                message.key(),
                headers=message.headers(),
                partition=message.partition() or 0,
            )
        assert producer.flush(60) == 0
        return copy

    def bury(
        self,
        letters: Sequence[StoredDeadLetter],
        *,
        replays: int = 0,
        foreign: bool = False,
        partition: int | None = None,
    ) -> None:
        """Write dead letters, the first half to partition 0 unless told; origins count up.

        Args:
            foreign: without our headers, as another tool writes them.
        """
        base = None if foreign else self.died._replace(replays=replays)
        large = {"bootstrap.servers": self.servers, "message.max.bytes": 10_000_000}
        self._write(Producer(large), letters, base, partition)

    def bury_in_transaction(self, count: int) -> None:
        """Write dead letters to partition 1 in a transaction, whose marker takes an offset."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": fresh("stage")})
        producer.init_transactions(60)
        producer.begin_transaction()
        self._write(producer, [(b"k", b"v", [])] * count, self.died, 1)
        producer.commit_transaction(60)

    def _write(
        self,
        producer: Producer,
        letters: Sequence[StoredDeadLetter],
        base: Envelope | None,
        partition: int | None,
    ) -> None:
        done, half = len(self.places), (len(letters) + 1) // 2
        self.places += [(-1, -1)] * len(letters)

        def written(n: int, error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            self.places[n] = (message.partition() or 0, message.offset() or 0)

        for n, (key, value, own) in enumerate(letters):
            headers = list(own)
            if base is not None:
                headers = write_headers(base._replace(origin_offset=done + n), own)
            where = int(n >= half) if partition is None else partition
            # Partitions are confirmed in any order.
            told = partial(written, done + n)
            producer.produce(
                self.dlq, value, key, headers=headers, partition=where, on_delivery=told
            )
            producer.poll(0)
        assert producer.flush(60) == 0

    def everything(self) -> dict[int, array[int]]:
        """All that was buried, as a job wants it."""
        return dict(select(self.places))

    def order(self, to: str = "retry", **more: Any) -> Order:
        """An order for this dead-letter topic."""
        return Order(self.dlq, to, "job", "me", **more)

    def job(self, to: str = "retry", **more: Any) -> RedriveJob:
        """A job for it."""
        return RedriveJob(options(self.servers), self.order(to, **more))

    def read(self, topic: str) -> list[Message]:
        """All committed records of a topic."""
        return committed_records(self.servers, topic)

    def notes(self) -> dict[str, dict[str, Any]]:
        """The dispositions by their key; each was written once."""
        found: dict[str, dict[str, Any]] = {}
        for message in self.read(self.dispositions):
            key = bytes(message.key() or b"").decode()  # type: ignore[arg-type]
            if not key.startswith(("job/", "edit/", "selection/")):
                assert key not in found, "disposed of twice"
                found[key] = json.loads(message.value() or b"")
        return found

    def kept_edits(self) -> list[KeptEdit]:
        """The edits that are still kept."""
        disposed = Disposed()
        for message in self.read(self.dispositions):
            disposed.note(message.key(), message.value())  # type: ignore[arg-type]
        return list(disposed.edits.values())

    def sent_once(self) -> int:
        """How many are in the tier; each origin once, and each with its disposition."""
        origins = Counter(read_envelope(m.headers()).origin_offset for m in self.read(self.tier))
        assert set(origins.values()) <= {1}, "sent twice"
        assert len(self.notes()) == len(origins)
        return len(origins)
