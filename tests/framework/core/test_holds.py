"""Holds: a stopped handler loses nothing, spends nothing, and finds out when it may go on."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from ackfloor.core.assignment import HandlerRules
from ackfloor.core.delivery import Delivery
from ackfloor.core.envelope import Reason
from ackfloor.core.guard import MOST_PROBES, FloodGuard
from ackfloor.core.guard_events import GuardProbed, GuardReset, GuardTripped, RecordPutBack
from ackfloor.core.holds import SHORTEST_PAUSE_S
from ackfloor.core.lanes import Run
from ackfloor.core.messages import Dispatch, HandlerHeld, LateAnswers, Pause, Probe, Resume, Unhold
from ackfloor.core.model import Failure, TopicPartition
from ackfloor.core.outcomes import ACKED, Discarded, Failed, Outcome, Rejected
from ackfloor.core.reload import Reloaded
from ackfloor.core.retry import RetryPolicy
from tests.framework.core.worlds import START_S, HeldWorld

BOOM = Failed(Failure("Boom", "the bank is away"))
DECODE = Rejected(Failure("DecodeError", "no JSON"), Reason.DECODE)
LATER = Failed(Failure("Retry", "tomorrow"), Reason.RETRY, 3600.0)
GUARD = FloodGuard(min_sample=5)
RULES = HandlerRules(
    "bill",
    concurrency=8,
    consume_timeout_s=60.0,
    policy=RetryPolicy("1s", 1, "1s", 3, 0),
    guard=GUARD,
)
ORDERS = TopicPartition("orders", 0)


def world_of(count: int = 30, rules: HandlerRules = RULES) -> HeldWorld:
    """A world with records of as many keys that wait for their handler."""
    world = HeldWorld(rules)
    world.assign()
    for offset in range(count):
        world.read([offset], key=b"k%d" % offset)
    return world


def tripped(count: int = 30, rules: HandlerRules = RULES, running: int = 0) -> HeldWorld:
    """A world in which five records have failed, four of which were parked."""
    world = world_of(count, rules)
    others = [world.start() for _ in range(running)]
    for _ in range(5):
        world.finish(world.start(), BOOM)
    assert world.held
    world.running = others  # type: ignore[attr-defined]
    return world


def probe(world: HeldWorld, seconds: float, outcome: Outcome = BOOM) -> Delivery:
    """Time passes and one probe goes out and ends."""
    world.tick(seconds)
    delivery = world.start()
    world.finish(delivery, outcome)
    return delivery


def trip_told(world: HeldWorld) -> list[GuardTripped]:
    """What was told of trips."""
    return world.told(GuardTripped)


def test_the_failure_that_trips_it_is_put_back_already() -> None:
    """Those before are parked; nothing more is written, the partition pauses, readiness knows."""
    world = tripped()
    assert len(world.parcels) == 4
    assert trip_told(world) == [GuardTripped("bill", 5, 5, "Boom", "the bank is away")]
    assert world.told(RecordPutBack) == [RecordPutBack("orders", 0, 4, "bill", 1, "orders")]
    assert Pause((ORDERS,)) in world.commands
    (fault,) = world.engine.faults.all()
    assert (fault.kind, fault.subject) == ("guard", "bill")
    assert "5 of the last 5 records failed" in fault.message
    assert "Boom: the bank is away" in fault.message
    assert world.floor() == 0
    assert world.engine.flow.open_count == 30


def test_what_was_running_is_put_back_as_the_same_attempt() -> None:
    """Failed or timed out, with its budget; the old delivery stays ended and its answer is late."""
    world = tripped(running=2)
    failing, hanging = world.running  # type: ignore[attr-defined]
    world.finish(failing, BOOM)
    world.now_s += 60
    world.expire(hanging)
    world.finish(hanging, ACKED)
    assert len(world.parcels) == 4
    assert sum(event.count for event in world.told(LateAnswers)) == 1
    again = [item for item in world.ready if isinstance(item, Delivery)][-2:]
    assert {delivery.offset for delivery in again} == {failing.offset, hanging.offset}
    assert [delivery.attempt for delivery in again] == [1, 1]
    assert not any(delivery.closed for delivery in again)
    assert failing.closed
    assert hanging.closed


def test_what_was_running_may_succeed_and_proves_nothing() -> None:
    """It is settled; but it had started before."""
    world = tripped(running=1)
    (delivery,) = world.running  # type: ignore[attr-defined]
    world.finish(delivery)
    assert world.engine.flow.open_count == 29
    assert world.held
    assert world.told(GuardProbed) == []


def test_single_records_are_tried_less_and_less_often() -> None:
    """After 1 s, then 2 s, 4 s and 5 s apart, each time another one, with nothing spent."""
    world = tripped()
    waits = [world.engine.next_due_s(world.now) - world.now_s]
    tried = []
    for _ in range(5):
        tried.append(probe(world, waits[-1]))
        assert not world.startable()
        waits.append(world.engine.next_due_s(world.now) - world.now_s)
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert len({delivery.offset for delivery in tried}) == 5
    assert [delivery.attempt for delivery in tried] == [1] * 5
    assert len(world.parcels) == 4
    assert [event.error_type for event in world.told(GuardProbed)] == ["Boom"] * 5


def test_a_probe_that_hangs_does_not_keep_others_from_trying() -> None:
    """The next one goes out on time and may succeed; the hanging one fails at its deadline."""
    world = tripped()
    world.tick(1)
    hanging = world.start()
    probe(world, 2, ACKED)
    assert world.permits == 4
    for _ in range(4):
        world.finish(world.start())
    world.now_s = hanging.started_s + 60
    world.expire(hanging)
    assert world.told(GuardProbed)[-1].error_type == "ConsumeTimeout"
    assert world.held
    assert len(world.parcels) == 4
    assert world.engine.state.handlers["bill"].guard.succeeding


def succeed(world: HeldWorld) -> int:
    """Every probe succeeds until the guard is reset; returns how many it took."""
    count = 0
    while world.held:
        if not world.startable():
            world.tick(5)
        world.finish(world.start())
        count += 1
    return count


def test_it_takes_more_than_one_success() -> None:
    """One, four, sixteen; then everything goes on, fetching too, and readiness forgets it."""
    world = tripped()
    world.tick(1)
    assert succeed(world) == 21
    assert [event.handler for event in world.told(GuardReset)] == ["bill"]
    assert world.told(GuardReset)[0].after_s == 1.0
    assert Unhold("bill") in world.commands
    assert [type(c) for c in world.commands if isinstance(c, Pause | Resume)] == [Pause, Resume]
    assert world.engine.faults.all() == ()
    assert world.engine.next_due_s(world.now) == inf


def test_a_lucky_success_does_not_release_a_flood() -> None:
    """The next round fails: nothing of it is parked, and probing begins again with one."""
    world = tripped()
    probe(world, 1, ACKED)
    for delivery in [world.start() for _ in range(4)]:
        world.finish(delivery, BOOM)
    assert len(world.parcels) == 4
    assert not world.startable()
    world.tick(2)
    assert world.permits == 1


def test_a_bad_record_among_good_ones_does_not_keep_it_tripped() -> None:
    """Also where it is the last of the last round; it is put back once more, and goes on."""
    world = tripped()
    world.tick(1)
    for _ in range(20):
        world.finish(world.start())
    world.finish(world.start(), BOOM)
    assert not world.held
    assert len(world.parcels) == 4
    assert len(world.ready) == 30 - 4 - 20


def test_what_is_left_is_enough() -> None:
    """Where all that waits has succeeded, nothing is left to prove."""
    world = tripped(6)
    world.tick(1)
    assert succeed(world) == 2
    assert len(world.told(GuardReset)) == 1


def test_with_nothing_to_try_fetching_goes_on() -> None:
    """What is read then waits for the next probe."""
    world = tripped(5)
    (item,) = world.ready
    world.ready.clear()
    world.tick(1)
    assert [type(c) for c in world.commands if isinstance(c, Pause | Resume)] == [Pause, Resume]
    world.ready.append(item)
    world.read([5, 6])
    probe(world, 2)
    assert [type(c) for c in world.commands if isinstance(c, Pause | Resume)][-1] is Pause


def test_where_the_same_record_fails_again_others_are_fetched() -> None:
    """One bad record must not be the only one that is ever tried."""
    world = tripped(5)
    probe(world, 1)
    assert not isinstance(world.commands[-1], Resume)
    probe(world, 2)
    assert any(isinstance(command, Resume) for command in world.commands)
    world.read([5])
    world.tick(4)
    world.finish(world.start(), BOOM)
    assert probe(world, 5, ACKED).offset == 5


def test_a_record_that_never_succeeds_is_judged_in_the_end() -> None:
    """What is first in the only lane may be bad itself."""
    world = tripped(5)
    for _ in range(MOST_PROBES - 1):
        probe(world, 5)
    assert len(world.parcels) == 4
    probe(world, 5)
    assert len(world.parcels) == 5
    assert world.parcels[-1].delivery.offset == 4


@pytest.mark.parametrize("outcome", [DECODE, LATER], ids=["undecodable", "a wait by name"])
def test_what_is_no_sign_of_an_outage(outcome: Outcome) -> None:
    """It trips nothing; while tripped it ends as always, and another record is tried at once."""
    world = world_of()
    for _ in range(20):
        world.finish(world.start(), outcome)
    assert not world.held
    world = tripped()
    probe(world, 1, outcome)
    assert len(world.parcels) == 5
    assert world.startable()


def test_a_discarded_record_is_a_success() -> None:
    """The handler has looked at it and works."""
    world = world_of()
    for _ in range(6):
        world.finish(world.start(), Discarded("a test order"))
    for _ in range(5):
        world.finish(world.start(), BOOM)
    assert not world.held
    world.finish(world.start(), BOOM)
    assert world.held
    probe(world, 1, Discarded("a test order"))
    assert world.permits == 4


def test_dead_letters_count() -> None:
    """A dependency that is down makes `dead_letter_on` write the topic into the DLQ."""
    world = world_of()
    for _ in range(5):
        world.finish(world.start(), Rejected(Failure("OSError", "refused")))
    assert world.held
    assert len(world.parcels) == 4


def test_successes_of_the_same_batch_count_before_a_failure() -> None:
    """An executor's answers come in batches: their order is what happened."""
    world = world_of()
    batch = [world.start() for _ in range(11)]
    for delivery in batch:
        delivery.outcome = ACKED if delivery.offset < 6 else BOOM
    world.engine.answered(batch, world.now)
    world.take()
    assert not world.held
    assert len(world.parcels) == 5


