"""Flow limits: what pauses fetching, what resumes it, and that it always resumes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.messages.commands import Pause, Resume
from ackfloor.core.queues.flow_limits import MIB, FlowLimits, Gate, PauseReason
from ackfloor.core.records.outcomes import Failed
from ackfloor.core.records.record import Failure, StartPosition, TopicPartition
from ackfloor.core.state.assignment import HandlerRules
from tests.examples import examples
from tests.framework.core.worlds import TIER, MemoryRecord, World

ORDERS = TopicPartition("orders", 0)


def flow_of(world: World) -> list[Pause | Resume]:
    """What was paused and resumed so far."""
    return [c for c in world.commands if isinstance(c, Pause | Resume)]


def test_the_defaults_are_those_of_the_contract() -> None:
    """50,000 records and 256 MiB a worker, a span of 100,000 offsets a partition."""
    limits = FlowLimits()
    assert (limits.max_open, limits.max_open_bytes) == (50_000, 256 * MIB)
    assert (limits.partition_span, limits.tier_buffer) == (100_000, 500)
    assert (limits.partition_open, limits.partition_open_bytes) == (25_000, 128 * MIB)


def test_a_gate_shuts_at_its_limit_and_opens_at_half_of_it() -> None:
    """Between the two it stays what it was."""
    gate = Gate(10)
    levels = [0, 9, 10, 6, 9, 5, 9, 11, 5]
    shut = [gate.update(level) for level in levels]
    assert shut == [False, False, True, True, True, False, False, True, False]


@given(limit=st.integers(1, 50), levels=st.lists(st.integers(0, 60), max_size=40))
@examples(100)
def test_a_gate_is_shut_at_the_limit_and_open_when_drained(limit: int, levels: list[int]) -> None:
    """Whatever the path to it: at or over the limit shut, at zero open."""
    gate = Gate(limit)
    for level in levels:
        shut = gate.update(level)
        assert shut or level < limit
        assert not shut or level > limit // 2
    assert gate.update(0) is False


def test_too_many_open_records_pause_every_partition() -> None:
    """The worker's own limit; half of it brings all of them back, each at its next offset."""
    world = World(limits=FlowLimits(max_open=4))
    world.assign(0)
    world.assign(1)
    world.read([0, 1, 2])
    assert flow_of(world) == []
    world.read([10], partition=1)
    other = TopicPartition("orders", 1)
    assert flow_of(world) == [Pause((ORDERS, other))]
    world.finish(world.start())
    assert len(flow_of(world)) == 1
    world.finish(world.start())
    assert flow_of(world)[1:] == [Resume(((ORDERS, 3), (other, 11)))]


@pytest.mark.parametrize(
    "limits",
    [FlowLimits(partition_open=4), FlowLimits(partition_open_bytes=8)],
    ids=["count", "bytes"],
)
def test_a_partition_that_holds_too_much_leaves_room_for_the_others(limits: FlowLimits) -> None:
    """A hot key fills its own partition's share; the worker goes on with the rest."""
    world = World(limits=limits)
    world.assign(0)
    world.assign(1)
    world.read([0, 1, 2, 3])
    assert flow_of(world) == [Pause((ORDERS,))]
    world.read([0, 1], partition=1)
    assert len(flow_of(world)) == 1
    for _ in range(2):
        world.finish(world.start())
    assert flow_of(world)[1:] == [Resume(((ORDERS, 4),))]
    for partition in (0, 1):
        world.revoke(partition)
    assert world.engine.flow.open_bytes == 0


def test_too_many_open_bytes_pause_too() -> None:
    """Two large records weigh what many small ones do; a null value weighs nothing."""
    world = World(limits=FlowLimits(max_open_bytes=100))
    world.assign()
    values: list[bytes | None] = [b"x" * 50, b"x" * 50, None]
    records = [MemoryRecord("orders", 0, n, value) for n, value in enumerate(values)]
    world.engine.polled(records, world.now)
    world.take()
    assert world.engine.flow.open_bytes == 100
    assert flow_of(world) == [Pause((ORDERS,))]
    world.finish(world.start())
    assert flow_of(world)[1:] == [Resume(((ORDERS, 3),))]


