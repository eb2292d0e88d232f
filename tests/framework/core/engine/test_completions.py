"""Completions: how deliveries end, that each ends once, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import pytest

from ackfloor.core.engine.completions import timed_out
from ackfloor.core.messages.commands import Cancel, Pause, Publish, Resume, TakeBack
from ackfloor.core.messages.events import (
    DeliveryFailed,
    DeliveryTimedOut,
    HandlerHeld,
    LateAnswers,
    RecordDiscarded,
    RecordsAcked,
    RedeliveriesStarted,
    ReplaysEnded,
)
from ackfloor.core.records.envelope import ATTEMPT, NOT_BEFORE, REPLAYS, Envelope, Reason
from ackfloor.core.records.outcomes import (
    ACKED,
    PROCESS_CRASH,
    RELEASED,
    Bury,
    Discarded,
    Failed,
    Outcome,
    Paused,
    Rejected,
)
from ackfloor.core.records.record import Failure, TopicPartition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules, HandlerState
from ackfloor.core.state.deadlines import LOOK_AGAIN_S
from tests.framework.core.worlds import (
    START_MS,
    START_S,
    TIER,
    MemoryRecord,
    World,
    deliveries_in,
    offsets_of,
)

FIVE = HandlerRules("bill", concurrency=4, consume_timeout_s=5.0)
OUTCOMES: list[Outcome] = [
    ACKED,
    RELEASED,
    Discarded("told to"),
    Failed(Failure("Boom", "x")),
    Rejected(Failure("Hopeless", "x")),
]


def running(rules: HandlerRules = FIVE, count: int = 1) -> tuple[World, list[TrackedDelivery]]:
    """A world with running deliveries."""
    world = World(rules)
    world.assign()
    world.read(range(count))
    return world, [world.start() for _ in range(count)]


def test_a_handled_record_is_settled() -> None:
    """The floor moves, the levels fall."""
    world, (delivery,) = running()
    world.finish(delivery)
    assert (world.floor(), world.engine.flow.open_count) == (1, 0)


def test_what_was_handled_is_measured_in_batches() -> None:
    """How long it waited, how long it took, how old it was, one event for many records."""
    world = World(FIVE)
    world.assign()
    records = [MemoryRecord("orders", 0, 0, _timestamp_ms=START_MS - 2_000)]
    records += [MemoryRecord("orders", 0, 1, _timestamp_ms=0)]
    world.engine.polled(records, world.now)
    world.take()
    world.now_s += 0.5
    deliveries = [world.start(), world.start()]
    for delivery in deliveries:
        world.now_s += 0.25
        delivery.outcome, delivery.finished_s = ACKED, world.now_s
    world.now_s += 5
    world.engine.answered(deliveries, world.now)
    world.take()
    (told,) = world.told(RecordsAcked)
    assert told == RecordsAcked("orders", "bill", [0.25, 0.5], [0.5, 0.5], [2.75])
    world.take()
    assert len(world.told(RecordsAcked)) == 1


def test_a_discarded_record_is_settled_and_told() -> None:
    """It is the user's explicit word, with its reason."""
    world, (delivery,) = running()
    world.finish(delivery, Discarded("a test order"))
    assert world.told(RecordDiscarded) == [RecordDiscarded("orders", 0, 0, "bill", "a test order")]
    assert (world.floor(), world.engine.flow.open_count) == (1, 0)


def test_a_failure_is_told_before_its_park() -> None:
    """What went wrong and how long it took; the record stays open."""
    world, (delivery,) = running()
    world.now_s += 0.75
    world.fail(delivery, Failed(Failure("KeyError", "'id'")))
    assert world.told(DeliveryFailed) == [
        DeliveryFailed("orders", 0, 0, "bill", 1, Reason.ERROR, "KeyError", "'id'", 0.75, "orders")
    ]
    assert (world.floor(), world.engine.flow.open_count) == (0, 1)


def test_a_failure_names_the_trace_of_its_record() -> None:
    """So that one can go from a metric to what happened."""
    world = World(FIVE)
    world.assign()
    trace = "0af7651916cd43dd8448eb211c80319c"
    header = ("traceparent", f"00-{trace}-b7ad6b7169203331-01".encode())
    world.engine.polled([MemoryRecord("orders", 0, 0, _headers=[header])], world.now)
    world.take()
    world.fail(world.start(), Failed(Failure("KeyError", "'id'")))
    assert world.told(DeliveryFailed)[0].trace_id == trace


