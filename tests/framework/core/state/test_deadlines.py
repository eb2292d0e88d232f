"""Deadlines: nothing overdue is missed between two scans, and an extension always counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.messages.commands import Cancel
from ackfloor.core.messages.events import DeliveryTimedOut
from ackfloor.core.records.outcomes import ACKED
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.deadlines import Deadlines
from tests.examples import examples
from tests.framework.core.worlds import World, offsets_of

TEN = HandlerRules("bill", consume_timeout_s=10.0)


def running(world: World, *starts_s: float) -> list[TrackedDelivery]:
    """Deliveries whose handlers start one after the other, so many seconds apart."""
    world.assign()
    world.read(range(len(starts_s)))
    found = []
    for wait_s in starts_s:
        world.now_s += wait_s
        found.append(world.start())
    return found


def test_overdue_ones_come_soonest_due_first() -> None:
    """Whatever the order of the slots; equal ones in slot order."""
    world = World(TEN)
    first, second, third, fourth = running(world, 0, 1, 0, 1)
    second.extend("11s")
    world.now_s += 60
    late = Deadlines().overdue([fourth, second, third, first], 10.0, world.now_s)
    assert late == [first, third, fourth, second]


def test_a_deadline_is_reached_on_the_dot() -> None:
    """Due now is overdue; a moment before it is not."""
    world = World(TEN)
    (delivery,) = running(world, 0)
    deadlines = Deadlines()
    assert deadlines.overdue([delivery], 10.0, world.now_s + 9.999) == []
    assert deadlines.next_scan_s == world.now_s + 10
    assert deadlines.overdue([delivery], 10.0, world.now_s + 10) == [delivery]


def test_what_has_no_deadline_or_has_ended_is_passed_over() -> None:
    """Neither delays the next scan nor is found by one."""
    world = World(TEN)
    (ended,) = running(world, 0)
    ended.closed = True
    endless = running(World(HandlerRules("bill", consume_timeout_s=None)), 0)
    deadlines = Deadlines()
    assert deadlines.overdue([ended, *endless], 10.0, world.now_s + 99) == []
    assert deadlines.next_scan_s == world.now_s + 109


def test_without_timeouts_nothing_is_scanned() -> None:
    """Until a timeout is set."""
    deadlines = Deadlines()
    assert deadlines.overdue([], None, 5.0) == []
    assert deadlines.next_scan_s == inf
    deadlines.replan()
    assert deadlines.next_scan_s == 0.0


def test_a_worker_without_timeouts_never_wakes_for_one() -> None:
    """No handler has a timeout: the engine plans no scan."""
    world = World(HandlerRules("bill", consume_timeout_s=None))
    world.expire(*running(world, 0))
    assert world.engine.next_scan_s == inf


@given(
    timeout_s=st.floats(0.001, 5.0),
    steps=st.lists(
        st.tuples(
            st.floats(0.0, 3.0), st.sampled_from(["start", "end", "extend"]), st.floats(0.1, 9.0)
        ),
        max_size=25,
    ),
)
@examples(60)
def test_nothing_overdue_is_missed_between_scans(
    timeout_s: float, steps: list[tuple[float, str, float]]
) -> None:
    """Scanning at `next_scan_s` alone finds each delivery at the very time it falls due."""
    world = World(HandlerRules("bill", consume_timeout_s=timeout_s))
    world.assign()
    world.read(range(len(steps)))
    deadlines = Deadlines()
    slots: list[TrackedDelivery] = []
    for wait_s, step, by_s in steps:
        until_s = world.now_s + wait_s
        while deadlines.next_scan_s <= until_s:
            world.now_s = max(world.now_s, deadlines.next_scan_s)
            for late in deadlines.overdue(slots, timeout_s, world.now_s):
                assert late.deadline_s == world.now_s
                slots.remove(late)
        world.now_s = until_s
        if step == "start":
            slots.append(world.start())
        elif slots and step == "end":
            slots.pop().closed = True
        elif slots:
            slots[0].extend(f"{by_s:.3f}s")
        assert all((d.deadline_s or 0) > world.now_s for d in slots)


def test_a_new_timeout_applies_to_deliveries_in_flight() -> None:
    """A shorter one ends what is overdue by it; a longer one gives what runs more time."""
    world = World(TEN)
    handler = world.engine.state.handlers["bill"]
    (delivery,) = running(world, 0)
    world.expire(delivery)
    world.now_s += 5
    handler.rules = replace(TEN, consume_timeout_s=60.0)
    world.engine._completions.deadlines.replan()
    world.now_s += 10
    assert world.expire(delivery) == []
    handler.rules = replace(TEN, consume_timeout_s=12.0)
    world.engine._completions.deadlines.replan()
    assert world.now_s >= world.engine.next_scan_s
    world.expire(delivery)
    assert [event.late_by_s for event in world.told(DeliveryTimedOut)] == [3.0]


def test_an_extension_between_scan_and_close_counts() -> None:
    """The handler asked in time: it is not timed out, and is looked at again at once."""
    for manual in (False, True):
        world = World(replace(TEN, manual=manual))
        (delivery,) = running(world, 0)
        world.now_s += 10

        def scanned(delivery: TrackedDelivery = delivery) -> Iterator[TrackedDelivery]:
            yield delivery
            # The scan has seen the old deadline and has not closed anything yet.
            assert delivery.extend("10s") is True

        world.engine.expire(scanned(), world.now)
        assert world.take() == []
        assert not delivery.closed
        assert world.engine.next_scan_s == 0.0
        assert not manual or delivery.ack()
        world.finish(delivery)
        assert world.floor() == 1


def test_an_answer_between_scan_and_close_counts() -> None:
    """The handler was done in time: it is not timed out, and its lane goes on with the next."""
    world = World(replace(TEN, ordering="partition"))
    first, *_ = running(world, 0)
    world.read([1])
    world.now_s += 10

    def scanned() -> Iterator[TrackedDelivery]:
        yield first
        first.outcome, first.finished_s = ACKED, world.now_s

    world.engine.expire(scanned(), world.now)
    assert world.take() == []
    world.engine.answered([first], world.now)
    assert world.floor() == 1
    world.take()
    assert offsets_of(world.ready) == [1]


def test_an_extension_after_the_close_is_refused() -> None:
    """The other way round: the deadline was first, and says so."""
    world = World(TEN)
    (delivery,) = running(world, 0)
    world.now_s += 10
    world.expire(delivery)
    assert delivery.extend("10s") is False


def test_a_manual_answer_and_the_deadline_never_both_win() -> None:
    """The answer given between scan and close counts; the deadline finds it taken."""
    world = World(replace(TEN, manual=True))
    (delivery,) = running(world, 0)
    world.now_s += 10

    def scanned() -> Iterator[TrackedDelivery]:
        yield delivery
        assert delivery.ack() is True

    world.engine.expire(scanned(), world.now)
    assert world.take() == []
    world.engine.answered([world.inbox.popleft()], world.now)
    assert world.floor() == 1


def test_a_timeout_says_how_late_it_was_noticed() -> None:
    """And the failure says how long the handler had."""
    world = World(TEN)
    (delivery,) = running(world, 0)
    delivery.extend("30s")
    world.now_s += 30.05
    commands = world.expire(delivery)
    assert Cancel(delivery) in commands
    (told,) = world.told(DeliveryTimedOut)
    assert round(told.late_by_s, 6) == 0.05
    assert world.writes[0].envelope.error_message == "no answer within 30 s of its start"
    assert world.writes[0].envelope.duration_ms == 30_050
