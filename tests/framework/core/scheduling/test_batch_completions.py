"""Batches in the engine: how a call's end becomes the ends of its items, and where lanes go on."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.rule import Forced
from ackfloor.core.engine.completions import timed_out
from ackfloor.core.messages.commands import Cancel
from ackfloor.core.messages.events import (
    BatchFailed,
    BreakerOpened,
    DeliveryFailed,
    DeliveryTimedOut,
    LateAnswers,
    RecordWithheld,
)
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.envelope import REPLAYS, Reason
from ackfloor.core.records.outcomes import (
    ACKED,
    APART,
    PROCESS_CRASH,
    RELEASED,
    Bury,
    Failed,
    Outcome,
    Park,
    Paused,
    Rejected,
)
from ackfloor.core.records.record import Failure, TopicPartition
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.runtime.executors.batch_calls import begin
from tests.framework.core.worlds import TIER, MemoryRecord, World, offsets_of

FAILED = Failed(Failure("Boom", "x"))
REJECTED = Rejected(Failure("Hopeless", "x"))
OFF = CircuitBreaker(enabled=False)


class BatchWorld(World):
    """A world whose workers take batches."""

    def take_batch(self) -> Batch:
        """A worker takes a batch and starts."""
        batch = self.ready.popleft()
        assert isinstance(batch, Batch)
        begin(batch, self.now_s)
        return batch

    def end(self, batch: Batch, outcome: Outcome | None = ACKED) -> None:
        """The call ends, or is given up."""
        batch.outcome, batch.finished_s = outcome, self.now_s
        self.engine.unit_ended("bill", batch, self.now)
        self.take()

    def collect(self) -> None:
        """Answers by hand arrive."""
        answered = list(self.inbox)
        self.inbox.clear()
        self.engine.answered(answered, self.now)
        self.take()


def batched(
    ordering: str = "unordered", *, breaker: CircuitBreaker = OFF, **rules: object
) -> BatchWorld:
    """A world whose handler takes three records at once, and two partitions."""
    own = HandlerRules(
        "bill",
        ordering,
        policy=RetryPolicy("1s", 1, "1s", 2, 0),
        consume_timeout_s=10.0,
        batch=3,
        batch_wait_s=0.5,
        breaker=breaker,
    )
    world = BatchWorld(replace(own, **rules))  # type: ignore[arg-type]
    # It owns all there is.
    world.partitions[TIER] = 0
    world.assign(0)
    return world


def started(world: BatchWorld, key: bytes | None = b"k") -> Batch:
    """A batch of three that runs."""
    world.read([0, 1, 2], key=key)
    return world.take_batch()


def all_again(world: BatchWorld, batch: Batch) -> None:
    """Every record of a batch is answered `retry`, and the call ends."""
    for delivery in batch.items:
        delivery.retry()
    world.collect()
    world.end(batch)


def offsets(world: World) -> list[int]:
    """What is ready, lanes in order."""
    return offsets_of(world.ready)


def test_a_record_that_left_its_lane_is_not_held_in_it_any_more() -> None:
    """One of a batch is parked, the next is withheld: the first one's write takes nothing off."""
    world = batched("key", breaker=CircuitBreaker(park_rate="36/h"))
    batch = started(world)
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    bucket = world.engine.state.handlers["bill"].circuit.bucket
    while bucket.take(0.01, 1.0, world.now_s):
        pass
    world.now_s += 100
    all_again(world, batch)
    assignment = world.engine.assignments["orders", 0]
    assert (len(world.writes), assignment.held) == (1, 2)
    world.confirm()
    assert assignment.held == 2
    assert world.engine.state.handlers["bill"].lanes.holding


