"""Workers of a `latest` group that start together, and find a new topic together.

The group here is a stand-in that does something between two questions: on a real broker it takes
a dozen tries until one worker's commit falls between two questions of another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from ackfloor.core.records.record import StartPosition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.consume import start_positions
from ackfloor.kafka.consume.start_positions import resolve
from ackfloor.kafka.topics.log_ranges import Place, Range
from ackfloor.kafka.topics.topic_ids import Described

NOT_COMMITTED = -1001


class Group:
    """What the group has committed of a topic whose logs are from 0 to `end`.

    Args:
        then: question number -> what happens before it is answered.
    """

    def __init__(self, then: dict[int, Callable[[Group], None]] | None = None) -> None:
        self.commits: dict[int, int] = {}
        self.end = 100
        self._then = then or {}
        self._asked = 0

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """What the group has committed."""
        self._then.get(self._asked, lambda _: None)(self)
        self._asked += 1
        return [
            TopicPartition(p.topic, p.partition, self.commits.get(p.partition, NOT_COMMITTED))
            for p in partitions
        ]

    def log_ranges(self, places: Collection[Place], timeout_s: float) -> dict[Place, Range]:
        """The ranges of logs."""
        return dict.fromkeys(places, (0, self.end))

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        """Commit."""
        self.commits.update({p.partition: p.offset for p in offsets})


def start_of(group: Any, partitions: tuple[int, ...] = (0, 1)) -> StartPosition:
    """Where a worker that gets partition 0 begins."""
    described = {"orders": Described("", partitions)}
    committed = group.committed([TopicPartition("orders", 0)], 1.0)
    [start] = resolve(group, committed, "latest", described, group.log_ranges)
    return start


def commit_as_another(group: Group) -> None:
    """Another worker finds the topic, and goes on to read its partition 1."""
    group.commits = {0: 100, 1: 103}


def test_who_comes_second_begins_where_the_first_one_said() -> None:
    """It took the other's commit for that of an earlier run, and read partition 0 from 0."""
    start = start_of(Group({1: commit_as_another}))
    assert (start.position, start.committed) == (100, True)


def test_who_comes_second_overwrites_nothing() -> None:
    """What it found at the logs' ends later would pass records that the other has in its hands."""

    def meanwhile(group: Group) -> None:
        commit_as_another(group)
        group.end = 120

    group = Group({2: meanwhile})
    start = start_of(group)
    assert (start.position, start.committed) == (100, True)
    assert group.commits == {0: 100, 1: 103}


def test_who_comes_first_decides_for_all_partitions() -> None:
    """So one that is added later is known by having no commit."""
    group = Group()
    assert start_of(group).position == 100
    assert group.commits == {0: 100, 1: 100}
    group.commits = {1: 100}
    assert start_of(group).position == 0, "added: its records came after the group began"


def test_partitions_that_are_not_known_are_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not describe the topic in time: a later try is late, a guess loses."""
    monkeypatch.setattr(start_positions, "PATIENCE_S", 0.0)
    with pytest.raises(SourceFailed, match="which partitions orders has"):
        start_of(Group(), ())