def test_a_released_record_stays_open() -> None:
    """Cut short by a shutdown: nothing is written, nothing spent, nothing told."""
    world, (delivery,) = running()
    events = len(world.events)
    world.finish(delivery, RELEASED)
    assert not world.writes
    assert len(world.events) == events
    assert world.floor() == 0


@pytest.mark.parametrize("first", OUTCOMES, ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("second", OUTCOMES, ids=lambda o: type(o).__name__)
def test_a_second_outcome_changes_nothing(first: Outcome, second: Outcome) -> None:
    """Whatever the two are: it is counted as late, and that is all."""
    world, (delivery,) = running()
    world.finish(delivery, first)
    before = (world.floor(), world.engine.flow.open_count, len(world.writes), len(world.events))
    world.finish(delivery, second)
    assert world.events.pop() == LateAnswers("orders", "bill", 1)
    after = (world.floor(), world.engine.flow.open_count, len(world.writes), len(world.events))
    assert after == before


@pytest.mark.parametrize("late", OUTCOMES, ids=lambda o: type(o).__name__)
def test_an_answer_after_the_deadline_is_late(late: Outcome) -> None:
    """The park has begun: the record goes to its tier, once."""
    world, (delivery,) = running()
    world.now_s += 5
    assert [type(c) for c in world.expire(delivery)] == [Cancel, Publish]
    world.finish(delivery, late)
    assert len(world.writes) == 1
    assert world.told(LateAnswers) == [LateAnswers("orders", "bill", 1)]
    world.confirm()
    assert world.floor() == 1


def test_an_answer_without_a_time_ends_now() -> None:
    """A manual answer is stamped when it is taken."""
    world, (delivery,) = running(replace(FIVE, manual=True))
    world.now_s += 2
    delivery.ack()
    world.engine.answered([world.inbox.popleft()], world.now)
    world.take()
    assert delivery.finished_s == world.now_s


def test_a_timed_out_lane_goes_on_at_once() -> None:
    """The records behind the stuck one are handed to another worker, in order."""
    world = World(replace(FIVE, ordering="key"))
    world.assign()
    world.read([0, 1, 2], key=b"a")
    stuck = world.start()
    world.now_s += 5
    cancel, publish = world.expire(stuck)
    assert isinstance(cancel, Cancel)
    assert isinstance(publish, Publish)
    assert offsets_of(world.given[-1]) == [1, 2]


def test_a_timed_out_lane_with_nothing_behind_is_forgotten() -> None:
    """The next record of that key is dispatched as if it were the first."""
    world = World(replace(FIVE, ordering="key"))
    world.assign()
    world.read([0], key=b"a")
    stuck = world.start()
    world.now_s += 5
    assert [type(c) for c in world.expire(stuck)] == [Cancel, Publish]
    world.read([1], key=b"a")
    assert len(world.ready) == 1


def test_lanes_that_were_filled_meanwhile_go_out_again() -> None:
    """When what was handed out of them has ended; the others are forgotten."""
    world = World(replace(FIVE, ordering="key"))
    world.assign()
    keys = [b"a", b"b", b"c"]
    for n, key in enumerate(keys):
        world.read([2 * n, 2 * n + 1], key=key)
    works = [world.ready.popleft() for _ in keys]
    for work in works:
        world.finish(work.popleft())
        world.finish(work.popleft())
    world.read([6], key=b"a")
    world.read([7], key=b"c")
    assert not world.ready
    for work in works:
        world.engine.unit_ended("bill", work, world.now)
    assert world.take() == []
    assert [deliveries_in(item)[0].offset for item in world.given[-1]] == [6, 7]
    world.ready.clear()
    world.read([8], key=b"b")
    assert len(world.ready) == 1


def test_what_a_slot_has_not_handled_comes_before_what_came_meanwhile() -> None:
    """It left the work for a reason of its own; a second end of it says nothing more."""
    world = World(replace(FIVE, ordering="key"))
    world.assign()
    world.read([0, 1, 2], key=b"a")
    work = world.ready.popleft()
    world.finish(work.popleft())
    world.read([3], key=b"a")
    world.engine.unit_ended("bill", work, world.now)
    world.take()
    assert offsets_of(world.ready) == [1, 2, 3]
    assert not work
    world.engine.unit_ended("bill", work, world.now)
    assert world.take() == []
    assert len(world.ready) == 1


def test_a_hold_stops_and_starts_its_handler() -> None:
    """No budget is spent; the longer of two holds counts."""
    world, _ = running()
    world.read([1, 2])
    handler = world.engine.state.handlers["bill"]
    world.engine.hold("bill", 30.0, "database away", world.now)
    world.engine.hold("bill", 10.0, "still away", world.now)
    paused = Pause((TopicPartition("orders", 0),))
    assert world.take() == [TakeBack("bill"), paused, TakeBack("bill")]
    assert (handler.held, list(world.ready)) == (True, [])
    assert world.told(HandlerHeld) == [
        HandlerHeld("bill", 30.0, "database away"),
        HandlerHeld("bill", 10.0, "still away"),
    ]
    assert world.engine.next_due_s(world.now) == START_S + 30
    world.tick(29.9)
    assert (handler.held, list(world.ready)) == (True, [])
    assert [type(command) for command in world.tick(0.1)] == [Resume]
    assert (handler.held, offsets_of(world.ready)) == (False, [1, 2])
    assert world.engine.next_due_s(world.now) == inf
    world.tick(60)
    assert not handler.held
    assert world.engine.assignments["orders", 0].tracker.open


def test_what_is_held_does_not_time_out() -> None:
    """It was put back: its clock starts with its handler."""
    world, (delivery,) = running()
    delivery.reopen()
    world.engine.hold("bill", 60.0, "away", world.now)
    world.take()
    world.now_s += 30
    assert world.expire(delivery) == []


def test_a_held_delivery_that_was_due_at_the_scan_is_left_alone() -> None:
    """Put back between the scan and the close, it has no deadline any more."""
    world, (delivery,) = running()
    world.now_s += 5

    def scanned() -> Iterator[TrackedDelivery]:
        yield delivery
        delivery.reopen()

    world.engine.expire(scanned(), world.now)
    assert world.take() == []
    assert not delivery.closed


def test_how_late_redeliveries_started_is_told() -> None:
    """Each with its attempt; what has no due time is left out."""
    world = World(FIVE)
    world.assign(topic=TIER)
    world.redeliver([0], due_ms=START_MS + 1_000)
    world.engine.polled([MemoryRecord(TIER, 0, 1)], world.now)
    world.take()
    world.tick(1.25)
    first, second = world.start(), world.start()
    world.now_s += 3
    world.finish(first)
    world.finish(second)
    assert world.told(RedeliveriesStarted) == [RedeliveriesStarted("orders", "bill", [2], [0.25])]
    assert world.engine.state.handlers["bill"].open_retries == 0


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (ACKED, (1, 0)),
        (Discarded("a test order"), (1, 0)),
        (Failed(Failure("Boom", "x")), (0, 1)),
    ],
)
def test_the_first_delivery_of_a_replayed_dead_letter_is_no_redelivery(
    outcome: Outcome, told: tuple[int, int]
) -> None:
    """It begins a new life: how that goes is told apart, and it is late for nothing."""
    world = World(FIVE)
    world.assign(topic=TIER)
    world.engine.polled([replayed(0, attempt=0)], world.now)
    world.take()
    world.finish(world.start(), outcome)
    assert world.told(ReplaysEnded) == [ReplaysEnded("orders", "bill", *told)]
    assert world.told(RedeliveriesStarted) == []
    world.engine.polled([replayed(1, attempt=1)], world.now)
    world.take()
    world.finish(world.start())
    assert len(world.told(ReplaysEnded)) == 1
    assert world.told(RedeliveriesStarted) == [RedeliveriesStarted("orders", "bill", [2], [0.0])]