def test_the_end_of_a_call_ends_what_nobody_answered() -> None:
    """Each with the call's outcome, and its time; who was answered has the time of that."""
    world = batched()
    batch = started(world)
    assert batch.items[1].discard("old")
    world.now_s += 2.0
    world.collect()
    world.end(batch)
    assert [d.outcome is ACKED for d in batch.items] == [True, False, True]
    assert [d.finished_s - d.started_s for d in batch.items] == [2.0, 0.0, 2.0]
    assert world.floor() == 3
    assert not batch.unanswered()


def test_an_answer_that_was_first_keeps_its_record() -> None:
    """The call ends in the moment between an answer's claim and its outcome: the answer counts."""
    world = batched()
    batch = started(world)
    answered = batch.items[1]
    assert answered.claim()
    world.end(batch, FAILED)
    assert [d.outcome is APART for d in batch.items] == [True, False, True]
    answered.outcome = ACKED
    world.inbox.append(answered)
    world.collect()
    assert 1 not in answered.assignment.tracker.open


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_records_that_fail_by_themselves_are_parked_each(ordering: str) -> None:
    """By its own attempt, and one event for each."""
    world = batched(ordering, in_place=False)
    batch = started(world)
    for delivery in batch.items:
        delivery.retry()
    world.collect()
    world.end(batch, FAILED)
    assert [p.delivery.offset for p in world.writes] == [0, 1, 2]
    assert all(isinstance(p.verdict, Park) for p in world.writes)
    assert len(world.told(DeliveryFailed)) == 3


def test_in_a_lane_an_answer_by_hand_waits_for_the_call() -> None:
    """A record that was answered `retry` must not come again beside its own batch."""
    world = batched("key", in_place=True)
    batch = started(world)
    batch.items[0].retry()
    batch.items[1].ack()
    world.collect()
    world.tick(5.0)
    assert world.ready == world.ready.__class__()
    world.end(batch)
    world.tick(1.0)
    assert offsets(world) == [0]


def test_an_answer_on_its_way_keeps_the_lane() -> None:
    """The call has ended, the answer has not arrived: the lane goes on when it has."""
    world = batched("key")
    batch = started(world)
    world.read([3], key=b"k")
    batch.items[2].ack()
    world.end(batch)
    world.tick(2.0)
    assert (offsets(world), batch.over) == ([], False)
    world.collect()
    world.tick()
    assert (offsets(world), batch.over) == ([3], True)


def test_what_stays_in_a_lane_goes_on_one_by_one() -> None:
    """Redeliveries with their waits and dead letters on their way, each once it is the head."""
    world = batched("key", in_place=True)
    batch = started(world)
    batch.items[0].dead_letter("bad")
    batch.items[1].retry(after="30s")
    world.collect()
    world.end(batch, FAILED)
    assert isinstance(world.writes[0].verdict, Bury)
    world.tick(2.0)
    assert offsets(world) == []
    world.confirm()
    world.tick(20.0)
    assert offsets(world) == [], "the second has a longer wait of its own"
    world.tick(10.0)
    second = world.take_batch()
    assert [(d.offset, d.attempt) for d in second.items] == [(1, 2)]
    world.end(second)
    world.tick()
    third = world.take_batch()
    assert [(d.offset, d.attempt) for d in third.items] == [(2, 2)]
    world.end(third)
    assert world.floor() == 3
    assert world.engine.state.handlers["bill"].behind == {}


def test_a_dead_letter_that_is_written_before_its_turn_holds_nothing() -> None:
    """Its lane passes it over; one that is not written yet holds the lane."""
    world = batched("key", in_place=True)
    batch = started(world)
    batch.items[1].dead_letter("bad")
    batch.items[2].dead_letter("bad")
    world.collect()
    world.end(batch, FAILED)
    world.confirm()
    world.tick(1.0)
    first = world.take_batch()
    assert [d.offset for d in first.items] == [0]
    world.read([3], key=b"k")
    world.end(first)
    world.tick(2.0)
    assert offsets(world) == [], "2 is not written"
    world.confirm()
    world.tick(1.0)
    assert offsets(world) == [3]
    world.end(world.take_batch())
    assert world.floor() == 4


