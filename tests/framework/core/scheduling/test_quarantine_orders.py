"""What an operator sees of quarantined keys, and does about their heads."""

from __future__ import annotations

import pytest

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.rule import Forced
from ackfloor.core.messages.events import RecordDeadLettered, RecordDiscarded
from ackfloor.core.messages.lane_order import PARKED, TOO_MANY, Action, LaneAnswer, LaneOrder
from ackfloor.core.records.envelope import Reason
from ackfloor.core.scheduling import quarantine_orders
from ackfloor.core.scheduling.blocked_lanes import Head
from ackfloor.core.scheduling.quarantine_orders import quarantined_lanes
from ackfloor.core.state.snapshot import BlockedLane
from tests.framework.core.quarantine_worlds import (
    BOOM,
    HOPELESS,
    LONG,
    SHORT,
    SOURCE,
    QuarantineWorld,
    parked_headers,
    rules,
)


def failed(keys: str = "aa", **others: object) -> QuarantineWorld:
    """The first record of each key has failed and is parked, the others behind."""
    world = QuarantineWorld(rules(**others))
    world.gain()
    world.produce(keys)
    for _ in set(keys):
        world.handle(BOOM)
    world.confirm_all()
    return world


def order(world: QuarantineWorld, action: Action, *wanted: object, **others: object) -> LaneAnswer:
    """An operator's order is carried out."""
    made = LaneOrder(action, "bill", wanted, **others)  # type: ignore[arg-type]
    answer = world.engine.lane_orders.carry_out(made, world.now)
    world.take()
    world.tick(0.0)
    return answer


def shown(world: QuarantineWorld) -> list[BlockedLane]:
    """The descriptions of a handler's quarantined keys."""
    handler = world.engine.state.handlers["bill"]
    return list(quarantined_lanes(handler, world.engine.state, world.now).oldest)


def test_nothing_is_shown_where_no_key_is_quarantined() -> None:
    """Most of the time."""
    world = QuarantineWorld(rules())
    world.gain()
    assert shown(world) == []


def test_a_head_is_moving_until_it_is_read_and_waits_then() -> None:
    """What it is doing, whose it is, why, and when it is tried."""
    world = failed()
    (lane,) = shown(world)
    assert (lane.head, lane.offset, lane.key, lane.behind) == (Head.MOVING, 0, "a", 1)
    assert (lane.error, lane.next_try_ms) == ("", None)
    assert order(world, Action.RETRY) == LaneAnswer(left={"moving": 1})
    world.poll()
    (lane,) = shown(world)
    assert (lane.head, lane.attempt, lane.error) == (Head.WAITING, 1, "Boom: x")
    assert lane.next_try_ms == world.now.wall_ms + 1_000


def test_a_head_that_is_queued_or_runs_stays_as_it_is() -> None:
    """Two operators at once find it so."""
    world = failed()
    world.poll()
    assert order(world, Action.RETRY).done == 1
    assert [lane.head for lane in shown(world)] == [Head.QUEUED]
    assert order(world, Action.DISCARD) == LaneAnswer(left={"queued": 1})
    delivery = world.start()
    assert [lane.head for lane in shown(world)] == [Head.RUNNING]
    assert order(world, Action.DEAD_LETTER) == LaneAnswer(left={"running": 1})
    world.finish(delivery)
    world.come_to_rest()
    assert world.handled == [(0, 0), (0, 1)]


def test_a_head_whose_source_is_not_read_up_to_it_does_not_wait_yet() -> None:
    """After a takeover: records before it may come that were not parked."""
    world = QuarantineWorld(rules())
    for _ in range(6):
        world.append(SOURCE)
    world.append(SHORT, headers=parked_headers(5))
    world.gain()
    world.poll(SHORT)
    assert [lane.head for lane in shown(world)] == [Head.MOVING]


def test_a_head_is_delayed() -> None:
    """It is tried at another time, and those behind it wait."""
    world = failed()
    world.poll()
    assert order(world, Action.DELAY, b"a", delay_s=60.0).done == 1
    world.tick(59.0)
    assert not world.ready
    world.tick(1.0)
    assert world.handle() == 0


def test_lanes_are_named_by_key_by_origin_or_by_where_the_head_is() -> None:
    """And others are left alone."""
    world = failed("abc")
    world.poll()
    names = (b"a", (SOURCE, 0, 1), (SHORT, 0, 2), b"no")
    answer = order(world, Action.RETRY, *names)
    assert (answer.done, answer.found) == (3, {0, 1, 2})
    assert order(world, Action.RETRY, b"no").found == set()


def test_what_is_quarantined_is_parked_already() -> None:
    """Said, not done again."""
    world = failed()
    world.poll()
    assert order(world, Action.PARK) == LaneAnswer(left={PARKED: 1})


def test_a_skipped_head_makes_room_for_the_next() -> None:
    """It is settled by the operator's word, which the log has."""
    world = failed()
    world.poll()
    assert order(world, Action.DISCARD, reason="known").done == 1
    (event,) = [e for e in world.events if isinstance(e, RecordDiscarded)]
    assert (event.offset, event.by_operator) == (0, True)
    world.come_to_rest()
    assert world.handled == [(0, 1)]


