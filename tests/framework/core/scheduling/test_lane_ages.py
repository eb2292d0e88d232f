"""For how long a lane is blocked or quarantined, also after another worker had it before."""

from __future__ import annotations

import pytest

from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import Failed
from ackfloor.core.records.record import Failure, StartPosition
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.scheduling.blocked_lanes import blocked_lanes
from ackfloor.core.scheduling.quarantine_orders import quarantined_lanes
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.snapshot import BlockedLanes
from tests.framework.core.quarantine_worlds import (
    BOOM,
    LONG,
    SHORT,
    QuarantineWorld,
    parked_headers,
    rules,
)
from tests.framework.core.worlds import START_MS, HeldWorld, World

IN_PLACE = HandlerRules("bill", "key", policy=RetryPolicy("10m", 1, "10m", 2, 0), in_place=True)


def quarantined(world: QuarantineWorld) -> BlockedLanes:
    """What a snapshot says of its quarantined keys."""
    return quarantined_lanes(world.engine.state.handlers["bill"], world.engine.state, world.now)


def ages(world: QuarantineWorld) -> list[tuple[str | None, int, bool]]:
    """Key, since how many milliseconds, and whether it may be more; in their order."""
    found = quarantined(world)
    oldest_ms = min((lane.since_ms for lane in found.oldest), default=None)
    assert found.since_ms == oldest_ms
    now_ms = world.now.wall_ms
    return [(lane.key, now_ms - lane.since_ms, lane.at_least) for lane in found.oldest]


def test_a_quarantined_key_keeps_its_age_over_a_restart() -> None:
    """It is that of its first failure, however often it has failed since."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce("ab")
    world.handle(BOOM)
    world.confirm_all()
    world.handle_all()
    world.tick(1.0)
    world.poll()
    world.handle(BOOM)
    world.confirm_all()
    world.commit()
    before = ages(world)
    assert before == [("a", world.now.wall_ms - START_MS, False)]
    world.tick(30.0)
    world.restart()
    assert ages(world) == [("a", before[0][1] + 30_000, True)]
    world.come_to_rest()
    assert not world.quarantined


def test_a_key_whose_first_record_was_handled_is_as_old_as_what_is_left_of_it() -> None:
    """What waits behind has no time of a failure: it counts from when it was parked."""
    world = QuarantineWorld(rules())
    world.append(SHORT, headers=parked_headers(1, reason=Reason.BEHIND))
    world.now_s += 5.0
    world.gain()
    assert ages(world) == [("a", 5_000, True)]


def test_the_failure_of_a_life_before_a_redrive_does_not_count() -> None:
    """A dead letter that was redriven is quarantined since then."""
    world = QuarantineWorld(rules())
    failed = ("ackfloor.first_failed_at", str(START_MS - 90_000).encode())
    world.append(SHORT, headers=[*parked_headers(0, replays=1), failed])
    world.now_s += 5.0
    world.gain()
    assert ages(world) == [("a", 5_000, True)]


def test_a_time_in_the_future_is_none() -> None:
    """The clock of the worker that wrote it was wrong: the key is not younger than new."""
    world = QuarantineWorld(rules())
    failed = ("ackfloor.first_failed_at", str(START_MS + 90_000).encode())
    world.append(SHORT, headers=[*parked_headers(0), failed])
    world.gain()
    assert ages(world) == [("a", 0, True)]


def test_the_oldest_keys_are_described_first() -> None:
    """Also where they are found in another order, or come with a later partition."""
    world = QuarantineWorld(rules(), count=2)
    for number, (key, age_s) in enumerate([(b"b", 20), (b"c", 10), (b"a", 30)]):
        failed = ("ackfloor.first_failed_at", str(START_MS - age_s * 1_000).encode())
        world.append(LONG, key, headers=[*parked_headers(number), failed])
    world.append(LONG, b"d", partition=1, headers=parked_headers(0, partition=1))
    world.gain(partition=1)
    world.gain()
    assert ages(world) == [
        ("a", 30_000, True), ("b", 20_000, True), ("c", 10_000, True), ("d", 0, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "at_least"),
    [
        (StartPosition("orders", 0, 0, log_end=1), True),
        (StartPosition("orders", 0, 0, log_end=0), False),
        (StartPosition("orders", 0, 0, False, log_end=1), False),
        (StartPosition("orders", 0, 0, False, lost=1, log_end=1), True),
        (StartPosition("orders", 0, 0), False),
    ],
    ids=["there before", "came since", "a new group", "retention", "end not known"],
)
def test_a_blocked_lane_says_where_it_may_be_older(start: StartPosition, at_least: bool) -> None:
    """Kafka does not know of a failure in place: the record may have failed elsewhere before."""
    world: World = HeldWorld(IN_PLACE)
    world.engine.assign([start], world.now)
    world.take()
    world.read([0, 1], key=b"a")
    world.finish(world.start(), Failed(Failure("Boom", "x")))
    world.tick(7.0)
    handler = world.engine.state.handlers["bill"]
    (lane,) = blocked_lanes(handler, world.engine.state, world.now).oldest
    assert (world.now.wall_ms - lane.since_ms, lane.at_least) == (7_000, at_least)
