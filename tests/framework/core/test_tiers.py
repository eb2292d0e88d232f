"""Retry tiers: their records wait in memory, and are delivered when due and where there is room."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.messages.events import RecordsReceived
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.record import Now, TopicPartition
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from tests.examples import examples
from tests.framework.core.worlds import START_MS, TIER, MemoryRecord, World, tier_record

FOUR_SLOTS = HandlerRules("bill", concurrency=4, consume_timeout_s=None)


def ready(world: World) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of what was dispatched, in order."""
    return [(d.topic, d.partition, d.offset) for d in world.ready if isinstance(d, TrackedDelivery)]


def test_a_tier_record_waits_for_its_due_time() -> None:
    """Not a millisecond less, and the worker wakes for it."""
    world = World(FOUR_SLOTS)
    world.assign(topic=TIER)
    world.redeliver([0], due_ms=START_MS + 1_500)
    assert ready(world) == []
    assert world.engine.next_due_s(world.now) == world.now_s + 1.5
    world.tick(1.499)
    assert ready(world) == []
    world.tick(0.001)
    assert ready(world) == [(TIER, 0, 0)]
    assert world.engine.next_due_s(world.now) == inf
    assert world.told(RecordsReceived) == [RecordsReceived("orders", 0, "bill", 1, 2, True)]


def test_a_tier_record_without_a_due_time_is_due() -> None:
    """Lost or damaged headers delay nobody."""
    world = World(FOUR_SLOTS)
    world.assign(topic=TIER)
    records = [MemoryRecord(TIER, 0, 0), MemoryRecord(TIER, 0, 1)]
    records[1]._headers = [("ackfloor.not_before", b"soon")]
    world.engine.polled(records, world.now)
    world.take()
    assert ready(world) == [(TIER, 0, 0), (TIER, 0, 1)]


def test_a_clock_that_was_ahead_holds_nobody_up() -> None:
    """A record that was parked by a clock an hour ahead waits no longer than its tier's longest.

    It stands before records of the same tier that are due now, and they don't wait for it.
    """
    world = World(FOUR_SLOTS)
    world.assign(topic=TIER)
    world.redeliver([0], due_ms=START_MS + 3_600_000)
    world.redeliver([1], due_ms=START_MS)
    assert ready(world) == [(TIER, 0, 1)]
    assert world.engine.next_due_s(world.now) == world.now_s + 2
    world.tick(1.999)
    assert ready(world) == [(TIER, 0, 1)]
    world.tick(0.001)
    assert ready(world) == [(TIER, 0, 1), (TIER, 0, 0)]


def test_a_clock_that_is_set_back_holds_nobody_up() -> None:
    """What was read while the clock was an hour ahead waits as long as it did then."""
    world = World(FOUR_SLOTS)
    world.assign(topic=TIER)
    ahead = Now(world.now_s, START_MS + 3_600_000)
    record = tier_record(TIER, 0, 0, due_ms=ahead.wall_ms + 500)
    world.engine.polled([record], ahead)
    assert world.engine.next_due_s(world.now) == world.now_s + 0.5
    world.tick(0.25)
    assert ready(world) == []
    world.tick(0.25)
    assert ready(world) == [(TIER, 0, 0)]


def test_the_soonest_of_several_tiers_is_waited_for() -> None:
    """Each partition is looked at by its head."""
    world = World(FOUR_SLOTS)
    world.assign(0, topic=TIER)
    world.assign(1, topic=TIER)
    world.assign(0)
    world.redeliver([0], due_ms=START_MS + 1_900)
    world.redeliver([0], due_ms=START_MS + 1_500, partition=1)
    assert world.engine.next_due_s(world.now) == world.now_s + 1.5


def test_redeliveries_take_half_of_the_slots_at_most() -> None:
    """What fails again and again leaves room for what has not been tried."""
    world = World(FOUR_SLOTS)
    world.assign(topic=TIER)
    world.assign()
    world.redeliver(range(5))
    assert len(world.ready) == 2
    # Due, but without room: an answer makes room, so time is not waited for.
    assert world.engine.next_due_s(world.now) == inf
    world.read([0, 1])
    assert len(world.ready) == 4
    world.finish(world.start())
    world.tick()
    assert ready(world)[-1] == (TIER, 0, 2)
    assert world.engine.state.handlers["bill"].open_retries == 2


def test_a_single_slot_still_takes_redeliveries() -> None:
    """Half of one is one."""
    world = World(replace(FOUR_SLOTS, concurrency=1))
    world.assign(topic=TIER)
    world.redeliver([0, 1])
    assert len(world.ready) == 1


def test_the_room_goes_to_what_has_been_due_the_longest() -> None:
    """A tier with a backlog does not keep another one's records waiting."""
    world = World(replace(FOUR_SLOTS, concurrency=1))
    world.assign(0, topic=TIER)
    world.assign(1, topic=TIER)
    world.redeliver([0, 1, 2], due_ms=START_MS + 10)
    world.redeliver([0], due_ms=START_MS + 9, partition=1)
    order = []
    for _ in range(4):
        world.tick(0.01)
        delivery = world.start()
        order.append((delivery.partition, delivery.offset))
        world.finish(delivery)
    assert order == [(1, 0), (0, 0), (0, 1), (0, 2)]


