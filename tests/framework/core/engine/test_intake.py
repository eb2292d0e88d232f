"""Intake: partitions come and go, and records are registered."""

from __future__ import annotations

from ackfloor.core.messages.events import (
    LateAnswers,
    PartitionsAssigned,
    PartitionsRevoked,
    RecordsLost,
    RecordsReceived,
)
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.record import StartPosition, TopicPartition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.worker_state import Route
from tests.framework.core.worlds import MemoryRecord, World

FOUR_SLOTS = HandlerRules("bill", concurrency=4, consume_timeout_s=None)


def ready(world: World) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of what was dispatched, in order."""
    return [(d.topic, d.partition, d.offset) for d in world.ready if isinstance(d, TrackedDelivery)]


def test_an_assignment_starts_at_its_position() -> None:
    """Whatever that is; told once for all partitions of a rebalance."""
    world = World()
    starts = [StartPosition("orders", 0, 500), StartPosition("orders", 1, 0)]
    world.engine.assign(starts, world.now)
    world.take()
    assert (world.floor(0), world.floor(1)) == (500, 0)
    assert world.engine.assignments["orders", 0].commit.position == 500
    both = (TopicPartition("orders", 0), TopicPartition("orders", 1))
    assert world.events == [PartitionsAssigned(both)]


def test_records_that_retention_took_are_told() -> None:
    """They were never delivered; where nothing was lost nothing is told."""
    world = World()
    starts = [StartPosition("orders", 0, 500, lost=480), StartPosition("orders", 1, 3)]
    world.engine.assign(starts, world.now)
    world.take()
    assert world.told(RecordsLost) == [RecordsLost("orders", 0, 480)]


def test_what_was_read_is_handled_although_retention_has_taken_it() -> None:
    """Only what was not read is lost, and it blocks nothing; to be told twice counts once."""
    world = World()
    world.assign()
    world.read([0, 1])
    for _ in range(2):
        world.engine.gone(TopicPartition("orders", 0), 7, 9)
    world.engine.gone(TopicPartition("orders", 1), 7, 9)
    assert world.floor() == 0
    world.read([7])
    for _ in range(3):
        world.finish(world.start())
    assert world.floor() == 8
    world.take()
    assert world.told(RecordsLost) == [RecordsLost("orders", 0, 5)]


def test_a_poll_is_split_into_its_partitions() -> None:
    """Each stretch is registered with its own; what is not ours is left out."""
    world = World()
    world.assign(0)
    world.assign(1)
    places = [("elsewhere", 0, 5), ("orders", 0, 1), ("orders", 0, 2), ("orders", 1, 9)]
    places += [("orders", 2, 7), ("orders", 0, 3), ("elsewhere", 0, 6)]
    world.engine.polled([MemoryRecord(*place) for place in places], world.now)
    world.take()
    assert ready(world) == [place for place in places if place[:2] in world.engine.assignments]
    received = [(e.partition, e.count, e.bytes) for e in world.told(RecordsReceived)]
    assert received == [(0, 2, 4), (1, 1, 2), (0, 1, 2)]


def test_an_empty_poll_does_nothing() -> None:
    """No command, no event."""
    world = World()
    world.engine.polled([], world.now)
    assert world.take() == []
    assert world.events == []


def test_what_was_registered_is_not_delivered_again() -> None:
    """A seek after a resume may fetch the same records once more."""
    world = World()
    world.assign()
    world.read([0, 1, 2])
    world.read([1, 2])
    world.read([2, 3])
    assert ready(world) == [("orders", 0, n) for n in range(4)]
    assert world.engine.flow.open_count == 4


def test_what_is_read_while_a_partition_leaves_is_left_alone() -> None:
    """It is not open here; the next owner reads it."""
    world = World()
    world.assign()
    world.engine.stop([TopicPartition("orders", 0)])
    world.read([0])
    assert ready(world) == []
    assert world.engine.flow.open_count == 0


def test_a_revoke_says_what_comes_again() -> None:
    """The open records of the partitions that really were here."""
    world = World()
    world.assign()
    world.read([0, 1, 2])
    world.finish(world.start())
    gone, unknown = TopicPartition("orders", 0), TopicPartition("orders", 9)
    world.engine.drop([gone, unknown], lost=True)
    world.take()
    assert world.told(PartitionsRevoked) == [PartitionsRevoked((gone,), lost=True, open_count=2)]
    assert (world.engine.flow.open_count, world.engine.flow.open_bytes) == (0, 0)


def test_an_answer_after_the_revoke_is_late() -> None:
    """It is counted, and reaches neither the old assignment nor the new one."""
    world = World()
    world.assign()
    world.read([0])
    delivery = world.start()
    world.revoke()
    world.assign()
    world.read([0])
    world.finish(delivery)
    assert world.floor() == 0
    assert world.engine.flow.open_count == 1
    assert world.told(LateAnswers) == [LateAnswers("orders", "bill", 1)]


def test_a_manual_answer_after_the_revoke_is_stale() -> None:
    """Its caller is told so, whether the handler had started when the partition left or not."""
    world = World(HandlerRules("bill", manual=True))
    world.assign()
    world.read([0, 1])
    running, queued = world.start(), world.ready.popleft()
    world.revoke()
    assert running.ack() is False
    # A worker took it just before the revoke and had not stamped its start.
    assert isinstance(queued, TrackedDelivery)
    queued.started_s = world.now_s
    rung: list[bool] = []
    queued.arm(lambda: rung.append(True))
    assert queued.ack() is False
    assert rung == [True]
    assert not world.inbox
    world.take()
    assert world.told(LateAnswers) == [LateAnswers("orders", "bill", 2)]


def test_a_new_assignment_replaces_a_stale_one() -> None:
    """A partition assigned again without a word of its leaving: the old epoch is over."""
    world = World(limits=FlowLimits(max_open=3))
    world.assign()
    world.read([0, 1, 2])
    old = world.start()
    world.fail(world.start())
    world.refuse()
    world.assign(0, 0)
    assert (world.engine.flow.open_count, world.engine.flow.open_bytes) == (0, 0)
    assert world.subjects() == []
    world.finish(old)
    assert world.floor() == 0
    assert world.told(LateAnswers) == [LateAnswers("orders", "bill", 1)]
    world.read([0])
    assert world.engine.flow.open_count == 1


def test_a_topic_can_join_later() -> None:
    """Routes are shared with the shell, which may find tiers that left the policy."""
    world = World(FOUR_SLOTS)
    world.routes["orders--g--retry-7s"] = Route("bill", "orders", 7.0)
    world.assign(topic="orders--g--retry-7s")
    assert world.engine.assignments["orders--g--retry-7s", 0].tier_s == 7.0
