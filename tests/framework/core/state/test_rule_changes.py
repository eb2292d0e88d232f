"""Reloading: what is in flight goes by the new settings, and what can't change is refused whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from ackfloor.core.messages.commands import Commit, Pause, Resume
from ackfloor.core.messages.events import DeliveryTimedOut
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.outcomes import ACKED, Bury, Park
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.rule_changes import Reloaded, overdue_under
from tests.framework.core.worlds import World

MINUTE = HandlerRules("bill", consume_timeout_s=60.0, policy=RetryPolicy("1s", 1, "1s", 2, 0))


def told(world: World, rules: HandlerRules, **others: object) -> Reloaded:
    """The world's settings with other rules, and other limits or commit settings where given."""
    return Reloaded(
        (rules,),
        **{"limits": world.limits, "commit_interval_s": 1.0, "commit_count": 10_000} | others,  # type: ignore[arg-type]
    )


def change(world: World, **changes: object) -> None:
    """Reload the handler's rules."""
    rules = replace(world.engine.state.handlers["bill"].rules, **changes)  # type: ignore[arg-type]
    world.engine.reload(told(world, rules), world.now)
    world.take()


def scan(world: World, running: Iterable[TrackedDelivery]) -> None:
    """What the loop does each turn."""
    if world.now_s >= world.engine.next_scan_s:
        world.engine.expire(running, world.now)
    world.take()


def timed_out(world: World) -> list[int]:
    """Offsets of the deliveries that timed out, in order."""
    return [e.offset for e in world.events if isinstance(e, DeliveryTimedOut)]


def in_flight(world: World, count: int, apart_s: float = 0.0) -> list[TrackedDelivery]:
    """Deliveries whose handlers have started, one after the other."""
    world.assign()
    world.read(range(count))
    running = []
    for _ in range(count):
        running.append(world.start())
        world.now_s += apart_s
    scan(world, running)
    return running


def test_a_shorter_timeout_ends_what_is_in_flight_and_overdue_under_it() -> None:
    """At the next turn and not at the deadline that was planned; the others at their new time."""
    world = World(MINUTE)
    running = in_flight(world, 3, apart_s=2.0)
    change(world, consume_timeout_s=5.0)
    assert world.engine.next_scan_s <= world.now_s
    scan(world, running)
    assert timed_out(world) == [0]
    assert world.engine.next_scan_s == pytest.approx(running[1].started_s + 5)
    world.now_s += 3
    scan(world, running)
    assert timed_out(world) == [0, 1, 2]


def test_a_longer_timeout_counts_for_what_is_in_flight() -> None:
    """The old deadline passes without any effect."""
    world = World(replace(MINUTE, consume_timeout_s=5.0))
    running = in_flight(world, 1)
    change(world, consume_timeout_s=60.0)
    world.now_s += 59
    scan(world, running)
    assert timed_out(world) == []
    world.now_s += 1
    scan(world, running)
    assert timed_out(world) == [0]


def test_a_timeout_comes_and_goes_while_records_run() -> None:
    """From none to 5 s ends what has run for longer; from 5 s to none ends nothing any more."""
    world = World(replace(MINUTE, consume_timeout_s=None))
    running = in_flight(world, 2)
    world.now_s += 100
    running[1].started_s = world.now_s
    scan(world, running)
    change(world, consume_timeout_s=5.0)
    scan(world, running)
    assert timed_out(world) == [0]
    change(world, consume_timeout_s=None)
    world.now_s += 1000
    scan(world, running)
    assert timed_out(world) == [0]
    change(world, consume_timeout_s=5.0)
    scan(world, running)
    assert timed_out(world) == [0, 1]


def test_an_extension_outlives_a_shorter_timeout() -> None:
    """`extend` moves the deadline to a time of its own, capped as it is when that is asked."""
    world = World(replace(MINUTE, manual=True, max_extend_s=100.0))
    running = in_flight(world, 2)
    for delivery in running:
        delivery.arm(None)
    assert running[0].extend("30s")
    change(world, consume_timeout_s=1.0, max_extend_s=2.0)
    world.now_s += 1.5
    assert running[1].extend("90s")
    scan(world, running)
    assert timed_out(world) == []
    world.now_s += 0.5
    scan(world, running)
    assert timed_out(world) == [1]
    world.now_s += 28
    scan(world, running)
    assert timed_out(world) == [1, 0]


