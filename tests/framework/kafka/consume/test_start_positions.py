"""Where reading starts, on a real broker: our decision, never the client's."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ackfloor.core.acks.gap_set import GapSet, encode, gap_set_of, topic_hash
from ackfloor.core.records.record import CommitPosition
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.errors import TopicReplaced
from ackfloor.kafka.consume import membership
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.framework.kafka.wire import (
    Listener,
    commit,
    fresh,
    join,
    make_topic,
    options,
    produce,
    pump,
    recreate,
    stored,
    until,
)

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("both_ways")]


def test_a_new_group_starts_at_the_first_record(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Without a commit, `earliest` reads everything, and says that nothing was committed."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 5)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    pump(source, lambda: len(listener.records) == 5)
    assert listener.starts[0].position == 0
    assert listener.starts[0].committed is False
    assert listener.offsets == [0, 1, 2, 3, 4]


def test_a_latest_group_names_its_start_so_that_it_can_be_committed_at_once(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 4: an idle `latest` group that committed its start misses nothing that came later."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    source, listener = join(sources, bootstrap_servers, group, topic, "latest")
    assert (listener.starts[0].position, listener.starts[0].committed) == (3, False)
    commit(source, topic, listener.starts[0].position)
    source.close()
    produce(bootstrap_servers, topic, 2)
    again, seen = join(sources, bootstrap_servers, group, topic, "latest")
    assert (seen.starts[0].position, seen.starts[0].committed) == (3, True)
    pump(again, lambda: len(seen.records) == 2)
    assert seen.offsets == [3, 4]


def test_metadata_comes_back_with_the_position(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rules 1 and 4: a commit carries metadata; the next assignment gets both in one reply."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    source, listener = join(sources, bootstrap_servers, group, topic)
    wanted = commit(source, topic, 2, "af1-something")
    assert listener.commits == [(wanted, None)]
    source.close()
    assert stored(bootstrap_servers, group, topic).metadata == "af1-something"
    _, seen = join(sources, bootstrap_servers, group, topic)
    assert (seen.starts[0].position, seen.starts[0].metadata) == (2, "af1-something")


def test_the_leader_epoch_comes_back_and_a_log_that_is_still_the_same_is_read_on(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """With metadata or without; the broker is asked, and nothing below them is read again."""
    topic, group = make_topic(bootstrap_servers, 2), fresh("g")
    for partition in range(2):
        produce(bootstrap_servers, topic, 3, partition)
    source, listener = join(sources, bootstrap_servers, group, topic)
    pump(source, lambda: len(listener.records) == 6)
    texts = ("", "af1-something")
    told = [CommitPosition(topic, n, 2, text, 1, leader_epoch=0) for n, text in enumerate(texts)]
    source.commit(told, wait=True)
    source.close()
    again, seen = join(sources, bootstrap_servers, group, topic)
    assert sorted((s.position, s.metadata, s.leader_epoch) for s in seen.starts) == [
        (2, text, 0) for text in texts
    ]
    pump(again, lambda: seen.places == {(0, 2), (1, 2)})
    for partition in range(2):
        produce(bootstrap_servers, topic, 1, partition)
    # A record that came before the broker was asked comes again; none before it does.
    pump(again, lambda: seen.places == {(0, 2), (1, 2), (0, 3), (1, 3)})
    assert len(seen.starts) == 2


def test_a_leader_epoch_that_the_log_does_not_have_has_it_read_from_its_start(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """What is below the position is not what the group has read."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    source, _ = join(sources, bootstrap_servers, group, topic)
    source.commit([CommitPosition(topic, 0, 2, "", 1, leader_epoch=9)], wait=True)
    source.close()
    again, seen = join(sources, bootstrap_servers, group, topic)
    pump(again, lambda: {0, 1, 2} <= set(seen.offsets))
    assert (seen.starts[-1].position, seen.starts[-1].committed) == (0, False)


def test_a_start_below_the_log_goes_on_at_its_start_and_counts_the_lost(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 4: what retention removed before it was read is counted, and blocks nothing."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 10)
    source, _ = join(sources, bootstrap_servers, group, topic)
    text, _ = encode(GapSet(2, ((3, 5), (8, 9))), topic, 0)
    commit(source, topic, 2, text)
    source.close()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 7)]).values():
        future.result(60)
    again, seen = join(sources, bootstrap_servers, group, topic)
    assert (seen.starts[0].position, seen.starts[0].lost) == (7, 5)
    assert gap_set_of(seen.starts[0]).runs == ((3, 5), (8, 9)), "what is settled stays settled"
    pump(again, lambda: len(seen.records) == 3)
    assert seen.offsets == [7, 8, 9]


