"""Waiting records made due, or given up, by an operator: nothing is settled by word alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.messages.events import RecordDeadLettered
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from tests.framework.core.worlds import DLQ, START_MS, TIER, World

DAY_MS = 86_400_000
DIED = [
    ("ackfloor.attempt", b"2"),
    ("ackfloor.failures", b"2"),
    ("ackfloor.reason", b"error"),
    ("ackfloor.error.type", b"shop.Boom"),
    ("ackfloor.error.fingerprint", b"f00d"),
    ("ackfloor.failed_at", b"7"),
]


@pytest.fixture
def world() -> World:
    """Five records wait in a tier; the last ones of a longer wait that has further hops."""
    world = World()
    world.assign(topic=TIER)
    due_ms = world.now.wall_ms + 1_500
    world.redeliver(range(4), due_ms=due_ms, headers=DIED)
    further = [*DIED, ("ackfloor.retry_at", str(world.now.wall_ms + DAY_MS).encode())]
    world.redeliver([4], due_ms=due_ms, headers=further)
    assert not world.ready
    return world


def test_a_promoted_record_is_due_and_nothing_else_is(world: World) -> None:
    """The same delivery, the same attempt; what waits beside it goes on waiting."""
    assert world.engine.promotions.promote(TIER, {0: [2, 3, 99]}, world.now) == 2
    world.tick()
    assert [world.start().record_offset for _ in range(2)] == [2, 3]
    assert not world.ready
    assert world.floor(topic=TIER) == 0
    world.tick(2.0)
    assert [world.start().record_offset for _ in range(2)] == [0, 1]


def test_a_promoted_record_is_handled_once(world: World) -> None:
    """In work or settled, it does not wait: a second word about it does nothing."""
    world.engine.promotions.promote(TIER, {0: [1]}, world.now)
    world.tick()
    delivery = world.start()
    assert delivery.attempt == 3
    assert world.engine.promotions.promote(TIER, {0: [1]}, world.now) == 0
    assert world.engine.promotions.bury(TIER, {0: [1]}, world.now) == 0
    world.finish(delivery)
    assert world.engine.promotions.promote(TIER, {0: [1]}, world.now) == 0
    world.tick(3.0)
    assert 1 not in [world.start().record_offset for _ in range(len(world.ready))]


def test_a_promoted_record_hops_no_further(world: World) -> None:
    """Its whole wait is over, not only the one in this tier."""
    world.engine.promotions.promote(TIER, {0: [4]}, world.now)
    world.tick()
    assert world.start().record_offset == 4
    assert world.writes == []


def test_what_is_due_already_keeps_its_time(world: World) -> None:
    """A word about it does not make it late."""
    world.now_s += 60
    due_s = world.engine.assignments[TIER, 0].waiting.next_s
    world.engine.promotions.promote(TIER, {0: [0]}, world.now)
    assert world.engine.assignments[TIER, 0].waiting.next_s == due_s


def test_a_buried_record_stays_open_until_it_is_confirmed(world: World) -> None:
    """With its last error as its cause, no attempt added, and the operator's reason."""
    assert world.engine.promotions.bury(TIER, {0: [0]}, world.now) == 1
    world.take()
    [write] = world.writes
    assert (write.topic, write.envelope.reason) == (DLQ, Reason.DEAD_LETTER)
    told = write.envelope
    assert (told.attempt, told.failures, told.error_type) == (2, 2, "shop.Boom")
    assert (told.error_fingerprint, told.failed_at_ms, told.not_before_ms) == ("f00d", 7, None)
    assert (told.group, told.handler) == ("g", "bill")
    assert world.floor(topic=TIER) == 0
    world.refuse()
    assert world.floor(topic=TIER) == 0
    world.tick(1.0)
    world.confirm()
    assert world.floor(topic=TIER) == 1
    [event] = world.told(RecordDeadLettered)
    assert (event.attempt, event.reason) == (2, Reason.DEAD_LETTER)
    assert event.by_operator
    assert world.engine.assignments[TIER, 0].waiting.size == 8
    world.tick(5.0)
    assert 0 not in [world.start().record_offset for _ in range(len(world.ready))]


def test_a_buried_record_comes_again_where_the_partition_leaves_first(world: World) -> None:
    """Its write was not confirmed: the floor has not passed it."""
    world.engine.promotions.bury(TIER, {0: [0]}, world.now)
    world.take()
    [final] = world.revoke(topic=TIER) or [None]
    assert final is None or final.position == 0
    world.assign(topic=TIER)
    world.redeliver([0], headers=DIED)
    assert world.start().record_offset == 0


