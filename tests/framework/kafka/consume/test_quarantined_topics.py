"""QuarantinedTopics: the logs of retry topics are read before their partitions are announced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from ackfloor.core.records.envelope import Envelope, write_headers
from ackfloor.core.records.record import CommitPosition, StartPosition
from ackfloor.errors import SourceFailed, TopicReplaced
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.consume import quarantined_topics
from ackfloor.kafka.consume.copartitioned_retry_topics import CopartitionedRetryTopics
from ackfloor.kafka.consume.quarantined_topics import QuarantinedTopics
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.topics import topic_ids
from ackfloor.kafka.topics.log_ranges import Place, Range
from ackfloor.kafka.topics.topic_ids import Described, TopicIds
from tests.framework.kafka.wire import (
    Listener,
    fresh,
    make_topic,
    options,
    pump,
    recreate,
    until,
)

SOURCE = "orders"


def park(producer: Producer, topic: str, keys: Sequence[bytes], partition: int = 0) -> None:
    """Park a record of each key, from offset 0 of the source's partition on."""
    for offset, key in enumerate(keys):
        envelope = Envelope(
            origin_topic=SOURCE, origin_partition=partition, origin_offset=offset, attempt=1
        )
        headers: Any = write_headers(envelope, [])
        producer.produce(topic, b"v", key, partition, headers=headers)
    assert producer.flush(60) == 0


def writer(servers: str) -> Producer:
    """A producer without transactions."""
    return Producer({"bootstrap.servers": servers, "linger.ms": 0})


def transactional(servers: str) -> Producer:
    """A producer with a transaction begun."""
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 0, "transactional.id": fresh("id")}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer


def keys(start: StartPosition) -> list[bytes]:
    """The keys that wait."""
    return [parked.key for parked in start.parked]


@pytest.fixture
def reader(bootstrap_servers: str) -> Iterator[Callable[..., QuarantinedTopics]]:
    """Makes what reads retry topics of `orders`."""
    opened: list[TopicIds] = []

    def make(*topics: str) -> QuarantinedTopics:
        made = options(bootstrap_servers)
        opened.append(TopicIds(made))
        opened[-1].learn(topics)
        return QuarantinedTopics(made, fresh("g"), dict.fromkeys(topics, SOURCE), opened[-1])

    yield make
    for ids in opened:
        ids.close()


def no_client(*_: object) -> None:
    """In the place of `quiet_consumer`."""
    raise AssertionError("a client was made")


