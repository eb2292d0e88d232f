"""Dead letters that hold their keys, in transactions: with what holds the key there, or not at all.

A worker is killed after any transaction, or refused anything: each dead letter is there once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from ackfloor.core.messages.events import PublishFailed, RecordDeadLettered, RecordParked
from ackfloor.core.messages.fault_causes import Trouble
from ackfloor.core.messages.lane_order import Action, LaneOrder
from ackfloor.core.outbox import transactional_outbox
from ackfloor.core.parking.transaction import Refusal, Transaction, TransactionOutcome
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import ACKED, Bury, Outcome, Rejected
from ackfloor.core.records.record import Failure
from ackfloor.core.state.assignment import AfterDeadLetter
from tests.framework.core.quarantine_worlds import (
    BOOM,
    HOPELESS,
    LONG,
    SHORT,
    SOURCE,
    TIERS,
    QuarantineWorld,
    parked_headers,
    rules,
)
from tests.framework.core.worlds import DLQ

HOLDING: tuple[AfterDeadLetter, ...] = ("dead_letter", "hold")
GONE = Trouble("missing", "gone", unwritable=True)
STACK = "line\n" * 100
PLACES = [(DLQ, Reason.DEAD_LETTER), (LONG, Reason.HELD)]


def world_of(after: AfterDeadLetter, keys: str = "", count: int = 1) -> QuarantineWorld:
    """A worker that parks in transactions, and records of these keys."""
    world = QuarantineWorld(rules(after_dead_letter=after), count=count, transactional=True)
    for partition in range(count):
        world.gain(partition=partition)
    world.produce(keys)
    return world


def rest(world: QuarantineWorld, first: Sequence[Outcome] = (), kill_at: int = -1) -> int:
    """Until nothing moves; returns how many transactions there were.

    Args:
        first: how the attempts of the record at offset 0 end.
        kill_at: after which of them the worker is killed, and is not told how it ended.
    """
    number = 0
    for _ in range(40):
        while world.transactions:
            world.carry_out(tell=number != kill_at)
            if number == kill_at:
                world.restart()
            number += 1
        world.poll()
        while world.startable():
            delivery = world.start()
            attempt = delivery.attempt - 1
            ends = delivery.origin.offset == 0 and attempt < len(first)
            world.finish(delivery, first[attempt] if ends else ACKED)
        world.tick(1.0)
        world.answer_commits()
    return number


def writes_of(transaction: Transaction) -> list[tuple[str, Reason | None]]:
    """Where its records go, and why."""
    return [(write.topic, write.envelope.reason) for write in transaction.writes]


def open_count(world: QuarantineWorld) -> int:
    """Open records, in all partitions."""
    return sum(len(a.tracker.open) for a in world.engine.assignments.values())


@pytest.mark.parametrize("after", HOLDING)
def test_a_kill_after_any_transaction_doubles_no_dead_letter(after: AfterDeadLetter) -> None:
    """The one that wrote the dead letter has settled its record, and holds its key."""
    killed, count = 0, 99
    while killed <= count:
        world = world_of(after, "aaa")
        count = rest(world, (BOOM, HOPELESS), kill_at=killed)
        killed += 1
        dead = [offset for offset, _ in world.waiting_in(DLQ)]
        assert dead == ([0, 1, 2] if after == "dead_letter" else [0]), f"killed at {killed}"
        assert [offset for _, offset in world.handled] == []
        assert (SOURCE, 0, b"a") in world.quarantined or after == "dead_letter"
    assert killed >= 3


@pytest.mark.parametrize("after", HOLDING)
def test_both_go_in_one_transaction_that_settles_the_record(after: AfterDeadLetter) -> None:
    """The worker's own account is then as if they had been written one after the other."""
    world = world_of(after, "aa")
    world.handle(HOPELESS)
    (transaction,) = world.transactions
    assert writes_of(transaction) == [*PLACES, (LONG, Reason.BEHIND)]
    assert [p.position for p in transaction.positions] == [2]
    assert transaction.queued == (transaction.writes[0], transaction.writes[2])
    assert world.engine.assignments[SOURCE, 0].parking == 2
    world.carry_out()
    assert world.open(SOURCE) == []
    assert [type(e) for e in world.events if isinstance(e, RecordDeadLettered | RecordParked)] == [
        RecordDeadLettered, RecordParked, RecordParked
    ]  # fmt: skip
    rest(world)
    assert world.engine.assignments[SOURCE, 0].parking == 0
    assert open_count(world) == (2 if after == "hold" else 0)
    assert bool(world.quarantined) is (after == "hold")