def test_no_guard() -> None:
    """Every failure is parked, as the policy says."""
    world = world_of(rules=replace(RULES, guard=FloodGuard(enabled=False)))
    for outcome in (ACKED, Discarded("a test order"), *[BOOM] * 28):
        world.finish(world.start(), outcome)
    assert len(world.parcels) == 28
    assert not world.held


def test_deadlines_that_were_moved_are_no_sign_of_an_outage() -> None:
    """An operator shortens the timeout while five run: all are parked, as they were told."""
    world = world_of()
    running = [world.start() for _ in range(8)]
    world.now_s += 10
    shorter = replace(RULES, consume_timeout_s=1.0)
    world.engine.reload(Reloaded((shorter,), world.limits, 1.0, 10_000), world.now)
    world.expire(*running)
    assert len(world.parcels) == 8
    assert not world.held
    for delivery in [world.start() for _ in range(5)]:
        world.now_s = delivery.started_s + 1
        world.expire(delivery)
    assert world.held


def test_a_guard_that_is_switched_off_lets_go() -> None:
    """By a reload of the settings, while it is tripped."""
    world = tripped(running=1)
    handler = world.engine.state.handlers["bill"]
    handler.rules = replace(RULES, guard=FloodGuard(enabled=False))
    world.finish(world.running[0], BOOM)  # type: ignore[attr-defined]
    assert len(world.parcels) == 5
    world.tick(1)
    assert not world.held


