"""What the brokers do not tell when partitions are assigned: these begin later, nobody ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ackfloor.core.records.record import StartPosition
from ackfloor.kafka.consume import late_starts, membership
from ackfloor.kafka.consume.committer import Committer
from ackfloor.kafka.consume.copartitioned_retry_topics import CopartitionedRetryTopics
from ackfloor.kafka.consume.membership import Membership
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.consume.split_consumer import SplitConsumer
from ackfloor.kafka.consume.start_positions import Unanswered
from ackfloor.kafka.topics.topic_ids import Described, TopicIds
from tests.framework.kafka.consume.test_membership import opened
from tests.framework.kafka.consume.test_suspended_partitions import (
    COUNTS,
    DESCRIBED,
    RETRY,
    SOURCE,
    Client,
    Commits,
    Ids,
)
from tests.framework.kafka.wire import (
    PROTOCOLS,
    Listener,
    fresh,
    make_topic,
    produce,
    pump,
    until,
)

SILENT = Described(silent=True)
OTHER = "payments"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between two looks."""
    monkeypatch.setattr(late_starts, "HINDERED_S", 0.0)


class Member:
    """A member of a group that reads SOURCE, OTHER and the retry topic of SOURCE."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        start: Literal["earliest", "latest"] = "earliest",
        siblings: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self.ids, self.seen = Ids(), Listener()
        self.ids.told[OTHER] = Described("other id", (0,))
        #: Topics whose logs have no leader at the moment.
        self.away: set[str] = set()
        monkeypatch.setattr(membership, "resolve", self._resolved)
        group, reader = Client(), Client()
        self.membership = Membership(
            cast("Consumer", group),
            SplitConsumer(cast("Consumer", group), cast("Consumer", reader), [RETRY]),
            self.seen,
            cast("Committer", Commits()),
            topic_ids=cast("TopicIds", self.ids),
            copartitioned=CopartitionedRetryTopics({RETRY: SOURCE}, COUNTS),
            incremental=True,
            start=start,
            siblings=siblings,
        )

    def comes(self, *topics: str) -> None:
        """Partition 0 of topics is assigned."""
        self.membership._assigned([TopicPartition(topic, 0) for topic in topics])

    def begun(self) -> list[str]:
        """The topics of the partitions that were reported."""
        return sorted(start.topic for start in self.seen.starts)

    def _resolved(
        self,
        _consumer: Consumer,
        committed: Sequence[TopicPartition],
        _start: str,
        described: Mapping[str, Described],
        _ranges: object,
        _reads: object,
        left_out: Callable[[Unanswered], None],
        *_: object,
    ) -> list[StartPosition]:
        if self.away:
            left_out(Unanswered("no leader"))
        return [
            StartPosition(p.topic, p.partition, 7, topic_id=described[p.topic].topic_id)
            for p in committed
            if p.topic not in self.away
        ]


def test_a_topic_that_no_broker_tells_of_waits_and_the_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is asked for between two polls, for as long as it takes, and begins with its id."""
    monkeypatch.setattr(late_starts, "PATIENCE_S", 0.0)
    member = Member(monkeypatch)
    member.ids.told[SOURCE] = SILENT
    member.comes(SOURCE, OTHER)
    # What is in the retry topic has its record's key already.
    assert member.begun() == [RETRY, OTHER]
    for _ in range(3):
        member.membership.look()
    assert member.ids.unknown == {SOURCE}
    member.ids.news = {SOURCE: SILENT}
    member.membership.look()
    assert member.begun() == [RETRY, OTHER]
    member.ids.news = {SOURCE: DESCRIBED[SOURCE]}
    member.membership.look()
    assert member.begun() == [SOURCE, RETRY, OTHER]
    assert member.seen.starts[-1].topic_id == "id"
    member.membership.look()
    assert member.ids.unknown == set()


