"""Where a `latest` group starts to read the topics of a pattern, which count as one topic.

The group here is a stand-in, so that what others commit falls between two questions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from confluent_kafka import TopicPartition

from ackfloor.kafka.consume.start_positions import resolve
from ackfloor.kafka.topics.log_ranges import Place, Range
from ackfloor.kafka.topics.topic_ids import Described

NOT_COMMITTED = -1001
END = 100


class Group:
    """What a group has committed; every log is from 0 to `END`."""

    def __init__(self, *committed: Place) -> None:
        self.commits: dict[Place, int] = dict.fromkeys(committed, 50)

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """What the group has committed."""
        return [
            TopicPartition(
                p.topic, p.partition, self.commits.get((p.topic, p.partition), NOT_COMMITTED)
            )
            for p in partitions
        ]

    @staticmethod
    def log_ranges(places: Collection[Place], timeout_s: float) -> dict[Place, Range]:
        """The ranges of logs."""
        return dict.fromkeys(places, (0, END))

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        """Commit."""
        self.commits.update({(p.topic, p.partition): p.offset for p in offsets})


def starts(
    group: Any,
    *assigned: Place,
    topics: dict[str, Described] | None = None,
    start: Any = "latest",
    left_out: Callable[[Exception], None] = lambda _: None,
) -> dict[Place, int]:
    """Where a member begins that gets these partitions; `eu` and `us` are of one pattern."""
    described = topics or {
        "eu": Described("", (0, 1)),
        "us": Described("", (0,)),
        "apart": Described("", (0,)),
    }
    siblings = {"eu": {"eu", "us"}, "us": {"eu", "us"}}
    found = group.committed([TopicPartition(*place) for place in assigned], 1.0)
    resolved = resolve(
        group, found, start, described, group.log_ranges, left_out=left_out, siblings=siblings
    )
    return {(s.topic, s.partition): s.position for s in resolved}


def test_a_topic_is_new_where_the_group_has_read_another_of_its_pattern() -> None:
    """It was created since, so its records came after the group began."""
    group = Group(("eu", 0))
    assert starts(group, ("us", 0)) == {("us", 0): 0}
    assert group.commits == {("eu", 0): 50}, "nothing is overwritten"


def test_a_new_group_begins_at_the_end_of_all_topics_of_the_pattern() -> None:
    """And says so for all of them, or another member would take the second for a late one."""
    group = Group()
    assert starts(group, ("eu", 0)) == {("eu", 0): END}
    assert group.commits == {("eu", 0): END, ("eu", 1): END, ("us", 0): END}
    assert starts(group, ("us", 0)) == {("us", 0): END}


def test_a_new_group_whose_one_member_gets_everything() -> None:
    """Both topics are asked about in one go."""
    assert starts(Group(), ("eu", 0), ("eu", 1), ("us", 0)) == {
        ("eu", 0): END,
        ("eu", 1): END,
        ("us", 0): END,
    }


def test_a_topic_outside_of_the_pattern_decides_for_itself() -> None:
    """A handler that is added to an old group does not read years of records."""
    group = Group(("eu", 0))
    assert starts(group, ("us", 0), ("apart", 0)) == {("us", 0): 0, ("apart", 0): END}
    assert starts(Group(("apart", 0)), ("us", 0)) == {("us", 0): END}


def test_a_sibling_that_was_deleted_is_not_waited_for() -> None:
    """One that the broker does not describe is: a guess could lose records."""
    gone = {"eu": Described(absent=True), "us": Described("", (0,))}
    assert starts(Group(), ("us", 0), topics=gone) == {("us", 0): END}
    untold, why, group = {"eu": Described(), "us": Described("", (0,))}, list[str](), Group()
    assert starts(group, ("us", 0), topics=untold, left_out=lambda exc: why.append(f"{exc}")) == {}
    assert why == ["the broker does not tell which partitions eu has"]
    assert group.commits == {}


def test_at_earliest_nothing_is_asked() -> None:
    """Every topic without a commit is read from its start."""
    group = Group()
    assert starts(group, ("us", 0), start="earliest") == {("us", 0): 0}
    assert group.commits == {}