def test_a_partition_that_leaves_takes_its_records_along() -> None:
    """What fails then is left to its next owner; without a partition nothing is held."""
    world = tripped(running=1)
    world.engine.stop([ORDERS])
    world.finish(world.running[0], BOOM)  # type: ignore[attr-defined]
    assert len(world.told(RecordPutBack)) == 1
    world.engine.drop([ORDERS], lost=False)
    world.take()
    world.tick(1)
    assert not world.held
    assert world.engine.faults.all() == ()


def test_redeliveries_are_put_back_and_released_no_more() -> None:
    """Their attempts stay what they were, and their share of the slots is theirs."""
    world = HeldWorld(RULES)
    world.assign(topic="orders--g--retry-1s")
    world.redeliver(range(12))
    handler = world.engine.state.handlers["bill"]
    for _ in range(5):
        world.finish(world.start(), BOOM)
        world.tick()
    assert world.held
    assert len(world.parcels) == 4
    assert (handler.open_retries, handler.retry_room()) == (4, 0)
    assert len(world.engine.assignments["orders--g--retry-1s", 0].waiting) == 4
    world.tick(1)
    assert world.start().attempt == 2


LANES = replace(RULES, ordering="key")


def behind_bad_heads(rules: HandlerRules, lanes: int) -> HeldWorld:
    """The guard has tripped at the fifth failure in so many lanes."""
    world = HeldWorld(rules)
    world.assign()
    for offset in range(5 * lanes):
        world.read([offset], key=b"k%d" % (offset % lanes))
    for _ in range(5):
        world.finish(world.start(), BOOM)
    assert world.held
    return world


