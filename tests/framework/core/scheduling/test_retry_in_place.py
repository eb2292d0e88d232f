"""Retry in place: a failed record keeps its place, its lane waits, and the others go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor.core.messages.commands import Cancel
from ackfloor.core.messages.events import (
    DeliveryFailed,
    LateAnswers,
    RecordDeadLettered,
    RedeliveriesStarted,
)
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.queues.lanes import Lanes, Work
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import ACKED, RELEASED, Discarded, Failed, Rejected
from ackfloor.core.records.record import Failure, TopicPartition
from ackfloor.core.records.retry_policy import RetryPolicy, in_place_wait_s
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import DLQ, START_S, TIER, HeldWorld, World, offsets_of

BOOM = Failed(Failure("Boom", "x"))
POLICY = RetryPolicy("1s", 5, "10m", 2, 0)
RULES = HandlerRules(
    "bill", "key", concurrency=4, consume_timeout_s=5.0, policy=POLICY, in_place=True
)


def world_of(rules: HandlerRules = RULES) -> World:
    """A world with one partition."""
    world = World(rules)
    world.assign()
    return world


def take(world: World) -> tuple[TrackedDelivery, Work]:
    """A worker takes a lane's head and starts its handler; also returns what is behind it."""
    item = world.ready.popleft()
    run = item if isinstance(item, Work) else Work()
    delivery = item.popleft() if isinstance(item, Work) else item
    delivery.started_s = world.now_s
    return delivery, run


def test_a_failed_record_holds_its_lane_until_it_is_handled() -> None:
    """Its key waits for the backoff, another key does not, nothing is written anywhere."""
    world = world_of()
    world.read([0, 1], key=b"a")
    world.read([2], key=b"b")
    first, run = take(world)
    world.finish(first, BOOM)
    assert not run
    other, _ = take(world)
    world.finish(other)
    assert not world.ready
    world.tick(0.9)
    assert not world.ready
    world.tick(0.1)
    again, run = take(world)
    assert (again.offset, again.attempt, again.origin) == (0, 2, ("orders", 0, 0))
    assert not run
    world.finish(again)
    assert world.floor() == 1
    assert take(world)[0].offset == 1
    assert world.writes == []
    (failed,) = world.told(DeliveryFailed)
    assert (failed.offset, failed.attempt) == (0, 1)


def test_redeliveries_in_place_are_counted_with_their_lateness() -> None:
    """As those from a retry tier are."""
    world = world_of()
    world.read([0], key=b"a")
    world.finish(take(world)[0], BOOM)
    world.tick(1.25)
    world.finish(take(world)[0])
    world.tick()
    (told,) = world.told(RedeliveriesStarted)
    assert (told.topic, told.attempts, told.lateness_s) == ("orders", [2], [pytest.approx(0.25)])


def test_each_attempt_waits_as_the_policy_says_and_the_last_is_dead_lettered() -> None:
    """The lane goes on once the dead letter is confirmed, late rather than out of order."""
    world = world_of()
    world.read([0, 1], key=b"a")
    world.finish(take(world)[0], BOOM)
    world.tick(1)
    world.finish(take(world)[0], BOOM)
    world.tick(4.9)
    assert not world.ready
    world.tick(0.1)
    world.finish(take(world)[0], BOOM)
    world.tick(60)
    assert not world.ready
    (write,) = world.writes
    headers = dict(write.headers)
    assert write.topic == DLQ
    assert headers["ackfloor.attempt"] == b"3"
    assert headers["ackfloor.failures"] == b"3"
    assert headers["ackfloor.reason"] == b"exhausted"
    assert "ackfloor.not_before" not in headers
    assert world.floor() == 0
    world.refuse()
    world.tick(60)
    assert not world.ready
    world.confirm()
    assert world.floor() == 1
    assert take(world)[0].offset == 1
    assert [e.attempt for e in world.told(RecordDeadLettered)] == [3]


def test_a_rejected_record_holds_its_lane_until_its_dead_letter_is_confirmed() -> None:
    """`DeadLetter` and what can't be decoded go there at once."""
    world = world_of()
    world.read([0], key=b"a")
    world.finish(take(world)[0], Rejected(Failure("Hopeless", "x")))
    world.read([1], key=b"a")
    assert not world.ready
    world.confirm()
    assert take(world)[0].offset == 1


def test_a_lane_with_nothing_behind_its_dead_letter_is_forgotten() -> None:
    """An idle lane costs nothing."""
    world = world_of()
    world.read([0], key=b"a")
    world.finish(take(world)[0], Rejected(Failure("Hopeless", "x")))
    lanes = world.engine.assignments["orders", 0].handler.lanes
    assert (len(lanes), lanes.is_blocked(("orders", 0, b"a"))) == (1, True)
    world.confirm()
    assert (len(lanes), lanes.is_blocked(("orders", 0, b"a"))) == (0, False)


def test_a_discarded_record_holds_nothing() -> None:
    """It is settled: whoever visits the lane goes on."""
    world = world_of()
    world.read([0, 1], key=b"a")
    delivery, run = take(world)
    world.finish(delivery, Discarded("told to"))
    assert not delivery.keeps_lane()
    assert run.popleft().offset == 1


