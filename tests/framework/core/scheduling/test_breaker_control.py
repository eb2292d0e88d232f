"""Breakers: what a breaker that is not closed lets through, and when it closes."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import inf

import pytest

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.rule import PACE, TOGETHER, BreakerState, Forced
from ackfloor.core.engine.engine import Engine
from ackfloor.core.messages.commands import Pause, Resume, TakeBack
from ackfloor.core.messages.events import BreakerClosed, BreakerOpened, TrialEnded
from ackfloor.core.parking.parking import Parking
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import ACKED, Discarded, Failed, Outcome, Rejected
from ackfloor.core.records.record import Failure, StartPosition, TopicPartition
from ackfloor.core.records.redaction import Redaction
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling.breaker_control import LEFT_S
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.worker_state import Route
from tests.framework.core.worlds import TIER, HeldWorld, MemoryRecord, offsets_of

BOOM = Failed(Failure("Boom", "the bank is away"))
DECODE = Rejected(Failure("DecodeError", "no JSON"), Reason.DECODE)
LATER = Failed(Failure("Retry", "tomorrow"), Reason.RETRY, 3600.0)
BREAKER = CircuitBreaker(5, 3, "60s", gives_in_after="10m")
RULES = HandlerRules(
    "bill",
    concurrency=8,
    consume_timeout_s=60.0,
    policy=RetryPolicy("1s", 1, "1s", 3, 0),
    breaker=BREAKER,
)
ORDERS = TopicPartition("orders", 0)


def world_of(count: int = 30, rules: HandlerRules = RULES) -> HeldWorld:
    """A world whose handler has handled a record, and has others of as many keys to do."""
    world = HeldWorld(rules)
    world.assign()
    for offset in range(count + 1):
        world.read([offset], key=b"k%d" % offset)
    end(world, ACKED)
    return world


def end(world: HeldWorld, outcome: Outcome = BOOM) -> TrackedDelivery:
    """A record is started, takes 10 ms, and ends."""
    delivery = world.start()
    world.now_s += 0.01
    world.finish(delivery, outcome)
    return delivery


def opened(count: int = 30, rules: HandlerRules = RULES) -> HeldWorld:
    """A world in which five records in a row have failed."""
    world = world_of(count, rules)
    for _ in range(5):
        end(world)
    assert world.held
    world.tick()
    return world


def breaker_of(world: HeldWorld) -> BreakerState:
    """The state of the handler's breaker."""
    return world.engine.state.handlers["bill"].circuit.breaker.state


def test_one_that_is_disabled_keeps_nothing_of_what_fails() -> None:
    """It would never be judged, and a run that nothing ends would take more and more memory."""
    world = world_of(30, replace(RULES, breaker=CircuitBreaker(5, 3, enabled=False)))
    for _ in range(10):
        end(world)
    assert world.engine.state.handlers["bill"].circuit.breaker.run_length() == 0


def test_it_opens_and_says_so() -> None:
    """Readiness names the handler, the count, the error, and the command that lets them go."""
    world = opened()
    assert world.told(BreakerOpened) == [BreakerOpened("bill", 5, "Boom", "the bank is away")]
    (fault,) = world.engine.faults.all()
    assert (fault.kind, fault.subject) == ("breaker", "bill")
    assert "5 records in a row failed" in fault.message
    assert "Boom: the bank is away" in fault.message
    assert "`ackfloor breaker close bill`" in fault.message
    assert Pause((ORDERS,)) not in world.commands, "fetching goes on"


def test_what_has_not_started_comes_back_when_it_opens() -> None:
    """The executor has none of it then but what is tried, the first of them first."""
    world = world_of()
    for _ in range(4):
        end(world)
    delivery = world.start()
    assert world.queued() > 1
    world.now_s += 0.01
    world.finish(delivery, BOOM)
    assert TakeBack("bill") in world.commands
    assert offsets_of(world.ready) == [6]
    queue = world.engine.state.handlers["bill"].queue
    assert offsets_of(queue.items) == list(range(7, 31))