def test_a_wide_span_pauses_its_partition_alone() -> None:
    """One open record far below the position; others go on being fetched."""
    world = World(limits=FlowLimits(partition_span=10))
    world.assign(0)
    world.assign(1)
    world.read([0, 9])
    assert flow_of(world) == [Pause((ORDERS,))]
    stuck, other = world.start(), world.start()
    world.finish(other)
    assert len(flow_of(world)) == 1
    world.finish(stuck)
    assert flow_of(world)[1:] == [Resume(((ORDERS, 10),))]


def test_a_tier_is_paused_by_its_records_not_by_its_span() -> None:
    """Waiting records are bounded in memory; offsets between them are of no weight."""
    world = World(limits=FlowLimits(tier_buffer=4, partition_span=10))
    world.assign(topic=TIER)
    world.redeliver([0, 500, 900], due_ms=world.now.wall_ms + 60_000)
    assert flow_of(world) == []
    world.redeliver([901], due_ms=world.now.wall_ms + 60_000)
    assert flow_of(world) == [Pause((TopicPartition(TIER, 0),))]


@pytest.mark.parametrize(
    ("limits", "size"),
    [(FlowLimits(max_open=100), 1), (FlowLimits(max_open_bytes=100_000), 1_000)],
    ids=["count", "bytes"],
)
def test_waiting_records_keep_no_source_from_being_read(limits: FlowLimits, size: int) -> None:
    """However many redeliveries are far from due, records that are new are read and handled."""
    world = World(limits=limits)
    world.assign()
    for partition in range(4):
        world.assign(partition, topic=TIER)
        # One poll may bring much more than a partition's share.
        world.redeliver(
            range(100), due_ms=world.now.wall_ms + 600_000, partition=partition, size=size
        )
    tiers = {TopicPartition(TIER, partition) for partition in range(4)}
    assert {p for c in flow_of(world) if isinstance(c, Pause) for p in c.partitions} == tiers
    records = [MemoryRecord("orders", 0, n, b"x" * size) for n in range(75)]
    world.engine.polled(records, world.now)
    world.take()
    assert world.engine.assignments["orders", 0].paused
    for _ in range(50):
        world.finish(world.start())
    assert flow_of(world)[-1] == Resume(((ORDERS, 75),))


@pytest.mark.parametrize(
    ("limits", "size", "most"),
    [
        (FlowLimits(max_open=400), 1, 50),
        (FlowLimits(max_open_bytes=400_000), 1_000, 50),
        (FlowLimits(tier_buffer=30), 1, 30),
        (FlowLimits(max_open=2, max_open_bytes=2), 2, 1),
    ],
    ids=["count", "bytes", "buffer", "at least one"],
)
def test_tiers_share_a_quarter_of_the_workers_limits(
    limits: FlowLimits, size: int, most: int
) -> None:
    """None takes another one's part, so a long delay never keeps a short one from being read."""
    world = World(limits=limits)
    world.assign(0, topic=TIER)
    world.assign(1, topic=TIER)
    due_ms = world.now.wall_ms + 600_000
    for offset in range(most):
        assert not world.engine.assignments[TIER, 0].paused
        world.redeliver([offset], due_ms=due_ms, size=size)
    assert world.engine.assignments[TIER, 0].paused
    assert not world.engine.assignments[TIER, 1].paused


def test_a_tier_resumes_when_its_waiting_bytes_have_left() -> None:
    """Dispatched or written on, they wait no longer."""
    world = World(
        HandlerRules("bill", concurrency=100), limits=FlowLimits(max_open_bytes=4_000_000)
    )
    world.assign(topic=TIER)
    due_ms = world.now.wall_ms + 1_000
    world.redeliver(range(6), due_ms=due_ms, size=100_000)
    further = [("ackfloor.retry_at", str(due_ms + 5_000).encode())]
    world.redeliver(range(6, 10), due_ms=due_ms, size=100_000, headers=further)
    assert world.engine.assignments[TIER, 0].paused
    world.tick(1)
    assert len(world.writes) == 4
    assert world.engine.assignments[TIER, 0].waiting.size == 0
    world.confirm()
    assert flow_of(world)[1:] == [Resume(((TopicPartition(TIER, 0), 10),))]