@pytest.mark.parametrize("early", [False, True])
def test_what_holds_a_key_may_be_read_before_its_transaction_is_known_to_be_committed(
    early: bool,
) -> None:
    """The broker has it, and the answer takes longer: what the operator said of the key counts."""
    world = world_of("continue", "aaa")
    world.handle(BOOM)
    world.commit_transactions()
    world.poll()
    order = LaneOrder(Action.DEAD_LETTER, "bill", (), with_behind=True)
    assert world.engine.lane_orders.carry_out(order, world.now).done == 1
    world.take()
    assert writes_of(world.carry_out(tell=False)) == PLACES
    if early:
        world.poll()
        world.tick()
        assert not world.startable()
    world.end_transaction()
    rest(world)
    assert [offset for offset, _ in world.waiting_in(DLQ)] == [0, 1, 2]
    assert (world.handled, open_count(world), len(world.quarantined)) == ([], 0, 0)


def test_a_dead_letter_with_nothing_behind_it_goes_alone() -> None:
    """With `dead_letter` there is nothing to hold the key for; what comes meanwhile goes on."""
    world = world_of("dead_letter", "a")
    world.handle(HOPELESS)
    (transaction,) = world.transactions
    assert writes_of(transaction) == PLACES[:1]
    world.produce("a")
    world.carry_out()
    rest(world)
    assert [offset for offset, _ in world.waiting_in(DLQ)] == [0]
    assert [offset for _, offset in world.handled] == [1]
    assert open_count(world) == 0


def test_one_that_goes_again_takes_what_has_come_behind_it() -> None:
    """Whether it holds its key is decided when its transaction begins."""
    world = world_of("dead_letter", "a")
    world.handle(HOPELESS)
    world.produce("a")
    world.end_transaction(TransactionOutcome("illegal generation"))
    assert writes_of(world.carry_out()) == [(LONG, Reason.BEHIND)]
    world.tick(1.0)
    assert writes_of(world.transactions[0]) == PLACES
    rest(world)
    assert [offset for offset, _ in world.waiting_in(DLQ)] == [0, 1]
    assert open_count(world) == 0


@pytest.mark.parametrize("after", HOLDING)
def test_a_crash_suspect_goes_with_what_holds_its_key(after: AfterDeadLetter) -> None:
    """Its key was not quarantined: nobody knows yet what is behind it."""
    world = world_of(after, "a")
    delivery = world.start()
    verdict = Bury(Reason.CRASH, Failure("Crash", "x"))
    world.engine._outbox.park(delivery, verdict, world.now)
    world.take()
    assert writes_of(world.transactions[0]) == [(DLQ, Reason.CRASH), PLACES[1]]
    world.carry_out()
    assert len(world.quarantined) == 1
    rest(world)
    assert [offset for offset, _ in world.waiting_in(DLQ)] == [0]
    assert len(world.quarantined) == (after == "hold")


@pytest.mark.parametrize("at", [0, 1])
def test_a_refusal_of_either_is_that_of_the_dead_letter(at: int) -> None:
    """It is tried again whole; its topic goes alone until it takes one."""
    world = world_of("hold", "ab")
    world.handle(HOPELESS)
    (transaction,) = world.transactions
    refused = transaction.writes[at]
    world.handle(BOOM)
    world.end_transaction(TransactionOutcome("no", {refused: Refusal("no")}))
    assert [(e.topic, e.offset) for e in world.told(PublishFailed)] == [(SOURCE, 0)]
    assert [e.target for e in world.told(PublishFailed)] == [refused.topic]
    assert world.subjects() == [f"parking {refused.topic}"]
    assert writes_of(world.transactions[0]) == [(SHORT, Reason.ERROR)]
    world.tick(1.0)
    world.carry_out()
    assert writes_of(world.transactions[0]) == PLACES
    world.carry_out()
    assert world.subjects() == []
    assert world.engine.assignments[SOURCE, 0].parking == 0
    assert world.open(SOURCE) == []


