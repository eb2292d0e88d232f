"""Withheld: while a breaker is not closed failures leave at a drip, and the rest loses nothing."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.rule import Forced
from ackfloor.core.messages.events import LateAnswers, RecordWithheld, RedeliveriesStarted
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.envelope import RETRY_AT
from ackfloor.core.records.outcomes import ACKED, Bury, Failed, Park, Rejected
from ackfloor.core.records.record import Failure, Now, TopicPartition
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling.withheld import LONGEST_WAIT_S, MOST_TRIALS
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.rule_changes import Reloaded
from tests.framework.core.worlds import TIER, HeldWorld, deliveries_in

BOOM = Failed(Failure("Boom", "the bank is away"))
RULES = HandlerRules(
    "bill",
    concurrency=8,
    consume_timeout_s=60.0,
    policy=RetryPolicy("1s", 1, "1s", 3, 0),
    # One record may leave at once, and one each 100 s.
    breaker=CircuitBreaker(5, park_rate="36/h"),
)


def only_worker(rules: HandlerRules) -> HeldWorld:
    """A world that owns all there is of its topic."""
    world = HeldWorld(rules)
    world.partitions[TIER] = 0
    world.assign()
    return world


def forced_open(rules: HandlerRules = RULES, count: int = 30, keys: int = 30) -> HeldWorld:
    """A world whose breaker is open, with records to try, and a drip that has run dry."""
    world = only_worker(rules)
    for offset in range(count):
        world.read([offset], key=b"k%d" % (offset % keys))
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.tick()
    bucket = world.engine.state.handlers["bill"].circuit.bucket
    while bucket.take(0.01, 1.0, world.now_s):
        pass
    return world


def fail(world: HeldWorld, wait_s: float = 0.01) -> TrackedDelivery:
    """A trial is started and fails; the next one may start."""
    delivery = world.start()
    world.finish(delivery, BOOM)
    world.tick(wait_s)
    return delivery


def withheld(world: HeldWorld) -> int:
    """How many records are withheld."""
    return world.engine.state.withheld(world.engine.state.handlers["bill"])


def test_it_stays_open_and_the_same_attempt_comes_again() -> None:
    """W1: nothing is written, the floor waits, and what the old delivery still says is late."""
    world = forced_open(count=1)
    delivery = fail(world)
    assert (world.writes, world.floor(), withheld(world)) == ([], 0, 1)
    assert world.engine.flow.open_count == 1
    assert world.told(RecordWithheld) == [RecordWithheld("orders", 0, 0, "bill", 1, "orders")]
    world.finish(delivery, ACKED)
    assert sum(event.count for event in world.told(LateAnswers)) == 1
    world.tick(1.0)
    again = world.start()
    assert (again.offset, again.attempt, withheld(world)) == (0, 1, 0)
    world.finish(again, ACKED)
    assert (world.floor(), world.engine.flow.open_count) == (1, 0)
    assert world.engine.assignments["orders", 0].withheld.trials == {}


def test_its_waits_grow_up_to_five_seconds() -> None:
    """One, two, four, five, five seconds."""
    world = forced_open(count=1)
    waits = []
    for _ in range(5):
        failed_s = world.now_s
        fail(world)
        due_s = world.engine.next_due_s(world.now)
        waits.append(due_s - failed_s)
        world.tick(due_s - world.now_s)
    assert waits == pytest.approx([1.0, 2.0, 4.0, LONGEST_WAIT_S, LONGEST_WAIT_S])


def test_no_more_leaves_than_the_drip_admits() -> None:
    """W2: each hundred seconds one record is parked, whatever is tried meanwhile."""
    world = forced_open()
    for _ in range(3):
        for _ in range(20):
            if world.startable():
                world.finish(world.start(), BOOM)
            world.tick(5.0)
    assert 2 <= len(world.writes) <= 3
    assert all(isinstance(write.verdict, Park) for write in world.writes)


def test_a_record_that_leaves_at_the_drip_has_spent_an_attempt() -> None:
    """It is parked as always."""
    world = forced_open(count=1)
    world.tick(200.0)
    fail(world)
    (write,) = world.writes
    assert (write.envelope.attempt, withheld(world)) == (1, 0)


def test_nothing_is_dead_lettered_because_its_budget_ran_out() -> None:
    """Its last attempt is withheld, also where the drip would admit it."""
    world = forced_open(replace(RULES, policy=RetryPolicy("1s", 1, "1s", 0, 0)))
    for _ in range(10):
        world.tick(200.0)
        fail(world)
    assert world.writes == []
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.take()
    fail(world)
    assert isinstance(world.writes[-1].verdict, Bury)


def test_an_explicit_dead_letter_leaves_at_the_drip() -> None:
    """It is a failure like others for the topic it fills."""
    world = forced_open()
    for _ in range(3):
        world.finish(world.start(), Rejected(Failure("OSError", "refused")))
        world.tick(0.01)
    assert (world.writes, withheld(world)) == ([], 3)
    world.tick(200.0)
    world.finish(world.start(), Rejected(Failure("OSError", "refused")))
    assert isinstance(world.writes[-1].verdict, Bury)


def test_a_timeout_is_withheld_and_its_late_answer_changes_nothing() -> None:
    """At its deadline, not at the end of its handler."""
    world = forced_open(count=1)
    delivery = world.start()
    world.now_s += 60.0
    world.expire(delivery)
    assert withheld(world) == 1
    world.finish(delivery, ACKED)
    assert world.floor() == 0


def test_a_deadline_that_was_moved_follows_the_policy() -> None:
    """An operator shortened it while the handler ran."""
    world = forced_open(count=1)
    delivery = world.start()
    world.now_s += 10.0
    shorter = replace(RULES, consume_timeout_s=1.0)
    world.engine.reload(Reloaded((shorter,), world.limits, 1.0, 10_000), world.now)
    world.expire(delivery)
    assert len(world.writes) == 1


def test_a_redelivery_is_withheld_with_its_attempt() -> None:
    """And its lateness is told once, for its first start."""
    world = forced_open(count=0)
    world.assign(topic=TIER)
    world.redeliver([7])
    world.tick(0.01)
    fail(world)
    world.tick(1.0)
    again = world.start()
    assert again.attempt == 2
    world.finish(again, ACKED)
    assert len(world.told(RedeliveriesStarted)) == 1
    assert world.engine.state.handlers["bill"].open_retries == 0


def test_undecided_failures_are_withheld_as_well() -> None:
    """A start that may yet succeed holds the judgement back, and not what becomes of the rest."""
    world = only_worker(replace(RULES, concurrency=64))
    world.read(range(60))
    slow, usual = world.start(), world.start()
    world.now_s += 30.0
    world.finish(usual, ACKED)
    slow.started_s = world.now_s
    running = [world.start() for _ in range(40)]
    world.now_s += 0.01
    for delivery in running:
        world.finish(delivery, BOOM)
    assert not world.held
    assert len(world.writes) == 4 + 10, "four by the policy, ten that the drip admits at once"
    assert withheld(world) == 26
    world.now_s += 1.0
    world.finish(slow, ACKED)
    world.now_s += 5.0
    world.tick()
    assert world.ready, "they come again"


def test_a_whole_run_is_withheld_until_it_is_decided() -> None:
    """W2: where successes take long, the judgement waits for longer than three trials take."""
    world = only_worker(replace(RULES, concurrency=64))
    world.read(range(60))
    slow, usual = world.start(), world.start()
    world.now_s += 30.0
    world.finish(usual, ACKED)
    slow.started_s = world.now_s
    for delivery in [world.start() for _ in range(40)]:
        world.finish(delivery, BOOM)
    left = len(world.writes)
    for _ in range(40):
        world.tick(1.0)
        while not world.held and world.startable():
            world.finish(world.start(), BOOM)
    assert not world.held
    bucket = 40 * RULES.breaker.park_rate_per_s
    assert len(world.writes) - left <= bucket + 1


def test_a_few_that_always_fail_are_not_withheld_for_ever() -> None:
    """In a quiet topic their run ends with nothing; after three trials they follow the policy."""
    rules = replace(RULES, policy=RetryPolicy("1s", 1, "1s", 0, 0), breaker=CircuitBreaker(9, 8))
    world = HeldWorld(rules)
    world.partitions.update({"orders": 16, TIER: 0})
    world.assign()
    world.read([0, 1, 2, 3])
    for _ in range(60):
        world.tick(6.0)
        if world.startable():
            world.finish(world.start(), BOOM)
    assert not world.held
    assert len(world.told(RecordWithheld)) >= 3
    assert [type(write.verdict) for write in world.writes] == [Bury] * 4


def test_a_worker_withholds_from_its_share_of_the_run_on() -> None:
    """Four workers let no more go before the first opens than one does."""
    world = HeldWorld(replace(RULES, concurrency=64, breaker=CircuitBreaker(40)))
    world.partitions["orders"] = 8
    world.partitions[TIER] = 8
    world.assign()
    world.read(range(60))
    running = [world.start() for _ in range(30)]
    world.now_s += 0.01
    for delivery in running:
        world.finish(delivery, BOOM)
    share = 1 / 16
    before = 2  # fewer than 40 * share in a row
    assert len(world.writes) == before + 1, "and one at once by the drip"
    assert world.engine.state.share_of(world.engine.state.handlers["bill"]) == share
    assert withheld(world) == 27


def test_nothing_is_kept_of_a_record_that_was_retried_in_place_and_is_settled() -> None:
    """A lane's head leaves for the dead letters in the end; how often it was tried is forgotten."""
    rules = replace(RULES, ordering="key", in_place=True, policy=RetryPolicy("1s", 1, "1s", 0, 0))
    world = forced_open(rules, count=1)
    while not world.writes:
        world.tick(LONGEST_WAIT_S)
        if world.startable():
            fail(world)
    assert world.engine.assignments["orders", 0].withheld.tried(0) == MOST_TRIALS
    world.confirm()
    assert world.engine.assignments["orders", 0].withheld.trials == {}