def test_it_may_leave_before_anything_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears of it then, and nothing more is asked."""
    member = Member(monkeypatch)
    member.ids.told[OTHER] = SILENT
    member.comes(OTHER)
    member.membership._revoked([TopicPartition(OTHER, 0)])
    member.ids.news = {OTHER: Described("other id", (0,))}
    member.membership.look()
    assert (member.seen.starts, member.seen.revoked) == ([], [])
    assert member.ids.unknown == set()


def test_what_was_told_once_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that comes while the brokers are silent begins at once."""
    member = Member(monkeypatch)
    member.comes(SOURCE)
    member.ids.told[SOURCE] = SILENT
    member.membership._revoked([TopicPartition(SOURCE, 0)])
    member.comes(SOURCE)
    assert member.begun() == [SOURCE, SOURCE, RETRY, RETRY]
    assert {start.topic_id for start in member.seen.starts} == {"id"}


def test_a_topic_whose_id_is_withheld_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has answered: an ACL forbids to tell it, or it is older than ids."""
    member = Member(monkeypatch)
    member.ids.told[OTHER] = Described()
    member.comes(OTHER)
    assert member.begun() == [OTHER]


def test_the_end_of_a_pattern_is_sought_when_all_its_topics_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which of them are new depends on the commits of all of their partitions."""
    member = Member(monkeypatch, "latest", {OTHER: [OTHER, "refunds"]})
    member.ids.told["refunds"] = SILENT
    member.comes(OTHER)
    member.membership.look()
    assert member.begun() == []
    assert member.ids.unknown == {"refunds"}
    # An id alone, remembered from before, says nothing of its partitions.
    member.ids.news = {"refunds": Described("refunds' id", silent=True)}
    member.membership.look()
    assert member.begun() == []
    member.ids.news = {"refunds": Described("refunds' id", (0, 1))}
    member.membership.look()
    assert member.begun() == [OTHER]


def test_a_log_without_a_leader_begins_when_it_has_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker goes on with the others; it used to end after half a minute in the callback."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(late_starts, "UNTOLD_AGAIN_S", 3600.0)
    member = Member(monkeypatch)
    member.away.update([OTHER, RETRY])
    member.comes(SOURCE, OTHER)
    assert member.begun() == [SOURCE]
    for _ in range(3):
        # Too early to ask again.
        member.membership.look()
    monkeypatch.setattr(late_starts, "UNTOLD_AGAIN_S", 0.01)
    member.membership._late._ask_at_s = 0.0
    member.membership.look()
    assert member.begun() == [SOURCE]
    member.away.clear()
    until(lambda: member.membership.look() or OTHER in member.begun())
    assert RETRY not in member.begun(), "it comes anew, once its topic is described"
    member.ids.news = {RETRY: DESCRIBED[RETRY]}
    member.membership.look()
    assert member.begun() == [SOURCE, RETRY, OTHER]
    told = [r.getMessage() for r in caplog.records if " read" in r.getMessage()]
    assert told[0] == (f"not read for now, and asked for again: {RETRY}: 0; {OTHER}: 0 (no leader)")


@pytest.mark.kafka
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_silent_broker_ends_no_worker_and_blocks_no_callback(
    bootstrap_servers: str,
    sources: list[KafkaSource],
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
) -> None:
    """The questions about topics are not answered for a while; then everything is read."""
    monkeypatch.setattr(membership, "LEARN_S", 0.1)
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    asked: list[set[str]] = []

    def unanswered(
        self: TopicIds, topics: Collection[str], within_s: float = 0.0
    ) -> Mapping[str, Future[Any]]:
        asked.append({*topics})
        silence: Mapping[str, Future[Any]] = {each: Future() for each in topics}
        for future in silence.values():
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return silence

    with monkeypatch.context() as patched:
        patched.setattr(TopicIds, "_ask", unanswered)
        source, listener = opened(sources, bootstrap_servers, group, topic, protocol)
        pump(source, lambda: len([some for some in asked if topic in some]) == 3)
        assert (listener.starts, listener.records) == ([], [])
        assert topic not in {place for place, _ in source.positions()}
    pump(source, lambda: len(listener.records) == 3)
    [start] = listener.starts
    assert start.topic_id