def test_what_exceptions_say_is_masked() -> None:
    """Where it is shown: on readiness, in the snapshot, and in the event."""
    world = world_of()
    world.engine.state._redaction = Redaction(patterns=("bank",))
    for _ in range(5):
        end(world)
    assert world.told(BreakerOpened)[0].error_message == "the *** is away"
    assert "bank" not in world.engine.faults.all()[0].message


def test_records_are_tried_one_by_one_in_their_order() -> None:
    """The next when one has ended; each once, while there are others."""
    world = opened()
    tried = []
    for _ in range(20):
        assert 1 <= world.queued() <= TOGETHER
        tried.append(end(world).offset)
        world.tick()
    assert tried == list(range(6, 26))
    assert len(world.told(TrialEnded)) == 20


def test_no_more_than_the_pace() -> None:
    """A handler that fails at once is not called without end."""
    world = opened()
    tried = 0
    for _ in range(100):
        world.tick(0.001)
        while world.startable():
            world.finish(world.start(), BOOM)
            tried += 1
    assert tried <= 0.1 * PACE + TOGETHER
    assert world.engine.next_due_s(world.now) <= world.now_s + TOGETHER / PACE


def test_a_trial_that_hangs_holds_up_the_others_for_a_second() -> None:
    """And one that succeeds meanwhile counts."""
    world = opened()
    world.start()
    world.tick(0.5)
    assert not world.startable()
    world.tick(0.5)
    end(world, ACKED)
    assert breaker_of(world) is BreakerState.SLOW_START


def test_each_success_doubles_what_may_run_until_it_is_closed() -> None:
    """One, two, four, and at eight everything goes on; readiness forgets it."""
    world = opened()
    for _ in range(2):
        end(world, ACKED)
        world.tick()
    assert world.queued() == 4
    end(world, ACKED)
    assert not world.held
    assert world.queued() == 8, "what may run, and the others follow"
    assert [(e.handler, e.why) for e in world.told(BreakerClosed)] == [("bill", "recovered")]
    assert world.engine.faults.all() == ()
    world.tick(1.0)
    assert world.engine.in_question is False


def test_a_run_of_failures_in_slow_start_begins_again_with_one() -> None:
    """It never was closed, so it is no change."""
    world = opened()
    end(world, ACKED)
    for _ in range(5):
        world.tick(0.01)
        end(world)
    assert breaker_of(world) is BreakerState.OPEN
    assert len(world.told(BreakerOpened)) == 1


@pytest.mark.parametrize("outcome", [DECODE, LATER], ids=["undecodable", "a wait by name"])
def test_what_is_no_sign_of_an_outage(outcome: Outcome) -> None:
    """It opens nothing; as a trial it says nothing, and the next one starts."""
    world = world_of()
    for _ in range(10):
        end(world, outcome)
    assert not world.held
    world = opened()
    writes = len(world.writes)
    end(world, outcome)
    assert len(world.writes) == writes + 1
    world.tick()
    assert world.startable()
    assert breaker_of(world) is BreakerState.OPEN


def test_a_discarded_record_is_a_success() -> None:
    """The handler has looked at it and works."""
    world = world_of()
    for outcome in (BOOM, BOOM, BOOM, BOOM, Discarded("a test order"), BOOM):
        end(world, outcome)
    assert not world.held
    world = opened()
    end(world, Discarded("a test order"))
    assert breaker_of(world) is BreakerState.SLOW_START


def test_dead_letters_count() -> None:
    """A dependency that is down makes `dead_letter_on` write the topic into the DLQ."""
    world = world_of()
    for _ in range(5):
        end(world, Rejected(Failure("OSError", "refused")))
    assert world.held


def test_a_pause_in_a_trial_is_no_answer() -> None:
    """Nothing is tried until its end, and then one."""
    world = opened()
    delivery = world.start()
    delivery.reopen()
    world.ready.appendleft(delivery)
    world.engine.hold("bill", 30.0, "away", world.now)
    world.take()
    assert world.engine.next_due_s(world.now) == world.now_s + 30
    world.tick(29)
    assert not world.startable()
    world.tick(1)
    assert offsets_of(world.ready) == [delivery.offset]
    assert breaker_of(world) is BreakerState.OPEN


