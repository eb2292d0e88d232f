"""Transactional parking on a real broker: what its contract can't show on a broker in memory."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Transaction, TransactionOutcome
from ackfloor.core.records.record import CommitPosition
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.errors import ConfigError, SourceFailed
from ackfloor.kafka.client.client_options import KafkaOptions, transactional_config
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.produce import transactional_producer as transactor_module
from ackfloor.kafka.produce import transactional_sink as sink_module
from ackfloor.kafka.produce.transactional_producer import Transactor
from ackfloor.kafka.produce.transactional_sink import KafkaTransactionalSink
from tests.framework.kafka.wire import (
    Given,
    Listener,
    fresh,
    join,
    make_topic,
    options,
    parcel,
    stored,
    until,
)

pytestmark = [pytest.mark.kafka]

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))


@dataclass
class Stand:
    """A member of a group, its open sink, and a target."""

    servers: str
    topic: str
    target: str
    group: str
    source: KafkaSource
    listener: Listener
    sink: KafkaTransactionalSink
    ended: list[tuple[Transaction, TransactionOutcome]] = field(default_factory=list)

    def on_transaction(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        self.ended.append((transaction, outcome))

    def transaction(self, *writes: PendingWrite, position: int = 7) -> Transaction:
        """One that commits the source's partition."""
        return Transaction(writes, (CommitPosition(self.topic, 0, position, "af1", 1),))

    def carry_out(self, transaction: Transaction) -> TransactionOutcome:
        """Begin it and wait for its end, the consumer being polled meanwhile."""
        before = len(self.ended)
        self.sink.transact(transaction, self.source.membership())
        self.await_end(before)
        return self.ended[-1][1]

    def await_end(self, before: int = 0) -> None:
        """Until one more transaction has ended."""

        def ended() -> bool:
            self.source.poll(0.01)
            self.sink.poll()
            return len(self.ended) > before

        until(ended, 60)

    def count(self) -> int:
        """How many records a reader of committed records finds in the target."""
        reader = Consumer({"bootstrap.servers": self.servers, "group.id": fresh("r")})
        try:
            partition = TopicPartition(self.target, 0, 0)
            _, end = reader.get_watermark_offsets(partition, timeout=60)
            reader.assign([partition])
            found, position = 0, 0
            while position < end:
                found += sum(m.error() is None for m in reader.consume(1000, 0.05))
                position = reader.position([partition])[0].offset
            return found
        finally:
            reader.close()


@pytest.fixture
def stand(bootstrap_servers: str) -> Iterator[Stand]:
    """A stand of the test's own."""
    made = make_stand(bootstrap_servers, fresh("slot"))
    yield made
    made.sink.close(10)
    made.source.close()


def make_stand(servers: str, transactional_id: str, group: str = "") -> Stand:
    """Open the sink, then join: in the order in which a worker does it."""
    topic, group = make_topic(servers), group or fresh("group")
    sink = KafkaTransactionalSink(options(servers), group, transactional_id)
    source, listener = join([], servers, group, topic)
    stand = Stand(servers, topic, make_topic(servers), group, source, listener, sink)
    sink.open(stand)
    return stand


def test_a_transaction_commits_what_a_commit_does(stand: Stand) -> None:
    """Position, metadata and leader epoch, or the next worker could not check the log below."""
    told = CommitPosition(stand.topic, 0, 7, "af1", 1, leader_epoch=3)
    assert stand.carry_out(Transaction((), (told,))).committed
    found = stored(stand.servers, stand.group, stand.topic)
    assert (found.offset, found.metadata, found.leader_epoch) == (7, "af1", 3)


NOBODY = b"CGMDv2:" + struct.pack("<i", -1) + b"%s\0\0\1"


def test_who_is_no_member_any_more_commits_nothing(stand: Stand) -> None:
    """The broker would take it, and undo what the next owner has committed since."""
    nobody = NOBODY % stand.group.encode()
    _commit_as(stand, nobody, 5)
    assert stored(stand.servers, stand.group, stand.topic).offset == 5, "brokers refuse it now"
    write = parcel(stand.target, Given())
    stand.sink.transact(stand.transaction(write, position=7), nobody)
    stand.await_end()
    assert "thrown this worker out" in stand.ended[-1][1].error
    assert stored(stand.servers, stand.group, stand.topic).offset == 5
    assert stand.carry_out(stand.transaction(write, position=8)).committed
    assert stand.count() == 1


