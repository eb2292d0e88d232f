"""A lane's outputs take the commits of all its partitions along: what is done is done."""

from __future__ import annotations

import pytest

from ackfloor.core.parking.transaction import Transaction
from ackfloor.core.records.outcomes import Discarded
from ackfloor.core.records.output import Output
from ackfloor.core.records.record import TopicPartition
from tests.framework.core.quarantine_worlds import BOOM, LONG, SHORT, SOURCE, QuarantineWorld, rules

OUT = "invoices"


def world_of(*, exactly_once: bool = True) -> QuarantineWorld:
    """The first record of key a has failed, and waits in the retry topic; all is committed."""
    world = QuarantineWorld(
        rules(exactly_once=exactly_once), transactional=True, counts=((OUT, 1),)
    )
    world.gain()
    world.produce("a")
    world.handle(BOOM)
    world.commit_transactions()
    world.commit()
    world.poll()
    return world


def discard(world: QuarantineWorld) -> None:
    """It is redelivered, and done: nothing is written for it."""
    world.now_s += 1.0
    world.engine.tick(world.now)
    world.take()
    assert world.handle(Discarded("no")) == 0
    assert world.open(SHORT) == []


def publish(world: QuarantineWorld, key: str) -> None:
    """A record of a key is read, and handled with an output."""
    world.produce(key)
    delivery = world.start()
    assert delivery.topic == SOURCE
    assert delivery.hold(Output(OUT, None, b"out"))
    world.finish(delivery)


def committed_by(transaction: Transaction) -> dict[str, int]:
    """Topic -> position."""
    return {position.topic: position.position for position in transaction.positions}


def test_an_output_commits_what_its_lane_has_done_elsewhere() -> None:
    """Lost with it, the first record would come again, and its output after the second one's."""
    world = world_of()
    discard(world)
    publish(world, "a")
    (transaction,) = world.transactions
    assert committed_by(transaction) == {SOURCE: 2, SHORT: 1}
    world.carry_out()
    world.leave_all(lost=True)
    world.crash()
    world.gain()
    world.poll()
    assert world.handle_all() == []


def test_an_output_waits_for_a_commit_that_is_under_way() -> None:
    """It may be lost: what it says of the lane goes first."""
    world = world_of()
    discard(world)
    world.tick(1.0)
    (commit,) = world.commits
    assert [position.topic for position in commit.positions] == [SHORT]
    publish(world, "a")
    assert world.transactions == []
    world.answer_commit("no")
    world.tick(0.0)
    assert world.transactions == [], "it may have been taken or not"
    world.commit()
    (transaction,) = world.transactions
    assert committed_by(transaction) == {SOURCE: 2}


def test_partitions_where_nothing_is_done_are_left_out() -> None:
    """What is committed needs no commit."""
    world = world_of()
    discard(world)
    world.commit()
    publish(world, "b")
    assert committed_by(world.transactions[0]) == {SOURCE: 2}


def test_a_deleted_topic_is_left_out() -> None:
    """Nothing can be committed of it."""
    world = world_of()
    discard(world)
    world.drop_topic(SHORT)
    publish(world, "a")
    assert committed_by(world.transactions[0]) == {SOURCE: 2}


def test_its_commit_alone_shows_that_a_transaction_ended() -> None:
    """Another partition's may be as it was before: that says nothing of the outputs."""
    world = world_of()
    discard(world)
    publish(world, "a")
    (transaction,) = world.transactions
    by_topic = {p.topic: (p.position, p.metadata) for p in transaction.positions}
    assert not transaction.is_in({TopicPartition(SHORT, 0): by_topic[SHORT]})
    assert transaction.is_in({TopicPartition(SOURCE, 0): by_topic[SOURCE]})


@pytest.mark.parametrize("topic", [SHORT, LONG])
def test_parks_go_without_them(topic: str) -> None:
    """Without outputs only the records' own order counts, and a redelivery does not change it."""
    world = world_of(exactly_once=False)
    discard(world)
    world.produce("b")
    world.handle(BOOM)
    assert topic not in committed_by(world.transactions[0])