def test_a_revoke_gives_back_the_room_of_its_redeliveries() -> None:
    """Those that were dispatched are nobody's now; those that waited are gone."""
    world = World(FOUR_SLOTS)
    world.assign(topic=TIER)
    world.redeliver([0, 1, 2])
    world.revoke(topic=TIER)
    assert world.engine.state.handlers["bill"].open_retries == 0
    world.tick(10)
    assert len(world.ready) == 2
    assert all(d.closed for d in world.ready if isinstance(d, TrackedDelivery))


def test_a_redelivery_gives_its_room_back_once() -> None:
    """It failed, its park is under way, and then its partition leaves."""
    world = World(FOUR_SLOTS)
    world.assign(topic=TIER)
    world.redeliver([0])
    world.fail(world.start())
    world.revoke(topic=TIER)
    assert world.engine.state.handlers["bill"].open_retries == 0


def test_a_leaving_tier_releases_nothing() -> None:
    """What falls due while it drains is the next owner's."""
    world = World(FOUR_SLOTS)
    world.assign(topic=TIER)
    world.redeliver([0], due_ms=START_MS + 1_000)
    world.engine.stop([TopicPartition(TIER, 0)])
    world.tick(5)
    assert ready(world) == []
    assert world.floor(topic=TIER) == 0


def test_redeliveries_keep_their_lanes() -> None:
    """In key order two records of one key in a tier run one after the other."""
    world = World(replace(FOUR_SLOTS, ordering="key"))
    world.assign(topic=TIER)
    records = [MemoryRecord(TIER, 0, n, _key=b"a") for n in range(2)]
    world.engine.polled(records, world.now)
    world.take()
    ((run,),) = world.given
    assert isinstance(run, Work)
    assert len(run) == 2


def test_a_record_that_has_further_to_wait_hops_on() -> None:
    """Due here but not yet there: it is written on, and takes no slot."""
    world = World(FOUR_SLOTS)
    world.assign(topic=TIER)
    further = [("ackfloor.retry_at", str(START_MS + 5_000).encode())]
    world.redeliver([0], headers=further)
    world.redeliver([1])
    assert ready(world) == [(TIER, 0, 1)]
    (write,) = world.writes
    assert (write.topic, write.envelope.attempt) == ("orders--g--retry-1s", 1)
    assert write.envelope.retry_at_ms == START_MS + 5_000


def test_what_hops_on_does_so_in_time_although_there_is_no_room() -> None:
    """It takes none, so the worker wakes for it."""
    world = World(replace(FOUR_SLOTS, concurrency=1))
    world.assign(topic=TIER)
    world.redeliver([0])
    further = [("ackfloor.retry_at", str(START_MS + 60_000).encode())]
    world.redeliver([1], due_ms=START_MS + 1_000, headers=further)
    assert world.engine.state.handlers["bill"].retry_room() == 0
    assert world.engine.next_due_s(world.now) == world.now_s + 1.0
    world.tick(1.0)
    assert [write.delivery.offset for write in world.writes] == [1]
    assert world.engine.next_due_s(world.now) == inf


def test_the_last_hop_ends_in_a_delivery() -> None:
    """What has waited long enough is delivered, also where no tier is left to wait in."""
    world = World(FOUR_SLOTS)
    world.assign(topic=TIER)
    reached = [("ackfloor.retry_at", str(START_MS).encode())]
    world.redeliver([0], headers=reached)
    world.engine.state.handlers["bill"].rules = replace(
        FOUR_SLOTS, policy=RetryPolicy(max_redeliveries=0)
    )
    further = [("ackfloor.retry_at", str(START_MS + 5_000).encode())]
    world.redeliver([1], headers=further)
    assert ready(world) == [(TIER, 0, 0), (TIER, 0, 1)]


@given(
    waits_ms=st.lists(st.integers(0, 2_000), min_size=1, max_size=20),
    steps_ms=st.lists(st.integers(1, 1_000), max_size=10),
)
@examples(60)
def test_a_tier_in_due_order_is_never_early_and_never_late(
    waits_ms: list[int], steps_ms: list[int]
) -> None:
    """Waking at `next_due_s` alone, each record goes out at its own time, to the millisecond."""
    world = World(replace(FOUR_SLOTS, concurrency=1_000))
    world.assign(topic=TIER)
    due = [START_MS + wait_ms for wait_ms in sorted(waits_ms)]
    for offset, due_ms in enumerate(due):
        world.redeliver([offset], due_ms=due_ms)
    for step_ms in [*steps_ms, 10_000]:
        until_s = world.now_s + step_ms / 1000
        while (next_s := world.engine.next_due_s(world.now)) <= until_s + 1e-6:
            world.tick(next_s - world.now_s)
        world.now_s = max(world.now_s, until_s)
        # The wall clock is read in whole milliseconds, so one due in this very one may be either.
        must = sum(1 for due_ms in due if due_ms < world.now.wall_ms)
        may = sum(1 for due_ms in due if due_ms <= world.now.wall_ms)
        assert must <= len(world.ready) <= may
    assert [offset for _, _, offset in ready(world)] == list(range(len(due)))
