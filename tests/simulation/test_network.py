"""What the simulated network adds to the broker in memory: order, lost answers, deaths on the way.

docs/simulation-broker.md names for each the test on a real broker, or where it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Transaction
from ackfloor.core.records.record import CommitPosition, TopicPartition
from ackfloor.testing.memory.memory_broker import MemoryBroker
from tests.contracts.sink_contract import Listener as SinkListener
from tests.contracts.sink_contract import parcel_of
from tests.contracts.source_contract import Listener, numbered
from tests.contracts.transaction_contract import Ends
from tests.simulation.hub import Hub, SimClock, Strand
from tests.simulation.life import Life
from tests.simulation.network import Network
from tests.simulation.ports import (
    COMMIT_TIMEOUT_S,
    PUBLISH_TIMEOUT_S,
    SimSink,
    SimSource,
    SimTransactionalSink,
)
from tests.simulation.watch import Watch

SESSION_S = 10.0
#: Longer than any way to the broker and back.
WAY_S = 1.0


class _Nobody:
    """A watch that looks away, whatever it is told."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Worker:
    """One process with its clients."""

    def __init__(self, stand: Stand, number: int) -> None:
        self.life = Life(stand.hub, number, self._died)
        watch = cast("Watch", _Nobody())
        client = (stand.hub, self.life, stand.network, watch)
        self.source, self.told = SimSource(stand.broker, "g", *client), Listener()
        self.sink, self.reports = SimSink(stand.broker, *client), SinkListener()
        self.transactions, self.ends = SimTransactionalSink(stand.broker, "g", *client), Ends()
        self._stand = stand

    def _died(self) -> None:
        self.source.die()
        self.sink.die()
        self.transactions.die()

    def do(self, call: Callable[[], Any]) -> None:
        """Do something in it."""
        strand = Strand(self._stand.hub, call, self.life.is_alive)
        self.life.strands.append(strand)
        strand.start()
        self._stand.passes(WAY_S)

    def join(self) -> None:
        """Open what it has, and take partitions over."""
        self.sink.open(self.reports)
        self.transactions.open(self.ends)
        self.do(lambda: self.source.subscribe(["t"], self.told))
        self.poll()

    def poll(self) -> None:
        """A turn of its owner thread."""

        def turn() -> None:
            self.source.poll(0.0)
            self.sink.poll()
            self.transactions.poll()

        self.do(turn)

    def commit(self, *positions: int) -> None:
        """Send commits, one after the other."""
        made = [CommitPosition("t", 0, n, str(n), 1) for n in positions]

        def send() -> None:
            for position in made:
                self.source.commit([position], wait=False)

        self.do(send)

    def publish(self, *parcels: PendingWrite) -> None:
        """Send parcels, one after the other."""

        def send() -> None:
            for parcel in parcels:
                self.sink.publish(parcel)

        self.do(send)


class Stand:
    """A broker with one topic, a network, and workers."""

    def __init__(self, seed: int = 1) -> None:
        self.hub = Hub(seed)
        self.network = Network(self.hub, session_s=SESSION_S, batch=500)
        self.broker = MemoryBroker(SimClock(self.hub))
        self.broker.create_topic("t")
        self.broker.create_topic("out")
        for value in numbered(20):
            self.broker.produce("t", value)

    def worker(self, number: int = 1) -> Worker:
        """A worker that has joined."""
        worker = Worker(self, number)
        worker.join()
        return worker

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self.hub.run(self.hub.now_s + seconds)

    @property
    def committed(self) -> int | None:
        """What the group has committed."""
        found = self.broker.committed("g", "t")
        return None if found is None else found.position

    @property
    def values(self) -> list[bytes | None]:
        """What was written to the other topic."""
        return [record.value() for record in self.broker.records("out")]


@pytest.fixture
def stand() -> Stand:
    """A broker and a network."""
    return Stand()


