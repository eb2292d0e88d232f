"""The group's commits as they were written, in order: the records of `__consumer_offsets`.

Whoever asks for a commit can be told an older one: a coordinator that has just moved knows for a
moment less than the one before it has answered already. What was written can't be mistaken.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass

from confluent_kafka import Message

from tests.framework.kafka.wire import committed_records
from tests.soak.producer import quiet

TOPIC = "__consumer_offsets"
#: Of a key that names a committed partition; others are of groups and their members.
_COMMIT_KEYS = (0, 1)


@dataclass(frozen=True, slots=True)
class Written:
    """A commit of one partition; no position where it was deleted."""

    at_s: float
    place: tuple[str, int]
    position: int | None


def read_commits(servers: str, group: str) -> list[Written]:
    """All commits of a group that Kafka still has, aborted transactions left out."""
    records = committed_records(servers, TOPIC, within_s=60, **quiet(servers))
    return [written for record in records for written in _commit(record, group)]


def _commit(message: Message, group: str) -> list[Written]:
    key, value = bytes(message.key() or b""), message.value()  # type: ignore[arg-type]
    if struct.unpack_from(">h", key)[0] not in _COMMIT_KEYS:
        return []
    of, at = _text(key, 2)
    topic, at = _text(key, at)
    if of != group:
        return []
    (partition,) = struct.unpack_from(">i", key, at)
    position = None if value is None else struct.unpack_from(">hq", value)[1]
    at_s = message.timestamp()[1] / 1000 - (time.time() - time.monotonic())
    return [Written(at_s, (topic, partition), position)]


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + size].decode(), at + 2 + size