def test_failed_records_are_tried_when_nothing_else_waits() -> None:
    """Withheld ones that are due; while there is nothing to try, nobody is woken."""
    world = opened(20)
    for _ in range(15):
        end(world)
        world.tick(0.01)
    assert not world.startable()
    wake_s = world.engine.next_due_s(world.now)
    assert wake_s > world.now_s + 0.5, "withheld for a second at least"
    world.tick(wake_s - world.now_s)
    again = world.start()
    assert again.attempt == 1
    world.finish(again, ACKED)
    assert breaker_of(world) is BreakerState.SLOW_START


def test_redeliveries_wait_behind_what_is_untried() -> None:
    """From retry topics too: by leave of the breaker, and one at a time."""
    world = opened(30)
    world.assign(topic=TIER)
    world.redeliver(range(4))
    assert len(world.engine.assignments[TIER, 0].waiting) == 4
    topics = []
    while len(world.engine.assignments[TIER, 0].waiting) == 4:
        world.tick(0.01)
        topics.append(end(world).topic)
    assert topics[:-TOGETHER] == ["orders"] * (len(topics) - TOGETHER)
    assert len(topics) > 15
    world.tick(0.01)
    assert any(d.topic == TIER for d in world.ready if isinstance(d, TrackedDelivery))


def test_it_gives_in_where_only_redeliveries_are_left() -> None:
    """After ten minutes here: what is left is poison, and the policy goes on."""
    world = opened(5)
    for _ in range(700):
        world.tick(1.0)
        while world.startable() and world.held:
            world.finish(world.start(), BOOM)
        if not world.held:
            break
    assert [event.why for event in world.told(BreakerClosed)] == ["gave in"]
    for _ in range(200):
        world.tick(1.0)
        while world.startable():
            world.finish(world.start(), BOOM)
    assert len(world.told(BreakerOpened)) == 1, "the same records don't open it again"


def test_a_partition_that_leaves_ends_it() -> None:
    """Without a partition there is nothing to try; a rebalance may take all for a while."""
    world = opened()
    world.revoke()
    world.tick(LEFT_S - 1)
    assert world.held
    world.tick(1)
    assert [event.why for event in world.told(BreakerClosed)] == ["left"]
    assert not world.held
    assert world.engine.faults.all() == ()


def test_one_that_is_switched_off_closes() -> None:
    """By a reload of the settings; then it never opens."""
    world = opened()
    handler = world.engine.state.handlers["bill"]
    handler.rules = replace(RULES, breaker=CircuitBreaker(enabled=False))
    world.tick()
    assert [event.why for event in world.told(BreakerClosed)] == ["disabled"]
    for _ in range(20):
        end(world)
    assert not world.held


def test_at_its_share_of_the_limits_it_stops_fetching_for_itself() -> None:
    """A quarter of what the worker may hold; at half of that it goes on."""
    world = opened(38, replace(RULES, concurrency=64))
    assert Pause((ORDERS,)) not in world.commands
    world.engine.state.flow.limits = FlowLimits(max_open=100)
    world.tick()
    assert Pause((ORDERS,)) in world.commands
    assert "so nothing more is read" in _told_later(world)
    for _ in range(6):
        end(world, ACKED)
        world.tick()
    assert not world.held
    while world.startable():
        end(world, ACKED)
    world.tick()
    assert any(isinstance(command, Resume) for command in world.commands)


def _told_later(world: HeldWorld) -> str:
    world.tick(1.0)
    (fault,) = world.engine.faults.all()
    return fault.message