def test_a_replayed_dead_letter_that_times_out_has_failed() -> None:
    """The deadline ends it, not an answer."""
    world = World(FIVE)
    world.assign(topic=TIER)
    world.engine.polled([replayed(0, attempt=0)], world.now)
    world.take()
    delivery = world.start()
    world.now_s += 5
    world.expire(delivery)
    assert world.told(ReplaysEnded) == [ReplaysEnded("orders", "bill", 0, 1)]


def test_a_replayed_dead_letter_whose_handler_pauses_has_not_ended() -> None:
    """It comes again as the same attempt, and counts when that is over."""
    world = World(FIVE)
    world.assign(topic=TIER)
    world.engine.polled([replayed(0, attempt=0)], world.now)
    world.take()
    world.finish(world.start(), Paused(1.0, "the bank is away"))
    assert world.told(ReplaysEnded) == []


def replayed(offset: int, *, attempt: int) -> MemoryRecord:
    """A dead letter that was put back to work, and has been delivered so often since."""
    headers = [(NOT_BEFORE, str(START_MS).encode()), (ATTEMPT, str(attempt).encode())]
    return MemoryRecord(TIER, 0, offset, _headers=[*headers, (REPLAYS, b"1")])


def test_a_timed_out_redelivery_gives_its_room_back() -> None:
    """It ended; its lateness is told as of its start."""
    world = World(FIVE)
    world.assign(topic=TIER)
    world.redeliver([0], due_ms=START_MS)
    delivery = world.start()
    world.now_s += 5
    world.expire(delivery)
    assert world.engine.state.handlers["bill"].open_retries == 0
    assert world.told(RedeliveriesStarted) == [RedeliveriesStarted("orders", "bill", [2], [0.0])]
    (failed,) = world.told(DeliveryFailed)
    assert isinstance(failed, DeliveryFailed)
    assert (failed.attempt, failed.reason) == (2, "timeout")


