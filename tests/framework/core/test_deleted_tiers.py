"""A retry topic that is deleted: what was read of it is handled, what was not is lost, and told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor.core.messages.events import PartitionsRevoked, RecordsDeleted
from ackfloor.core.messages.fault_causes import Trouble
from ackfloor.core.records.outcomes import Failed, Rejected
from ackfloor.core.records.record import Failure, TopicPartition
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import DLQ, TIER, World

RULES = HandlerRules("bill", concurrency=2, policy=RetryPolicy.fixed("1s", 2, jitter=0))
PLACE = TopicPartition(TIER, 0)
GONE = Trouble("missing", "the topic does not exist", "make it", unwritable=True)


def world_of(waiting: int, *, transactional: bool = False) -> World:
    """A world with so many records that wait in the tier for ten seconds."""
    world = World(RULES, transactional=transactional)
    world.assign()
    world.assign(topic=TIER)
    world.redeliver(range(waiting), due_ms=world.now.wall_ms + 2_000)
    return world


def test_what_was_read_is_handled_and_what_was_not_is_counted() -> None:
    """One event for the topic; the partition leaves once nothing of it is open."""
    world = world_of(3)
    world.engine.deleted([(PLACE, 10)])
    world.engine.deleted([(TopicPartition(TIER, 9), 10)])
    world.take()
    assert world.told(RecordsDeleted) == [RecordsDeleted(TIER, 7, 3)]
    world.tick(2.0)
    while world.ready or (TIER, 0) in world.engine.assignments:
        if world.ready:
            world.finish(world.start())
        world.tick(0.1)
    assert world.engine.flow.open_count == 0
    assert world.told(PartitionsRevoked)[-1] == PartitionsRevoked((PLACE,), False, 0)


def test_nothing_is_told_of_a_topic_that_held_nothing() -> None:
    """It was cleared away."""
    world = world_of(0)
    world.engine.deleted([(PLACE, 0)])
    world.tick()
    assert not world.told(RecordsDeleted)
    assert (TIER, 0) not in world.engine.assignments


def test_nothing_is_committed_of_a_topic_that_is_gone() -> None:
    """A broker would refuse it for ever, and no fault is left of what it has refused before."""
    world = world_of(0)
    world.redeliver([0])
    world.finish(world.start())
    world.redeliver([1, 2], due_ms=world.now.wall_ms + 2_000)
    world.tick(1.0)
    world.answer_commit("UNKNOWN_TOPIC_OR_PART: x")
    assert world.subjects() == [f"commit {TIER}"]
    world.engine.deleted([(PLACE, 3)])
    assert world.subjects() == []
    world.tick(2.0)
    world.finish(world.start())
    world.tick(10.0)
    assert not world.commits
    assert world.engine.final_positions([PLACE]) == ()


@pytest.mark.parametrize("transactional", [False, True])
def test_what_fails_once_more_is_parked(transactional: bool) -> None:
    """In a transaction without a commit for a log that is not there."""
    world = world_of(1, transactional=transactional)
    world.engine.deleted([(PLACE, 1)])
    world.tick(2.0)
    world.finish(world.start(), Rejected(Failure("Hopeless", "x")))
    if transactional:
        (transaction,) = world.transactions
        assert [p.topic for p in transaction.writes] == [DLQ]
        assert transaction.positions == ()
        world.end_transaction()
    else:
        assert world.confirm().topic == DLQ
    world.tick()
    assert (TIER, 0) not in world.engine.assignments


def test_one_after_the_other_is_parked_in_transactions() -> None:
    """A transaction without a commit of theirs ends as well: the next one may begin."""
    world = world_of(3, transactional=True)
    world.engine.deleted([(PLACE, 3)])
    for left in (2, 1, 0):
        world.tick(2.0)
        world.finish(world.start(), Rejected(Failure("Hopeless", "x")))
        (transaction,) = world.transactions
        assert [p.topic for p in transaction.writes] == [DLQ]
        world.end_transaction()
        assert world.engine.flow.open_count == left


def test_at_the_end_of_the_worker_what_waits_begins_at_once() -> None:
    """Nobody else has it. What is left even then is lost, and counted."""
    world = world_of(3)
    world.engine.deleted([(PLACE, 3)])
    assert world.engine.hasten(world.now)
    world.take()
    assert len(world.ready) == 1
    world.finish(world.start())
    assert world.engine.hasten(world.now)
    world.take()
    world.finish(world.start())
    world.engine.abandon_orphans()
    world.take()
    assert world.told(RecordsDeleted) == [RecordsDeleted(TIER, 0, 3), RecordsDeleted(TIER, 1, 0)]
    assert not world.engine.hasten(world.now)
    assert world.engine.flow.open_count == 0


def test_at_the_end_of_the_worker_what_fails_once_more_has_its_wait() -> None:
    """Retried in place: its attempts are not spent within a moment."""
    world = World(replace(RULES, in_place=True))
    world.assign(topic=TIER)
    world.redeliver([0], due_ms=world.now.wall_ms + 2_000)
    world.engine.deleted([(PLACE, 1)])
    assert world.engine.hasten(world.now)
    world.take()
    world.finish(world.start(), Failed(Failure("Boom", "x")))
    assert world.engine.hasten(world.now)
    world.take()
    assert not world.ready
    world.now_s += 1.0
    assert world.engine.hasten(world.now)
    world.take()
    assert world.start().attempt == 3


def test_a_partition_that_is_leaving_is_drained_as_ever() -> None:
    """What the broker says of its topic comes too late for it."""
    world = world_of(1)
    world.engine.stop([PLACE])
    world.engine.deleted([(PLACE, 5)])
    world.take()
    assert not world.told(RecordsDeleted)


def test_a_partition_that_comes_again_takes_the_place_of_what_was_left() -> None:
    """The broker knows the topic after all: its records are read again."""
    world = world_of(1)
    world.engine.deleted([(PLACE, 1)])
    world.assign(topic=TIER)
    world.tick()
    assert not world.engine.hasten(world.now)
    assert not world.engine.assignments[TIER, 0].orphaned


def test_the_fault_of_a_missing_topic_says_what_was_lost_with_it() -> None:
    """As long as the topic is missing."""
    world = world_of(1)
    world.engine.deleted([(PLACE, 61)])
    world.engine.troubled({TIER: GONE, DLQ: GONE}, world.now)
    assert {fault.subject: fault.message for fault in world.engine.faults.all()} == {
        TIER: "the topic does not exist, and 60 records in it are lost; make it",
        DLQ: "the topic does not exist; make it",
    }
