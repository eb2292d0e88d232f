"""Parking: where a failed record goes, how long it waits there, and what is written with it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.parking.parking import reason_of_wait
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.records.envelope import (
    ORIGIN_OFFSET,
    REPLAYS,
    Envelope,
    Reason,
    read_envelope,
)
from ackfloor.core.records.outcomes import Failed, Rejected
from ackfloor.core.records.record import Failure, Now
from ackfloor.core.records.retry_policy import RetryPolicy, tier_wait_s
from ackfloor.core.state.assignment import HandlerRules
from tests.examples import examples
from tests.framework.core.worlds import DLQ, START_MS, TIER, MemoryRecord, World, tier_record

STEPS = HandlerRules("bill", policy=RetryPolicy("1s", 5, "25s", 4, jitter=0.15))
BOOM = Failed(Failure("Boom", "it broke", "a stack", "f00d"))


def tier(delay: str) -> str:
    """The tier of one delay."""
    return f"orders--g--retry-{delay}"


def parked(world: World, record: MemoryRecord, outcome: Failed | Rejected = BOOM) -> PendingWrite:
    """The parcel of a record that failed 250 ms after its handler's start."""
    topic, partition = record.topic(), record.partition()
    if (topic, partition) not in world.engine.assignments:
        world.assign(partition, topic=topic)
    world.engine.polled([record], world.now)
    world.take()
    delivery = world.start()
    world.now_s += 0.25
    return world.fail(delivery, outcome)


def test_first_failures_go_to_the_first_tier() -> None:
    """The header says when it comes again; the tier partition's share of jitter is in it."""
    world = World(STEPS, pick=lambda n: n - 1)
    write = parked(world, MemoryRecord("orders", 2, 7))
    assert (write.topic, write.partition) == (TIER, 3)
    assert write.wait_s == tier_wait_s(1.0, 0.15, 3)
    assert write.envelope.not_before_ms == world.now.wall_ms + round(write.wait_s * 1000)


def test_a_tier_of_unknown_size_is_written_to_its_first_partition() -> None:
    """It has one at least."""
    world = World(STEPS)
    world.partitions.clear()
    assert parked(world, MemoryRecord("orders", 2, 7)).partition == 0


def test_each_failure_goes_one_tier_on() -> None:
    """The attempt is counted in the header, and the last one ends in the dead-letter topic."""
    world = World(STEPS)
    topics = []
    record = MemoryRecord("orders", 0, 0)
    for offset in range(5):
        write = parked(world, record)
        topics.append((write.topic, write.envelope.attempt, write.envelope.reason))
        record = MemoryRecord(TIER, 0, offset, _headers=list(write.headers))
        world.now_s += 100
    assert topics == [
        (tier("1s"), 1, "error"),
        (tier("5s"), 2, "error"),
        (tier("25s"), 3, "error"),
        (tier("25s"), 4, "error"),
        (DLQ, 5, "exhausted"),
    ]


def test_the_headers_say_where_from_what_and_when() -> None:
    """All of the first park, and nothing of a second one."""
    world = World(STEPS)
    write = parked(world, MemoryRecord("orders", 2, 7, _timestamp_ms=START_MS - 9))
    found = read_envelope(write.headers)
    assert (found.origin_topic, found.origin_partition, found.origin_offset) == ("orders", 2, 7)
    assert (found.origin_timestamp_ms, found.group, found.handler) == (START_MS - 9, "g", "bill")
    assert (found.attempt, found.failures, found.timeouts) == (1, 1, 0)
    assert (found.reason, found.error_type, found.error_message) == ("error", "Boom", "it broke")
    assert (found.error_stack, found.error_fingerprint) == ("a stack", "f00d")
    assert found.first_failed_at_ms == found.failed_at_ms == world.now.wall_ms
    assert (found.duration_ms, found.release, found.retry_at_ms) == (250, "r1", None)


def test_a_second_failure_keeps_the_first_origin_and_the_last_error() -> None:
    """Origin and first failure stay; error, time and counts are of the last call."""
    world = World(STEPS)
    first = parked(world, MemoryRecord("orders", 2, 7, _timestamp_ms=START_MS - 9))
    world.now_s += 5
    record = MemoryRecord(TIER, 1, 4, _headers=list(first.headers))
    later = Failed(Failure("Other", "elsewhere"), Reason.RETRY)
    found = parked(world, record, later).envelope
    assert (found.origin_topic, found.origin_partition, found.origin_offset) == ("orders", 2, 7)
    assert found.origin_timestamp_ms == START_MS - 9
    assert found.first_failed_at_ms == first.envelope.failed_at_ms
    assert found.failed_at_ms == world.now.wall_ms
    assert (found.attempt, found.failures, found.reason) == (2, 2, "retry")
    assert (found.error_type, found.error_message) == ("Other", "elsewhere")
    assert (found.error_stack, found.error_fingerprint) == (None, None)