def test_a_lane_that_ends_with_written_dead_letters_is_forgotten() -> None:
    """They count for nothing while its head fails again, and when it is done."""
    world = batched("key", in_place=True)
    batch = started(world)
    batch.items[1].dead_letter("bad")
    batch.items[2].dead_letter("bad")
    world.collect()
    world.end(batch, FAILED)
    world.confirm()
    world.confirm()
    assignment = world.engine.assignments["orders", 0]
    for outcome in (FAILED, ACKED):
        assert (assignment.held, assignment.held_bytes) == (1, 2), "the head alone"
        world.tick(1.0)
        world.end(world.take_batch(), outcome)
    assert (assignment.held, assignment.held_bytes) == (0, 0)
    assert (world.floor(), len(world.engine.state.handlers["bill"].lanes)) == (3, 0)


def test_the_deadline_ends_all_and_gives_the_call_up_once() -> None:
    """The lane goes on; what the late call says is counted."""
    world = batched("key", in_place=False)
    world.read([0, 1, 2], key=b"k")
    batch = world.take_batch()
    world.read([3], key=b"k")
    world.tick(9.0)
    assert batch.items[0].ack()
    world.collect()
    world.tick(1.0)
    commands = world.expire(*batch.items)
    assert [c.delivery for c in commands if isinstance(c, Cancel)] == [batch.items[0]]
    assert len(world.told(DeliveryTimedOut)) == len(world.writes) == 2
    world.tick()
    assert offsets(world) == [3]
    world.end(batch, None)
    world.end(batch)
    world.tick()
    assert sum(event.count for event in world.told(LateAnswers)) == 2
    assert offsets(world) == [3]


def test_an_answer_on_its_way_keeps_the_call_at_its_deadline() -> None:
    """It is given up when all of it has ended."""
    world = batched()
    batch = started(world)
    assert batch.items[0].ack()
    world.tick(10.0)
    assert not [c for c in world.expire(*batch.items) if isinstance(c, Cancel)]


def test_extending_one_extends_all() -> None:
    """And a deadline that was moved between the scan and the claim is honoured."""
    world = batched()
    batch = started(world)
    world.tick(10.0)
    assert batch.items[1].extend("5s")
    assert not [c for c in world.expire(*batch.items) if isinstance(c, Cancel)]
    assert not any(d.closed for d in batch.items)
    world.end(batch)
    assert world.floor() == 3


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_a_pause_puts_back_what_nobody_answered(ordering: str) -> None:
    """As the same attempt; the old deliveries stay ended."""
    world = batched(ordering)
    batch = started(world)
    batch.items[1].ack()
    world.collect()
    world.end(batch, Paused(1.0))
    world.tick(0.5)
    assert offsets(world) == [0, 2]
    again = world.take_batch()
    assert [d.attempt for d in again.items] == [1, 1]
    assert not batch.items[0].ack()
    world.end(again)
    assert world.floor() == 3


def test_a_redelivery_that_asks_for_a_pause_keeps_its_room() -> None:
    """It is counted once among the running redeliveries."""
    world = batched()
    world.assign(topic="orders--g--retry-1s")
    world.redeliver([0])
    handler = world.engine.state.handlers["bill"]
    world.end(world.take_batch(), Paused(1.0))
    assert (handler.open_retries, offsets(world)) == (1, [0])
    world.end(world.take_batch())
    assert handler.open_retries == 0


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_nothing_of_a_partition_that_leaves_is_planned_again(ordering: str) -> None:
    """What it failed or paused with stays open, for whoever owns it next."""
    world = batched(ordering, in_place=True)
    for outcome in (FAILED, Paused(1.0)):
        batch = started(world)
        world.engine.stop([TopicPartition("orders", 0)])
        world.end(batch, outcome)
        world.tick(5.0)
        assert offsets(world) == []
        assert world.floor() == 0
        world.revoke()
        world.assign(0)


