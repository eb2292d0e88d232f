"""Dead-letter and retry topics in memory, for an index that follows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ackfloor.core.records.envelope import Envelope, Reason, write_headers
from ackfloor.dead_letters.kafka.followed_topics import FollowedTopic, NewRecords
from ackfloor.dead_letters.rules.dispositions import (
    Disposed,
    Disposition,
    DispositionNote,
    disposition_key,
)
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import RedriveRefused

DLQ = "orders--billing--dlq"
#: When the first dead letter failed.
FIRST_MS = 1_790_000_000_000
DIED = Envelope(
    origin_topic="orders", origin_partition=1, origin_timestamp_ms=FIRST_MS - 60_000,
    group="billing", handler="bill", attempt=7, failures=7, reason=Reason.EXHAUSTED,
    error_type="shop.Boom", error_message="no stock", error_stack="Traceback\n  boom",
    error_fingerprint="f1", first_failed_at_ms=FIRST_MS - 30_000, failed_at_ms=FIRST_MS,
)  # fmt: skip


class DeadLetterSource:
    """One dead-letter topic of two partitions, and retry topics of one; read in batches of `batch`.

    A test writes them.
    """

    def __init__(self, name: str = DLQ) -> None:
        self.name = name
        self.topic_id = "id-1"
        self.cluster_id = "cluster-1"
        self.logs: dict[int, list[DeadLetter | None]] = {0: [], 1: []}
        self.starts = {0: 0, 1: 0}
        #: Retry topic -> its records; those below the start are gone.
        self.retries: dict[str, list[DeadLetter]] = {}
        self.retry_start = 0
        self.notes: list[tuple[bytes, bytes | None]] = []
        self.noted = 0
        self.batch = 100
        #: What is read, by partition and offset; and after so many the reader is stopped.
        self.reads: list[tuple[int, int]] = []
        self.stop_after: int | None = None
        #: The id of the topic that all come from, and partitions whose broker does not answer.
        self.source_id = ""
        self.late: set[int] = set()
        #: Another topic, which may not be read.
        self.denied = ""

    def bury(
        self,
        count: int = 1,
        *,
        partition: int = 0,
        key: bytes | None = b"k",
        value: bytes = b"v",
        own: Sequence[tuple[str, bytes | None]] = (),
        **changes: Any,
    ) -> None:
        """Write dead letters; each fails a second after the one before it."""
        for _ in range(count):
            done = sum(map(len, self.logs.values()))
            offset = len(self.logs[partition])
            died = DIED._replace(
                **{"origin_offset": done, "failed_at_ms": FIRST_MS + done * 1000, **changes}
            )
            self.logs[partition].append(
                DeadLetter(
                    self.name, partition, offset, key, value, write_headers(died, list(own)),
                    FIRST_MS + done * 1000,
                )
            )  # fmt: skip

    def park(self, delay: str = "30s", *, key: bytes = b"k", **changes: Any) -> None:
        """Write a record to a retry topic; it failed for the first time, and is due a minute later.

        Args:
            changes: of its headers; `own` are those that it came with.
        """
        topic = f"orders--billing--retry-{delay}"
        log = self.retries.setdefault(topic, [])
        own = changes.pop("own", [])
        failed_ms = changes.get("failed_at_ms") or FIRST_MS
        parked = DIED._replace(
            **{
                "attempt": 1, "failures": 1, "reason": Reason.ERROR,
                "not_before_ms": failed_ms + 60_000, **changes,
            }
        )  # fmt: skip
        headers = write_headers(parked, own)
        log.append(DeadLetter(topic, 0, len(log), key, b"the payload", headers, failed_ms))

    def mark(self, partition: int = 0) -> None:
        """End a transaction: an offset without a record."""
        self.logs[partition].append(None)

    def dispose(self, partition: int, offset: int, at_ms: int = 1, **changes: Any) -> None:
        """Say that a dead letter was replayed, or something else."""
        said = {"disposition": Disposition.REPLAYED, "by": "ann", "job": "job", "target": "t"}
        note = DispositionNote(at_ms=at_ms, topic_id=self.topic_id, **{**said, **changes})
        self.notes.append((disposition_key(partition, offset), note.to_bytes()))

    def take_back(self, partition: int, offset: int) -> None:
        """Take a disposition back."""
        self.notes.append((disposition_key(partition, offset), None))

    # As an index asks.

    def look(self) -> tuple[str, Sequence[FollowedTopic]]:
        """This cluster and its topic."""
        ranges = {
            p: (self.starts[p], len(log)) for p, log in self.logs.items() if p not in self.late
        }
        denied = [FollowedTopic(self.denied, "billing", "id-9", {0: (0, 9)})] if self.denied else []
        topic = FollowedTopic(
            self.name, "billing", self.topic_id, ranges, late=sorted(self.late), source="orders",
            source_id=self.source_id,
        )  # fmt: skip
        retries = [
            FollowedTopic(
                name, "billing", f"id of {name}", {0: (self.retry_start, len(log))}, "retry"
            )
            for name, log in self.retries.items()
        ]
        return self.cluster_id, [*denied, topic, *retries]

    def note_disposed(self, topic: FollowedTopic, disposed: Disposed) -> None:
        """What is new."""
        del topic
        for key, value in self.notes[self.noted :]:
            disposed.note(key, value)
        self.noted = len(self.notes)

    def read_on(self, topic: FollowedTopic, positions: Mapping[int, int]) -> Iterator[NewRecords]:
        """In batches, each of one partition."""
        if topic.name == self.denied:
            raise RedriveRefused(f"no permission to read {topic.name}: grant READ")
        for partition, position in positions.items():
            log: Sequence[DeadLetter | None] = self.retries.get(topic.name, self.logs[partition])
            for first in range(position, len(log), self.batch):
                part = log[first : first + self.batch]
                found = [each for each in part if each is not None]
                if self.stop_after is not None and len(self.reads) >= self.stop_after:
                    raise StoppedReading
                self.reads += [(partition, each.offset) for each in found]
                yield NewRecords(found, {partition: first + len(part)})


class StoppedReading(Exception):
    """The reader was stopped in the middle."""