@pytest.mark.kafka
def test_a_client_is_made_only_where_there_is_something_to_read(
    reader: Callable[..., QuarantinedTopics],
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not for an empty log, nor at the end of one; the position may be beyond it."""
    topic = make_topic(bootstrap_servers, 2)
    park(writer(bootstrap_servers), topic, [b"a", b"b"])
    reading = reader(topic)
    with monkeypatch.context() as patched:
        patched.setattr(quarantined_topics, "quiet_consumer", no_client)
        for position in (2, 9):
            starts = [StartPosition(topic, 0, position), StartPosition(topic, 1, 0)]
            assert reading.with_parked(starts) == starts
        with pytest.raises(AssertionError, match="a client was made"):
            reading.with_parked([StartPosition(topic, 0, 1)])
    others = [StartPosition(topic, 1, 0), StartPosition("other", 0, 0), StartPosition(topic, 0, 1)]
    found = reading.with_parked(others)
    assert [keys(start) for start in found] == [[], [], [b"b"]]
    assert [start._replace(parked=()) for start in found] == others


class Unasked:
    """A client that must not be asked."""

    def log_ends(self, places: Collection[Place], _: float) -> Mapping[Place, int]:
        assert not places
        return {}


def test_for_other_topics_nothing_is_asked() -> None:
    """No request and no client: a worker without a quarantine starts as before."""
    reading = QuarantinedTopics(KafkaOptions(), "g", {"tier": SOURCE}, Unasked())  # type: ignore[arg-type]
    starts = [StartPosition("other", 0, 0)]
    assert reading.with_parked(starts) == starts


@pytest.mark.kafka
def test_a_large_log_of_many_partitions_is_read_to_its_end(
    reader: Callable[..., QuarantinedTopics], bootstrap_servers: str
) -> None:
    """More than one batch, in the order of each partition."""
    topic = make_topic(bootstrap_servers, 3)
    names = [b"%d" % number for number in range(1_500)]
    for partition in range(3):
        park(writer(bootstrap_servers), topic, names, partition)
    found = reader(topic).with_parked([StartPosition(topic, n, 100 * n) for n in range(3)])
    assert [keys(start) for start in found] == [names[100 * n :] for n in range(3)]
    assert [p.origin_offset for p in found[2].parked] == list(range(200, 1_500))


def idle(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[str]:
    """Act once, as soon as nothing comes for the moment; returns what was waited for."""
    waited: list[str] = []
    check = quarantined_topics._Patience.check

    def acting(self: Any, waiting: Collection[Place], why: str) -> set[str]:
        if not waited:
            act()
        waited.append(why)
        return check(self, waiting, why)

    monkeypatch.setattr(quarantined_topics._Patience, "check", acting)
    return waited


@pytest.mark.kafka
def test_a_transaction_that_is_still_open_is_waited_for(
    sources: list[KafkaSource], bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before the takeover and is committed after; of an aborted one nothing counts."""
    topic = make_topic(bootstrap_servers)
    aborted = transactional(bootstrap_servers)
    park(aborted, topic, [b"aborted"])
    aborted.abort_transaction(60)
    park(writer(bootstrap_servers), topic, [b"before"])
    pending = transactional(bootstrap_servers)
    park(pending, topic, [b"pending"])
    park(writer(bootstrap_servers), topic, [b"after"])
    waited = idle(monkeypatch, lambda: pending.commit_transaction(60))
    source, listener = (
        KafkaSource(options(bootstrap_servers), fresh("g"), quarantined_topics={topic: SOURCE}),
        Listener(),
    )
    source.subscribe([topic], listener)
    sources.append(source)
    pump(source, lambda: listener.starts)
    assert keys(listener.starts[0]) == [b"before", b"pending", b"after"]
    assert "where a transaction may be open" in waited[0]
    pump(source, lambda: len(listener.records) == 3)


@pytest.mark.kafka
def test_a_transaction_that_is_aborted_meanwhile_leaves_nothing(
    reader: Callable[..., QuarantinedTopics],
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log ends with records that never come, and the position passes them."""
    topic = make_topic(bootstrap_servers)
    park(writer(bootstrap_servers), topic, [b"before"])
    pending = transactional(bootstrap_servers)
    park(pending, topic, [b"pending", b"pending"])
    waited = idle(monkeypatch, lambda: pending.abort_transaction(60))
    (start,) = reader(topic).with_parked([StartPosition(topic, 0, 0)])
    assert keys(start) == [b"before"]
    assert waited


@pytest.mark.kafka
def test_a_transaction_that_does_not_end_fails_the_source(
    reader: Callable[..., QuarantinedTopics],
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By name: nobody may go on without knowing what is parked."""
    topic = make_topic(bootstrap_servers, 2)
    pending = transactional(bootstrap_servers)
    park(pending, topic, [b"pending"], 1)
    reading = reader(topic)
    monkeypatch.setattr(quarantined_topics, "PATIENCE_S", 0.3)
    with pytest.raises(SourceFailed) as failed:
        reading.with_parked([StartPosition(topic, partition, 0) for partition in range(2)])
    pending.abort_transaction(60)
    assert str(failed.value) == (
        f"what is parked in {topic}/1 could not be read in time: read to 0 of 1, where a "
        "transaction may be open"
    )


UNANSWERED = Described()


class Silent:
    """Answers from a broker about topics; tells no end."""

    def __init__(self, described: Described = UNANSWERED) -> None:
        self.described = described
        self.learned: list[Collection[str]] = []

    def log_ends(self, places: Collection[Place], _: float) -> Mapping[Place, int]:
        return {place: 0 for place in places if place[0] == "told"}

    def learn(self, topics: Collection[str]) -> Mapping[str, Described]:
        self.learned.append(topics)
        return dict.fromkeys(topics, self.described)


def silent(described: Described = UNANSWERED) -> tuple[QuarantinedTopics, Silent]:
    """What reads at a silent broker."""
    ids, of = Silent(described), dict.fromkeys(("tier", "told"), SOURCE)
    return QuarantinedTopics(KafkaOptions(), "g", of, ids), ids  # type: ignore[arg-type]


STARTS = [StartPosition("told", 0, 0), *(StartPosition("tier", number, 7) for number in (0, 1))]


def test_a_silent_broker_fails_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic may be there; it is asked about what does not come."""
    for name in ("PATIENCE_S", "PAUSE_S", "FLEETING_S"):
        monkeypatch.setattr(quarantined_topics, name, 0.02)
    reading, ids = silent()
    with pytest.raises(SourceFailed, match=r"tier/0 \(and 1 more\) could not .* end is not known"):
        reading.with_parked(STARTS)
    assert all(topics == {"tier"} for topics in ids.learned)


def test_a_deleted_topic_does_not_fail_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the second word, as elsewhere: the first may be of a broker that has not heard of it."""
    monkeypatch.setattr(quarantined_topics, "FLEETING_S", 0.0)
    monkeypatch.setattr(quarantined_topics, "PAUSE_S", 0.0)
    reading, ids = silent(Described(absent=True))
    assert reading.with_parked(STARTS) == STARTS
    assert ids.learned == [{"tier"}, {"tier"}]


def test_a_topic_is_absent_at_the_second_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first one if it was absent before; not if it came back meanwhile."""
    pauses: list[float] = []
    monkeypatch.setattr(quarantined_topics.time, "sleep", pauses.append)
    reading, ids = silent(Described(absent=True))
    assert reading.absent(set()) == set()
    assert ids.learned == []
    for _ in range(2):
        assert reading.absent({"tier"}) == {"tier"}
    assert len(ids.learned) == 3
    ids.described = Described("id", (0,))
    assert reading.absent({"tier"}) == set()
    ids.described = Described(absent=True)
    monkeypatch.setattr(
        quarantined_topics.time, "sleep", lambda _: setattr(ids, "described", UNANSWERED)
    )
    assert reading.absent({"tier"}) == set()
    assert pauses == [quarantined_topics.FLEETING_S]


class Finder:
    """Finds the starts of a topic's partitions from so many tries on; of others at once."""

    def __init__(self, tries: int) -> None:
        self.tries = tries
        self.asked: list[list[Place]] = []

    def __call__(self, partitions: Sequence[TopicPartition]) -> list[StartPosition]:
        wanted = [(p.topic, p.partition) for p in partitions]
        self.asked.append(wanted)
        there = len(self.asked) > self.tries
        return [
            StartPosition(*place, 5, log_end=9) for place in wanted if there or place[0] != "tier"
        ]


COMMITTED = [TopicPartition(*place, -1001) for place in (("orders", 0), ("tier", 0), ("r", 0))]


def test_no_start_of_these_topics_is_left_out() -> None:
    """Others may be, as before: what is parked there keeps no order."""
    reading, ids = silent()
    find = Finder(2)
    starts = reading.find_starts(COMMITTED, find)
    assert [start.topic for start in starts] == ["orders", "r", "tier"]
    assert find.asked[1:] == [[("tier", 0)]] * 2
    assert ids.learned == []


def test_a_start_that_is_not_found_fails_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever went on would not know what is parked there."""
    monkeypatch.setattr(quarantined_topics, "PATIENCE_S", 0.02)
    reading, _ = silent()
    with pytest.raises(SourceFailed, match="tier/0 could not be read in time: its start is not"):
        reading.find_starts(COMMITTED, Finder(10**9))


def test_a_start_in_a_deleted_topic_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing parked any more."""
    monkeypatch.setattr(quarantined_topics, "FLEETING_S", 0.0)
    reading, _ = silent(Described(absent=True))
    starts = reading.find_starts(COMMITTED, Finder(10**9))
    assert [start.topic for start in starts] == ["orders", "r"]


@pytest.mark.kafka
def test_a_topic_that_is_deleted_while_it_is_read_does_not_fail_it(
    reader: Callable[..., QuarantinedTopics],
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one is read; of what was read of it nothing is said: nobody will read it again."""
    deleted, topic = make_topic(bootstrap_servers), make_topic(bootstrap_servers)
    for each in (deleted, topic):
        park(writer(bootstrap_servers), each, [b"k"])
    pending = transactional(bootstrap_servers)
    park(pending, deleted, [b"pending"])
    monkeypatch.setattr(quarantined_topics, "FLEETING_S", 0.05)

    def delete() -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        admin.delete_topics([deleted])[deleted].result(60)
        until(lambda: deleted not in admin.list_topics(timeout=60).topics)

    idle(monkeypatch, delete)
    starts = [StartPosition(deleted, 0, 0), StartPosition(topic, 0, 0)]
    found = reader(deleted, topic).with_parked(starts)
    assert [keys(start) for start in found] == [[], [b"k"]]


@pytest.mark.kafka
def test_a_topic_that_is_replaced_while_it_is_read_ends_the_worker(
    reader: Callable[..., QuarantinedTopics],
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it does at any other time."""
    topic = make_topic(bootstrap_servers)
    pending = transactional(bootstrap_servers)
    park(pending, topic, [b"pending"])
    monkeypatch.setattr(quarantined_topics, "FLEETING_S", 0.05)
    idle(monkeypatch, lambda: recreate(bootstrap_servers, topic))
    with pytest.raises(TopicReplaced):
        reader(topic).with_parked([StartPosition(topic, 0, 0)])


@pytest.mark.kafka
@pytest.mark.parametrize("left", [2, 0])
def test_retention_may_remove_records_before_they_are_read(
    reader: Callable[..., QuarantinedTopics], bootstrap_servers: str, left: int
) -> None:
    """After the position was found: what is left is read, if anything is."""
    topic = make_topic(bootstrap_servers)
    park(writer(bootstrap_servers), topic, [b"%d" % number for number in range(6)])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 6 - left)]).values():
        future.result(60)
    (start,) = reader(topic).with_parked([StartPosition(topic, 0, 1)])
    assert keys(start) == [b"4", b"5"][:left]