def _commit_as(stand: Stand, member: bytes, position: int) -> None:
    """A transaction of the group's offsets, as the client carries it out."""
    producer = Producer({"bootstrap.servers": stand.servers, "transactional.id": fresh("other")})
    producer.init_transactions(60)
    producer.begin_transaction()
    offsets = [TopicPartition(stand.topic, 0, position)]
    producer.send_offsets_to_transaction(offsets, member, 60)
    producer.commit_transaction(60)


class Treacherous:
    """A producer whose commit fails in the way a test says."""

    def __init__(self, producer: Producer, commit: Callable[[Producer], None]) -> None:
        self._producer = producer
        self._commit = commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self, _timeout: float) -> None:
        self._commit(self._producer)


def betray(stand: Stand, commit: Callable[[Producer], None]) -> Treacherous:
    """Make the next commit fail."""
    transactor = stand.sink._transactor
    assert transactor._producer is not None
    wrapped = Treacherous(transactor._producer, commit)
    transactor._producer = wrapped  # type: ignore[assignment]
    return wrapped


def commit_and_lose_the_answer(producer: Producer) -> None:
    """The broker commits, and its answer does not arrive."""
    producer.commit_transaction(60)
    raise TIMED_OUT


def lose_the_question(_producer: Producer) -> None:
    """The broker never hears of it."""
    raise TIMED_OUT


@pytest.mark.parametrize(
    ("commit", "committed"),
    [(commit_and_lose_the_answer, True), (lose_the_question, False)],
    ids=["it was committed", "it was not"],
)
def test_after_an_indefinite_error_the_group_says_how_it_ended(
    stand: Stand, commit: Callable[[Producer], None], committed: bool
) -> None:
    """Rule 3: the producer is discarded, and what was written is neither lost nor doubled."""
    assert stand.carry_out(stand.transaction(parcel(stand.target, Given()), position=3)).committed
    old = betray(stand, commit)
    outcome = stand.carry_out(stand.transaction(parcel(stand.target, Given()), position=5))
    assert outcome.committed is committed
    assert stand.sink._transactor._producer is not old
    assert stand.count() == 1 + committed
    assert stored(stand.servers, stand.group, stand.topic).offset == (5 if committed else 3)
    assert stand.carry_out(stand.transaction(parcel(stand.target, Given()), position=6)).committed
    assert stand.count() == 2 + committed


def test_a_commit_of_a_partition_that_left_does_not_show_how_it_ended(
    bootstrap_servers: str,
) -> None:
    """Its next owner may have committed the very same, while the transaction was aborted."""
    topic, group = make_topic(bootstrap_servers, 2), fresh("group")
    positions = tuple(CommitPosition(topic, number, 7, "af1", 1) for number in (0, 1))
    transaction = Transaction((), positions)
    transactor = Transactor(options(bootstrap_servers), group, fresh("slot"))
    assert not transactor._has(transaction)
    owner = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    owner.commit(offsets=[TopicPartition(topic, 0, 7, metadata="af1")], asynchronous=False)
    owner.close()
    assert transactor._has(transaction)
    transaction.left.add(Partition(topic, 0))
    assert not transactor._has(transaction)
    transactor.close()


