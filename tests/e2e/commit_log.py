"""Every commit a group has made, in order, from the broker's own log of them.

`__consumer_offsets` keeps what was committed when; a sample of the group's offsets would miss
what was overwritten between two looks.
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ackfloor.core.acks.gap_set import MetadataRefused, decode

LOG = "__consumer_offsets"
BOUND_S = 60.0


@dataclass(frozen=True, slots=True)
class Commit:
    """One partition's share of a commit; `at_ms` is the broker's clock."""

    topic: str
    partition: int
    position: int
    metadata: str
    at_ms: int


@dataclass(slots=True)
class CommitLog:
    """The commits of one group, oldest first, by partition."""

    commits: dict[tuple[str, int], list[Commit]] = field(default_factory=lambda: defaultdict(list))
    _above: dict[Commit, frozenset[int]] = field(default_factory=dict)

    def before(self, topic: str, partition: int, at_ms: float) -> Commit | None:
        """The last commit of a partition from before a moment."""
        found = None
        for commit in self.commits[topic, partition]:
            if commit.at_ms >= at_ms:
                break
            found = commit
        return found

    def holds(self, commit: Commit, offset: int) -> bool:
        """Whether a commit says that a record is settled, by its floor or by its gap set."""
        return offset < commit.position or offset in self.above(commit)

    def above(self, commit: Commit) -> frozenset[int]:
        """The settled offsets above a commit's floor."""
        if commit not in self._above:
            self._above[commit] = frozenset(_offsets(commit))
        return self._above[commit]

    def went_back(self) -> list[tuple[Commit, Commit]]:
        """Each commit that is below the one before it, with that one."""
        return [
            (earlier, later)
            for commits in self.commits.values()
            for earlier, later in pairwise(commits)
            if later.position < earlier.position
        ]


def _offsets(commit: Commit) -> list[int]:
    if not commit.metadata:
        return []
    try:
        runs = decode(commit.metadata, commit.topic, commit.partition).runs
    except MetadataRefused:
        return []
    return [offset for start, end in runs for offset in range(start, end)]


def read_commits(servers: str, group: str) -> CommitLog:
    """Read the whole log, and keep what is of this group."""
    admin = AdminClient({"bootstrap.servers": servers})
    numbers = admin.list_topics(LOG, timeout=60).topics[LOG].partitions
    asked = {TopicPartition(LOG, number): OffsetSpec.latest() for number in numbers}
    ends = {p.partition: f.result(60).offset for p, f in admin.list_offsets(asked).items()}
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "commit-log",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    log = CommitLog()
    try:
        for number, end in ends.items():
            if end:
                _read(reader, number, end, group, log)
    finally:
        reader.close()
    return log


def _read(reader: Consumer, number: int, end: int, group: str, log: CommitLog) -> None:
    reader.assign([TopicPartition(LOG, number, 0)])
    until_s = time.monotonic() + BOUND_S
    while reader.position([TopicPartition(LOG, number)])[0].offset < end:
        assert time.monotonic() < until_s, f"{LOG}/{number} could not be read"
        for message in reader.consume(5000, 0.2):
            assert message.error() is None, message.error()
            found = _commit(message.key() or b"", message.value(), message.timestamp()[1])
            if found is not None and found[0] == group:
                log.commits[found[1].topic, found[1].partition].append(found[1])


def _commit(key: bytes, value: bytes | None, at_ms: int) -> tuple[str, Commit] | None:
    """What a record of the log says; None where it is no commit (or the end of one)."""
    version, key = struct.unpack(">h", key[:2])[0], key[2:]
    if version not in (0, 1) or value is None:
        return None
    group, key = _text(key)
    topic, key = _text(key)
    [partition] = struct.unpack(">i", key[:4])
    value_version, position = struct.unpack(">hq", value[:10])
    # Up to version 3 of the value: the leader's epoch, the metadata, times. Since then: compact.
    assert value_version in (0, 1, 2, 3, 4), value_version
    rest = value[10 + (4 if value_version >= 3 else 0) :]
    metadata = _compact(rest) if value_version >= 4 else _text(rest)[0]
    # The client sends the zero at the text's end as well.
    return group, Commit(topic, partition, position, metadata.removesuffix("\0"), at_ms)


def _text(data: bytes) -> tuple[str, bytes]:
    [size] = struct.unpack(">h", data[:2])
    return data[2 : 2 + size].decode(), data[2 + size :]


def _compact(data: bytes) -> str:
    size = shift = at = 0
    while True:
        size |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            return data[at : at + size - 1].decode()