def test_timeouts_and_failures_are_counted_apart() -> None:
    """Together they are the failed deliveries, also of the last that went to the dead letters."""
    world = World(replace(STEPS, policy=RetryPolicy.fixed("1s", 2, jitter=0)))
    timeout = Failed(Failure("ConsumeTimeout", "late"), Reason.TIMEOUT)
    first = parked(world, MemoryRecord("orders", 0, 0), timeout)
    record = MemoryRecord(TIER, 0, 0, _headers=list(first.headers))
    world.now_s += 2
    second = parked(world, record)
    record = MemoryRecord(TIER, 0, 1, _headers=list(second.headers))
    world.now_s += 2
    third = parked(world, record, timeout)
    counts = [(p.envelope.failures, p.envelope.timeouts) for p in (first, second, third)]
    assert counts == [(0, 1), (1, 1), (1, 2)]
    assert (third.topic, third.envelope.reason) == (DLQ, Reason.EXHAUSTED)


def test_a_dead_letter_goes_to_its_origins_partition() -> None:
    """Modulo the partitions there are; where the topic is not known the producer chooses."""
    world = World(STEPS)
    rejected = Rejected(Failure("Hopeless", "x"))
    write = parked(world, MemoryRecord("orders", 6, 0), rejected)
    assert (write.topic, write.partition, write.wait_s) == (DLQ, 2, 0.0)
    world.partitions.clear()
    assert parked(world, MemoryRecord("orders", 6, 1), rejected).partition is None


def test_a_dead_letter_waits_for_nothing() -> None:
    """What it waited for as a tier record is not written on."""
    world = World(STEPS)
    record = tier_record(TIER, 0, 0, START_MS)
    write = parked(world, record, Rejected(Failure("Hopeless", "x")))
    assert write.envelope.not_before_ms is None
    assert not [name for name, _ in write.headers if name.endswith(("not_before", "retry_at"))]


def test_the_records_own_headers_come_first_and_untouched() -> None:
    """Order, repeated names, nulls and bytes that are no text; ours follow."""
    world = World(STEPS)
    own = [("a", b"\xff\x00"), ("b", None), ("a", b"2")]
    write = parked(world, MemoryRecord("orders", 0, 0, _headers=own))
    assert list(write.headers[:3]) == own
    assert all(name.startswith("ackfloor.") for name, _ in write.headers[3:])


def test_copies_for_other_tools_are_written_where_asked_for() -> None:
    """Spring's names, Kafka's names, or none."""
    world = World(STEPS)
    parking = world.engine.state.parking
    for offset, (spring, kafka) in enumerate([(False, False), (True, False), (False, True)]):
        parking.spring_headers, parking.kafka_headers = spring, kafka
        names = {n for n, _ in parked(world, MemoryRecord("orders", 0, offset)).headers}
        assert ("kafka_dlt-original-topic" in names) is spring
        assert ("__dlq.errors.topic" in names) is kafka


def test_an_explicit_wait_is_reached_by_hops() -> None:
    """The longest tier below it first; the final time travels along."""
    world = World(replace(STEPS, policy=RetryPolicy("1s", 5, "25s", 4, jitter=0)))
    write = parked(world, MemoryRecord("orders", 0, 0), Failed(BOOM.failure, Reason.RETRY, 31.0))
    due_ms = world.now.wall_ms + 31_000
    assert (write.topic, write.wait_s) == (tier("25s"), 25.0)
    assert write.envelope.retry_at_ms == due_ms
    assert write.envelope.not_before_ms == world.now.wall_ms + 25_000


def test_a_refused_explicit_wait_keeps_its_due_time() -> None:
    """The outage is part of the wait: what is left is worked out anew."""
    world = World(replace(STEPS, policy=RetryPolicy("1s", 5, "25s", 4, jitter=0)))
    parked(world, MemoryRecord("orders", 0, 0), Failed(BOOM.failure, Reason.RETRY, 31.0))
    due_ms = world.now.wall_ms + 31_000
    world.refuse()
    world.tick(20)
    assert (world.writes[0].topic, world.writes[0].envelope.retry_at_ms) == (tier("5s"), due_ms)
    world.refuse()
    world.tick(60)
    assert world.writes[0].topic == TIER
    assert world.writes[0].envelope.not_before_ms == world.now.wall_ms + 1_000


