"""What the monitoring tests are told: events and snapshots with sensible values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ackfloor.observe import (
    BlockedLane,
    BlockedLanes,
    BreakerSnapshot,
    DeliveryFailed,
    HandlerSnapshot,
    LongSlots,
    NoisyKey,
    NoisyKeys,
    PartitionSnapshot,
    RateSnapshot,
    Reason,
    RunningDelivery,
    Snapshot,
)

NOW_MS = 1_700_000_000_000

PARTITION = PartitionSnapshot(
    topic="orders",
    partition=0,
    epoch=3,
    handler="bill",
    source_topic="orders",
    tier_s=None,
    floor=100,
    committed=98,
    position=120,
    highest_settled=109,
    high_watermark=130,
    open_count=12,
    gap_count=8,
    waiting=0,
    next_due_ms=None,
    parking=1,
    paused=False,
    floor_advanced_ms=NOW_MS - 2_000,
    oldest_open_ms=NOW_MS - 1_500,
    oldest_written_ms=NOW_MS - 1_700,
)

HANDLER = HandlerSnapshot(
    name="bill",
    ordering="key",
    concurrency=64,
    consume_timeout_s=45.0,
    running=2,
    queued=5,
    abandoned=1,
    held_for_s=0.0,
    held_reason="",
    oldest=(
        RunningDelivery("orders", 0, 100, 1, 1.25, 43.75, ("/shop/orders.py:41 bill",), 19),
        RunningDelivery("orders", 0, 101, 2, 0.5, 44.5),
    ),
    on_failure="block",
    delays_s=(1.0, 90.0),
    max_redeliveries=6,
    lane_waiting=21,
    breaker=BreakerSnapshot(failing=3, allowed=64, withheld=2, withheld_most=12_500),
    blocked=BlockedLanes(
        3,
        19,
        NOW_MS - 300_000,
        (
            BlockedLane(
                "orders",
                0,
                90,
                "customer-7",
                "waiting",
                2,
                "shop.Boom: no stock",
                NOW_MS - 300_000,
                NOW_MS + 20_000,
                17,
            ),
        ),
    ),
    quarantined=BlockedLanes(
        2,
        7,
        NOW_MS - 600_000,
        (
            BlockedLane(
                "orders",
                1,
                41,
                "customer-9",
                "held",
                6,
                "shop.Boom: no price",
                NOW_MS - 600_000,
                None,
                5,
                at_least=True,
            ),
        ),
    ),
    fairness="key",
    noisy_keys=NoisyKeys(
        1, 2, 340, (NoisyKey("customer-3", hanging=True, running=1, behind=12),), behind_hanging=12
    ),
    long_slots=LongSlots(1, 1.2),
    rate=RateSnapshot(100.0, 25.0, 3, 12.5),
)

OPEN = BreakerSnapshot(
    state="open",
    since_ms=NOW_MS - 90_000,
    failing=50,
    error="OSError: the bank is away",
    allowed=1,
    next_trial_s=0.8,
    withheld=70,
    withheld_most=12_500,
)

SNAPSHOT = Snapshot(
    group="billing",
    state="running",
    taken_ms=NOW_MS,
    open_count=12,
    open_bytes=2_400,
    max_open=50_000,
    max_open_bytes=268_435_456,
    partitions=(PARTITION,),
    handlers=(HANDLER,),
    faults=(),
    polled_s=40.5,
    worked_s=19.25,
    poll_limit_s=300.0,
)
#: Frames of a handler that hangs; a path without a place to break it.
LONG_STACK = ("/app/" + "a-folder-of-a-long-name/" * 8 + "shop.py:12 pay", "/app/bank.py:3 charge")


def snapshot(**changes: Any) -> Snapshot:
    """The sample snapshot, changed."""
    return replace(SNAPSHOT, **changes)


def partition(**changes: Any) -> PartitionSnapshot:
    """The sample partition, changed."""
    return replace(PARTITION, **changes)


def handler(**changes: Any) -> HandlerSnapshot:
    """The sample handler, changed."""
    return replace(HANDLER, **changes)


def failed(
    error_type: str, reason: Reason = Reason.ERROR, duration_s: float = 0.2, trace_id: str = ""
) -> DeliveryFailed:
    """A delivery that failed."""
    return DeliveryFailed(
        "orders", 0, 7, "bill", 1, reason, error_type, "told", duration_s, trace_id=trace_id
    )
