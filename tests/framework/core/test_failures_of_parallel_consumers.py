"""Failures that users of parallel consumers have reported: one test for each, named after it.

The number is the report's at confluentinc/parallel-consumer; the others belong to trackers whose
watermark is contiguous.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor.core.messages.commands import Pause, Resume
from ackfloor.core.messages.events import (
    LateAnswers,
    PublishFailed,
    RecordDeadLettered,
    RecordParked,
    RecordsLost,
)
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import Rejected
from ackfloor.core.records.record import Failure, StartPosition, TopicPartition
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import DLQ, START_MS, TIER, MemoryRecord, World

RULES = HandlerRules("bill", consume_timeout_s=5.0, policy=RetryPolicy.fixed("1s", 3, jitter=0))


def world_with(*offsets: int, rules: HandlerRules = RULES) -> World:
    """A world whose records are read and not started."""
    world = World(rules)
    world.assign()
    world.read(offsets)
    return world


def flow_of(world: World) -> list[Pause | Resume]:
    """What was paused and resumed so far."""
    return [c for c in world.commands if isinstance(c, Pause | Resume)]


# confluent parallel-consumer


def test_pc_826_a_revoke_with_nothing_completed_commits_no_highest_seen() -> None:
    """Everything was read and nothing handled: the next owner starts where we started."""
    world = World(RULES)
    world.engine.assign([StartPosition("orders", 0, 500, committed=False)], world.now)
    world.read(range(500, 600))
    assert [final.position for final in world.revoke()] == [500]


def test_pc_827_a_revoke_commits_up_to_the_first_open_record() -> None:
    """What was handled above it comes again."""
    world = world_with(0, 1, 2, 3)
    deliveries = [world.start() for _ in range(4)]
    for delivery in (deliveries[0], deliveries[1], deliveries[3]):
        world.finish(delivery)
    assert [final.position for final in world.revoke()] == [2]


def test_pc_834_waiting_retries_are_bounded_in_memory() -> None:
    """A tier with a million records fetches as many as its buffer takes, and then waits."""
    world = World(RULES, limits=FlowLimits(tier_buffer=50))
    world.assign(topic=TIER)
    assignment = world.engine.assignments[TIER, 0]
    offset = 0
    while not assignment.paused:
        world.redeliver(range(offset, offset + 10), due_ms=START_MS + 60_000)
        offset += 10
    assert len(assignment.waiting) == 50
    assert flow_of(world) == [Pause((TopicPartition(TIER, 0),))]


def test_pc_836_what_is_in_flight_counts_in_back_pressure() -> None:
    """Taken from the queue is not gone: running handlers and parks under way hold fetching."""
    world = World(RULES, limits=FlowLimits(max_open=4))
    world.assign()
    world.read([0, 1, 2, 3])
    for _ in range(3):
        world.start()
    world.fail(world.start())
    assert not world.ready
    assert world.engine.assignments["orders", 0].paused
    assert len(flow_of(world)) == 1


@pytest.mark.parametrize("lost", [False, True])
def test_pc_894_a_container_of_an_old_assignment_is_stale(lost: bool) -> None:
    """Revoked and given back: answers and parks of the old epoch move nothing of the new one."""
    world = world_with(0, 1, 2)
    running, failing, _ = (world.start() for _ in range(3))
    world.fail(failing)
    world.revoke(lost=lost)
    world.assign(0, 0)
    world.read([0, 1, 2])
    world.finish(running)
    world.confirm()
    assert (world.floor(), world.engine.flow.open_count) == (0, 3)
    assert world.told(RecordParked) == []
    assert world.told(LateAnswers) == [LateAnswers("orders", "bill", 1)]


def test_pc_909_every_record_after_a_reassignment_is_delivered() -> None:
    """None is skipped because the old container had seen it."""
    world = world_with(0, 1, 2)
    world.finish(world.start())
    world.ready.clear()
    (final,) = world.revoke()
    world.assign(0, final.position)
    world.read([1, 2])
    assert [d.offset for d in world.ready if isinstance(d, TrackedDelivery)] == [1, 2]


def test_pc_203_a_commit_of_a_lost_partition_is_not_sent_again() -> None:
    """Neither the refused one nor another, and its fault ends."""
    world = world_with(0)
    world.finish(world.start())
    world.tick()
    world.revoke(lost=True)
    world.answer_commit("UNKNOWN_MEMBER_ID")
    for _ in range(5):
        world.tick(10)
    assert not world.commits
    assert world.subjects() == []


def test_pc_809_a_refused_commit_leaves_the_floor_to_the_next_one() -> None:
    """From the state of its own time, of which nothing is lost and nothing is old."""
    world = world_with(0, 1)
    world.finish(world.start())
    world.tick()
    world.answer_commit("REQUEST_TIMED_OUT")
    world.finish(world.start())
    world.tick(1)
    (commit,) = world.commits
    assert [(p.position, p.settled_count) for p in commit.positions] == [(2, 2)]


def test_pc_832_pressure_pauses_fetching_itself() -> None:
    """Polling on and taking no work would fill the memory instead."""
    world = World(RULES, limits=FlowLimits(partition_span=10))
    world.assign()
    world.read(range(10))
    assert flow_of(world) == [Pause((TopicPartition("orders", 0),))]


def test_pc_716_large_records_are_bounded_by_their_bytes() -> None:
    """Three records of a megabyte are enough where three fit."""
    world = World(RULES, limits=FlowLimits(max_open_bytes=3_000_000))
    world.assign()
    records = [MemoryRecord("orders", 0, n, b"x" * 1_000_000) for n in range(3)]
    world.engine.polled(records, world.now)
    world.take()
    assert flow_of(world) == [Pause((TopicPartition("orders", 0),))]


def test_pc_401_a_retry_survives_the_consumers_death() -> None:
    """It is in a topic or still open: at no moment is it only in memory and committed."""
    world = world_with(0)
    write = world.fail(world.start())
    assert world.engine.final_positions([TopicPartition("orders", 0)]) == ()
    assert write.topic == TIER
    world.confirm()
    assert [f.position for f in world.engine.final_positions([TopicPartition("orders", 0)])] == [1]


# Trackers with a contiguous watermark


def test_an_offset_that_never_arrives_at_the_end_of_the_log_blocks_nothing() -> None:
    """An aborted transaction is the last thing in the log: the consumer's position passes it."""
    world = world_with(0, 1)
    for _ in range(2):
        world.finish(world.start())
    world.engine.passed({("orders", 0): 40})
    assert [final.position for final in world.revoke()] == [40]