def test_what_failed_in_a_lane_that_is_gone_is_stale() -> None:
    """Its partition left between the answer and the end of the call."""
    world = batched("key", in_place=True)
    batch = started(world)
    batch.items[0].retry()
    world.collect()
    world.revoke(lost=True)
    world.end(batch, FAILED)
    world.tick(5.0)
    assert (offsets(world), world.writes) == ([], [])
    assert world.engine.flow.open_count == 0


def test_lanes_that_wait_behind_a_failure_leave_with_their_partition() -> None:
    """Nothing is kept of them."""
    world = batched("key", in_place=True)
    all_again(world, started(world))
    handler = world.engine.state.handlers["bill"]
    assert len(handler.behind) == 2
    world.revoke()
    assert handler.behind == {}


def test_a_lane_of_a_stopping_partition_does_not_go_on() -> None:
    """Nor is its next redelivery planned."""
    world = batched("key", in_place=True)
    world.end(started(world), FAILED)
    world.tick(1.0)
    first = world.take_batch()
    world.engine.stop([TopicPartition("orders", 0)])
    world.end(first)
    world.tick(5.0)
    assert offsets(world) == []


def test_released_items_stay_open() -> None:
    """A call that was cut short at the end of its worker."""
    world = batched()
    world.end(started(world), RELEASED)
    assert (world.floor(), world.engine.flow.open_count) == (0, 3)


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_crash_in_company_charges_nobody(ordering: str, in_place: bool) -> None:
    """What nobody has answered comes again as the same attempt, each alone; others have ended."""
    world = batched(ordering, in_place=in_place)
    batch = started(world)
    assert batch.items[1].ack()
    world.collect()
    world.end(batch, APART)
    world.read([3], key=b"k")
    assert not batch.items[0].ack(), "the old delivery stays ended"
    assert world.told(DeliveryFailed) == []
    for offset in (0, 2):
        (again,) = world.take_batch().items
        assert (again.offset, again.attempt, again.origin.offset) == (offset, 1, offset)
        world.end(again.batch)
    world.tick(1.0)
    world.end(world.take_batch())
    assert (world.floor(), world.writes, world.engine.flow.open_count) == (4, [], 0)


def test_the_third_crash_alone_in_a_row_condemns() -> None:
    """The one with company counts for nothing, and the record begins with a whole budget."""
    crash = Failed(Failure(PROCESS_CRASH, "x"), Reason.CRASH)
    world = batched(in_place=True)
    world.end(started(world), APART)
    for n in range(3):
        batch = world.take_batch()
        assert [(d.offset, d.attempt) for d in batch.items] == [(0, n + 1)]
        world.end(batch, crash)
        while n == 0 and world.ready:
            world.end(world.take_batch())
        world.tick(1.0)
    verdicts = [write.verdict for write in world.writes]
    assert verdicts == [Bury(Reason.CRASH, crash.failure)]


def test_a_replayed_record_that_was_in_a_crash_keeps_its_count() -> None:
    """How often it was replayed is told by the record, and by what it is parked with."""
    world = batched()
    world.engine.polled(
        [MemoryRecord("orders", 0, n, _headers=[(REPLAYS, b"4")]) for n in range(3)], world.now
    )
    world.take()
    world.end(world.take_batch(), APART)
    world.end(world.take_batch(), FAILED)
    assert (world.writes[0].envelope.replays, world.writes[0].envelope.attempt) == (4, 1)


def test_a_deadline_that_kills_gives_the_call_up_whole() -> None:
    """One command for all of it, again and again, until the executor says how it ended."""
    world = batched(killable=True)
    batch = started(world)
    assert batch.items[0].ack()
    world.collect()
    world.tick(10.0)
    for _ in range(2):
        commands = world.expire(*batch.items)
        assert [c.delivery for c in commands if isinstance(c, Cancel)] == [batch.items[1]]
        world.tick(1.0)
    assert (world.writes, world.told(DeliveryTimedOut)) == ([], [])
    world.end(batch, timed_out(batch.items[1]))
    assert [p.delivery.offset for p in world.writes] == [1, 2]
    assert [event.offset for event in world.told(DeliveryTimedOut)] == [1, 2]


