"""Scheduler: who is given something now (R1 to R4)."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from ackfloor.core.breaker.rule import TOGETHER, Forced
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import ACKED, Failed, Outcome
from ackfloor.core.records.record import Failure
from ackfloor.core.state.assignment import HandlerRules, HandlerState
from ackfloor.core.state.rule_changes import Reloaded
from ackfloor.runtime.executors.batch_calls import begin
from tests.framework.core.worlds import START_S, TIER, HeldWorld, World, deliveries_in, offsets_of

RULES = HandlerRules("bill", concurrency=2)
BY_KEY = replace(RULES, ordering="key")
BATCHES = replace(RULES, batch=2, batch_wait_s=0.0)


def world_of(rules: HandlerRules = RULES, count: int = 5) -> HeldWorld:
    """A world whose handler has so many records to do, and room for two items."""
    world = HeldWorld(rules)
    world.assign()
    world.read(range(count))
    world.tick()
    return world


def handler_of(world: World) -> HandlerState:
    """Its one handler."""
    return world.engine.state.handlers["bill"]


def _handle(world: HeldWorld) -> None:
    """A slot handles the first item."""
    if not isinstance(world.ready[0], Batch):
        world.finish(world.start())
        return
    batch = world.ready.popleft()
    begin(batch, world.now_s)
    batch.outcome = ACKED
    world.engine.unit_ended("bill", batch, world.now)
    world.take()


def suspected(rules: HandlerRules) -> HeldWorld:
    """A world in which record 1 is to run alone, and has been given to the executor."""
    world = HeldWorld(rules)
    world.engine.suspects.learn([("orders", 0, 1, 2, "was killed")])
    world.assign()
    world.read(range(4))
    world.tick()
    for _ in range(2):
        world.engine.suspects.tick(world.now, quiet=True)
        world.take()
    assert offsets_of(world.ready) == [1]
    return world


def test_an_executor_is_given_what_its_slots_start_in_a_turn() -> None:
    """The rest stays here, in its order."""
    world = world_of()
    assert offsets_of(world.ready) == [0, 1]
    assert offsets_of(handler_of(world).queue.items) == [2, 3, 4]
    started = []
    while world.startable():
        delivery = world.start()
        world.finish(delivery)
        started.append(delivery.offset)
    assert started == [0, 1, 2, 3, 4]


def test_nothing_is_given_in_a_pause() -> None:
    """R1: what was given comes back, and is given again in its order."""
    world = world_of()
    world.engine.hold("bill", 5.0, "away", world.now)
    world.take()
    assert not world.startable()
    assert offsets_of(handler_of(world).queue.items) == [0, 1, 2, 3, 4]
    world.tick(5.0)
    assert offsets_of(world.ready) == [0, 1]


def test_what_waits_for_others_is_not_given_in_a_pause() -> None:
    """R1: noisy keys begin no more than all others."""
    world = HeldWorld(replace(RULES, fair_key=lambda d: d.key))
    world.assign()
    fair = handler_of(world).queue.fair
    assert fair is not None
    fair._wait(b"a", hanging=False)
    world.read(range(20), key=b"a")
    assert len(fair) == 20
    world.engine.hold("bill", 5.0, "away", world.now)
    assert len(world.engine.next_last("bill", 0, world.now)) == 0
    world.tick(6.0)
    assert offsets_of(world.engine.next_last("bill", 0, world.now))[:1] == [0]


def test_a_pause_counts_more_than_an_open_breaker() -> None:
    """R1: a trial would be started in the middle of it."""
    world = world_of()
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.engine.hold("bill", 5.0, "away", world.now)
    world.take()
    assert not world.startable()
    world.tick(5.0)
    assert offsets_of(world.ready) == [0], "one trial"


@pytest.mark.parametrize("rules", [RULES, BY_KEY, BATCHES], ids=["loose", "key", "batch"])
def test_nothing_but_trials_is_given_while_the_breaker_is_open(rules: HandlerRules) -> None:
    """R1: one record at a time, whatever it would be given with."""
    world = world_of(rules)
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.take()
    tried: list[int] = []
    while world.startable():
        assert all(len(deliveries_in(item)) == 1 for item in world.ready)
        assert len(world.ready) <= TOGETHER
        tried += offsets_of([world.ready[0]])
        _handle(world)
        world.tick(1.0)
    assert tried == [0, 1, 2, 3, 4]


def test_what_has_ended_or_must_not_start_is_no_trial() -> None:
    """Its partition was dropped while it waited; the trial is one of what there is."""
    world = world_of()
    world.assign(1)
    world.read([7, 8], 1)
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.revoke(0)
    world.tick(1.0)
    assert offsets_of(world.ready) == [7, 8]


def test_a_lane_whose_records_are_gone_is_no_trial() -> None:
    """The same of a lane; and it is forgotten."""
    world = HeldWorld(BY_KEY)
    for partition in (0, 1):
        world.assign(partition)
    world.engine.hold("bill", 5.0, "away", world.now)
    world.read([0, 1], 0, key=b"a")
    world.read([7, 8], 1, key=b"a")
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.revoke(0)
    world.tick(5.0)
    assert offsets_of(world.ready) == [7]
    assert len(handler_of(world).lanes) == 1


@pytest.mark.parametrize("rules", [RULES, BY_KEY, BATCHES], ids=["loose", "key", "batch"])
def test_beside_what_runs_alone_nothing_is_given(rules: HandlerRules) -> None:
    """R2: neither what waits nor what is read meanwhile; all of it follows in order."""
    world = suspected(rules)
    world.read([4])
    world.tick(1.0)
    assert offsets_of(world.ready) == [1]
    _handle(world)
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    given = offsets_of(world.ready)
    assert given == ([0, 2, 3, 4] if rules is BATCHES else [0, 2])


@pytest.mark.parametrize("rules", [RULES, BY_KEY, BATCHES], ids=["loose", "key", "batch"])
def test_what_is_to_run_alone_does_so_after_it_was_given_back(rules: HandlerRules) -> None:
    """R2: an operator opens its breaker before it has started; everything waits for it."""
    world = suspected(rules)
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.take()
    assert offsets_of(world.ready) == [1]
    assert handler_of(world).queue.calls == (rules is BATCHES)


def test_what_is_to_run_alone_waits_for_the_end_of_a_pause() -> None:
    """R1: its handler asked for one in the moment in which it was to start."""
    world = HeldWorld(RULES)
    world.engine.suspects.learn([("orders", 0, 1, 2, "was killed")])
    world.assign()
    world.read([0, 1])
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    world.engine.suspects.tick(world.now, quiet=True)
    world.engine.hold("bill", 5.0, "away", world.now)
    world.take()
    assert not world.ready
    world.tick(5.0)
    assert offsets_of(world.ready)[0] == 1


@pytest.mark.parametrize("rules", [RULES, BY_KEY], ids=["loose", "key"])
def test_what_was_given_back_is_given_first(rules: HandlerRules) -> None:
    """R3: before what waits."""
    world = world_of(rules)
    world.give_back("bill")
    assert not world.ready
    world.take()
    assert offsets_of(world.ready) == [0, 1]


def test_a_batch_that_was_given_back_is_formed_anew() -> None:
    """R3: its records are the first, and its lane is whole."""
    world = HeldWorld(replace(BATCHES, ordering="key"))
    world.assign()
    world.read(range(5), key=b"k")
    assert offsets_of(world.ready) == [0, 1]
    world.give_back("bill")
    queue = handler_of(world).queue
    assert (offsets_of(queue.items), queue.calls) == ([0, 1, 2, 3, 4], 0)
    world.take()
    assert offsets_of(world.ready) == [0, 1]


def test_a_trial_of_a_lane_that_was_given_back_has_its_lane_behind_it() -> None:
    """R3: nobody visits it any more, so it is whole again."""
    world = HeldWorld(BY_KEY)
    world.assign()
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.read([0, 1, 2], key=b"k")
    assert offsets_of(world.ready) == [0]
    world.give_back("bill")
    assert offsets_of(handler_of(world).queue.items) == [0, 1, 2]
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.take()
    assert offsets_of(world.ready) == [0, 1, 2]


def test_what_is_behind_a_trial_in_its_lane_waits_for_its_end() -> None:
    """And is tried then, one by one."""
    world = HeldWorld(BY_KEY)
    world.assign()
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.read([0, 1], key=b"k")
    tried = world.start()
    world.read([2], key=b"k")
    world.tick(2.0)
    assert not world.ready
    world.finish(tried)
    world.leave(tried)
    world.tick(1.0)
    assert offsets_of(world.ready) == [1]


def test_trials_say_nothing_of_what_a_turn_starts() -> None:
    """However many there were: what comes after them is given in a window, and not at once."""
    world = world_of(count=300)
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.take()
    for _ in range(100):
        _handle(world)
        world.tick(1.0)
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.tick(1.0)
    assert handler_of(world).queue.window == RULES.concurrency
    assert len(world.ready) <= RULES.concurrency + TOGETHER


# A rate.

LIMITED = replace(RULES, rate_per_s=10.0)


def limited(rules: HandlerRules = LIMITED, count: int = 20) -> HeldWorld:
    """A world whose handler has a rate, and the one partition that there is."""
    world = HeldWorld(rules)
    world.assign()
    world.read(range(count))
    return world


def run(world: HeldWorld, seconds: float, outcome: Outcome = ACKED) -> list[int]:
    """Time passes in turns, and all that starts ends at once; what was started, in order."""
    started = []
    for _ in range(round(seconds * 100)):
        world.tick(0.01)
        while world.startable():
            delivery = world.start()
            started.append(delivery.offset)
            world.finish(delivery, outcome)
            world.leave(delivery)
    return started


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_a_handler_with_a_rate_starts_as_much(ordering: str) -> None:
    """R4: of lanes one record at a time, in their order."""
    world = limited(replace(LIMITED, ordering=ordering))
    # A hundredth of the rate is for retry partitions, and it has none.
    assert run(world, 1.0) == list(range(9))
    assert run(world, 1.0) == list(range(9, 19))


def test_nothing_starts_without_its_token() -> None:
    """R4: nor does anything spin: it says when there is one."""
    world = limited()
    world.tick()
    assert not world.startable()
    assert handler_of(world).rate is not None
    due_s = world.engine.next_due_s(world.now)
    assert due_s == pytest.approx(world.now_s + 1 / 9.9)
    assert world.engine.rationed
    world.tick(due_s - world.now_s)
    assert world.startable()


def test_without_work_nothing_is_waited_for() -> None:
    """A rate alone wakes nobody."""
    world = limited(count=0)
    world.tick(1.0)
    assert world.engine.next_due_s(world.now) == inf
    assert world.engine.rationed
    handler_of(world).rate = None
    world.read([0, 1, 2])
    assert not world.engine.rationed


def test_a_batch_takes_a_token_for_each_record() -> None:
    """R4: a full one waits until it has them."""
    world = limited(replace(LIMITED, batch=5, batch_wait_s=0.0))
    given: list[float] = []
    for _ in range(200):
        world.tick(0.01)
        while world.ready:
            given += [world.now_s - START_S] * len(world.ready[0].items)
            _handle(world)
    assert len(given) == 15
    assert given[0] == pytest.approx(5 / 9.9, abs=0.011)
    assert given[5] == pytest.approx(10 / 9.9, abs=0.011)


def test_a_crash_suspect_that_runs_alone_takes_a_token() -> None:
    """R4: nothing is too special for it."""
    world = HeldWorld(LIMITED)
    world.engine.suspects.learn([("orders", 0, 1, 2, "was killed")])
    world.assign()
    world.read(range(4))
    for _ in range(3):
        world.engine.suspects.tick(world.now, quiet=True)
        world.tick(0.01)
    assert handler_of(world).queue.exclusive
    assert not world.ready
    world.tick(0.2)
    assert offsets_of(world.ready) == [1]


def test_trials_of_an_open_breaker_take_tokens() -> None:
    """R4: the slower of the two counts."""
    world = limited(replace(LIMITED, rate_per_s=0.5))
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    started = run(world, 10.0, Failed(Failure("Boom", "no"), Reason.ERROR))
    assert 4 <= len(started) <= 5
    assert world.engine.next_due_s(world.now) > world.now_s


def test_a_paused_handler_waits_for_no_token() -> None:
    """R1: and begins with what its bucket holds."""
    world = limited()
    world.engine.pause("bill", world.now_s + 60.0, "", world.now)
    assert run(world, 1.0) == []
    rate = handler_of(world).rate
    assert rate is not None
    assert not rate.lacking
    world.engine.resume("bill", world.now)
    world.tick()
    assert offsets_of(world.ready) == [0, 1]


def test_what_an_executor_gives_back_is_given_again_for_the_same_token() -> None:
    """R3: a pause that the handler asks for has cost one."""
    world = limited()
    world.tick(10.0)
    rate = handler_of(world).rate
    assert rate is not None
    assert offsets_of(world.ready) == [0, 1]
    left = rate.tokens
    world.engine.hold("bill", 0.5, "away", world.now)
    world.take()
    assert rate.tokens == left + 1


def test_what_waits_for_others_takes_tokens_as_well() -> None:
    """R4: noisy keys have the tokens that are left."""
    world = limited(replace(LIMITED, fair_key=lambda d: d.key, concurrency=1), count=0)
    world.read(range(20), key=b"a")
    queue = handler_of(world).queue
    assert queue.fair is not None
    queue.fair._wait(b"a", hanging=False)
    world.tick(0.25)
    assert not world.ready
    assert len(queue.fair) == 20
    given = world.engine.next_last("bill", 0, world.now)
    assert offsets_of(given) == [0]
    assert offsets_of(world.engine.next_last("bill", 0, world.now)) == [1]
    assert len(world.engine.next_last("bill", 0, world.now)) == 0
    assert world.engine.next_due_s(world.now) > world.now_s


def test_redeliveries_and_first_deliveries_take_turns() -> None:
    """What fails again and again does not take every token from what was not tried yet."""
    world = limited(replace(LIMITED, concurrency=64), count=40)
    world.assign(topic=TIER)
    world.redeliver(range(100, 140))
    started = run(world, 3.0)
    again = sum(offset >= 100 for offset in started)
    assert 25 <= len(started) <= 30
    assert abs(again - len(started) / 2) <= 2


def _reload(world: World, rules: HandlerRules) -> None:
    """An operator sets other rules."""
    world.engine.reload(Reloaded((rules,), FlowLimits(), 1.0, 10_000), world.now)
    world.take()


def test_a_rate_is_set_changed_and_taken_away() -> None:
    """R4: what was given without tokens comes back first; a call's are kept of what was saved."""
    world = world_of(count=20)
    assert offsets_of(world.ready) == [0, 1]
    _reload(world, LIMITED)
    assert not world.ready
    assert run(world, 1.0) == list(range(9))
    world.engine.pause("bill", world.now_s + 60.0, "", world.now)
    world.tick(10.0)
    _reload(world, replace(LIMITED, rate_per_s=1.0))
    world.engine.resume("bill", world.now)
    assert run(world, 2.1) == [9, 10, 11]
    _reload(world, RULES)
    assert handler_of(world).rate is None
    assert run(world, 0.01) == list(range(12, 20))


@pytest.mark.parametrize("killable", [False, True])
def test_only_of_processes_it_is_asked_what_has_begun(killable: bool) -> None:
    """Elsewhere a slot says so itself."""
    assert limited(replace(LIMITED, killable=killable)).engine.counts_starts("bill") is killable
    assert not world_of(replace(RULES, killable=killable)).engine.counts_starts("bill")


def test_a_full_window_is_left_alone() -> None:
    """However many tokens there are."""
    world = limited()
    world.tick(10.0)
    assert offsets_of(world.ready) == [0, 1]
    assert list(world.engine.next_units("bill", 2, world.now)) == []
