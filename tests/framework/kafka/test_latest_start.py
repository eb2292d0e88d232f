"""Workers of a `latest` group that start together, and find a new topic together.

The group here is a stand-in that does something between two questions: on a real broker it takes
a dozen tries until one worker's commit falls between two questions of another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ackfloor.core.records.record import StartPosition
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
        #: Partitions whose leader is away.
        self.away: set[int] = set()
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
        return {place: (0, self.end) for place in places if place[1] not in self.away}

    @staticmethod
    def get_watermark_offsets(partition: TopicPartition, timeout: float, cached: bool) -> None:
        """The range of a log whose leader is away."""
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

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


def left_out(group: Any, described: Described) -> list[str]:
    """Why partition 0 does not begin."""
    why: list[str] = []
    committed = [TopicPartition("orders", 0, NOT_COMMITTED)]
    starts = resolve(
        group,
        committed,
        "latest",
        {"orders": described},
        group.log_ranges,
        left_out=lambda exc: why.append(f"{exc}"),
        within_s=0.0,
    )
    assert starts == []
    assert group.commits == {}
    return why


def test_partitions_that_are_not_known_are_not_guessed() -> None:
    """A broker that does not describe the topic in time: a later try is late, a guess loses."""
    told = "the broker does not tell which partitions orders has"
    assert left_out(Group(), Described()) == [told]


def test_a_group_that_is_silent_is_not_taken_for_a_new_one() -> None:
    """Its records would be passed over: the topic begins when the group answers again."""

    def away(_: Group) -> None:
        raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))

    group = Group({0: away})
    [why] = left_out(group, Described("", (0, 1)))
    assert why.startswith("the committed positions could not be read in time: COORDINATOR_NOT")


def test_the_end_of_a_log_that_nobody_tells_is_not_committed() -> None:
    """Nor those of the others: they are committed together, or a late one would pass for added."""
    group = Group()
    group.away.add(1)
    [why] = left_out(group, Described("", (0, 1)))
    assert why.startswith("the log range of orders/1 could not be read in time: LEADER_NOT_AV")
