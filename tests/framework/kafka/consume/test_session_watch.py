"""A member whose coordinator is silent handles nothing that others may have by now (KIP-848)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from ackfloor.core.records.record import CommitPosition
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.kafka.client.admin_client import quiet_admin
from ackfloor.kafka.consume import session_watch
from ackfloor.kafka.consume.broadcast_source import KafkaBroadcastSource
from ackfloor.kafka.consume.membership import Membership
from ackfloor.kafka.consume.session_watch import UNKNOWN, Session, SessionWatch
from ackfloor.kafka.consume.source import KafkaSource
from tests.framework.kafka.consume.test_membership import opened
from tests.framework.kafka.wire import (
    Listener,
    fresh,
    make_topic,
    options_of,
    produce,
    pump,
    until,
)

#: Short enough to be waited for, and far from what a busy machine takes for one request.
SHORT = Session(timeout_s=0.6, heartbeat_s=0.1)


class Coordinator:
    """Answers a request for commits, or does not; in place of a client."""

    def __init__(self) -> None:
        self.away = False
        self.asked = 0
        self.standing = threading.Event()
        self.standing.set()
        #: Whether it answers once and is silent again.
        self.once = False
        #: Whether it does not answer every second request.
        self.every_second = False
        #: What a request raises that is no error of Kafka's.
        self.broken: Exception | None = None

    def committed(self, partitions: list[Any], timeout: float) -> list[Any]:
        """An answer, or the client's error."""
        self.asked += 1
        self.standing.wait()
        if self.broken is not None:
            raise self.broken
        if self.away or (self.every_second and self.asked % 2):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if self.once:
            self.standing.clear()
        return partitions


@pytest.fixture
def coordinator() -> Coordinator:
    """One that answers."""
    return Coordinator()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, coordinator: Coordinator) -> Any:
    """A watch of a short session, which asks the coordinator."""
    monkeypatch.setattr(SessionWatch, "_learn", lambda self, admin: None)
    made = SessionWatch(options_of("127.0.0.1:1", "broker"), "g")
    made.session = SHORT
    made.start(cast("Consumer", coordinator), "orders")
    yield made
    coordinator.standing.set()
    made.stop()


def test_a_session_without_answers_may_be_over(
    watch: SessionWatch, coordinator: Coordinator
) -> None:
    """One request without an answer says nothing yet; the reason is told."""
    coordinator.away = True
    failed = coordinator.asked + 2
    until(lambda: coordinator.asked >= failed)
    until(watch.silence)
    assert "_TIMED_OUT" in watch.silence()


def test_answers_have_to_come_for_longer_than_a_heartbeat(
    watch: SessionWatch, coordinator: Coordinator
) -> None:
    """The first one may come before the heartbeat whose answer says that the member is out."""
    coordinator.away = True
    until(watch.silence)
    assert not watch.steady()
    coordinator.away = False
    until(lambda: not watch.silence())
    until(watch.steady)
    assert watch._heard_s - watch._unbroken_s > SHORT.heartbeat_s


def test_one_answer_does_not_say_that_the_member_is_still_one(
    watch: SessionWatch, coordinator: Coordinator
) -> None:
    """The next request hangs: time that passes meanwhile is no answer."""
    coordinator.away = True
    until(watch.silence)
    coordinator.away, coordinator.once = False, True
    until(lambda: not watch._why)
    time.sleep(SHORT.heartbeat_s * 2)
    assert not watch.steady()


def test_a_coordinator_that_answers_now_and_then_for_a_session_has_a_member(
    watch: SessionWatch, coordinator: Coordinator
) -> None:
    """Heartbeats get through as well as requests do: the worker is not idle for good."""
    coordinator.away = True
    until(watch.silence)
    coordinator.away, coordinator.every_second = False, True
    until(lambda: not watch.silence())
    until(watch.steady)
    assert watch._heard_s - watch._back_s > SHORT.timeout_s
    coordinator.away = True
    until(watch.silence)
    assert not watch.steady()
    coordinator.away = False
    until(lambda: not watch.silence())
    assert watch._heard_s - watch._back_s < SHORT.timeout_s