@pytest.mark.parametrize("seed", range(20))
def test_commits_arrive_in_the_order_in_which_they_were_sent(seed: int) -> None:
    """So the last one is what counts, and it is answered last."""
    stand = Stand(seed)
    worker = stand.worker()
    worker.commit(3, 9, 5, 12, 7)
    worker.poll()
    assert stand.committed == 7
    assert [position.position for position, _ in worker.told.answers] == [3, 9, 5, 12, 7]


def test_where_a_partition_goes_on_is_asked_behind_the_commits(stand: Stand) -> None:
    """After a silence, too: the question takes the connection on which they are on their way."""
    worker = stand.worker()
    stand.network.weather.slow_s = 5 * WAY_S
    worker.commit(4)
    worker.source.coordinator_is_silent = True
    worker.poll()
    worker.source.coordinator_is_silent = False
    worker.poll()
    assert worker.told.log == ["assigned", "lost"]
    assert stand.committed is None
    stand.passes(5 * WAY_S)
    worker.poll()
    assert worker.told.log == ["assigned", "lost", "assigned"]
    assert [start.position for start in worker.told.starts.values()] == [4]


@pytest.mark.parametrize("seed", range(20))
def test_reports_come_in_the_order_of_the_writes(seed: int) -> None:
    """As those of one partition of a real one do."""
    stand = Stand(seed)
    worker = stand.worker()
    parcels = [parcel_of("out", value=value) for value in numbered(20)]
    worker.publish(*parcels)
    worker.poll()
    assert worker.reports.published == parcels
    assert stand.values == numbered(20)


def test_a_commit_whose_answer_is_lost_is_stored(stand: Stand) -> None:
    """Its client gives it up after its time-out, and can't know."""
    worker = stand.worker()
    stand.network.weather.lose_answer["commit"] = 1.0
    worker.commit(4)
    worker.poll()
    assert (stand.committed, worker.told.answers) == (4, [])
    stand.passes(COMMIT_TIMEOUT_S)
    worker.poll()
    assert [error is None for _, error in worker.told.answers] == [False]
    assert stand.committed == 4


def test_a_commit_that_is_lost_is_not_stored(stand: Stand) -> None:
    """To its client it looks the same."""
    worker = stand.worker()
    stand.network.weather.lose_request["commit"] = 1.0
    worker.commit(4)
    stand.passes(COMMIT_TIMEOUT_S)
    worker.poll()
    assert [error is None for _, error in worker.told.answers] == [False]
    assert stand.committed is None


def test_a_write_whose_report_is_lost_is_there_and_comes_twice(stand: Stand) -> None:
    """It has failed as far as its client knows; to lose nothing it is written again."""
    worker = stand.worker()
    stand.network.weather.lose_answer["publish"] = 1.0
    parcel = parcel_of("out", value=b"unheard")
    worker.publish(parcel)
    assert stand.values == [b"unheard"]
    stand.passes(PUBLISH_TIMEOUT_S)
    worker.poll()
    assert [failed for failed, _, _ in worker.reports.failed] == [parcel]
    stand.network.weather.lose_answer.clear()
    worker.publish(parcel)
    worker.poll()
    assert worker.reports.published == [parcel]
    assert stand.values == [b"unheard", b"unheard"]


def test_what_was_sent_before_a_death_still_arrives(stand: Stand) -> None:
    """As what is in a socket's buffer; nobody is told."""
    worker = stand.worker()
    parcel = parcel_of("out")

    def send_and_die() -> None:
        worker.source.commit([CommitPosition("t", 0, 4, "", 1)], wait=False)
        worker.sink.publish(parcel)
        worker.life.die("in a test")

    worker.do(send_and_die)
    assert (stand.committed, stand.values) == (4, [b"v"])
    assert (worker.told.answers, worker.reports.published) == ([], [])


