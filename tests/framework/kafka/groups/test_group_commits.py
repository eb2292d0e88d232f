"""What a group has settled, read by an onlooker: floors, gap sets, and what can't be believed."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer, TopicPartition

from ackfloor.core.acks.gap_set import GapSet, encode, topic_hash
from ackfloor.errors import KafkaUnreachable
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.groups.group_commits import settled
from ackfloor.kafka.topics.topic_ids import TopicIds
from tests.framework.kafka.wire import fresh, make_topic, options

pytestmark = pytest.mark.kafka


def test_floors_and_gap_sets_are_read_and_the_rest_counts_as_open(bootstrap_servers: str) -> None:
    """Of three partitions one has a gap set, one what somebody else wrote, and one no commit."""
    topic, group = make_topic(bootstrap_servers, 3), fresh("settled")
    ids = TopicIds(options(bootstrap_servers))
    topic_id = ids.learn([topic])[topic].topic_id
    ids.close()
    metadata, _ = encode(GapSet(5, [(7, 9)], topic_hash(topic_id), 0), topic, 0)
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    commits = [
        TopicPartition(topic, 0, 5, metadata=metadata),
        TopicPartition(topic, 1, 3, metadata="af1?"),
    ]
    consumer.commit(offsets=commits, asynchronous=False)
    consumer.close()
    plain = options(bootstrap_servers)
    asked = KafkaOptions({"bootstrap.servers": bootstrap_servers}, plain.producer, plain.admin)
    found = settled(asked, group, [topic, fresh("not-there")])
    printed = topic_id.replace("+", "-").replace("/", "_")
    assert [each[:5] for each in found] == [
        (topic, printed, 0, 5, [(7, 9)]),
        (topic, printed, 1, 3, []),
    ]
    assert found[0].refused == ""
    assert "codec is '?'" in found[1].refused
    assert settled(asked, group, []) == []


def test_without_a_broker_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bounded time."""
    monkeypatch.setattr("ackfloor.kafka.groups.group_commits.REQUEST_S", 0.5)
    nobody = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(KafkaUnreachable, match="commits of group 'g'"):
        settled(KafkaOptions(nobody, nobody, nobody), "g", ["t"])


def test_a_client_that_does_not_end_is_not_waited_for(bootstrap_servers: str) -> None:
    """A worker that is to end would hang in it until it is killed."""
    gate, ended = threading.Event(), threading.Event()

    class Hanging:
        def __del__(self) -> None:
            gate.wait(60)
            ended.set()

    ids = TopicIds(options(bootstrap_servers))
    ids._admin = Hanging()  # type: ignore[assignment]
    ids.close()
    assert not ended.is_set()
    gate.set()
    assert ended.wait(60)
