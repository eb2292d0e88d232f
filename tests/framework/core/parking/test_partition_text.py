"""Partitions in a log line: what a person reads, however many there are."""

from __future__ import annotations

import pytest

from ackfloor.core.parking.partition_text import partitions_text
from ackfloor.core.parking.topic_names import tier_topic
from ackfloor.core.records.record import StartPosition, TopicPartition


def of(topic: str, *numbers: int) -> list[TopicPartition]:
    """Partitions of one topic."""
    return [TopicPartition(topic, number) for number in numbers]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((3,), "orders: 3"),
        ((0, 1), "orders: 0-1"),
        ((12, 2, 0, 1, 7, 6), "orders: 0-2, 6-7, 12"),
        (range(0, 40, 2), "orders: 0, 2, 4, 6, 8, 10, 12, 14 and 12 more"),
    ],
)
def test_numbers_that_follow_each_other_are_a_range(numbers: tuple[int, ...], text: str) -> None:
    """In any order; beyond a few ranges the partitions are counted."""
    assert partitions_text(of("orders", *numbers)) == text


def test_retry_topics_with_the_same_numbers_are_named_by_their_delays() -> None:
    """Behind their source, the shortest delay first; one with other numbers is apart."""
    partitions = [
        *of("zebras", 4),
        *of(tier_topic("orders", "billing", 60.0), 0, 1, 2),
        *of(tier_topic("orders", "billing", 3600.0), 0),
        *of(tier_topic("orders", "billing", 5.0), 0, 1, 2),
        *of("orders", 0, 1, 2),
    ]
    assert partitions_text(partitions) == (
        "orders: 0-2; retry topics of orders (5s, 1m): 0-2; retry topic of orders (1h): 0; "
        "zebras: 4"
    )


def test_start_positions_are_named_like_partitions() -> None:
    """A worker logs them when they are assigned."""
    assert partitions_text([StartPosition("orders", 3, 41, True)]) == "orders: 3"


def test_a_worker_with_thousands_of_partitions_logs_a_short_line() -> None:
    """Each partition is named, in a range, or counted."""
    sources = [f"{'a-very-long-name.' * 8}{number:03d}" for number in range(50)]
    partitions = [
        each
        for source in sources
        for topic in (source, *(tier_topic(source, "billing", s) for s in (1, 5, 60, 600)))
        for each in of(topic, *range(0, 48, 2))
    ]
    text = partitions_text(partitions)
    assert len(text) < 1_000
    assert text.startswith(f"{sources[0]}: 0, 2, 4, 6, 8, 10, 12, 14 and 16 more; ")
    # Named are 24 partitions of each of six topics: a source, its retry topics, the next source.
    assert text.endswith("; and 5856 partitions of 244 more topics")