def test_a_partition_that_leaves_takes_its_records_along() -> None:
    """What fails then is left to its next owner, and nothing is counted as withheld."""
    world = forced_open()
    fail(world)
    running = world.start()
    world.engine.stop([TopicPartition("orders", 0)])
    world.finish(running, BOOM)
    assert (withheld(world), world.writes) == (0, [])
    assert world.floor() == 0


class TestLanes:
    """A record that is withheld is still the head of its lane."""

    @pytest.mark.parametrize("in_place", [False, True], ids=["park", "block"])
    def test_its_followers_wait(self, in_place: bool) -> None:
        """Two keys: after both heads have failed, nothing else of them starts."""
        rules = replace(RULES, ordering="key", in_place=in_place)
        world = forced_open(rules, count=8, keys=2)
        started = [fail(world).offset for _ in range(2)]
        assert started == [0, 1]
        assert not world.startable()
        world.tick(1.5)
        again = world.start()
        assert again.offset == 0
        world.finish(again, ACKED)
        world.tick(0.01)
        assert world.start().offset in {1, 2}
        assert world.engine.assignments["orders", 0].held in range(9)

    def test_what_leaves_lets_its_lane_go_on(self) -> None:
        """A parked head holds nobody, also where it was withheld before."""
        rules = replace(RULES, ordering="key")
        world = forced_open(rules, count=4, keys=1)
        fail(world)
        world.tick(200.0)
        parked = fail(world)
        assert parked.offset == 0
        assert len(world.writes) == 1
        assert world.engine.assignments["orders", 0].held == 0
        assert world.start().offset == 1

    @pytest.mark.parametrize("in_place", [False, True], ids=["park", "block"])
    def test_the_head_follows_the_policy_after_many_trials(self, in_place: bool) -> None:
        """Or one bad record would block its lane as long as the breaker is not closed."""
        policy = RetryPolicy("1s", 1, "1s", 0, 0)
        rules = replace(RULES, ordering="key", in_place=in_place, policy=policy)
        world = forced_open(rules, count=4, keys=1)
        for _ in range(MOST_TRIALS):
            fail(world, 6.0)
            assert world.writes == []
        world.tick(200.0)
        fail(world)
        assert isinstance(world.writes[0].verdict, Bury)
        world.confirm()
        world.tick(6.0)
        assert world.start().offset == 1

    def test_followers_take_no_room_from_their_head(self) -> None:
        """Redeliveries of one key: the head is withheld, the others wait behind it."""
        world = forced_open(replace(RULES, ordering="key", concurrency=2), count=0)
        world.assign(topic=TIER)
        world.redeliver(range(3), key=b"k")
        world.tick(0.01)
        fail(world)
        for _ in range(5):
            world.tick(0.1)
        assert withheld(world) == 1
        world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
        world.take()
        world.tick(5.0)
        for offset in range(3):
            delivery = world.start()
            assert delivery.offset == offset
            world.finish(delivery, ACKED)
            world.leave(delivery)
            world.tick(0.1)
        assert world.engine.state.handlers["bill"].open_retries == 0
        assert world.engine.flow.open_count == 0

    def test_followers_that_leave_with_their_partition_took_no_room(self) -> None:
        """What counts is one redelivery, the head of the lane."""
        world = forced_open(replace(RULES, ordering="key", concurrency=8), count=0)
        world.assign(topic=TIER)
        world.redeliver(range(3), key=b"k")
        world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
        world.tick(0.01)
        handler = world.engine.state.handlers["bill"]
        assert handler.open_retries == 1
        world.revoke(topic=TIER)
        assert handler.open_retries == 0

    def test_in_place_the_policy_goes_on_but_for_the_last_attempt(self) -> None:
        """Nothing leaves, so nothing needs to be withheld before."""
        rules = replace(RULES, ordering="key", in_place=True)
        world = forced_open(rules, count=1)
        attempts = [fail(world, 6.0).attempt for _ in range(8)]
        assert attempts == [1, 2, 3, 4, 4, 4, 4, 4]
        assert world.writes == []

    def test_a_timeout_takes_the_lane_from_its_slot(self) -> None:
        """The handler that hangs has nothing of it any more."""
        rules = replace(RULES, ordering="key")
        world = forced_open(rules, count=4, keys=1)
        item = world.ready[0]
        delivery = world.start()
        world.now_s += 60.0
        world.expire(delivery)
        assert not (isinstance(item, Work) and item)
        assert withheld(world) == 1
        world.tick(1.0)
        assert world.start().offset == 0


def test_it_moves_to_no_other_tier_although_the_wall_clock_was_set_back() -> None:
    """W1: it has had its further wait, and is counted no longer than it is withheld."""
    world = forced_open(count=0)
    world.assign(0, 0, TIER)
    retry_at = [(RETRY_AT, str(world.now.wall_ms).encode())]
    world.redeliver([0], headers=retry_at)
    world.tick()
    fail(world)
    assert withheld(world) == 1
    world.now_s += 5.0
    set_back = Now(world.now_s, world.now.wall_ms - 60_000)
    world.engine.tick(set_back)
    (again,) = world.engine.next_units("bill", 0, set_back)
    assert deliveries_in(again)[0].offset == 0
    world.take()
    assert (world.writes, withheld(world)) == ([], 0)