@pytest.mark.parametrize("at", [0, 1])
def test_a_topic_that_refused_one_of_both_has_transactions_of_its_own(at: int) -> None:
    """What goes elsewhere does not wait for it."""
    world = world_of("hold", "abcd")
    world.handle(HOPELESS)
    refused = world.transactions[0].writes[at]
    world.end_transaction(TransactionOutcome("no", {refused: Refusal("no")}))
    for _ in range(3):
        world.handle(BOOM)
    world.tick(1.0)
    seen = []
    while world.transactions:
        seen.append({topic for topic, _ in writes_of(world.carry_out())})
    assert {SHORT, refused.topic} & set().union(*seen) == {SHORT, refused.topic}
    assert all(topics in ({SHORT}, {DLQ, LONG}) for topics in seen)


@pytest.mark.parametrize("at", [0, 1])
def test_either_too_large_goes_alone_then_lighter(at: int) -> None:
    """A pair has nobody else to blame."""
    world = world_of("hold", "cab")
    world.handle(BOOM)
    big = Rejected(Failure("Hopeless", "x", stack=STACK))
    world.handle(big)
    world.handle(big)
    world.carry_out()
    (both,) = world.transactions
    assert writes_of(both) == PLACES * 2
    large = Refusal("large", too_large=True)
    first = both.queued[0]
    world.end_transaction(TransactionOutcome("large", {both.writes[at]: large}))
    tried = []
    while world.transactions:
        (transaction,) = world.transactions
        assert writes_of(transaction) == PLACES
        if transaction.queued[0] is not first:
            world.carry_out()
            continue
        tried.append(transaction.writes[at].envelope.error_stack)
        if len(tried) == 1:
            world.end_transaction(TransactionOutcome("large", {transaction.writes[at]: large}))
        else:
            world.carry_out()
    assert tried == [STACK, None]
    assert world.subjects() == []
    assert world.open(SOURCE) == []


@pytest.mark.parametrize("topic", [DLQ, LONG])
def test_neither_is_written_while_one_topic_can_not_be(topic: str) -> None:
    """The fault is that topic's; under way it is given up, and then waits."""
    world = world_of("hold", "ab")
    world.handle(HOPELESS)
    (transaction,) = world.transactions
    world.engine.troubled({topic: GONE}, world.now)
    assert [write.topic for write in transaction.hopeless] == [topic]
    world.end_transaction(TransactionOutcome("gone", dict(transaction.hopeless)))
    world.handle(HOPELESS)
    world.tick(1.0)
    assert world.transactions == []
    world.engine.troubled({topic: GONE}, world.now)
    (fault,) = world.engine.faults.all()
    assert (fault.subject, fault.records) == (topic, 2)
    world.engine.troubled({}, world.now)
    world.take()
    world.commit_transactions()
    assert world.subjects() == []
    assert sorted(world.waiting_in(DLQ)) == [(0, "dead_letter"), (1, "dead_letter")]
    assert sorted(world.waiting_in(LONG)) == [(0, "held"), (1, "held")]


def test_a_dead_letter_that_goes_alone_does_not_wait_for_a_retry_topic() -> None:
    """What it would lead is not written, so nobody has to be able to."""
    world = world_of("dead_letter", "a")
    world.engine.troubled({LONG: GONE}, world.now)
    world.handle(HOPELESS)
    assert writes_of(world.transactions[0]) == PLACES[:1]


def test_both_count_in_what_a_transaction_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And are never split."""
    monkeypatch.setattr(transactional_outbox, "MOST_WRITES", 3)
    world = world_of("hold", "abcde")
    for _ in range(5):
        world.handle(HOPELESS)
    world.carry_out()
    for _ in range(4):
        assert writes_of(world.carry_out()) == PLACES
    assert world.transactions == []


def test_both_count_in_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies of a record are twice as large."""
    world = world_of("hold", "abcde")
    size = next(iter(world.engine.assignments[SOURCE, 0].tracker.open.values())).size
    monkeypatch.setattr(transactional_outbox, "MOST_BYTES", size * 4)
    for _ in range(5):
        world.handle(HOPELESS)
    assert [len(world.carry_out().queued) for _ in range(3)] == [1, 2, 2]


