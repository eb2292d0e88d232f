"""The known flaws of the systems this one learns from: one test for each, named after it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.messages.commands import Cancel, Pause
from ackfloor.core.messages.events import (
    DeliveryTimedOut,
    LateAnswers,
    RecordDeadLettered,
    RecordParked,
)
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.outcomes import Failed, Rejected
from ackfloor.core.records.record import Failure, StartPosition
from ackfloor.core.records.retry_policy import RetryPolicy, warnings
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.values.setting_error import SettingError
from tests.examples import examples
from tests.framework.core.worlds import START_S, TIER, MemoryRecord, World

RULES = HandlerRules("bill", consume_timeout_s=60.0, policy=RetryPolicy.fixed("1s", 3, jitter=0))


def world_with(*offsets: int, rules: HandlerRules = RULES) -> World:
    """A world whose records are read and not started."""
    world = World(rules)
    world.assign()
    world.read(offsets)
    return world


# RocketMQ


def test_rocketmq_what_is_acked_above_a_stuck_message_is_known() -> None:
    """The floor waits, and the tracker names every offset above it that is settled already."""
    world = world_with(*range(1_000))
    stuck = world.start()
    for _ in range(999):
        world.finish(world.start())
    tracker = world.engine.assignments["orders", 0].tracker
    assert world.floor() == stuck.offset == 0
    assert tracker.gap_count() == 999
    assert list(tracker.gap_runs()) == [(1, 1_000)]


def test_rocketmq_one_stuck_message_does_not_hold_the_floor_for_ever() -> None:
    """It is parked at its deadline, and the floor passes everything handled above it."""
    world = world_with(*range(100))
    stuck = world.start()
    for _ in range(99):
        world.finish(world.start())
    world.now_s += 60
    world.expire(stuck)
    world.confirm()
    assert world.floor() == 100


def test_rocketmq_the_real_timeout_is_the_timeout() -> None:
    """Not up to twice of it: a scan is planned for the very moment the first one is due."""
    world = world_with(*range(5))
    running = []
    for _ in range(5):
        running.append(world.start())
        world.expire(*running)
        world.now_s += 7
    for n in range(5):
        assert world.engine.next_scan_s == START_S + 7 * n + 60
        world.now_s = world.engine.next_scan_s
        world.expire(*running)
        running.pop(0)
    told = world.told(DeliveryTimedOut)
    assert [(event.offset, event.late_by_s) for event in told] == [(n, 0.0) for n in range(5)]


def test_rocketmq_one_scan_finds_every_overdue_message() -> None:
    """Not sixteen of them."""
    world = world_with(*range(1_000), rules=replace(RULES, breaker=CircuitBreaker(enabled=False)))
    running = [world.start() for _ in range(1_000)]
    world.now_s += 60
    world.expire(*running)
    assert len(world.writes) == 1_000


def test_rocketmq_a_changed_timeout_needs_no_restart() -> None:
    """Deliveries in flight have the new one."""
    world = world_with(0)
    delivery = world.start()
    world.engine.state.handlers["bill"].rules = replace(RULES, consume_timeout_s=5.0)
    assert delivery.deadline_s == START_S + 5


def test_rocketmq_a_late_ack_removes_nothing_twice() -> None:
    """The message is in its tier; what its handler says afterwards is counted and forgotten."""
    world = world_with(0, 1)
    slow = world.start()
    world.now_s += 60
    assert Cancel(slow) in world.expire(slow)
    world.finish(slow)
    assert (world.floor(), world.engine.flow.open_count) == (0, 2)
    world.confirm()
    world.finish(slow)
    assert (world.floor(), world.engine.flow.open_count) == (1, 1)
    assert len(world.told(RecordParked)) == 1
    assert sum(event.count for event in world.told(LateAnswers)) == 2


def test_rocketmq_a_failed_send_back_loses_nothing_in_a_crash() -> None:
    """Until the broker confirms the park, no commit passes the message."""
    world = world_with(0, 1)
    world.fail(world.start())
    world.finish(world.start())
    for _ in range(5):
        world.refuse()
        world.tick(20)
        assert {p.position for c in world.commits for p in c.positions} == {0}
    world.answer_commit()
    world.confirm()
    world.tick(1)
    assert world.commits[0].positions[0].position == 2


def test_rocketmq_a_message_whose_handler_has_not_started_never_times_out() -> None:
    """client-go parked messages that nobody had tried."""
    world = world_with(0)
    queued = world.ready[0]
    assert isinstance(queued, TrackedDelivery)
    world.now_s += 3_600
    assert world.expire(queued) == []


# NATS Streaming


def test_nats_the_ack_timer_does_not_run_in_the_clients_queue() -> None:
    """However long the record waited for a slot, its handler has the whole timeout."""
    world = world_with(0)
    world.now_s += 300
    delivery = world.start()
    assert delivery.deadline_s == world.now_s + 60
    world.now_s += 59.9
    assert world.expire(delivery) == []


def test_nats_a_bare_nak_does_not_burn_its_deliveries() -> None:
    """`retry()` without a wait takes the policy's: max_deliver lasts as long as it was meant."""
    world = world_with(0, rules=replace(RULES, manual=True))
    world.start().retry()
    world.engine.answered([world.inbox.popleft()], world.now)
    world.take()
    assert world.writes[0].wait_s == 1.0