def test_the_log_of_what_is_taken_over_is_known_however_long_a_fetch_may_wait(
    bootstrap_servers: str, sources: list[KafkaSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question behind a fetch that finds nothing would wait for its end, one partition after the
    other: the callback would take seconds, and the commits go unchecked."""
    # A second round would find the connection new, because the first question had failed.
    monkeypatch.setattr(membership, "FRESH_S", 60.0)
    topic, group = make_topic(bootstrap_servers, 4), fresh("g")
    for partition in range(4):
        produce(bootstrap_servers, topic, 1, partition)
    patient = {"fetch.wait.max.ms": 10_000}
    stays, listener = join(sources, bootstrap_servers, group, topic, **patient)
    pump(stays, lambda: len(listener.records) == 4)
    stays.commit([CommitPosition(topic, partition, 1, "", 1) for partition in range(4)], wait=True)
    goes = KafkaSource(options(bootstrap_servers, **patient), group)
    sources.append(goes)
    goes.subscribe([topic], others := Listener())

    def both_have_some() -> bool:
        stays.poll(0.02)
        goes.poll(0.02)
        return len(others.starts) == 2

    until(both_have_some)
    listener.starts.clear()
    goes.close()
    pump(
        stays,
        lambda: {s.partition for s in others.starts} <= {s.partition for s in listener.starts},
    )
    assert {(s.position, s.log_end) for s in [*others.starts, *listener.starts]} == {(1, 1)}


def test_a_start_beyond_the_log_begins_at_what_is_there(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 4: a topic that was created anew is read from its start: late rather than lost."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 2)
    source, _ = join(sources, bootstrap_servers, group, topic)
    commit(source, topic, 500)
    source.close()
    again, seen = join(sources, bootstrap_servers, group, topic)
    pump(again, lambda: len(seen.records) == 2)
    assert seen.revoked == [Partition(topic, 0)]
    assert (seen.starts[-1].position, seen.starts[-1].committed) == (0, False)
    assert seen.offsets == [0, 1]


def test_a_topic_created_anew_between_two_runs_is_read_from_its_start(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 4: it has grown past the old position, so only its id tells that it is another one."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 5)
    source, listener = join(sources, bootstrap_servers, group, topic)
    topic_id = listener.starts[0].topic_id
    assert topic_id
    text, _ = encode(GapSet(3, ((4, 5),), topic_hash(topic_id)), topic, 0)
    commit(source, topic, 3, text)
    source.close()
    again, same = join(sources, bootstrap_servers, group, topic)
    assert (same.starts[0].position, same.starts[0].committed) == (3, True)
    assert gap_set_of(same.starts[0]).runs == ((4, 5),)
    again.close()
    recreate(bootstrap_servers, topic)
    produce(bootstrap_servers, topic, 9)
    third, seen = join(sources, bootstrap_servers, group, topic)
    assert (seen.starts[0].position, seen.starts[0].committed) == (0, False)
    assert seen.starts[0].topic_id != topic_id
    pump(third, lambda: len(seen.records) == 9)


def test_a_topic_created_anew_while_it_is_read_ends_the_source(
    bootstrap_servers: str, sources: list[KafkaSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the look at its id, what lies below the old position would never be read; and with
    several brokers a client that knew the old topic reads nothing of the new one at all."""
    monkeypatch.setattr("ackfloor.kafka.topics.topic_ids.LOOK_EVERY_S", 0.5)
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 5)
    source, listener = join(sources, bootstrap_servers, group, topic)
    pump(source, lambda: len(listener.records) == 5)
    text, _ = encode(GapSet(5, (), topic_hash(listener.starts[0].topic_id)), topic, 0)
    commit(source, topic, 5, text)
    recreate(bootstrap_servers, topic)
    produce(bootstrap_servers, topic, 12)
    with pytest.raises(TopicReplaced, match=f"topic {topic} was deleted and created anew") as ended:
        pump(source, lambda: False)
    assert ended.value.exit_code == Exit.WORN_OUT
    source.close()
    again, seen = join(sources, bootstrap_servers, group, topic)
    pump(again, lambda: len(seen.records) == 12)
    assert seen.offsets == list(range(12))
    assert (seen.starts[0].position, seen.starts[0].committed) == (0, False)


def test_a_topic_that_is_only_written_to_is_watched_too(
    bootstrap_servers: str, sources: list[KafkaSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that knew a dead-letter topic can't follow it to where its new leaders are."""
    monkeypatch.setattr("ackfloor.kafka.topics.topic_ids.LOOK_EVERY_S", 0.2)
    topic, target = make_topic(bootstrap_servers), make_topic(bootstrap_servers)
    source = KafkaSource(options(bootstrap_servers), fresh("g"), watched=[target])
    sources.append(source)
    listener = Listener()
    source.subscribe([topic], listener)
    pump(source, lambda: listener.starts)
    pump(source, lambda: target in source._topic_ids._known)
    recreate(bootstrap_servers, target)
    with pytest.raises(TopicReplaced, match=f"topic {target} was deleted"):
        pump(source, lambda: False)


def test_a_partition_that_was_added_is_read_from_its_start_by_a_latest_group(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 4: `latest` is about the topic as the group found it, not about what came since."""
    topic, group = make_topic(bootstrap_servers, 2), fresh("g")
    produce(bootstrap_servers, topic, 3)
    source, listener = join(sources, bootstrap_servers, group, topic, "latest")
    pump(source, lambda: len(listener.starts) == 2)
    assert sorted((s.partition, s.position) for s in listener.starts) == [(0, 3), (1, 0)]
    source.close()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    until(lambda: len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 3)
    produce(bootstrap_servers, topic, 4, partition=2)
    again, seen = join(sources, bootstrap_servers, group, topic, "latest")
    pump(again, lambda: len(seen.starts) == 3)
    assert sorted((s.partition, s.position) for s in seen.starts) == [(0, 3), (1, 0), (2, 0)]
    pump(again, lambda: len(seen.records) == 4)


def test_a_retry_tier_is_read_from_its_start_by_a_latest_group(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """What another worker of the group has parked there before this one came is not skipped."""
    group = fresh("g")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    tier = f"{fresh('orders')}--{group}--retry-1s"
    admin.create_topics([NewTopic(tier, 1, 1)])[tier].result(60)
    until(lambda: tier in admin.list_topics(timeout=60).topics)
    produce(bootstrap_servers, tier, 2)
    source, listener = join(sources, bootstrap_servers, group, tier, "latest")
    assert listener.starts[0].position == 0
    pump(source, lambda: len(listener.records) == 2)


def test_a_start_inside_an_open_transaction_is_not_beyond_the_log(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 4: the end of what may be read yet is not the log's end; nothing is read again."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": fresh("t"), "linger.ms": 0}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(4):
        producer.produce(topic, b"open", partition=0)
    assert producer.flush(60) == 0
    # As a client of this group that reads uncommitted records would have left it.
    before = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    before.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
    before.close()
    source, listener = join(sources, bootstrap_servers, group, topic)
    assert (listener.starts[0].position, listener.starts[0].committed) == (6, True)
    producer.commit_transaction(60)
    pump(source, lambda: listener.records)
    assert (listener.offsets, len(listener.starts)) == ([6], 1)


def test_the_end_of_a_log_that_has_lost_records_lies_behind_open_transactions(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """A record that was written behind somebody else's is confirmed, and can't be read yet."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 3)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    pump(source, lambda: len(listener.records) == 3)
    source.pause([Partition(topic, 0)])
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": fresh("t"), "linger.ms": 0}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(60) == 0
    produce(bootstrap_servers, topic, 1)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        future.result(60)
    source.resume([(Partition(topic, 0), 1)])
    pump(source, lambda: listener.gone)
    assert listener.gone == [(Partition(topic, 0), 2, 5)]
    producer.abort_transaction(60)
    pump(source, lambda: listener.offsets[-1] == 4)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_records_that_retention_takes_while_running_are_told(
    bootstrap_servers: str, sources: list[KafkaSource], strategy: str
) -> None:
    """A position that falls out of the log is no stall, and what was read before is kept."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 20)
    own: dict[str, object] = {"partition.assignment.strategy": strategy}
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic, **own)
    pump(source, lambda: len(listener.records) == 20)
    source.pause([Partition(topic, 0)])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 15)]).values():
        future.result(60)
    source.resume([(Partition(topic, 0), 5)])
    pump(source, lambda: listener.offsets[-5:] == [15, 16, 17, 18, 19] and listener.gone)
    assert listener.gone == [(Partition(topic, 0), 15, 20)]
    # An error that comes twice is told once, and nothing is read again; nor is there a stall where
    # the position was sought once more before anybody knew.
    source._membership.restart(topic, 0, 5)
    source.resume([(Partition(topic, 0), 5)])
    produce(bootstrap_servers, topic, 1)
    pump(source, lambda: listener.offsets[-1] == 20)
    assert listener.offsets[20:] == [15, 16, 17, 18, 19, 20]
    assert listener.gone == [(Partition(topic, 0), 15, 20)]
    assert (listener.revoked, listener.lost, len(listener.starts)) == ([], [], 1)