def test_who_visits_a_lane_leaves_it_to_a_failed_record() -> None:
    """Whatever ended unsettled keeps its lane; a retry tier's handler goes on."""
    world = world_of()
    world.read([0], key=b"a")
    delivery, _ = take(world)
    kept = {}
    for outcome in (ACKED, BOOM, Rejected(Failure("Hopeless", "x")), RELEASED, Discarded()):
        delivery.outcome = outcome
        kept[type(outcome).__name__] = delivery.keeps_lane()
    assert kept == {
        "Acked": False,
        "Failed": True,
        "Rejected": True,
        "Released": True,
        "Discarded": False,
    }


def test_a_timeout_is_a_failure_in_place() -> None:
    """The handler is abandoned, its slot free; the record comes again; a late answer is late."""
    world = world_of()
    world.read([0, 1], key=b"a")
    stuck, run = take(world)
    world.tick(5)
    world.expire(stuck)
    assert [c.delivery for c in world.commands if isinstance(c, Cancel)] == [stuck]
    assert (list(run), list(world.ready)) == ([], [])
    world.tick(1)
    again, _ = take(world)
    world.finish(stuck)
    assert [late.count for late in world.told(LateAnswers)] == [1]
    assert (again.attempt, world.floor()) == (2, 0)
    world.finish(again)
    assert world.floor() == 1


def test_without_order_only_the_record_itself_waits() -> None:
    """It is delivered again ahead of what was not tried yet."""
    world = world_of(replace(RULES, ordering="unordered"))
    world.read([0, 1])
    world.finish(world.start(), BOOM)
    world.finish(world.start())
    assert not world.ready
    world.tick(1)
    again = world.start()
    assert (again.offset, again.attempt) == (0, 2)
    world.finish(again)
    assert world.floor() == 2


def test_a_wait_of_its_own_is_kept_to_the_letter() -> None:
    """`Retry(after=)` in place needs no hops and no rounding; it spends the budget."""
    world = world_of(replace(RULES, policy=RetryPolicy("1s", 5, "10m", 2, 0.5)))
    world.read([0], key=b"a")
    world.finish(take(world)[0], Failed(Failure("Retry", ""), Reason.RETRY, 33.3))
    world.tick(33.2)
    assert not world.ready
    world.tick(0.11)
    assert take(world)[0].attempt == 2


@pytest.mark.parametrize(("share", "wait_s"), [(0, 1.0), (1000, 1.5)])
def test_jitter_only_lengthens(share: int, wait_s: float) -> None:
    """By a share that is drawn for each wait."""
    world = World(replace(RULES, policy=RetryPolicy("1s", 5, "10m", 2, 0.5)), pick=lambda n: share)
    world.assign()
    world.read([0], key=b"a")
    world.finish(take(world)[0], BOOM)
    assert world.engine.next_due_s(world.now) == START_S + wait_s
    assert in_place_wait_s(1.0, 0.5, 0.5) == 1.25


def test_redeliveries_in_place_get_half_of_the_slots() -> None:
    """What fails again and again does not take them from what was not tried yet."""
    world = world_of()
    for offset in range(4):
        world.read([offset], key=b"%d" % offset)
    for _ in range(4):
        world.finish(take(world)[0], BOOM)
    world.tick(1)
    assert len(world.ready) == 2
    assert world.engine.next_due_s(world.now) == float("inf")
    world.finish(take(world)[0])
    world.tick()
    assert offsets_of(world.ready) == [1, 2]


def test_the_longest_due_goes_first_of_all_partitions() -> None:
    """Room goes to what has waited longest, wherever it is from."""
    world = World(replace(RULES, concurrency=2))
    for partition in (0, 1):
        world.assign(partition)
    world.read([0], 1, key=b"b")
    world.finish(take(world)[0], BOOM)
    world.tick(0.5)
    world.read([0], 0, key=b"a")
    world.finish(take(world)[0], BOOM)
    world.tick(5)
    assert [item.partition for item in world.ready] == [1]


def test_a_wait_ends_with_its_assignment() -> None:
    """The record is open and comes again, as a first delivery, where the partition goes."""
    world = world_of()
    world.read([0, 1], key=b"a")
    world.finish(take(world)[0], BOOM)
    assert [final.position for final in world.revoke()] == []
    world.tick(60)
    assert not world.ready
    assert world.engine.next_due_s(world.now) == float("inf")
    assert (world.engine.flow.open_count, len(Lanes())) == (0, 0)
    world.assign(0, 0)
    world.read([0, 1], key=b"a")
    assert take(world)[0].attempt == 1


@pytest.mark.parametrize("before", [True, False], ids=["failed before", "fails while stopping"])
def test_a_worker_that_ends_starts_no_further_attempt(before: bool) -> None:
    """It waits for nothing, and the floor stays."""
    world = world_of()
    world.read([0, 1], key=b"a")
    delivery, _ = take(world)
    if before:
        world.finish(delivery, BOOM)
    world.engine.stop([TopicPartition("orders", 0)])
    if not before:
        world.finish(delivery, BOOM)
    world.tick(60)
    assert not world.ready
    assert world.engine.next_due_s(world.now) == float("inf")
    assert world.floor() == 0


