"""ParkedRecords: which records of a retry topic's partition its next owner has to know beforehand.

A handler that quarantines keeps the order of a key across its retry topics, so the owner of a
partition has to know what waits there before it starts a record of the source. These count: records
with a key that were first delivered in the partition of the same number of the source topic, and
that the last commit does not settle. Where there is doubt whether a record is settled, it counts:
it is then read again, and handled again at worst.

Of a record nothing is kept but what `ParkedRecord` says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ackfloor.core.acks.gap_set import GapSet, MetadataRefused, gap_set_of
from ackfloor.core.acks.leader_epochs import UNKNOWN
from ackfloor.core.records.envelope import (
    ATTEMPT,
    FIRST_FAILED_AT,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TIMESTAMP,
    ORIGIN_TOPIC,
    REPLAYS,
    read_count,
)
from ackfloor.core.records.record import ParkedRecord, Record, StartPosition


class ParkedRecords:
    """What waits in one partition of a retry topic, while its log is read from its start position.

    Args:
        start: where the partition is read from.
        source_topic: the retry topic's source.
    """

    __slots__ = ("_epoch", "_found", "_origin", "_others", "_settled", "_start")

    def __init__(self, start: StartPosition, source_topic: str) -> None:
        self._start = start
        self._origin = source_topic.encode()
        gaps = _settled_above(start)
        self._settled = deque(gaps.runs)
        self._epoch = gaps.leader_epoch
        self._found: list[ParkedRecord] = []
        self._others = 0

    def read(self, records: Iterable[Record]) -> None:
        """Take note of the next records of the log."""
        for record in records:
            if self._settled and self._is_settled(record):
                continue
            parked = self._parked(record)
            if parked is None:
                self._others += 1
            else:
                self._found.append(parked)

    def _parked(self, record: Record) -> ParkedRecord | None:
        key = record.key()
        if key is None:
            return None
        try:
            # Of a repeated header the last one counts, here as in an envelope.
            headers = dict(record.headers() or ())
        except SystemError:  # a name that is not UTF-8: the client can't hand any of them out
            return None
        origin_offset = read_count(headers.get(ORIGIN_OFFSET))
        if (
            headers.get(ORIGIN_TOPIC) != self._origin
            or origin_offset is None
            or read_count(headers.get(ORIGIN_PARTITION)) != self._start.partition
        ):
            return None
        attempt = read_count(headers.get(ATTEMPT)) or 0
        replays = read_count(headers.get(REPLAYS)) or 0
        written_ms = read_count(headers.get(ORIGIN_TIMESTAMP))
        _, timestamp_ms = record.timestamp()
        # Of one that was redriven the header is about its life before.
        failed_ms = None if replays else read_count(headers.get(FIRST_FAILED_AT))
        return ParkedRecord(
            record.offset(), key, origin_offset, attempt, replays, written_ms, timestamp_ms,
            failed_ms,
        )  # fmt: skip

    def _is_settled(self, record: Record) -> bool:
        epoch = record.leader_epoch()
        if (UNKNOWN if epoch is None else epoch) > self._epoch:
            # Written after the log was truncated, like all that follows: other records at the
            # offsets of those that were settled.
            self._settled.clear()
            return False
        settled, offset = self._settled, record.offset()
        while settled and settled[0][1] <= offset:
            settled.popleft()
        return bool(settled) and settled[0][0] <= offset

    def start(self) -> StartPosition:
        """The start position with what was found."""
        return self._start._replace(parked=tuple(self._found), others=self._others)


def with_parked(
    start: StartPosition, source_topic: str, records: Iterable[Record]
) -> StartPosition:
    """A start position with what waits in the log, all of whose records from there on are given."""
    parked = ParkedRecords(start, source_topic)
    parked.read(records)
    return parked.start()


def _settled_above(start: StartPosition) -> GapSet:
    """What the last commit settles; nothing where it is rejected."""
    try:
        return gap_set_of(start)
    except MetadataRefused:
        return GapSet(start.position)