def test_only_what_waits_here_counts(world: World) -> None:
    """Not another topic's or partition's, not what is stopping."""
    promotions = world.engine.promotions
    assert promotions.waiting(TIER, {0: [0, 1, 99], 1: [0]}) == 2
    assert promotions.waiting("orders--g--retry-5s", {0: [0]}) == 0
    world.engine.assignments[TIER, 0].stopping = True
    assert promotions.waiting(TIER, {0: [0]}) == 0
    assert promotions.promote(TIER, {0: [0]}, world.now) == 0
    assert promotions.bury(TIER, {0: [0]}, world.now) == 0


COUNT = 6
STEPS = st.one_of(
    st.tuples(
        st.sampled_from(["promote", "bury"]),
        st.lists(st.integers(0, COUNT), min_size=1, max_size=3, unique=True),
    ),
    st.tuples(
        st.sampled_from(["start", "finish", "confirm", "refuse", "pass", "rebalance", "lose"]),
        st.just([]),
    ),
)


@given(steps=st.lists(STEPS, max_size=40))
def test_whatever_is_said_nothing_is_lost_and_nothing_settled_comes_again(
    steps: list[tuple[str, list[int]]],
) -> None:
    """In any order with work, reports, waits and rebalances; in the end each record is settled."""
    tier = _Tier()
    for name, offsets in steps:
        tier.step(name, offsets)
        tier.check()
    tier.drain()
    assert tier.settled == set(range(COUNT))
    assert tier.world.floor(topic=TIER) == COUNT


class _Tier:
    """A tier of records that wait for different times, its worker, and what is settled of it."""

    def __init__(self) -> None:
        self.world = World()
        self.settled: set[int] = set()
        self.running: list[TrackedDelivery] = []
        self.begin(0)

    def begin(self, position: int) -> None:
        """The partition comes, and is read from what was committed on."""
        self.position = position
        self.world.assign(position=position, topic=TIER)
        for offset in range(position, COUNT):
            self.world.redeliver([offset], due_ms=START_MS + 2_000 + offset * 500, headers=DIED)

    def step(self, name: str, offsets: list[int]) -> None:
        """One thing happens, if it can."""
        world, promotions = self.world, self.world.engine.promotions
        if name == "promote":
            promotions.promote(TIER, {0: offsets}, world.now)
            world.tick()
        elif name == "bury":
            promotions.bury(TIER, {0: offsets}, world.now)
            world.take()
        elif name == "pass":
            world.tick(0.7)
        elif name == "start" and world.ready:
            delivery = world.start()
            if not delivery.closed:
                assert delivery.record_offset not in self.settled, "settled, and handled again"
                self.running.append(delivery)
        elif name == "finish" and self.running:
            delivery = self.running.pop(0)
            world.finish(delivery)
            self.settled.add(delivery.record_offset)
        elif name == "confirm" and world.writes:
            self.settled.add(world.confirm().delivery.record_offset)
        elif name == "refuse" and world.writes:
            world.refuse()
        elif name in {"rebalance", "lose"}:
            self.rebalance(lost=name == "lose")

    def rebalance(self, *, lost: bool) -> None:
        """The partition leaves and comes back, after what was committed of it."""
        positions = self.world.revoke(topic=TIER, lost=lost)
        self.running.clear()
        self.world.writes.clear()
        self.world.ready.clear()
        floor = positions[0].position if positions else self.position
        # What was settled and is not committed comes again: a worker that loses its partition has
        # told nobody, and this world keeps no gap set.
        self.settled = set(range(floor))
        self.begin(floor)

    def check(self) -> None:
        """The floor passes nothing that is not settled, and what is open is accounted for."""
        assignment = self.world.engine.assignments[TIER, 0]
        floor = self.world.floor(topic=TIER)
        assert set(range(floor)) <= self.settled
        assert set(assignment.tracker.open) == set(range(COUNT)) - self.settled
        waiting = list(assignment.waiting)
        assert assignment.waiting.size == sum(delivery.size for delivery in waiting)
        offsets = [delivery.record_offset for delivery in waiting]
        assert len(offsets) == len(set(offsets))
        assert not set(offsets) & self.settled

    def drain(self) -> None:
        """Everything that waits becomes due and is handled, everything written is confirmed."""
        for _ in range(60):
            self.step("pass", [])
            for name in ("start", "finish", "confirm"):
                self.step(name, [])