@pytest.mark.parametrize("lost", [False, True])
def test_of_a_partition_that_left_neither_goes_again(lost: bool) -> None:
    """Its next owner handles the record, unless the broker has both."""
    world = world_of("hold", "a")
    world.handle(HOPELESS)
    dropped = world.engine.assignments[SOURCE, 0]
    world.leave_all(lost=lost)
    world.end_transaction(TransactionOutcome("illegal generation"))
    world.tick(20.0)
    assert world.transactions == []
    assert (dropped.parking, dropped.refused) == (0, 0)
    assert world.subjects() == []


@pytest.mark.parametrize("transactional", [False, True])
def test_what_is_in_no_keys_order_leads_nothing(transactional: bool) -> None:
    """Its retry topic has fewer partitions than its source: its dead letter settles it."""
    world = QuarantineWorld(
        rules(after_dead_letter="hold"),
        count=2,
        counts=[(SHORT, 1), (LONG, 1)],
        transactional=transactional,
    )
    world.gain()
    world.append(SHORT, headers=parked_headers(0, partition=1))
    world.poll()
    world.handle(HOPELESS)
    if transactional:
        assert writes_of(world.carry_out()) == PLACES[:1]
    else:
        world.confirm_all()
    assert world.open(SHORT) == []
    assert not world.quarantined


class Course:
    """A random course of events, and the broker's side of it."""

    def __init__(self, seed: int, after: AfterDeadLetter) -> None:
        self.dice = Random(seed)
        self.world = world_of(after, count=2)
        self.restarts = 0

    def step(self) -> None:
        """Something happens."""
        world, dice = self.world, self.dice
        what = dice.random()
        if what < 0.2:
            world.produce(dice.choice(("a", "ab", "aab", "cb")), dice.randrange(2))
        elif what < 0.5 and world.startable():
            world.finish(world.start(), dice.choice((ACKED, BOOM, BOOM, HOPELESS)))
        elif what < 0.75 and world.transactions:
            self.end_transaction()
        elif what < 0.85:
            world.tick(dice.choice((0.0, 0.3, 1.0, 5.0)))
        elif what < 0.9:
            world.answer_commits()
        elif what < 0.97:
            world.poll()
        else:
            self.kill()

    def end_transaction(self) -> None:
        """It is committed or not, and the worker lives to hear of it or not."""
        world, dice = self.world, self.dice
        transaction, fate = world.transactions[0], dice.random()
        if fate < 0.7:
            tell = fate < 0.6
            world.carry_out(tell=tell)
            if not tell:
                self.kill()
        elif fate < 0.8:
            world.end_transaction(TransactionOutcome("illegal generation"))
        else:
            refusal = Refusal("no", too_large=fate < 0.9)
            refused = dice.choice(transaction.writes)
            world.end_transaction(TransactionOutcome("no", {refused: refusal}))

    def kill(self) -> None:
        """Another worker has its partitions, from what is committed."""
        self.restarts += 1
        self.world.crash()
        for partition in range(2):
            self.world.gain(partition=partition)

    def dead(self) -> Counter[tuple[int, int]]:
        """How often each record is in the dead-letter topic."""
        return Counter((p, at) for p in range(2) for at, _ in self.world.waiting_in(DLQ, p))

    def rest(self) -> None:
        """What is left is handled."""
        world = self.world
        for _ in range(60):
            world.commit_transactions()
            world.poll()
            world.handle_all()
            world.tick(5.0)
            world.answer_commits()


@pytest.mark.parametrize("after", HOLDING)
@pytest.mark.parametrize("seed", range(100))
def test_no_course_of_events_doubles_a_dead_letter(after: AfterDeadLetter, seed: int) -> None:
    """Nor loses a record, or leaves one open that is not held."""
    course = Course(seed, after)
    for _ in range(150):
        course.step()
    course.rest()
    world, dead = course.world, course.dead()
    assert [place for place, times in dead.items() if times > 1] == []
    handled = set(world.handled)
    for partition in range(2):
        left = 0
        for record in world.logs[SOURCE, partition]:
            place = partition, record.offset()
            if place not in handled and place not in dead:
                left += 1
                key = (SOURCE, partition, record.key())
                assert after == "hold", f"{place} is lost"
                assert key in world.quarantined, f"{place} is lost"
    if after == "dead_letter":
        assert not world.quarantined
        assert open_count(world) == 0
    held = [w for t in TIERS for p in range(2) for w in world.waiting_in(t, p) if w[1] == "held"]
    assert not held or dead