def test_an_answer_to_an_earlier_attempt_changes_nothing() -> None:
    """Each attempt is a delivery of its own, with one end."""
    world = world_of(replace(RULES, manual=True))
    world.read([0], key=b"a")
    first, _ = take(world)
    first.arm(None)
    assert first.retry(reason="later")
    world.engine.answered([world.inbox.popleft()], world.now)
    world.take()
    world.tick(1)
    again, _ = take(world)
    again.arm(None)
    assert first.ack() is False
    assert again.ack() is True


def test_a_tier_of_an_earlier_policy_is_drained_and_fails_in_place() -> None:
    """It was parked before; from now on it keeps its place in the tier."""
    world = World(RULES)
    world.assign(topic=TIER)
    world.redeliver([7])
    first, _ = take(world)
    assert first.attempt == 2
    world.finish(first, BOOM)
    assert (world.writes, world.floor(topic=TIER)) == ([], 7)
    world.tick(5)
    again, _ = take(world)
    assert (again.topic, again.attempt) == (TIER, 3)
    world.finish(again)
    assert world.floor(topic=TIER) == 8


def test_a_tier_record_with_further_to_wait_waits_where_it_is() -> None:
    """There is no tier to hop to any more: it is not delivered before its time."""
    world = World(RULES)
    world.assign(topic=TIER)
    due_ms = world.now.wall_ms + 90_000
    world.redeliver([7], headers=[("ackfloor.retry_at", str(due_ms).encode())])
    world.tick(89)
    assert not world.ready
    world.tick(1)
    assert take(world)[0].offset == 7
    assert world.writes == []


def test_a_dead_letter_that_held_nothing_lets_nothing_go() -> None:
    """A lane goes on when what it waits for is done, and not for another record."""
    world = world_of()
    world.read([0], key=b"a")
    other, _ = take(world)
    lanes = Lanes()
    lane = other.lane_key(True)
    assert lanes.go_on(lane, other, settled=True) is None
    lanes.block(lane, other, again=False)
    world.read([1], key=b"b")
    assert lanes.go_on(lane, take(world)[0], settled=True) is None
    assert lanes.is_blocked(lane)


def test_what_is_due_again_is_ahead_of_the_backlog() -> None:
    """A redelivery has waited its time; only what the executor has already is before it."""
    world = HeldWorld(RULES)
    world.assign()
    world.read([0], key=b"a")
    world.finish(world.start(), BOOM)
    for offset in range(1, 7):
        world.read([offset], key=b"%d" % offset)
    world.tick(1)
    started = []
    while world.startable():
        started.append(world.start())
        world.finish(started[-1])
    assert [d.offset for d in started] == [1, 2, 3, 4, 0, 5, 6]
    assert started[4].attempt == 2


def paused(world: World) -> list[int]:
    """The partitions that are not fetched."""
    return [a.partition for a in world.engine.assignments.values() if a.paused]


def test_what_waits_behind_a_failed_record_pauses_its_partition_and_not_the_worker() -> None:
    """A hot key that is retried for hours takes a quarter of the worker, the others go on."""
    world = World(RULES, limits=FlowLimits(max_open=40))
    world.assign(0)
    world.assign(1)
    world.read([0], 0, key=b"hot")
    world.finish(take(world)[0], BOOM)
    world.read(range(1, 30), 0, key=b"hot")
    assert paused(world) == [0]
    world.read(range(25), 1, key=b"b")
    assert paused(world) == [0]
    # While it is tried again nothing more is fetched behind it.
    world.tick(1)
    again, _ = take_hot(world)
    assert paused(world) == [0]
    world.finish(again)
    hot = world.engine.assignments["orders", 0]
    # What was beyond its share has left memory, and is read now.
    assert (hot.held, hot.tracker.position) == (0, 10)
    assert paused(world) == []


def take_hot(world: World) -> tuple[TrackedDelivery, Work]:
    """The lane of the hot key, whatever waits before it."""
    while True:
        delivery, run = take(world)
        if delivery.partition == 0:
            return delivery, run


def test_bytes_that_wait_behind_a_failed_record_are_bounded_as_well() -> None:
    """A quarter of the worker's; a dead letter that is confirmed gives it back."""
    world = World(RULES, limits=FlowLimits(max_open_bytes=40))
    world.assign()
    world.read([0], key=b"hot")
    world.finish(take(world)[0], Rejected(Failure("Hopeless", "x")))
    world.read([1, 2, 3, 4], key=b"hot")
    assert paused(world) == []
    world.read([5], key=b"hot")
    assert paused(world) == [0]
    world.confirm()
    assert paused(world) == []


def test_what_was_held_goes_with_its_partition() -> None:
    """The next assignment holds nothing."""
    world = world_of()
    world.read([0, 1], key=b"a")
    world.finish(take(world)[0], BOOM)
    assert world.engine.assignments["orders", 0].held == 2
    world.revoke()
    world.assign(0, 0)
    world.read([0, 1], key=b"a")
    assert world.engine.assignments["orders", 0].held == 0