class TestForced:
    """An operator's word counts more than what is handled."""

    def test_open(self) -> None:
        """Trials go on, and their successes change nothing; then it is left to itself."""
        world = world_of()
        world.engine.force("bill", Forced.OPEN, inf, "maintenance", world.now)
        world.take()
        assert world.held
        told = _told_later(world)
        assert "an operator opened it (maintenance), and `ackfloor breaker auto bill`" in told
        for _ in range(5):
            world.tick(0.01)
            end(world, ACKED)
        assert breaker_of(world) is BreakerState.OPEN
        world.engine.force("bill", None, inf, "", world.now)
        world.tick(0.01)
        end(world, ACKED)
        assert breaker_of(world) is BreakerState.SLOW_START

    def test_closed(self) -> None:
        """What is withheld goes on by the policy, and no run opens it."""
        world = opened()
        for _ in range(15):
            end(world)
            world.tick(0.01)
        assert world.engine.state.withheld(world.engine.state.handlers["bill"])
        writes = len(world.writes)
        world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
        world.take()
        assert [event.why for event in world.told(BreakerClosed)] == ["operator"]
        world.tick(5.0)
        while world.startable():
            end(world)
            world.tick()
        assert not world.held
        assert len(world.writes) > writes + 10

    def test_open_where_it_is_open_already(self) -> None:
        """Slow start ends: an operator knows better."""
        world = opened()
        end(world, ACKED)
        world.engine.force("bill", Forced.OPEN, inf, "", world.now)
        world.take()
        assert breaker_of(world) is BreakerState.OPEN
        assert len(world.told(BreakerOpened)) == 1
        assert world.told(BreakerOpened)[0].sample == 5

    def test_left_to_itself_it_says_who_opened_it(self) -> None:
        """Nothing has failed here, so no count is told."""
        world = world_of()
        world.engine.force("bill", Forced.OPEN, world.now_s + 5.0, "maintenance", world.now)
        world.take()
        world.tick(6.0)
        assert "an operator had opened it" in _told_later(world)

    @pytest.mark.parametrize("outcome", [ACKED, BOOM], ids=["handled", "failed"])
    def test_a_trial_that_ends_after_the_close_is_none(self, outcome: Outcome) -> None:
        """It is an ordinary delivery by then."""
        world = opened()
        trial = world.start()
        world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
        world.take()
        world.finish(trial, outcome)
        assert world.told(TrialEnded) == []
        assert not world.held

    def test_what_fails_while_it_is_kept_closed_is_forgotten(self) -> None:
        """Left to itself again, it begins anew; and nothing piles up meanwhile."""
        world = world_of()
        world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
        for _ in range(20):
            end(world)
        assert world.engine.state.handlers["bill"].circuit.breaker.run_length() == 0
        world.engine.force("bill", None, inf, "", world.now)
        world.tick()
        assert not world.held

    def test_for_a_while(self) -> None:
        """The engine wakes for its end."""
        world = world_of(0)
        world.engine.force("bill", Forced.CLOSED, world.now_s + 30.0, "", world.now)
        world.take()
        assert world.engine.next_due_s(world.now) == world.now_s + 30.0
        world.tick(30.0)
        assert world.engine.state.handlers["bill"].circuit.forced is None
        assert world.engine.next_due_s(world.now) == inf

    def test_without_a_partition(self) -> None:
        """It stays open until somebody closes it."""
        world = world_of()
        world.engine.force("bill", Forced.OPEN, inf, "", world.now)
        world.revoke()
        world.tick(1.0)
        assert world.held


@pytest.mark.parametrize("enabled", [True, False])
def test_it_begins_open_where_it_was_in_the_worker_before(enabled: bool) -> None:
    """Told once; where it has been disabled since, it stays closed."""
    world = world_of(3, replace(RULES, breaker=CircuitBreaker(5, 3, enabled=enabled)))
    for _ in range(2):
        world.engine.resume_open("bill", 7, "Boom: the bank is away", world.now)
    world.take()
    assert world.held is enabled
    told = [BreakerOpened("bill", 7, "Boom", "the bank is away")] if enabled else []
    assert world.told(BreakerOpened) == told
    assert world.queued() == (1 if enabled else 3)


def test_slow_start_ends_where_nothing_more_comes() -> None:
    """It would not be ready for an hour, although all that there was has been handled."""
    world = opened(7)
    world.tick(0.1)
    end(world, ACKED)
    world.tick(0.1)
    end(world)
    assert not world.startable()
    for _ in range(100):
        world.tick(1.0)
    assert breaker_of(world) is BreakerState.SLOW_START, "what was tried last has failed"
    world.read([90])
    end(world, ACKED)
    for _ in range(59):
        world.tick(1.0)
    assert breaker_of(world) is BreakerState.SLOW_START
    world.tick(1.5)
    assert breaker_of(world) is BreakerState.CLOSED
    assert world.told(BreakerClosed)[-1].why == "recovered"