def test_the_fastest_timeout_sets_the_pace_of_the_scans() -> None:
    """Among several handlers, also while none of them runs; those without one set none."""
    world = World(FIVE)
    handlers = world.engine.state.handlers
    handlers["slow"] = HandlerState(HandlerRules("slow", consume_timeout_s=60.0))
    handlers["endless"] = HandlerState(HandlerRules("endless", consume_timeout_s=None))
    world.expire()
    assert world.engine.next_scan_s == START_S + 5
    assert world.told(DeliveryTimedOut) == []


def test_reading_the_engine() -> None:
    """Snapshots and tests look at the same state."""
    world, _ = running()
    assert world.engine.state.assignments is world.engine.assignments
    assert world.engine.state.flow is world.engine.flow
    assert world.engine.state.faults is world.engine.faults


# Where handlers can be killed.

KILLABLE = replace(FIVE, killable=True)


def test_a_deadline_that_kills_ends_nothing_by_itself() -> None:
    """The record is parked when the executor says that its handler is dead, and not before."""
    world, (delivery,) = running(KILLABLE)
    world.now_s += 6
    assert world.expire(delivery) == [Cancel(delivery)]
    assert (delivery.closed, world.told(DeliveryTimedOut)) == (False, [])
    # Still overdue: it is looked at again, in a moment.
    assert world.engine.next_scan_s == world.now_s + LOOK_AGAIN_S
    world.now_s += 1
    assert world.expire(delivery) == [Cancel(delivery)]
    delivery.finished_s = world.now_s
    world.finish(delivery, timed_out(delivery))
    (told,) = world.told(DeliveryTimedOut)
    assert told.late_by_s == 2
    (write,) = world.writes
    assert write.verdict is not None
    assert write.verdict.reason is Reason.TIMEOUT
    assert write.verdict.failure.message == "no answer within 5 s of its start"
    assert world.floor() == 0
    world.confirm()
    assert world.floor() == 1


def test_an_answer_before_the_kill_counts() -> None:
    """It was given: whether before or after the deadline makes no difference any more."""
    world, (delivery,) = running(KILLABLE)
    world.now_s += 6
    world.expire(delivery)
    world.finish(delivery)
    assert (world.floor(), world.told(DeliveryTimedOut)) == (1, [])
    assert world.expire(delivery) == []


def test_a_lane_waits_for_the_death_of_its_head() -> None:
    """Whatever comes after it starts when it is parked."""
    world, (delivery,) = running(replace(KILLABLE, ordering="partition"))
    world.read([1])
    world.now_s += 6
    world.expire(delivery)
    assert not world.ready
    world.finish(delivery, timed_out(delivery))
    assert world.start().offset == 1


def test_the_third_crash_in_a_row_is_the_last() -> None:
    """The envelope tells of the one before."""
    world = World(FIVE)
    world.assign()
    world.assign(topic=TIER)
    crash = Failed(Failure(PROCESS_CRASH, "was killed"), Reason.CRASH)
    envelope = Envelope(attempt=2, failures=2, error_type=PROCESS_CRASH)
    world.read([0])
    delivery = world.start()
    delivery.envelope = envelope
    write = world.fail(delivery, crash)
    assert isinstance(write.verdict, Bury)
    assert write.envelope.reason is Reason.CRASH