def test_a_new_group_at_latest_commits_before_anything_comes() -> None:
    """Idle until the restart, it would skip what came meanwhile."""
    world = World(RULES)
    world.engine.assign([StartPosition("orders", 0, 500, committed=False)], world.now)
    world.take()
    world.tick()
    assert [p.position for p in world.commits[0].positions] == [500]


def test_an_empty_partition_commits_its_first_position() -> None:
    """Zero is a position like any other."""
    world = World(RULES)
    world.engine.assign([StartPosition("orders", 0, 0, committed=False)], world.now)
    world.take()
    world.tick()
    assert [p.position for p in world.commits[0].positions] == [0]


def test_a_log_that_retention_has_trimmed_is_read_from_where_it_begins() -> None:
    """What is gone is counted, and the floor goes on from there."""
    world = World(RULES)
    world.engine.assign([StartPosition("orders", 0, 900, lost=400)], world.now)
    world.read([900, 901])
    for _ in range(2):
        world.finish(world.start())
    assert world.floor() == 902
    assert world.told(RecordsLost) == [RecordsLost("orders", 0, 400)]


def test_a_budget_of_zero_still_calls_the_handler_once() -> None:
    """`max_redeliveries=0`: one delivery, and only its failure ends in the dead letters."""
    world = world_with(0, rules=replace(RULES, policy=RetryPolicy(max_redeliveries=0)))
    assert len(world.ready) == 1
    assert not world.writes
    write = world.fail(world.start())
    assert (write.topic, write.envelope.attempt) == (DLQ, 1)


def test_three_redeliveries_are_four_deliveries() -> None:
    """The budget counts what comes after the first."""
    verdicts = []
    for attempt in range(1, 5):
        world = World(RULES)
        world.assign(topic=TIER)
        headers = [("ackfloor.attempt", str(attempt - 1).encode())]
        world.engine.polled([MemoryRecord(TIER, 0, 0, _headers=headers)], world.now)
        world.take()
        verdicts.append(world.fail(world.start()).topic)
    assert verdicts == [TIER, TIER, TIER, DLQ]


def test_a_timeout_is_parked_and_never_just_completed() -> None:
    """Nothing but the broker's confirmation settles it, and its neighbours end on their own."""
    world = world_with(0, 1, 2)
    hanging, *others = (world.start() for _ in range(3))
    world.now_s += 5
    for delivery in others:
        world.finish(delivery)
    world.expire(hanging)
    assert world.floor() == 0
    (write,) = world.writes
    assert (write.envelope.reason, write.envelope.timeouts) == (Reason.TIMEOUT, 1)
    assert write.envelope.error_type == "ConsumeTimeout"
    world.confirm()
    assert world.floor() == 3


def test_a_failed_publish_keeps_its_record_open() -> None:
    """Nobody takes an unreachable broker's silence for a yes."""
    world = world_with(0)
    world.fail(world.start(), Rejected(Failure("Hopeless", "x")))
    world.refuse("_MSG_TIMED_OUT")
    world.tick(60)
    assert world.floor() == 0
    assert [event.target for event in world.told(PublishFailed)] == [DLQ]
    assert world.told(RecordDeadLettered) == []


def test_a_long_backoff_holds_neither_slot_nor_key_nor_floor() -> None:
    """The record is in its tier: the next one of its key runs at once, and the floor passes it."""
    world = World(replace(RULES, ordering="key", concurrency=1))
    world.assign()
    world.read([0, 1], key=b"a")
    run = world.ready[0]
    world.fail(world.start())
    world.confirm()
    assert world.floor() == 1
    world.ready.append(run)
    assert world.start().offset == 1


def test_a_dead_letter_keeps_headers_and_timestamp() -> None:
    """The record's own headers as they were; its timestamp in a header of ours."""
    world = World(RULES)
    world.assign()
    own = [("trace", b"\x00\xff"), ("trace", None)]
    world.engine.polled([MemoryRecord("orders", 0, 0, _headers=own, _timestamp_ms=17)], world.now)
    world.take()
    write = world.fail(world.start(), Rejected(Failure("Hopeless", "x")))
    assert list(write.headers[:2]) == own
    assert ("ackfloor.origin.timestamp", b"17") in list(write.headers)
    assert write.delivery.record.headers() == own