def test_other_limits_are_those_of_all_partitions_but_for_the_span_of_tiers() -> None:
    """What the tiers share is divided anew at each look."""
    world = World()
    world.assign()
    world.assign(topic=TIER)
    source, tier = (world.engine.assignments[name, 0].gates for name in ("orders", TIER))
    before = tier.span.limit
    limits = FlowLimits(partition_open=5, partition_open_bytes=6, partition_span=7)
    world.engine.flow.replace(limits, world.engine.assignments.values())
    assert [(gates.open.limit, gates.open_bytes.limit) for gates in (source, tier)] == [(5, 6)] * 2
    assert (source.span.limit, tier.span.limit) == (7, before)


def test_what_is_in_flight_counts() -> None:
    """Running handlers and unconfirmed parks hold their records open, and so back-pressure."""
    world = World(limits=FlowLimits(max_open=2))
    world.assign()
    world.read([0, 1])
    assert flow_of(world) == [Pause((ORDERS,))]
    world.start()
    world.fail(world.start())
    assert world.engine.flow.open_count == 2
    assert len(flow_of(world)) == 1
    world.confirm()
    assert world.engine.flow.open_count == 1


def test_a_record_leaves_the_levels_once() -> None:
    """Settled before, it is not counted again."""
    world = World()
    world.assign()
    world.read([0, 1])
    delivery = world.start()
    world.engine.state.settle(delivery)
    world.engine.state.settle(delivery)
    assert (world.engine.flow.open_count, world.engine.flow.open_bytes) == (1, 2)


@pytest.mark.parametrize(
    "limits", [FlowLimits(max_open=3), FlowLimits(partition_span=3)], ids=["count", "span"]
)
def test_confirmed_parks_resume_fetching_by_themselves(limits: FlowLimits) -> None:
    """Everything is paused and nothing runs: no read and no answer will come to do it."""
    world = World(limits=limits)
    world.assign()
    world.read([0, 1, 2])
    for _ in range(3):
        world.fail(world.start())
    for _ in range(3):
        world.confirm()
    assert flow_of(world) == [Pause((ORDERS,)), Resume(((ORDERS, 3),))]


@pytest.mark.parametrize(
    ("limits", "offsets", "reason"),
    [
        (FlowLimits(max_open=3), [0, 1, 2], PauseReason.WORKER),
        (FlowLimits(max_open_bytes=6), [0, 1, 2], PauseReason.WORKER),
        (FlowLimits(partition_open=3), [0, 1, 2], PauseReason.OPEN),
        (FlowLimits(partition_open_bytes=6), [0, 1, 2], PauseReason.OPEN),
        (FlowLimits(partition_span=10), [0, 9], PauseReason.SPAN),
    ],
)
def test_why_a_partition_is_paused(
    limits: FlowLimits, offsets: list[int], reason: PauseReason
) -> None:
    """By the limit that is reached; one that is fetched has no reason."""
    world = World(limits=limits)
    world.assign(0)
    flow, orders = world.engine.flow, world.engine.assignments["orders", 0]
    assert flow.why_paused(orders) is None
    world.read(offsets)
    assert flow.why_paused(orders) is reason


def test_why_a_partition_is_paused_whose_records_wait() -> None:
    """In a tier for their time, in a source partition behind one that failed."""
    world = World(limits=FlowLimits(tier_buffer=2))
    world.assign(topic=TIER)
    world.redeliver([0, 1], due_ms=world.now.wall_ms + 60_000)
    assert world.engine.flow.why_paused(world.engine.assignments[TIER, 0]) is PauseReason.WAITING
    rules = HandlerRules("bill", ordering="partition", in_place=True)
    world = World(rules, limits=FlowLimits(max_open=8))
    world.assign()
    world.read([0, 1])
    world.finish(world.start(), Failed(Failure("Boom", "x")))
    orders = world.engine.assignments["orders", 0]
    assert (orders.held, orders.paused) == (2, True)
    assert world.engine.flow.why_paused(orders) is PauseReason.WAITING


def test_why_a_partition_is_paused_for_its_handler_or_its_commit() -> None:
    """The handler rests; or the gap set would soon be too long. What is nearest is told."""
    world = World()
    world.assign()
    orders = world.engine.assignments["orders", 0]
    orders.commit.metadata_length = 10**6
    world.read([0])
    assert world.engine.flow.why_paused(orders) is PauseReason.METADATA
    orders.handler.resting = True
    assert world.engine.flow.why_paused(orders) is PauseReason.HANDLER