def test_an_error_that_is_not_the_brokers_is_no_answer(
    watch: SessionWatch, coordinator: Coordinator
) -> None:
    """Whoever asks goes on asking: without it nobody would notice the next silence."""
    coordinator.broken = RuntimeError("no client")
    until(watch.silence)
    assert "RuntimeError: no client" in watch.silence()
    coordinator.broken = None
    until(watch.steady)


@pytest.mark.parametrize(
    ("session", "patience_s"),
    [(Session(45.0, 5.0), 5.0), (Session(45.0, 1.0), 5.0), (Session(3.0, 1.0), 1.8)],
)
def test_what_is_slow_is_not_silent(session: Session, patience_s: float) -> None:
    """Also where heartbeats are more frequent than answers; what fails is noticed in time."""
    assert session.patience_s == pytest.approx(patience_s)
    assert session.patience_s + session.ask_every_s <= session.limit_s


def test_a_process_that_stood_still_has_not_been_silent(
    watch: SessionWatch, coordinator: Coordinator
) -> None:
    """It has not asked: the first heartbeat afterwards says whether it is still a member."""
    coordinator.standing.clear()
    asked = coordinator.asked
    until(lambda: coordinator.asked > asked)
    time.sleep(2 * SHORT.timeout_s)
    assert watch.silence() == ""


def test_it_stops_a_heartbeat_before_its_session_can_end() -> None:
    """The coordinator counts from a heartbeat, which may have been one before the last answer."""
    assert Session(45.0, 5.0).limit_s == 40.0
    # A moment without an answer is no silence where the two are nearly the same.
    assert Session(6.0, 5.0).limit_s == 3.0