def fail_probes(world: HeldWorld, seconds: float) -> list[int]:
    """Time passes; every probe that goes out fails."""
    world.tick(seconds)
    heads: list[int] = []
    while world.startable() and world.held:
        delivery = world.start()
        heads.append(delivery.offset)
        world.finish(delivery, BOOM)
    return heads


def test_a_few_lanes_are_tried_together() -> None:
    """The first is tried alone, then all: one good head among bad ones is found at once."""
    world = behind_bad_heads(LANES, 4)
    assert len(fail_probes(world, 1)) == 1
    assert len(fail_probes(world, 2)) == 4
    assert len(set(fail_probes(world, 4))) == 4
    assert world.held


def test_bad_heads_of_a_few_lanes_are_judged_in_the_same_time_as_one() -> None:
    """Four of them used to take four times as long."""
    world = behind_bad_heads(LANES, 4)
    for _ in range(MOST_PROBES):
        assert len(world.parcels) == 4
        bad = fail_probes(world, 5)
    assert len(bad) == 4
    assert len(world.parcels) == 5, "the one that was tried before the others"
    fail_probes(world, 5)
    assert len(world.parcels) == 8


def test_as_many_lanes_as_trip_it_are_tried_one_by_one() -> None:
    """Together they would be a flood of their own."""
    world = behind_bad_heads(LANES, 5)
    for _ in range(3):
        assert len(fail_probes(world, 5)) == 1


def test_where_nothing_is_left_it_ends() -> None:
    """A quiet topic whose bad records are all gone is not held until the next record comes."""
    world = tripped(5)
    for _ in range(MOST_PROBES):
        probe(world, 5)
    for _ in range(5):
        world.confirm()
    assert world.held
    world.tick(5)
    assert not world.held
    assert len(world.told(GuardReset)) == 1