def test_no_wait_at_all_is_the_shortest_tier() -> None:
    """`Retry(after="0s")` comes again after the shortest delay there is."""
    world = World(replace(STEPS, policy=RetryPolicy("1s", 5, "25s", 4, jitter=0)))
    write = parked(world, MemoryRecord("orders", 0, 0), Failed(BOOM.failure, Reason.RETRY, 0.0))
    assert (write.topic, write.wait_s) == (TIER, 1.0)


@pytest.mark.parametrize("hopping", [False, True])
def test_a_policy_that_lost_its_tiers_leaves_what_was_refused_where_it_was(hopping: bool) -> None:
    """New rules have no tier to wait in; the one it was addressed to is still read."""
    world = World(STEPS)
    if hopping:
        world.assign(topic=TIER)
        world.redeliver([0], headers=[("ackfloor.retry_at", str(START_MS + 9_000).encode())])
    else:
        parked(world, MemoryRecord("orders", 0, 0), Failed(BOOM.failure, Reason.RETRY, 9.0))
    topic = world.writes[0].topic
    world.refuse()
    world.engine.state.handlers["bill"].rules = replace(
        STEPS, policy=RetryPolicy(max_redeliveries=0)
    )
    world.tick(1)
    assert world.writes[0].topic == topic
    world.confirm()
    assert world.engine.flow.open_count == 0


@given(
    after_ms=st.integers(0, 7_200_000),
    jitter=st.floats(0, 1),
    partitions=st.integers(1, 6),
    seed=st.randoms(use_true_random=False),
)
@examples(40)
def test_an_explicit_wait_ends_neither_early_nor_late(
    after_ms: int, jitter: float, partitions: int, seed: Random
) -> None:
    """Through the engine, hop by hop: never early, late by less than the shortest tier's wait."""
    policy = RetryPolicy("1s", 5, "10m", 6, jitter)
    world = World(HandlerRules("bill", policy=policy), pick=seed.randrange)
    world.partitions[TIER] = partitions
    wait = Failed(BOOM.failure, Reason.RETRY, after_ms / 1000)
    write = parked(world, MemoryRecord("orders", 0, 0), wait)
    due_ms = world.now.wall_ms + after_ms
    for n in range(3_000):
        world.confirm()
        assert write.envelope.not_before_ms is not None
        world.now_s += (write.envelope.not_before_ms - world.now.wall_ms) / 1000
        record = MemoryRecord(TIER, 0, n, _headers=list(write.headers))
        if (TIER, 0) not in world.engine.assignments:
            world.assign(topic=TIER)
        world.engine.polled([record], world.now)
        world.take()
        if world.ready:
            break
        (write,) = world.writes
    delivery = world.start()
    late_ms = world.now.wall_ms - due_ms
    assert 0 <= late_ms < 1_000 * (1 + jitter) + 1
    assert (delivery.attempt, delivery.origin.offset) == (2, 0)


def test_a_message_that_was_replayed_to_its_source_keeps_the_count() -> None:
    """Else it could go round for ever; its origin is where it was delivered first: here."""
    world = World(STEPS)
    record = MemoryRecord("orders", 2, 7, _headers=[(ORIGIN_OFFSET, b"3"), (REPLAYS, b"4")])
    write = parked(world, record)
    assert read_envelope(write.headers).replays == 4
    assert read_envelope(write.headers).origin_offset == 7


@pytest.mark.parametrize(
    ("reason", "years", "expected"),
    [
        (None, None, None),
        (None, 1, None),
        (None, 10, Reason.BEHIND),
        (None, 20, Reason.HELD),
        (Reason.RETRY, 10, Reason.RETRY),
        (Reason.BEHIND, None, Reason.BEHIND),
    ],
)
def test_a_wait_without_a_reason_is_known_by_how_far_away_its_end_is(
    reason: Reason | None, years: int | None, expected: Reason | None
) -> None:
    """An older release has moved the record on, and did not know the word."""
    now = Now(0.0, 1_000)
    retry_at_ms = None if years is None else now.wall_ms + years * 365 * 86_400_000
    assert reason_of_wait(Envelope(reason=reason, retry_at_ms=retry_at_ms), now) is expected