def test_an_empty_batch_gives_its_lanes_back() -> None:
    """Nothing of it could start."""
    world = batched("key")
    world.read([0, 1, 2], key=b"k")
    batch = world.ready.popleft()
    (lane,) = batch.lanes
    lane.extend(batch.items)
    batch.items = []
    world.end(batch, None)
    world.tick()
    assert offsets(world) == [0, 1, 2]


class TestBreaker:
    """A call that fails says nothing of its records: it counts once, and they are tried alone."""

    BREAKER = CircuitBreaker(3)

    @pytest.mark.parametrize("ordering", ["unordered", "key"])
    def test_one_bad_batch_does_not_open_it(self, ordering: str) -> None:
        """However many records it has; each is tried alone, at once, as the same attempt."""
        world = batched(ordering, breaker=self.BREAKER)
        world.end(started(world), FAILED)
        assert world.writes == []
        (told,) = world.told(BatchFailed)
        assert (told.handler, told.count, told.error_type) == ("bill", 3, FAILED.failure.error_type)
        for offset in range(3):
            batch = world.take_batch()
            assert [(d.offset, d.attempt) for d in batch.items] == [(offset, 1)]
            world.end(batch, FAILED if offset == 1 else ACKED)
        assert world.told(BreakerOpened) == []
        assert [write.delivery.offset for write in world.writes] == [1]
        assert world.engine.state.handlers["bill"].open_retries == 0

    @pytest.mark.parametrize("ordering", ["unordered", "key"])
    def test_what_fails_alone_as_well_opens_it(self, ordering: str) -> None:
        """Three records in a row; the third is withheld already where the drip is dry."""
        world = batched(ordering, breaker=CircuitBreaker(3, park_rate="1/h"))
        while world.engine.state.handlers["bill"].circuit.bucket.take(0.001, 1.0, world.now_s):
            pass
        world.end(started(world), FAILED)
        for _ in range(3):
            world.end(world.take_batch(), FAILED)
        assert len(world.told(BreakerOpened)) == 1
        assert len(world.writes) == 2
        assert [event.offset for event in world.told(RecordWithheld)] == [2]

    def test_answers_by_hand_count_each(self) -> None:
        """Those name their records, and are no failure of the call."""
        world = batched(breaker=self.BREAKER)
        batch = started(world)
        for delivery in batch.items:
            delivery.retry()
        world.collect()
        assert len(world.told(BreakerOpened)) == 1
        assert world.told(BatchFailed) == []

    def test_a_lane_is_free_once_its_withheld_head_has_left(self) -> None:
        """What came behind it is held no longer, so fetching goes on."""
        world = batched("partition", breaker=CircuitBreaker(3, park_rate="1/h"))
        world.engine.force("bill", Forced.OPEN, inf, "", world.now)
        bucket = world.engine.state.handlers["bill"].circuit.bucket
        while bucket.take(0.001, 1.0, world.now_s):
            pass
        world.read([0, 1])
        world.tick(1.0)
        first = world.take_batch()
        assert offsets_of([first]) == [0], "a trial is one record"
        world.end(first, FAILED)
        orders = world.engine.assignments["orders", 0]
        assert (len(orders.withheld), orders.held) == (1, 2)
        world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
        world.tick(1.0)
        world.end(world.take_batch(), FAILED)
        assert [write.delivery.offset for write in world.writes] == [0]
        assert (len(orders.withheld), orders.held) == (0, 0)

    @pytest.mark.parametrize("in_place", [False, True], ids=["park", "block"])
    def test_what_fails_while_its_partition_leaves_stays_open(self, in_place: bool) -> None:
        """For whoever owns it next, whether it would be withheld or tried again in place."""
        world = batched("partition", breaker=self.BREAKER, in_place=in_place)
        bucket = world.engine.state.handlers["bill"].circuit.bucket
        while bucket.take(0.001, 1.0, world.now_s):
            pass
        batch = started(world)
        for delivery in batch.items:
            delivery.retry()
        world.engine.stop([TopicPartition("orders", 0)])
        world.collect()
        world.end(batch)
        assert world.floor() == 0
        assert len(world.engine.assignments["orders", 0].waiting) == 0

    def test_a_batch_that_timed_out_is_parked_at_its_deadline(self) -> None:
        """It hangs, perhaps for all of them: trying each alone would take as many time-outs."""
        world = batched(breaker=self.BREAKER)
        batch = started(world)
        world.now_s += 60.0
        world.expire(*batch.items)
        assert len(world.writes) == 3
        assert world.told(BreakerOpened) == []

    def test_a_wait_by_name_is_for_all(self) -> None:
        """`Retry(after=)` of the whole call is a plan, and no failure."""
        world = batched(breaker=self.BREAKER)
        later = Failed(Failure("Retry", "tomorrow"), Reason.RETRY, 3600.0)
        world.end(started(world), later)
        assert len(world.writes) == 3