def test_a_paused_partition_is_paused_once() -> None:
    """More of the same, and another reason on top, give no second command."""
    world = World(limits=FlowLimits(max_open=2, partition_span=3))
    world.assign()
    world.read([0, 1])
    world.read([2, 3])
    assert flow_of(world) == [Pause((ORDERS,))]


def test_a_partition_resumes_when_its_last_reason_ends() -> None:
    """The worker has room again, but the span has not."""
    world = World(limits=FlowLimits(max_open=4, partition_span=4))
    world.assign()
    world.read([0, 1, 2, 3])
    stuck = world.start()
    for _ in range(3):
        world.finish(world.start())
    assert world.engine.flow.open_count == 1
    assert flow_of(world) == [Pause((ORDERS,))]
    world.finish(stuck)
    assert flow_of(world)[1:] == [Resume(((ORDERS, 4),))]


def test_a_partition_that_comes_to_a_full_worker_waits() -> None:
    """It is paused with the next look at the levels, and resumed with the others."""
    world = World(limits=FlowLimits(max_open=2))
    world.assign(0)
    world.read([0, 1])
    world.assign(1, 7)
    world.engine.polled([], world.now)
    world.take()
    second = TopicPartition("orders", 1)
    assert flow_of(world) == [Pause((ORDERS,)), Pause((second,))]
    world.finish(world.start())
    assert flow_of(world)[2:] == [Resume(((ORDERS, 2), (second, 7)))]


def test_a_reassigned_partition_is_not_paused_by_its_past() -> None:
    """Revoked in the middle of a pause and given back, it is fetched."""
    world = World(limits=FlowLimits(partition_span=4))
    world.assign()
    world.read([0, 1, 2, 3])
    assert world.engine.assignments["orders", 0].paused
    world.revoke()
    world.assign(0, 0)
    assert not world.engine.assignments["orders", 0].paused
    assert flow_of(world) == [Pause((ORDERS,))]
    world.read([0, 1, 2, 3])
    assert flow_of(world)[1:] == [Pause((ORDERS,))]


def test_a_revoke_lets_the_others_go_on() -> None:
    """What left with it made the worker full."""
    world = World(limits=FlowLimits(max_open=4))
    world.assign(0)
    world.assign(1, 5)
    world.read([0, 1, 2, 3])
    world.revoke(0)
    assert flow_of(world)[1:] == [Resume(((TopicPartition("orders", 1), 5),))]


def test_a_leaving_partition_is_not_fetched_again() -> None:
    """While it drains its levels fall, and nothing more is wanted of it."""
    world = World(limits=FlowLimits(max_open=2))
    world.assign(0)
    world.assign(1)
    world.read([0, 1])
    running = [world.start(), world.start()]
    world.engine.stop([ORDERS])
    for delivery in running:
        world.finish(delivery)
    assert flow_of(world)[1:] == [Resume(((TopicPartition("orders", 1), 0),))]


@given(
    reads=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), max_size=20),
    settle=st.randoms(use_true_random=False),
)
@examples(60)
def test_levels_are_exact_and_drain_to_zero(reads: list[tuple[int, int]], settle: Random) -> None:
    """Whatever was read and however it ended, nothing open means nothing paused."""
    world = World(
        HandlerRules("bill", consume_timeout_s=None),
        limits=FlowLimits(max_open=6, max_open_bytes=30, partition_span=5),
    )
    world.engine.assign([StartPosition("orders", p, 0) for p in range(3)], world.now)
    position = dict.fromkeys(range(3), 0)
    for partition, count in reads:
        if world.engine.assignments["orders", partition].paused:
            continue
        world.read([position[partition] + n for n in range(count)], partition)
        position[partition] += count
    assert world.engine.flow.open_count == sum(position.values())
    assert world.engine.flow.open_bytes == 2 * sum(position.values())
    running = [world.start() for _ in range(len(world.ready))]
    settle.shuffle(running)
    for delivery in running:
        world.finish(delivery)
    assert (world.engine.flow.open_count, world.engine.flow.open_bytes) == (0, 0)
    assert not any(a.paused for a in world.engine.assignments.values())