def test_once_it_works_again_what_is_new_does_not_wait_for_what_was_withheld() -> None:
    """That comes again with half of the slots; the others wait for what is not read yet."""
    rules = replace(RULES, breaker=CircuitBreaker(5, 3, park_rate="1/h"))
    world = HeldWorld(rules, limits=FlowLimits(max_open=40, partition_open=40))
    world.assign()
    world.read(range(30))
    for _ in range(25):
        end(world)
        world.tick()
    assignment = world.engine.assignments["orders", 0]
    assert assignment.paused
    for _ in range(3):
        world.tick(0.1)
        end(world, ACKED)
    assert breaker_of(world) is BreakerState.CLOSED
    world.tick()
    withheld = world.engine.state.withheld(assignment.handler)
    assert withheld > 40 // 4 // 2, "more than fetching would go on at if it were open"
    assert not assignment.paused


def test_handlers_whose_trials_hang_stop_no_other() -> None:
    """What they read and have not tried takes the worker's limits, and a healthy one needs them."""
    names = [f"h{number}" for number in range(5)]
    routes = {f"t{name}": Route(name, f"t{name}") for name in names}
    world = HeldWorld(routes=routes, limits=FlowLimits(max_open=400, partition_open=400))
    parking = Parking("g", world.pick, {}, release="r1")
    rules = [HandlerRules(name) for name in names]
    engine = world.engine = Engine(
        rules, routes, parking, limits=world.limits, inbox=deque(), clock=lambda: world.now_s
    )
    engine.assign([StartPosition(topic, 0, 0) for topic in routes], world.now)
    for name in names[:4]:
        engine.force(name, Forced.OPEN, inf, "", world.now)
    for offset in range(100):
        engine.polled([MemoryRecord(f"t{name}", 0, offset) for name in names[:4]], world.now)
        engine.tick(world.now)
        world.take()
    paused = {topic for (topic, _), a in engine.assignments.items() if a.paused}
    assert paused == {f"t{name}" for name in names[:4]}


def test_where_slots_hang_no_trial_is_planned_before_one_is_free() -> None:
    """K4: the executor has enough that has not started, and looking again changes nothing."""
    world = opened(rules=replace(RULES, consume_timeout_s=None))
    for _ in range(10):
        world.now_s += 2.0
        world.tick()
    assert world.queued() == 1 + TOGETHER
    assert world.engine.next_due_s(world.now) > world.now_s
    end(world, ACKED)
    assert world.queued() == 2 + TOGETHER, "an answer makes the room"


def test_while_a_suspect_runs_alone_no_trial_is_planned() -> None:
    """K4: it could not be given, and looking again changes nothing."""
    world = opened()
    world.tick(2.0)
    world.engine.state.exclusive = True
    end(world)
    world.tick(10.0)
    assert world.engine.next_due_s(world.now) > world.now_s
    before = world.queued()
    world.engine.state.exclusive = False
    world.tick()
    assert world.queued() > before


def test_a_trial_is_no_record_of_a_partition_that_leaves() -> None:
    """It would not be answered, and nothing would be learnt from it."""
    world = opened()
    world.assign(partition=1)
    world.read(range(3), partition=1)
    world.engine.stop([TopicPartition("orders", 0)])
    tried = []
    for _ in range(3):
        world.tick(1.0)
        if world.startable():
            delivery = world.start()
            tried.append((delivery.partition, delivery.offset))
            world.finish(delivery, BOOM)
    assert tried
    assert {partition for partition, _ in tried} == {1}


def test_a_lane_of_a_partition_that_leaves_is_passed_over() -> None:
    """The next trial is of another lane."""
    world = HeldWorld(replace(RULES, ordering="partition", concurrency=1))
    world.assign()
    world.assign(partition=1)
    world.engine.force("bill", Forced.OPEN, inf, "the bank moves", world.now)
    world.take()
    world.read(range(2), partition=1)
    world.read(range(3))
    world.engine.stop([ORDERS])
    tried = []
    for _ in range(40):
        world.tick(0.5)
        if world.startable():
            delivery = world.start()
            tried.append((delivery.partition, delivery.offset))
            world.finish(delivery)
            world.leave(delivery)
    assert tried == [(1, 0), (1, 1)]
