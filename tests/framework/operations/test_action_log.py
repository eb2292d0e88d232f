"""The actions topic on a real broker: created by the first note, read from the newest back."""

from __future__ import annotations

import socket
import time
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from ackfloor.errors import KafkaUnreachable
from ackfloor.operations import TOPIC, ActionFilter, ActionLog, ActionNote, ActionState, new_note
from ackfloor.operations.kafka import action_reading, action_topic
from ackfloor.operations.kafka.action_topic import action_topic_plan
from tests.framework.kafka.wire import fresh, options

pytestmark = pytest.mark.kafka


@pytest.fixture
def log(bootstrap_servers: str) -> ActionLog:
    """The broker's notes; tests share them, so each has a group of its own."""
    return ActionLog(options(bootstrap_servers))


def note_of(group: str, action: str = "lanes retry", by: str = "ann@ops") -> ActionNote:
    """A note that has ended."""
    note = new_note(action, "tests", by, group=group, targets=["bill"])
    return replace(note, state=ActionState.DONE)


def test_the_first_note_creates_the_topic(log: ActionLog, bootstrap_servers: str) -> None:
    """Kept for a year, in one partition, so that actions have one order."""
    group = fresh("billing")
    log.write(note_of(group))
    assert [note.group for note in log.newest(ActionFilter(group=group), 10)] == [group]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    assert len(admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions) == 1
    [found] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, TOPIC)]).values()
    config = {name: entry.value for name, entry in found.result(60).items()}
    assert (config["cleanup.policy"], config["retention.ms"]) == ("delete", "31536000000")
    assert config["message.timestamp.type"] == "LogAppendTime"


def test_the_newest_come_first(log: ActionLog) -> None:
    """At most so many, of those that match."""
    group = fresh("billing")
    notes = [note_of(group, action) for action in ("dlq replay", "lanes retry", "dlq discard")]
    for note in notes:
        log.write(note)
    assert log.newest(ActionFilter(group=group), 10) == notes[::-1]
    assert log.newest(ActionFilter(group=group), 2) == notes[:0:-1]
    assert log.newest(ActionFilter(group=group, action="dlq"), 1) == [notes[2]]
    assert log.newest(ActionFilter(by="bob", group=group), 10) == []


def test_all_pieces_are_read_once(
    log: ActionLog, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they are cut, and what others wrote into the topic is passed over."""
    monkeypatch.setattr(action_reading, "PIECE", 7)
    group = fresh("billing")
    notes = [note_of(group) for _ in range(20)]
    log.write(notes[0])
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for note in notes[1:]:
        producer.produce(TOPIC, note.to_bytes(), note.key, partition=0)
        producer.produce(TOPIC, b"no note at all", partition=0)
    assert producer.flush(60) == 0
    found = log.newest(ActionFilter(group=group, since_ms=notes[0].at_ms), 100)
    assert [note.id for note in found] == [note.id for note in reversed(notes)]


def test_what_is_older_than_asked_for_is_not_read(
    log: ActionLog, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year of notes costs nothing to who asks for a day of them."""
    group = fresh("billing")
    log.write(first := note_of(group))
    long_ago_ms = time.time_ns() // 1_000_000 - 3_600_000
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    stray = replace(note_of(group), at_ms=long_ago_ms)
    producer.produce(TOPIC, stray.to_bytes(), stray.key, partition=0, timestamp=long_ago_ms)
    assert producer.flush(60) == 0
    newer = ActionFilter(group=group, since_ms=long_ago_ms + 1_800_000)
    assert log.newest(newer, 10) == [first]
    log.write(note := note_of(group))
    assert log.newest(newer, 10) == [note, first]


def test_an_odd_time_hides_no_note(
    log: ActionLog, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a topic that others have made a record has the time that its writer says."""
    topic, group = fresh("actions"), fresh("billing")
    for module in (action_reading, action_topic):
        monkeypatch.setattr(module, "TOPIC", topic)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    config = {"message.timestamp.type": "CreateTime"}
    made = admin.create_topics([NewTopic(topic, 1, 1, config=config)])
    made[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    long_ago_ms = time.time_ns() // 1_000_000 - 3_600_000
    for _ in range(20):
        producer.produce(topic, b"old", partition=0, timestamp=long_ago_ms)
    assert producer.flush(60) == 0
    log.write(note := note_of(group))
    for odd_ms in (1, long_ago_ms):
        producer.produce(topic, b"odd", partition=0, timestamp=odd_ms)
    assert producer.flush(60) == 0
    monkeypatch.setattr(action_reading, "PIECE", 2)
    starts, piece = list[int](), action_reading._piece

    def read(consumer: Consumer, partition: int, start: int, end: int) -> list[Message]:
        starts.append(start)
        return piece(consumer, partition, start, end)

    monkeypatch.setattr(action_reading, "_piece", read)
    assert log.newest(ActionFilter(group=group, since_ms=note.at_ms), 10) == [note]
    # A year of notes costs nothing to who asks for the newest.
    assert min(starts) == 20
    assert log.newest(ActionFilter(group=group, since_ms=note.at_ms + 3_600_000), 10) == []
    assert log.newest(ActionFilter(group=group, since_ms=-1), 10) == [note]


def test_nobody_listens(log: ActionLog) -> None:
    """Said at once: whoever has acted does not wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    away = ActionLog(options(f"127.0.0.1:{port}"))
    began_s = time.monotonic()
    with pytest.raises(KafkaUnreachable, match=f"127.0.0.1:{port}.*refused"):
        away.write(note_of("billing"))
    # The client itself would try for ten seconds.
    assert time.monotonic() - began_s < 8


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, 1, "1"), (2, 2, "1"), (5, 3, "2")]
)
def test_it_has_as_many_replicas_as_there_are_brokers(
    brokers: int, replicas: int, in_sync: str
) -> None:
    """Three at most; a confirmed note outlives a broker where there are three."""
    plan = action_topic_plan(brokers, False, None)
    assert (plan.replication_factor, plan.config["min.insync.replicas"]) == (replicas, in_sync)
    assert action_topic_plan(brokers, False, 2).replication_factor == 2