def test_a_session_that_nobody_tells_is_the_shortest_with_the_rarest_heartbeats(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where DESCRIBE_CONFIGS is not granted on the group; the log says so once."""
    monkeypatch.setattr(session_watch, "REQUEST_S", 0.1)
    caplog.set_level(logging.INFO, "ackfloor.kafka")
    watch = SessionWatch(options_of("127.0.0.1:1", "broker"), "g")
    for _ in range(2):
        watch._learn(quiet_admin(watch._admin_config)[0])
    assert watch.session == Session(45.0, 15.0)
    (line,) = (r.getMessage() for r in caplog.records if r.name == "ackfloor.kafka")
    assert "group g does not tell its session" in line
    assert "45 s, with a heartbeat in 15 s" in line


class Brokers:
    """Tell a group's session in place of an admin client; what is an error is raised."""

    def __init__(self, *told: Session | Exception) -> None:
        self.told = [*told]
        #: The time limit of the last request.
        self.within_s = 0.0

    def describe_configs(
        self, resources: list[ConfigResource], request_timeout: float
    ) -> dict[ConfigResource, Future[dict[str, Any]]]:
        """The next answer; the last one for good."""
        self.within_s = request_timeout
        answer: Future[dict[str, Any]] = Future()
        told = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        if isinstance(told, Exception):
            answer.set_exception(told)
        else:
            names = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
            answer.set_result(
                {
                    name: SimpleNamespace(value=f"{seconds * 1000:.0f}")
                    for name, seconds in zip(names, told, strict=True)
                }
            )
        return {resources[0]: answer}


def test_a_session_that_is_told_late_or_altered_counts_from_then_on(
    monkeypatch: pytest.MonkeyPatch, coordinator: Coordinator
) -> None:
    """The broker that was asked first may have been away, and an operator may alter the group's."""
    for name, value in (("ASKED_IN_A_SESSION", 4500), ("LEARN_SOON_S", 0), ("LEARN_AGAIN_S", 0)):
        monkeypatch.setattr(session_watch, name, value)
    denied = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    brokers = Brokers(denied, Session(10.0, 3.0), Session(20.0, 4.0))
    monkeypatch.setattr(session_watch, "quiet_admin", lambda config: (brokers, []))
    watch = SessionWatch(options_of("127.0.0.1:1", "broker"), "g")
    known = []
    learn = SessionWatch._learn

    def learned(self: SessionWatch, admin: AdminClient) -> None:
        learn(self, admin)
        known.append((self.session, self.session.ask_every_s))

    monkeypatch.setattr(SessionWatch, "_learn", learned)
    watch.start(cast("Consumer", coordinator), "orders")
    try:
        until(lambda: len(known) > 3)
    finally:
        watch.stop()
    assert [session for session, _ in known[:3]] == [UNKNOWN, (10.0, 3.0), (20.0, 4.0)]
    assert [every_s for _, every_s in known[:3]] == [45 / 4500, 10 / 4500, 20 / 4500]


@pytest.mark.parametrize(
    ("session", "within_s"),
    [
        (UNKNOWN, 5.0),
        (Session(45.0, 5.0), 5.0),
        (Session(10.0, 3.0), 4 / 3),
        (Session(3.0, 1.0), 0.2),
    ],
)
def test_a_silence_that_begins_with_that_question_is_noticed_within_the_session(
    session: Session, within_s: float
) -> None:
    """Brokers may be set up for sessions that are shorter than two time limits."""
    watch, brokers = SessionWatch(options_of("127.0.0.1:1", "broker"), "g"), Brokers(session)
    watch.session = session
    watch._learn(cast("AdminClient", brokers))
    assert brokers.within_s == pytest.approx(within_s)
    # Nothing answers it, and the next request to the coordinator fails.
    assert within_s + session.ask_every_s + session.patience_s < session.timeout_s


def test_a_group_without_answers_is_not_asked_for_its_session(
    monkeypatch: pytest.MonkeyPatch, coordinator: Coordinator
) -> None:
    """What waits for that answer does not ask the coordinator meanwhile."""
    monkeypatch.setattr(session_watch, "ASKED_IN_A_SESSION", 4500)
    monkeypatch.setattr(session_watch, "LEARN_AGAIN_S", 0)
    learned: list[str] = []
    watch = SessionWatch(options_of("127.0.0.1:1", "broker"), "g")
    monkeypatch.setattr(watch, "_learn", lambda admin: learned.append(watch._why))
    coordinator.away = True
    watch.start(cast("Consumer", coordinator), "orders")
    until(lambda: coordinator.asked > 5)
    watch.stop()
    assert set(learned) == {""}


@pytest.mark.kafka
def test_the_group_tells_its_session(bootstrap_servers: str) -> None:
    """Each group may have its own, whatever the brokers' default is."""
    group = fresh("g")
    entry = ConfigEntry(
        "consumer.session.timeout.ms", "50000", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
    watch = SessionWatch(options_of(bootstrap_servers, "broker"), group)

    def told() -> bool:
        watch._learn(admin)
        return watch.session == Session(50.0, 1.0)

    until(told)


@pytest.mark.kafka
@pytest.mark.parametrize("protocol", ["cooperative", "eager"])
def test_where_the_client_counts_itself_nobody_else_does(
    bootstrap_servers: str, sources: list[KafkaSource], protocol: str
) -> None:
    """Under the classic protocol librdkafka gives its partitions up at the end of its session.

    In a rebalance it does not, but there nobody can ask either; see `session_watch`.
    """
    topic = make_topic(bootstrap_servers)
    source, _ = opened(sources, bootstrap_servers, fresh("g"), topic, protocol)
    assert source._session_watch is None


def test_a_reader_that_is_no_member_has_no_session() -> None:
    """In broadcast mode the settings of the group's consumers hold as well."""
    source = KafkaBroadcastSource(options_of("127.0.0.1:1", "broker"), "g")
    assert source._session_watch is None


class Member:
    """What a source does with its partitions, in place of a membership."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def suspend(self) -> None:
        """Give them up."""
        self.done.append("suspend")

    def take_up(self) -> None:
        """Go on with them."""
        self.done.append("take up")


class Watched:
    """What a watch says, in place of one that asks."""

    def __init__(self) -> None:
        self.why = ""
        self.is_steady = False

    def silence(self) -> str:
        """Why the member may have been thrown out."""
        return self.why

    def steady(self) -> bool:
        """Whether it is known to be a member."""
        return self.is_steady


def looked_at() -> tuple[Member, Watched, Callable[[], None]]:
    """A source that has joined no group, and what looks at its session."""
    source = KafkaSource(options_of("127.0.0.1:1", "broker"), "g")
    member, watched = Member(), Watched()
    source._membership = cast("Membership", member)
    return member, watched, lambda: source._look_at_session(cast("SessionWatch", watched))


def test_what_comes_between_two_silences_is_given_up_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Thrown out, it joins anew and gets partitions; silent again before answers were steady."""
    member, watched, look = looked_at()
    watched.why = "no answer for 41 s"
    look()
    assert member.done == ["suspend"]
    watched.why = ""
    look()
    watched.why = "no answer for 41 s"
    look()
    assert member.done == ["suspend", "suspend"]
    watched.why, watched.is_steady = "", True
    look()
    assert member.done[2:] == ["take up"]
    assert len(caplog.records) == 1


def silenced(
    monkeypatch: pytest.MonkeyPatch, source: KafkaSource, seen: Listener
) -> pytest.MonkeyPatch:
    """The coordinator of a source's group is silent for long."""
    monkeypatch.setattr(SessionWatch, "silence", lambda self: "no answer for 41 s")
    monkeypatch.setattr(SessionWatch, "steady", lambda self: False)
    pump(source, lambda: seen.lost)
    return monkeypatch


@pytest.mark.kafka
@pytest.mark.usefixtures("both_ways")
def test_a_silent_coordinator_takes_every_partition_until_it_answers(
    bootstrap_servers: str, sources: list[KafkaSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read meanwhile, it is told, and work goes on where the group stands."""
    topic, group = make_topic(bootstrap_servers, 2), fresh("g")
    for partition in (0, 1):
        produce(bootstrap_servers, topic, 5, partition)
    source, seen = opened(sources, bootstrap_servers, group, topic, "broker")
    pump(source, lambda: len(seen.records) == 10)
    source.commit([CommitPosition(topic, 0, 3, "", 1)], wait=True)
    silenced(monkeypatch, source, seen)
    assert sorted(seen.lost) == [Partition(topic, 0), Partition(topic, 1)]
    assert "no answer" in source.troubles()[f"group {group}"].why
    produce(bootstrap_servers, topic, 2)
    for _ in range(20):
        source.poll(0.05)
    assert len(seen.records) == 10
    monkeypatch.setattr(SessionWatch, "silence", lambda self: "")
    monkeypatch.setattr(SessionWatch, "steady", lambda self: True)
    pump(source, lambda: len(seen.records) == 10 + 4 + 5)
    assert [(s.partition, s.position) for s in sorted(seen.starts[2:])] == [(0, 3), (1, 0)]
    assert sorted((r.partition(), r.offset()) for r in seen.records[10:]) == [
        *((0, offset) for offset in range(3, 7)),
        *((1, offset) for offset in range(5)),
    ]
    assert source.troubles() == {}


@pytest.mark.kafka
@pytest.mark.usefixtures("both_ways")
def test_what_was_given_up_and_goes_to_another_member_is_not_told_again(
    bootstrap_servers: str, sources: list[KafkaSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group takes partitions back that the listener has given up already."""
    topic, group = make_topic(bootstrap_servers, 2), fresh("g")
    source, seen = opened(sources, bootstrap_servers, group, topic, "broker")
    pump(source, lambda: len(seen.starts) == 2)
    with monkeypatch.context() as silent:
        silenced(silent, source, seen)
        other, others = opened(sources, bootstrap_servers, group, topic, "broker")
        # It is as silent as the first one, from its first turn on: it gives up what it gets.
        until(lambda: (source.poll(0.02), other.poll(0.02), others.starts)[-1])
    monkeypatch.setattr(SessionWatch, "steady", lambda self: True)

    def shared() -> bool:
        source.poll(0.02)
        other.poll(0.02)
        return len(seen.starts) == 3

    until(shared)
    assert seen.revoked == []
    taken = {(s.topic, s.partition) for s in others.starts[-1:]}
    assert {(s.topic, s.partition) for s in seen.starts[2:]} == {
        (topic, partition) for partition in (0, 1)
    } - taken