def test_a_suspect_does_not_wait_for_a_guard_that_waits_for_a_record() -> None:
    """What killed a process may be the only record that is left, and it is nobody's probe."""
    world = world_of(5)
    world.engine.suspects.learn([("orders", 0, 5, 1, "was killed")])
    world.read([5])
    for _ in range(5):
        world.finish(world.start(), BOOM)
    for _ in range(MOST_PROBES):
        probe(world, 5)
    for _ in range(5):
        assert world.held
        world.confirm()
    world.engine.suspects.tick(world.now, quiet=True)
    assert not world.startable()
    world.tick(5)
    assert not world.held
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    assert world.start().offset == 5


@pytest.mark.parametrize("in_place", [False, True], ids=["park", "block"])
def test_a_record_is_put_back_first_in_its_lane(in_place: bool) -> None:
    """What came after it waits behind it, and so after each failed probe."""
    rules = replace(RULES, ordering="key", in_place=in_place)
    world = HeldWorld(rules)
    world.assign()
    for offset in range(30):
        world.read([offset], key=b"k%d" % (offset % 6))
    started = [world.ready.popleft() for _ in range(6)]
    for item in started:
        delivery = item.popleft() if isinstance(item, Run) else item
        delivery.started_s = world.now_s
        world.finish(delivery, BOOM)
    assert world.held
    blocked = 4 if in_place else 0
    world.tick(1)
    world.permits = 0
    lanes = [run for run in world.ready if isinstance(run, Run)]
    assert len(lanes) == 6 - blocked
    heads = {run[0].offset % 6: run[0].offset for run in lanes}
    assert {heads[4], heads[5]} == {4, 5}
    assert all([d.offset for d in run] == sorted(d.offset for d in run) for run in lanes)


def test_a_pause_stops_fetching_where_it_is_worth_it() -> None:
    """One of a few milliseconds does not: it would throw the prefetch away."""
    world = world_of(1)
    world.engine.hold("bill", 0.2, "away", world.now)
    assert not any(isinstance(command, Pause) for command in world.take())
    world.engine.hold("bill", 30.0, "away", world.now)
    assert Pause((ORDERS,)) in world.take()
    assert any(isinstance(command, Resume) for command in world.tick(30))


def test_a_pause_of_no_time_ends_later() -> None:
    """Or it would come again without end."""
    world = world_of(1)
    world.engine.hold("bill", 0.0, "away", world.now)
    world.take()
    assert world.told(HandlerHeld) == [HandlerHeld("bill", SHORTEST_PAUSE_S, "away")]
    assert world.engine.next_due_s(world.now) == START_S + SHORTEST_PAUSE_S


def test_a_probe_that_asks_for_a_pause_gets_it() -> None:
    """The next probe waits for its end, and begins with one."""
    world = tripped()
    probe(world, 1, ACKED)
    delivery = world.start()
    delivery.reopen()
    world.engine.hold("bill", 30.0, "away", world.now)
    world.take()
    world.permits = 0
    assert world.engine.next_due_s(world.now) == world.now_s + 30
    assert Probe("bill", 1) not in world.tick(29)
    assert Probe("bill", 1) in world.tick(1)
    assert not world.engine.state.handlers["bill"].guard.succeeding


def test_a_report_of_a_probe_after_the_reset_is_nothing() -> None:
    """Two commands of one turn: the first has ended it."""
    world = tripped(6)
    world.tick(1)
    succeed(world)
    world.engine.probed("bill", 0, world.now)
    assert world.take() == []


def test_what_is_dispatched_meanwhile_waits() -> None:
    """New records and released ones go to the queue that is held."""
    world = tripped(6)
    world.read([6, 7])
    assert any(isinstance(command, Dispatch) for command in world.commands[-2:])
    assert not world.startable()