def test_a_dead_member_keeps_its_partitions_until_its_session_ends(stand: Stand) -> None:
    """Until then nobody else gets them, and it is told nothing."""
    dead, other = stand.worker(1), stand.worker(2)
    assert (len(dead.told.starts), other.told.starts) == (1, {})
    dead.do(lambda: dead.life.die("in a test"))
    stand.passes(SESSION_S - 4 * WAY_S)
    other.poll()
    assert other.told.starts == {}
    stand.passes(4 * WAY_S)
    other.poll()
    assert len(other.told.starts) == 1
    assert dead.told.log == ["assigned"]


def test_a_member_beyond_its_session_is_refused_and_told_and_joins_again(stand: Stand) -> None:
    """A commit that arrives after its expulsion changes nothing."""
    worker = stand.worker()
    worker.source.outlive_session()
    worker.commit(4)
    assert stand.committed is None
    worker.poll()
    assert worker.told.log == ["assigned", "lost", "assigned"]
    assert [error is None for _, error in worker.told.answers] == [False]
    worker.commit(5)
    assert stand.committed == 5


def begun(worker: Worker) -> Transaction:
    """A transaction that a worker has begun."""
    position = CommitPosition("t", 0, 4, "", 1)
    transaction = Transaction((parcel_of("out"),), (position,))
    member = worker.source.membership()
    worker.do(lambda: worker.transactions.transact(transaction, member))
    return transaction


def test_an_aborted_transaction_leaves_nothing(stand: Stand) -> None:
    """No record that a reader gets, and no commit."""
    worker = stand.worker()
    stand.network.weather.abort = 1.0
    transaction = begun(worker)
    worker.poll()
    assert (stand.values, stand.committed) == ([], None)
    ((ended, outcome),) = worker.ends.ended
    assert (ended, outcome.committed) == (transaction, False)


def test_how_a_transaction_ended_is_told_when_it_is_known(stand: Stand) -> None:
    """All of it is there before; its worker has to wait, and is told nothing in between."""
    worker = stand.worker()
    stand.network.weather.unclear_s = 1_000.0
    transaction = begun(worker)
    worker.poll()
    assert (stand.values, stand.committed) == ([b"v"], 4)
    assert worker.ends.ended == []
    assert worker.transactions.pending() == 1
    stand.passes(1_000.0)
    worker.poll()
    assert [(t, o.committed) for t, o in worker.ends.ended] == [(transaction, True)]


@pytest.mark.parametrize("left", [False, True])
def test_an_end_that_nobody_tells_is_read_off_the_groups_commits(
    stand: Stand, *, left: bool
) -> None:
    """As the real sink reads it: of a partition that has left, they may be another worker's."""
    worker = stand.worker()
    stand.network.weather.abort, stand.network.weather.unclear_s = 1.0, 1_000.0
    transaction = begun(worker)
    if left:
        transaction.left.add(TopicPartition("t", 0))
    stand.broker.commit("g", "t", 0, 4)
    stand.passes(1_000.0)
    worker.poll()
    ((_, outcome),) = worker.ends.ended
    assert stand.values == []
    assert outcome.committed is not left


def test_a_transaction_ends_with_its_process(stand: Stand) -> None:
    """Its successor fences the producer: what had not ended is aborted."""
    worker = stand.worker()
    transaction = Transaction((parcel_of("out"),), (CommitPosition("t", 0, 4, "", 1),))

    def begin_and_die() -> None:
        worker.transactions.transact(transaction, worker.source.membership())
        worker.life.die("in a test")

    worker.do(begin_and_die)
    assert (stand.values, stand.committed) == ([], None)


def test_a_member_that_left_the_partition_can_not_end_its_transaction(stand: Stand) -> None:
    """A transaction is fenced by who owns what, and a plain commit is not."""
    worker = stand.worker()
    stand.broker.delete_topic("t")
    worker.poll()
    begun(worker)
    worker.poll()
    ((_, outcome),) = worker.ends.ended
    assert outcome.error
    assert (stand.values, stand.committed) == ([], None)