@pytest.mark.kafka
@pytest.mark.parametrize("late", [False, True])
def test_a_log_that_is_read_anew_is_read_beforehand_as_well(
    sources: list[KafkaSource],
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
    late: bool,
) -> None:
    """The group's position is beyond the end: the topic was truncated; or a fetch finds it out."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    park(writer(bootstrap_servers), topic, [b"a", b"b"])

    def join() -> tuple[KafkaSource, Listener]:
        made = options(bootstrap_servers)
        source = KafkaSource(made, group, quarantined_topics={topic: SOURCE})
        listener = Listener()
        source.subscribe([topic], listener)
        sources.append(source)
        pump(source, lambda: listener.starts)
        return source, listener

    source, _ = join()
    source.commit([CommitPosition(topic, 0, 99, "", 1)], wait=True)
    source.close()
    if late:
        monkeypatch.setattr(QuarantinedTopics, "_truncated", lambda *_: set())
    source, listener = join()
    pump(source, lambda: len(listener.records) == 2)
    anew = [(0, [b"a", b"b"])]
    assert [(start.position, keys(start)) for start in listener.starts] == [
        *([(99, [])] if late else []), *anew,
    ]  # fmt: skip
    assert listener.offsets == [0, 1]
    assert listener.starts[-1].committed is False


class Ends:
    """Tells ends of one log, one after the other, and its range."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)

    def log_ends(self, places: Collection[Place], _: float) -> Mapping[Place, int]:
        return {place: self.ends.pop(0) for place in places}

    def log_ranges(self, places: Collection[Place], _: float) -> Mapping[Place, Range]:
        return dict.fromkeys(places, (2, 4))