def test_what_has_answered_when_its_timeout_is_shortened_has_answered() -> None:
    """One outcome: the answer waits in the inbox, the scan finds it, nothing is parked."""
    world = World(MINUTE)
    running = in_flight(world, 1)
    world.now_s += 30
    running[0].outcome = ACKED
    running[0].finished_s = world.now_s
    change(world, consume_timeout_s=1.0)
    scan(world, running)
    world.engine.answered(running, world.now)
    scan(world, running)
    assert timed_out(world) == []
    assert world.floor() == 1
    assert world.writes == []


def test_the_budget_in_force_judges_the_answer() -> None:
    """Of the policy at the time of the failure, whatever it was when the handler started."""
    world = World(MINUTE)
    (first, second) = in_flight(world, 2)
    world.fail(first)
    change(world, policy=RetryPolicy("1s", 1, "1s", 0, 0))
    world.fail(second)
    assert [type(write.verdict) for write in world.writes] == [Park, Bury]


def test_limits_pause_and_resume_at_once() -> None:
    """Lower ones stop the fetching, higher ones start it, of every partition there is."""
    world = World(MINUTE, limits=FlowLimits(max_open=4, partition_span=100))
    in_flight(world, 4)
    assert [c for c in world.commands if isinstance(c, Pause)]
    world.commands.clear()
    reloads: Sequence[tuple[FlowLimits, type]] = (
        (FlowLimits(max_open=50, partition_span=100), Resume),
        (FlowLimits(max_open=50, partition_span=3), Pause),
        (FlowLimits(max_open=50, partition_span=100), Resume),
        (FlowLimits(max_open=50, max_open_bytes=8, partition_span=100), Pause),
    )
    for limits, expected in reloads:
        world.engine.reload(told(world, MINUTE, limits=limits), world.now)
        assert [type(command) for command in world.take()] == [expected]
    assert world.engine.flow.limits == reloads[-1][0]


def test_a_shorter_commit_interval_counts_from_now() -> None:
    """The commit that was an hour away comes after the new interval."""
    world = World(MINUTE)
    (delivery,) = in_flight(world, 1)
    world.engine.reload(told(world, MINUTE, commit_interval_s=3600.0), world.now)
    world.now_s += 2
    world.engine.tick(world.now)
    world.finish(delivery)
    world.now_s += 60
    world.engine.tick(world.now)
    world.commands.clear()
    world.engine.reload(told(world, MINUTE, commit_interval_s=5.0), world.now)
    world.engine.tick(world.now)
    assert world.take() == []
    world.now_s += 5
    world.engine.tick(world.now)
    assert [type(command) for command in world.take()] == [Commit]


@pytest.mark.parametrize(
    "rules",
    [
        replace(MINUTE, consume_timeout_s=1.0, name="bil"),
        replace(MINUTE, consume_timeout_s=1.0, ordering="key"),
        replace(MINUTE, consume_timeout_s=1.0, manual=True),
    ],
)
def test_what_can_not_change_is_refused_and_nothing_changes(rules: HandlerRules) -> None:
    """An unknown handler, another order, another way to answer."""
    world = World(MINUTE)
    other = told(world, rules, limits=FlowLimits(max_open=1))
    with pytest.raises(ValueError, match=rules.name):
        world.engine.reload(other, world.now)
    assert world.engine.state.handlers["bill"].rules is world.rules
    assert world.engine.flow.limits == world.limits


def test_what_a_change_would_end_is_known_before() -> None:
    """The longest running first; not what waits, was answered, extended or has no timeout."""
    world = World(MINUTE)
    running = in_flight(world, 5, apart_s=1.0)
    running[0].extend("1h")
    running[1].closed = True
    running[2].started_s = 0.0
    world.now_s += 10
    short = told(world, replace(MINUTE, consume_timeout_s=2.0))
    assert overdue_under(reversed(running), short, world.now) == (running[3], running[4])
    never = told(world, replace(MINUTE, consume_timeout_s=None))
    assert overdue_under(running, never, world.now) == ()
    assert overdue_under(running, told(world, replace(MINUTE, name="x")), world.now) == ()
    assert timed_out(world) == []
