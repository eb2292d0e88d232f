"""The in-memory log: records in partitions, with everything a real log does to a reader.

Offsets are given out once and never again. A log may have holes (a transaction marker, a
compacted record) in its middle and at its end, and its beginning may be gone (retention): a
reader that counts on "offset + 1" fails here as it fails on Kafka.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import methodcaller

from ackfloor.core.records.record import Headers

_offset = methodcaller("offset")


class MemoryRecord:
    """A stored record; the methods are those of `confluent_kafka.Message`."""

    __slots__ = ("_headers", "_key", "_offset", "_partition", "_timestamp_ms", "_topic", "_value")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = list(headers)
        self._timestamp_ms = timestamp_ms

    def __repr__(self) -> str:
        return f"<MemoryRecord {self._topic}/{self._partition}/{self._offset}>"

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)

    # Without this a record with an empty value would be false in `if record`.
    def __bool__(self) -> bool:
        return True

    def topic(self) -> str:
        """The topic it is in."""
        return self._topic

    def partition(self) -> int:
        """The partition it is in."""
        return self._partition

    def offset(self) -> int:
        """Its own offset."""
        return self._offset

    def key(self) -> bytes | None:
        """The raw key."""
        return self._key

    def value(self) -> bytes | None:
        """The raw value; None is a tombstone."""
        return self._value

    def headers(self) -> Headers | None:
        """The headers in order; None where there are none, as in the real client."""
        return self._headers or None

    def timestamp(self) -> tuple[int, int]:
        """(1, milliseconds since the epoch): 1 means set when the record was produced."""
        return (1, self._timestamp_ms)

    def leader_epoch(self) -> int | None:
        """Zero: the in-memory log has had one leader only."""
        return 0


class PartitionLog:
    """One partition.

    Attributes:
        start: the lowest offset that is kept.
        end: the next offset to give out (the high watermark).
    """

    __slots__ = ("_records", "end", "start")

    def __init__(self) -> None:
        self._records: list[MemoryRecord] = []
        self.start = 0
        self.end = 0

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> MemoryRecord:
        """Store a record at the end."""
        record = MemoryRecord(topic, partition, self.end, key, value, headers, timestamp_ms)
        self._records.append(record)
        self.end += 1
        return record

    def skip(self, count: int) -> None:
        """Give out offsets that will never be read (transaction markers)."""
        self.end += count

    def drop(self, offset: int) -> bool:
        """Remove one record (compaction); False where there is none."""
        index = bisect_left(self._records, offset, key=_offset)
        if index == len(self._records) or self._records[index].offset() != offset:
            return False
        del self._records[index]
        return True

    def trim(self, start: int) -> None:
        """Remove everything below `start` (retention)."""
        self.start = max(self.start, min(start, self.end))
        del self._records[: bisect_left(self._records, self.start, key=_offset)]

    def read(self, position: int, most: int) -> Sequence[MemoryRecord]:
        """At most `most` records from `position` on."""
        index = bisect_left(self._records, position, key=_offset)
        return self._records[index : index + most]

    def has(self, position: int) -> bool:
        """Whether there is a record at or above `position`."""
        return bool(self._records) and self._records[-1].offset() >= position

    def records(self) -> Sequence[MemoryRecord]:
        """All that are kept."""
        return tuple(self._records)