def test_an_end_that_is_not_known_is_not_told(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked until the group says, and closing gives up without a guess."""
    asked: list[Transaction] = []

    def silent(self: object, transaction: Transaction) -> bool:
        asked.append(transaction)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(transactor_module.Transactor, "_has", silent)
    betray(stand, commit_and_lose_the_answer)
    stand.sink.transact(stand.transaction(parcel(stand.target, Given())), stand.source.membership())
    until(lambda: len(asked) > 2)
    stand.sink.poll()
    assert stand.sink.pending() == 1
    stand.sink.close(0.5)
    assert (stand.ended, stand.sink.pending()) == ([], 0)


def test_a_fenced_producer_is_replaced(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    """Another took its id: nothing is written, the log says why, and the next one goes through."""
    thief = Producer(transactional_config(options(stand.servers), stand.sink._transactor._id))
    thief.init_transactions(60)
    outcome = stand.carry_out(stand.transaction(parcel(stand.target, Given())))
    assert not outcome.committed
    assert "transactional_id_prefix" in caplog.text
    assert stand.count() == 0
    assert stand.carry_out(stand.transaction(parcel(stand.target, Given()))).committed


def left_open(servers: str, transactional_id: str) -> tuple[Stand, float]:
    """A worker that was killed in the middle of a transaction; its broker would wait a minute."""
    stand = make_stand(servers, fresh("other"))
    config = transactional_config(
        KafkaOptions(producer={"bootstrap.servers": servers, "transaction.timeout.ms": 60_000}),
        transactional_id,
    )
    killed = Producer(config)
    killed.init_transactions(60)
    killed.begin_transaction()
    killed.produce(stand.target, b"open", partition=0)
    offsets = [TopicPartition(stand.topic, 0, 99, "open")]
    killed.send_offsets_to_transaction(offsets, stand.source.membership(), 20)
    assert killed.flush(60) == 0
    # It is gone without a word as far as the broker knows: nothing of it is called again.
    stand.killed = killed  # type: ignore[attr-defined]
    return stand, time.monotonic()


def test_a_killed_workers_transaction_ends_with_its_successors_start(
    bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rule 3: offsets are stable and topics readable again long before its timeout."""
    transactional_id = fresh("slot")
    stand, _ = left_open(bootstrap_servers, transactional_id)
    with pytest.raises(KafkaException):
        _committed(bootstrap_servers, stand, 1.0)
    successor = KafkaTransactionalSink(options(bootstrap_servers), stand.group, transactional_id)
    began_s = time.monotonic()
    successor.open(stand)
    opened_s = time.monotonic() - began_s
    assert _committed(bootstrap_servers, stand, 50.0) < 0
    with capsys.disabled():
        took_s = time.monotonic() - began_s
        print(f"\nopened in {opened_s:.2f} s, stable {took_s:.2f} s after its start")  # noqa: T201
    assert stand.count() == 0
    assert took_s < 50, "the timeout is a minute"
    successor.close(5)
    stand.sink.close(5)
    stand.source.close()


def test_another_id_would_wait_for_the_timeout(bootstrap_servers: str) -> None:
    """Why ids are stable: a start under another one ends nothing."""
    stand, _ = left_open(bootstrap_servers, fresh("slot"))
    successor = KafkaTransactionalSink(options(bootstrap_servers), stand.group, fresh("slot"))
    successor.open(stand)
    with pytest.raises(KafkaException):
        _committed(bootstrap_servers, stand, 3.0)
    successor.close(5)
    stand.sink.close(5)
    stand.source.close()


def _committed(servers: str, stand: Stand, timeout_s: float) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": stand.group})
    try:
        return int(
            consumer.committed([TopicPartition(stand.topic, 0)], timeout=timeout_s)[0].offset
        )
    finally:
        consumer.close()


def test_large_records_go_together(bootstrap_servers: str) -> None:
    """Rule 10: each near the default limit of a topic, none refused for its neighbours' sake."""
    stand = make_stand(bootstrap_servers, fresh("slot"))
    writes = [parcel(stand.target, Given(bytes(n) + b"x" * 990_000)) for n in range(12)]
    assert stand.carry_out(stand.transaction(*writes)).committed
    assert stand.count() == 12
    stand.sink.close(5)
    stand.source.close()


def test_after_a_refusal_the_next_transaction_goes_through(stand: Stand) -> None:
    """A refused record leaves a hole in the producer's numbering, for which it would fail."""
    small = make_topic(stand.servers, 1, **{"max.message.bytes": "1000"})
    heavy = parcel(small, Given(b"".join(b"%d" % n for n in range(20_000))))
    outcome = stand.carry_out(stand.transaction(heavy, parcel(stand.target, Given())))
    assert list(outcome.refusals) == [heavy]
    assert outcome.refusals[heavy].too_large
    assert stand.carry_out(stand.transaction(parcel(stand.target, Given()))).committed
    assert stand.count() == 1


def test_what_the_client_refuses_at_once_is_a_refusal(stand: Stand) -> None:
    """A partition that it knows is not there, say: it is the parcel's fault alone."""
    assert stand.carry_out(stand.transaction(parcel(stand.target, Given()))).committed
    bad = parcel(stand.target, Given(), partition=77)
    outcome = stand.carry_out(stand.transaction(bad, parcel(stand.target, Given())))
    assert list(outcome.refusals) == [bad]
    assert stand.carry_out(stand.transaction(parcel(stand.target, Given()))).committed


def test_a_record_that_no_broker_has_confirmed_aborts_its_transaction(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may take for written what is nowhere; see `delivery_reports`."""
    unseen = KafkaError(KafkaError._NO_OFFSET, "no broker has said so")
    with monkeypatch.context() as first:
        first.setattr(transactor_module, "failure", lambda _error, _message: unseen)
        outcome = stand.carry_out(stand.transaction(parcel(stand.target, Given())))
    assert not outcome.committed
    assert stand.carry_out(stand.transaction(parcel(stand.target, Given()))).committed
    assert stand.count() == 1


def test_what_nobody_foresaw_ends_the_worker(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is not known, and its partitions would commit nothing any more."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(stand.sink._transactor, "carry_out", broken)
    stand.sink.transact(stand.transaction(parcel(stand.target, Given())), stand.source.membership())

    def failed() -> bool:
        try:
            stand.sink.poll()
        except SourceFailed as exc:
            return "a bug" in str(exc)
        return False

    until(failed)


def test_a_client_that_does_not_come_back_ends_the_worker(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the client can when the group's coordinator moves; its successor ends the transaction."""
    monkeypatch.setattr(sink_module, "STUCK_S", 0.3)
    hung, released = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        hung.set()
        released.wait(60)

    # In the place where it was seen to hang.
    monkeypatch.setattr(Transactor, "_write", hang)
    stand.sink.transact(stand.transaction(parcel(stand.target, Given())), stand.source.membership())
    assert hung.wait(60)

    def failed() -> bool:
        try:
            stand.sink.poll()
        except SourceFailed as exc:
            return "has not returned" in str(exc)
        return False

    until(failed)
    before_s = time.monotonic()
    stand.sink.close(60)
    assert time.monotonic() - before_s < 30, "nobody waits for it"
    released.set()
    monkeypatch.undo()
    successor = make_stand(stand.servers, stand.sink._transactor._id)
    try:
        assert successor.carry_out(
            successor.transaction(parcel(successor.target, Given()))
        ).committed
    finally:
        successor.sink.close(10)
        successor.source.close()


def test_a_broker_that_is_away_at_the_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so long; the supervisor starts the worker again."""
    monkeypatch.setattr(transactor_module, "START_S", 0.0)
    monkeypatch.setattr(transactor_module, "REQUEST_S", 0.5)
    sink = KafkaTransactionalSink(options("127.0.0.1:1"), "g", "slot")
    with pytest.raises(SourceFailed, match="'slot' could not be taken"):
        sink.open(None)  # type: ignore[arg-type]


def test_a_record_is_not_on_its_way_longer_than_its_transaction() -> None:
    """The client refuses that; the shorter of the two limits holds."""
    plain = transactional_config(KafkaOptions(), "slot")
    assert (plain["transaction.timeout.ms"], plain["delivery.timeout.ms"]) == (10_000, 10_000)
    given = KafkaOptions(producer={"message.timeout.ms": 3000, "transaction.timeout.ms": 20_000})
    assert transactional_config(given, "slot")["delivery.timeout.ms"] == 3000
    with pytest.raises(ConfigError, match="transactional_id_prefix"):
        transactional_config(KafkaOptions(producer={"transactional.id": "mine"}), "slot")