def test_a_dry_run_changes_nothing() -> None:
    """It counts."""
    world = failed()
    world.poll()
    assert order(world, Action.DISCARD, dry_run=True).done == 1
    assert [lane.head for lane in shown(world)] == [Head.WAITING]


@pytest.mark.parametrize(("with_behind", "handled"), [(None, [1]), (False, [1]), (True, [])])
def test_a_head_is_dead_lettered_with_or_without_what_is_behind(
    with_behind: bool | None, handled: list[int]
) -> None:
    """As the order says, or else the handler."""
    world = failed()
    world.poll()
    assert order(world, Action.DEAD_LETTER, with_behind=with_behind).done == 1
    world.come_to_rest()
    assert [offset for _, offset in world.handled] == handled
    assert not world.quarantined
    # What goes along with it did not fail either, and nobody has named it.
    told = [(e.reason, e.by_operator) for e in world.told(RecordDeadLettered)]
    assert told[0] == (Reason.DEAD_LETTER, True)
    assert told[1:] == [(Reason.BEHIND, False)] * (1 - len(handled))


def test_of_one_order_so_many_writes_at_most_are_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is left for the next order."""
    monkeypatch.setattr(quarantine_orders, "MOST_WRITES", 2)
    world = failed("abc")
    world.poll()
    answer = order(world, Action.DEAD_LETTER)
    assert (answer.done, answer.left) == (2, {TOO_MANY: 1})


@pytest.mark.parametrize("with_behind", [None, True, False])
def test_a_held_key_is_freed_or_given_up(with_behind: bool | None) -> None:
    """Where neither is said its dead letter stays as it is."""
    world = failed(after_dead_letter="hold")
    world.tick(1.0)
    world.poll()
    world.handle(HOPELESS)
    world.confirm_all()
    world.poll()
    (lane,) = shown(world)
    assert (lane.head, lane.behind) == (Head.HELD, 1)
    assert order(world, Action.DELAY, delay_s=1.0) == LaneAnswer(left={"held": 1})
    answer = order(world, Action.DEAD_LETTER, with_behind=with_behind)
    if with_behind is None:
        assert answer == LaneAnswer(left={"held": 1})
        assert order(world, Action.RETRY) == LaneAnswer(done=1, freed=1)
    world.come_to_rest()
    assert world.handled == ([] if with_behind else [(0, 1)])
    assert not world.quarantined


def withheld(*, quarantined: bool) -> QuarantineWorld:
    """The first record of a key failed while the breaker is open, and may not leave."""
    world = QuarantineWorld(rules(breaker=CircuitBreaker(3)))
    world.gain()
    world.produce("aa")
    if quarantined:
        world.handle(BOOM)
        world.confirm_all()
        world.poll()
    world.engine.force("bill", Forced.OPEN, float("inf"), "", world.now)
    world.tick(1.0)
    bucket = world.engine.state.handlers["bill"].circuit.bucket
    while bucket.take(0.001, 1.0, world.now_s):
        pass
    world.handle(BOOM)
    assert not world.writes
    return world


def test_a_head_that_is_withheld_is_a_blocked_lane_too() -> None:
    """It is shown as what it is, and an order finds it once: there."""
    world = withheld(quarantined=True)
    assert [lane.head for lane in shown(world)] == [Head.WITHHELD]
    assert order(world, Action.DISCARD, b"a").done == 1
    assert world.engine.flow.open_count == 1
    world.engine.force("bill", Forced.CLOSED, float("inf"), "", world.now)
    world.come_to_rest()
    assert world.handled == [(0, 1)]


def test_a_withheld_record_is_parked_and_its_key_quarantined() -> None:
    """What waited in its lane goes behind it."""
    world = withheld(quarantined=False)
    assert not world.quarantined
    assert order(world, Action.PARK, b"a").done == 1
    assert list(world.quarantined) == [(SOURCE, 0, b"a")]
    world.engine.force("bill", Forced.CLOSED, float("inf"), "", world.now)
    world.come_to_rest()
    assert world.handled == [(0, 0), (0, 1)]


def test_what_an_older_release_moved_is_what_it_was() -> None:
    """It writes no reason that it does not know; how far away the retry is says which it was."""
    world = QuarantineWorld(rules(after_dead_letter="hold"))
    for offset, reason in enumerate((Reason.HELD, Reason.BEHIND)):
        years = 2 if reason is Reason.HELD else 1
        headers = [
            (name, value)
            for name, value in parked_headers(offset, reason=reason)
            if not name.endswith((".reason", ".retry_at"))
        ]
        far_ms = world.now.wall_ms + years * 10 * 365 * 86_400_000
        headers.append(("ackfloor.retry_at", str(far_ms).encode()))
        world.append(LONG, headers=headers)
    world.append(SOURCE, b"a")
    world.append(SOURCE, b"a")
    world.gain()
    world.come_to_rest()
    assert [lane.head for lane in shown(world)] == [Head.HELD]
    assert world.handled == []
    order(world, Action.RETRY)
    world.come_to_rest()
    assert world.handled == [(0, 1)]