def test_nats_a_message_at_its_last_delivery_leaves() -> None:
    """It does not stay for ever; it goes to the dead letters with the reason."""
    world = World(RULES)
    world.assign(topic=TIER)
    record = MemoryRecord(TIER, 0, 0, _headers=[("ackfloor.attempt", b"3")])
    world.engine.polled([record], world.now)
    world.take()
    world.fail(world.start())
    world.confirm()
    (buried,) = world.told(RecordDeadLettered)
    assert (buried.attempt, buried.reason) == (4, "exhausted")
    assert world.floor(topic=TIER) == 1


# RabbitMQ, NATS: prefetch


@pytest.mark.parametrize(
    ("limits", "offsets", "size"),
    [
        (FlowLimits(max_open=10), range(10), 1),
        (FlowLimits(max_open_bytes=100), range(2), 50),
        (FlowLimits(partition_span=1_000), (0, 999), 1),
    ],
    ids=["count", "bytes", "span"],
)
def test_rabbitmq_prefetch_is_limited(limits: FlowLimits, offsets: range, size: int) -> None:
    """By records, by bytes and by the span between the oldest open record and the position."""
    world = World(RULES, limits=limits)
    world.assign()
    for offset in offsets:
        assert not [c for c in world.commands if isinstance(c, Pause)]
        world.engine.polled([MemoryRecord("orders", 0, offset, b"x" * size)], world.now)
        world.take()
    assert len([c for c in world.commands if isinstance(c, Pause)]) == 1


# ActiveMQ


@pytest.mark.parametrize("delay", [1000, 1000.0, "1000", None])
def test_activemq_a_delay_without_a_unit_is_refused(delay: object) -> None:
    """A thousand of what?"""
    with pytest.raises(SettingError, match=r"^retry\.initial_delay="):
        RetryPolicy(delay)  # type: ignore[arg-type]


def test_activemq_a_policy_shows_its_schedule_before_it_runs() -> None:
    """And one that is over in a second is told apart from one that lasts."""
    hasty = RetryPolicy("10ms", 5, "1s", 6)
    assert RetryPolicy().schedule() == (1.0, 5.0, 25.0, 125.0, 600.0, 600.0)
    assert warnings(RetryPolicy()) == ()
    assert len(warnings(hasty)) == 1
    assert RetryPolicy(timedelta(seconds=1)) == RetryPolicy("1s")


# RabbitMQ


@pytest.mark.parametrize("outcome", [Failed(Failure("E", "x")), Rejected(Failure("E", "x"))])
def test_rabbitmq_nothing_is_lost_without_a_publisher_confirm(outcome: Failed | Rejected) -> None:
    """Written is not enough, for a retry as for a dead letter: the delivery report settles."""
    world = world_with(0)
    world.fail(world.start(), outcome)
    world.tick(3_600)
    assert not world.commits
    assert world.engine.flow.open_count == 1
    world.confirm()
    world.tick(1)
    assert world.commits[0].positions[0].position == 1


# Parallel consumers


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(0, 10**12))
@examples(50)
def test_parallel_consumers_offset_holes_stall_nothing(steps: list[int], start: int) -> None:
    """Transaction markers and compaction: the floor follows what is there, in steps of any size."""
    world = World(RULES)
    world.assign(0, start)
    offsets, offset = [], start
    for step in steps:
        offset += step
        offsets.append(offset)
    world.read(offsets)
    for expected in [*offsets[1:], offsets[-1] + 1]:
        world.finish(world.start())
        assert world.floor() == expected


def test_parallel_consumers_a_first_offset_above_zero_commits() -> None:
    """A new group at the end of the log, or at the start of one that retention has trimmed."""
    world = World(RULES)
    start = StartPosition("orders", 0, 500, committed=False, lost=0)
    world.engine.assign([start], world.now)
    world.take()
    world.tick()
    assert world.answer_commit().positions[0].position == 500
    world.read(range(500, 510))
    for _ in range(10):
        world.finish(world.start())
    world.tick(1)
    assert world.answer_commit().positions[0].position == 510