@pytest.mark.parametrize(
    ("position", "log_end", "ends", "begins"),
    [(5, 5, (), 5), (5, 4, (5,), 5), (5, 4, (4, 5), 5), (5, None, (4, 4), 2), (5, 3, (4, 4), 2)],
)
def test_a_position_is_beyond_the_end_at_the_second_word(
    monkeypatch: pytest.MonkeyPatch,
    position: int,
    log_end: int | None,
    ends: Sequence[int],
    begins: int,
) -> None:
    """The log is asked only where it may be; a transaction may be open behind what is readable."""
    monkeypatch.setattr(quarantined_topics, "PAUSE_S", 0.0)
    ids = Ends(*ends)
    reading = QuarantinedTopics(KafkaOptions(), "g", {"tier": SOURCE}, ids)  # type: ignore[arg-type]
    starts = [
        StartPosition(topic, 0, position, metadata="m", topic_id="id", log_end=log_end)
        for topic in ("orders", "tier")
    ]
    orders, tier = reading.find_starts([], lambda _: starts)
    assert orders == starts[0]
    assert tier == (
        starts[1]
        if begins == position
        else StartPosition("tier", 0, begins, False, topic_id="id", log_end=4)
    )
    assert ids.ends == []


@pytest.mark.kafka
def test_a_partition_that_is_added_is_read_beforehand_as_well(
    sources: list[KafkaSource], bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker learns of it only while it runs."""
    monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 3_600.0)
    topic, tier = make_topic(bootstrap_servers), make_topic(bootstrap_servers)
    source = KafkaSource(
        options(bootstrap_servers),
        fresh("g"),
        low_priority_topics=[tier],
        copartitioned=CopartitionedRetryTopics({tier: topic}, {topic: 1, tier: 1}),
        quarantined_topics={tier: SOURCE},
    )
    listener = Listener()
    source.subscribe([topic, tier], listener)
    sources.append(source)
    pump(source, lambda: len(listener.starts) == 2)
    add_partition(bootstrap_servers, tier)
    park(writer(bootstrap_servers), tier, [b"a", b"b"], 1)
    monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 0.1)
    pump(source, lambda: len(listener.starts) == 3)
    added = listener.starts[2]
    assert (added.topic, added.partition, keys(added)) == (tier, 1, [b"a", b"b"])


@pytest.mark.kafka
def test_a_source_partition_is_announced_with_the_retry_topics_that_were_deleted(
    sources: list[KafkaSource], bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This worker had no partition of it, so nobody has told it."""
    monkeypatch.setattr(quarantined_topics, "FLEETING_S", 0.05)
    topic, tier, other = (make_topic(bootstrap_servers) for _ in range(3))
    source = KafkaSource(
        options(bootstrap_servers),
        fresh("g"),
        low_priority_topics=[tier, other],
        copartitioned=CopartitionedRetryTopics(
            dict.fromkeys((tier, other), topic), dict.fromkeys((topic, tier, other), 1)
        ),
        quarantined_topics=dict.fromkeys((tier, other), topic),
    )
    sources.append(source)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_topics([tier])[tier].result(60)
    until(lambda: tier not in admin.list_topics(timeout=60).topics)
    listener = Listener()
    source.subscribe([topic, tier, other], listener)
    pump(source, lambda: len(listener.starts) == 2)
    assert {start.topic: start.absent for start in listener.starts} == {
        topic: frozenset({tier}),
        other: None,
    }


def add_partition(servers: str, topic: str) -> None:
    """A second one, which clients know of when this returns."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    until(lambda: len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 2)