@pytest.mark.parametrize("tier", [False, True])
def test_what_comes_behind_a_failed_batch_is_held_within_its_limit(tier: bool) -> None:
    """Its lane waits from the moment on in which the batch is let go."""
    policy = RetryPolicy("1s", 1, "1s", 2, 0)
    own = HandlerRules("bill", "key", policy=policy, breaker=OFF, batch=3, in_place=True)
    world = BatchWorld(own, limits=FlowLimits(max_open=400, tier_buffer=20))
    world.assign(0)
    if tier:
        world.assign(0, topic=TIER)
    world.read([0, 1, 2], key=b"k")
    all_again(world, world.take_batch())
    orders, read = world.engine.assignments["orders", 0], 3
    while not orders.paused:
        world.read(range(read, read + 5), key=b"k")
        read += 5
        assert read < 300, "nothing stops it"
    assert orders.held <= orders.gates.held.limit + 5


def test_suspects_are_alone() -> None:
    """One that was in flight when a process died is handled with nothing beside it."""
    world = batched()
    world.engine.suspects.learn([("orders", 0, 1, 1, "was killed")])
    world.read([0, 1, 2])
    world.engine.suspects.tick(world.now, quiet=False)
    world.take()
    (batch,) = world.ready
    (suspect,) = batch.items
    assert (suspect.offset, suspect.unbatched) == (1, True)
    world.end(world.take_batch())
    world.engine.suspects.tick(world.now, quiet=False)
    assert not suspect.unbatched


def test_what_waits_behind_a_suspect_joins_a_lane_that_waits_for_company() -> None:
    """It is counted there: a suspect asked for a pause, and its lane waits for a full batch."""
    world = batched("partition")
    world.engine.suspects.learn([("orders", 0, 0, 1, "was killed")])
    world.read([0, 1])
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    suspect = world.take_batch()
    assert [delivery.offset for delivery in suspect.items] == [0]
    world.end(suspect, Paused(0.01, "away"))
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    world.tick(1.0)
    batch = world.take_batch()
    assert [delivery.offset for delivery in batch.items] == [0, 1]
    world.end(batch)
    batch_buffer = world.engine.state.handlers["bill"].batch_buffer
    assert batch_buffer is not None
    assert (len(batch_buffer), world.floor()) == (0, 2)


def test_a_single_record_can_be_ended_by_the_runtime() -> None:
    """One that does not decode ends before the call."""
    world = batched()
    batch = started(world)
    assert batch.items[0].end(REJECTED)
    assert not batch.items[0].end(REJECTED)
    world.collect()
    assert isinstance(world.writes[0].verdict, Bury)
