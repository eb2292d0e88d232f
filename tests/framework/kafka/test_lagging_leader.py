"""A leader that can't tell its log's end, because too few of its followers are there.

A broker gets into this state when leaders change while fewer replicas are in sync than
`min.insync.replicas` asks for, and stays in it until they are back. The consumer here is a stand-in
that answers as such a broker does: bringing three real ones there takes minutes. Where nothing is
said of it, no range is told when all are asked for together, as while no leader is known.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ackfloor.kafka.consume import start_positions
from ackfloor.kafka.consume.start_positions import AskRanges, resolve
from ackfloor.kafka.topics.log_ranges import Place, Range
from ackfloor.kafka.topics.topic_ids import Described
from tests.framework.kafka.wire import untold

LAGGING = "lagging"
DESCRIBED = {name: Described("", (0,)) for name in ("well", LAGGING)}


class Asked:
    """Commits as given; the range of every log but the lagging one."""

    def __init__(self, **commits: int) -> None:
        self.commits = commits
        self.asked: list[tuple[str, float]] = []

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """What the group has committed."""
        return [TopicPartition(p.topic, p.partition, self.commits[p.topic]) for p in partitions]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float, cached: bool
    ) -> tuple[int, int]:
        """The range of a log."""
        self.asked.append((partition.topic, timeout))
        if partition.topic == LAGGING:
            raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
        return 2, 9


def told(places: Collection[Place], timeout_s: float) -> dict[Place, Range]:
    """All asked for together: the lagging one's is missing."""
    return {place: (2, 9) for place in places if place[0] != LAGGING}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here gets better by waiting."""
    monkeypatch.setattr(start_positions, "RANGES_S", 0.5)


def resolved(
    consumer: Any, together: AskRanges = untold, why: list[str] | None = None
) -> list[tuple[str, int, bool, int | None]]:
    """Topic, position, whether it is committed, and the log's end."""
    committed = consumer.committed([TopicPartition(name, 0) for name in consumer.commits], 1.0)
    said = [] if why is None else why
    starts = resolve(
        consumer,
        committed,
        "earliest",
        DESCRIBED,
        together,
        left_out=lambda exc: said.append(f"{exc}"),
        within_s=0.0,
    )
    return [(s.topic, s.position, s.committed, s.log_end) for s in starts]


def test_it_holds_up_nobody_who_has_a_commit() -> None:
    """One such partition used to keep the worker from all of its partitions, and to end it."""
    consumer = Asked(well=5, lagging=4)
    assert resolved(consumer) == [("well", 5, True, 9), (LAGGING, 4, True, None)]
    assert {timeout_s for _, timeout_s in consumer.asked} == {start_positions.SHORTEST_REQUEST_S}


def test_however_many_they_are_it_takes_no_longer() -> None:
    """The time is for all of them together: who is left when it is over begins without a range."""
    consumer = Asked(lagging=4, well=5)
    assert resolved(consumer) == [(LAGGING, 4, True, None), ("well", 5, True, None)]
    assert {topic for topic, _ in consumer.asked} == {LAGGING}


def test_what_is_told_of_all_together_is_not_asked_for_again() -> None:
    """The others' ranges are known then, also once there is no time left for more questions."""
    consumer = Asked(lagging=4, well=5)
    assert resolved(consumer, told) == [(LAGGING, 4, True, None), ("well", 5, True, 9)]
    assert {topic for topic, _ in consumer.asked} == {LAGGING}


def test_without_a_commit_there_is_nowhere_to_start() -> None:
    """So it is left out, which is said, and the others begin."""
    why: list[str] = []
    assert resolved(Asked(lagging=-1001, well=5), told, why) == [("well", 5, True, 9)]
    assert [each.partition(":")[0] for each in why] == [
        "the log range of lagging/0 could not be read in time"
    ]
