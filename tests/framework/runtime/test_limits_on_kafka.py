"""Memory stays bounded on a real broker, whatever is large, stuck, waiting or never ends."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

import psutil
import pytest

from ackfloor import App, CircuitBreaker, Delivery, RetryPolicy
from ackfloor.kafka.consume.source import BATCH
from ackfloor.runtime.loop.loop import ENOUGH
from tests.framework.runtime.live import Gate
from tests.framework.runtime.on_kafka import Crowd, OnKafka, consumer_of, on_kafka

pytestmark = [pytest.mark.kafka]

MIB = 1024 * 1024
NONE = RetryPolicy(max_redeliveries=0)
#: What the client may hold beside us: its prefetch, and one that was thrown away meanwhile.
PREFETCH = 8 * MIB
SMALL_PREFETCH = {
    **consumer_of("cooperative"),
    "queued.max.messages.kbytes": str(PREFETCH // 1024),
    "fetch.max.bytes": str(2 * MIB),
    "message.max.bytes": str(2 * MIB),
    "max.partition.fetch.bytes": str(2 * MIB),
}


def rss() -> int:
    """Bytes of memory of this process."""
    gc.collect()
    return psutil.Process().memory_info().rss


def highest(crowd: Crowd, worker: OnKafka, done: Callable[[], bool]) -> tuple[int, int, int]:
    """The most open records, open bytes and memory until something is done."""
    most = [0, 0, 0]
    flow, looked_s = worker.loop.engine.flow, 0.0

    def look() -> bool:
        nonlocal looked_s
        most[0], most[1] = max(most[0], flow.open_count), max(most[1], flow.open_bytes)
        if time.monotonic() - looked_s > 0.1:
            looked_s = time.monotonic()
            most[2] = max(most[2], psutil.Process().memory_info().rss)
        return done()

    crowd.until(look)
    return most[0], most[1], most[2]


def test_records_of_a_mebibyte_are_held_by_their_bytes(bootstrap_servers: str) -> None:
    """A backlog of 160 MiB goes through a worker that may hold 16."""
    with on_kafka(bootstrap_servers, 2, **{"max.message.bytes": str(2 * MIB)}) as crowd:
        place, limit, count = crowd.place, 16 * MIB, 160
        app, handled = App(place.group), []

        @app.handler(place.topic, concurrency=4, retry=NONE)
        async def handle(value: bytes, delivery: Delivery) -> None:
            await asyncio.sleep(0.005)
            handled.append(len(value))

        for _ in range(count // 8):
            place.send(8, bytes(MIB - 1000))
        before = rss()
        worker = crowd.start(app, consumer=SMALL_PREFETCH, max_open_bytes=limit)
        _, most, memory = highest(crowd, worker, lambda: len(handled) == count)
        assert most <= limit + 2 * PREFETCH
        assert memory - before < limit + 8 * PREFETCH < count * MIB
        crowd.until(lambda: worker.loop.engine.flow.open_bytes == 0)


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_handler_that_never_returns_holds_its_span_and_no_more(
    bootstrap_servers: str, kind: str
) -> None:
    """One stuck head: its partition stops at its span, the other one does not stop."""
    with on_kafka(bootstrap_servers, 2) as crowd:
        place, span, count = crowd.place, 2000, 6000
        app, handled = App(place.group), [0, 0]
        stuck = asyncio.Event()

        def note(value: bytes, delivery: Delivery) -> bool:
            handled[delivery.partition] += value != b"stuck"
            return value == b"stuck"

        async def handle_async(value: bytes, delivery: Delivery) -> None:
            if note(value, delivery):
                await asyncio.Event().wait()

        def handle_sync(value: bytes, delivery: Delivery) -> None:
            if note(value, delivery):
                while not stuck.is_set():
                    time.sleep(0.05)

        handler = handle_async if kind == "async" else handle_sync
        app.handler(place.topic, consume_timeout=None, concurrency=4, retry=NONE)(handler)
        place.send(1, b"stuck", partition=0)
        place.send(count, partition=0)
        place.send(count, partition=1)
        worker = crowd.start(app, partition_span=span, drain_timeout="0s", shutdown_timeout="0s")
        most, _, _ = highest(crowd, worker, lambda: handled[1] == count)
        # A batch may overshoot: what one poll takes.
        assert most <= 2 * (span + 2500)
        crowd.until(
            lambda: worker.paused(place.topic) == [True, False], "the pause of its partition"
        )
        # The last of them may still be at work when it is paused; the stuck one is in the span.
        crowd.until(lambda: handled[0] >= span - 1, "its span is handled")
        assert handled[0] <= span + 2500
        assert worker.floor(place.topic) == 0
        stuck.set()


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_nothing_is_read_that_handlers_are_far_from(
    bootstrap_servers: str, kind: str, ordering: str
) -> None:
    """What they have to do is in memory, the rest waits in the client: no partition is paused."""
    with on_kafka(bootstrap_servers, 2) as crowd:
        place, count, slots = crowd.place, 20_000, 4
        app, handled = App(place.group), []
        gate = Gate()

        async def handle_async(delivery: Delivery) -> None:
            await gate.passed()
            handled.append((delivery.partition, delivery.offset))

        def handle_sync(delivery: Delivery) -> None:
            gate.wait()
            handled.append((delivery.partition, delivery.offset))

        handler = handle_async if kind == "async" else handle_sync
        given = {"ordering": ordering, "concurrency": slots, "retry": NONE, "consume_timeout": None}
        app.handler(place.topic, **given)(handler)
        for partition in range(2):
            place.send(count // 2, partition=partition)
        worker = crowd.start(app)
        flow, turns = worker.loop.engine.flow, 100
        try:
            crowd.until(lambda: flow.open_count >= ENOUGH, "enough to do")
            for _ in range(turns):
                crowd.turn()
            # A batch may overshoot, and each turn reads one with what it hears of the group.
            assert flow.open_count <= ENOUGH + BATCH + turns + slots
            assert worker.paused(place.topic) == [False, False]
        finally:
            gate.open()
        crowd.until(lambda: len(handled) == count, "all of them")
        assert len(set(handled)) == count
        crowd.until(lambda: flow.open_count == 0)


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_what_waits_behind_failed_records_is_held_in_part(
    bootstrap_servers: str, ordering: str
) -> None:
    """Every partition has read its part before its head fails; it is read again, in order."""
    partitions, each, limit = 12, 3_000, 4_000
    with on_kafka(bootstrap_servers, partitions) as crowd:
        place = crowd.place
        app = App(place.group)
        mended, tries = asyncio.Event(), [0] * partitions
        handled: list[list[int]] = [[] for _ in range(partitions)]

        @app.handler(
            place.topic,
            ordering=ordering,
            retry=RetryPolicy.fixed("1s", None),
            concurrency=64,
            breaker=CircuitBreaker(enabled=False),
        )
        async def handle(value: bytes, delivery: Delivery) -> None:
            if value == b"head" and not mended.is_set():
                tries[delivery.partition] += 1
                # What it may read meanwhile.
                await asyncio.sleep(0.3)
                raise ValueError("not yet")
            handled[delivery.partition].append(delivery.offset)

        for partition in range(partitions):
            place.send(1, b"head", partition=partition, key=b"k")
            place.send(each, partition=partition, key=b"k")
        worker = crowd.start(app, max_open=limit, partition_open=limit // 2)
        most, _, _ = highest(crowd, worker, lambda: min(tries) >= 3)
        assert most <= limit + 2 * BATCH
        assert any(a.rewound for a in worker.loop.engine.assignments.values())
        mended.set()
        crowd.until(lambda: sum(map(len, handled)) >= partitions * (each + 1), "all of them")
        assert handled == [list(range(each + 1))] * partitions
        crowd.until(lambda: worker.loop.engine.flow.open_count == 0)


def test_a_tier_of_many_waiting_records_is_held_in_part(bootstrap_servers: str) -> None:
    """6,000 wait in the tier, its buffer of them in memory; what is new does not wait."""
    with on_kafka(bootstrap_servers) as crowd:
        place, buffer, count = crowd.place, 300, 6_000
        app, handled = App(place.group), []

        @app.handler(place.topic, retry=RetryPolicy.fixed("1h", 1), concurrency=64)
        async def handle(value: bytes, delivery: Delivery) -> None:
            if value == b"fail":
                raise ValueError("always")
            handled.append(delivery.offset)

        place.send(count, b"fail")
        first = crowd.start(app, tier_buffer=buffer)
        tier = place.our("retry")
        crowd.until(lambda: place.committed() == count, "the parks")
        first.close()
        second = crowd.start(app, tier_buffer=buffer)
        crowd.until(lambda: second.paused(tier) == [True], "the pause of the tier")
        waiting = second.loop.engine.assignments[tier, 0]
        place.send(500)
        most, _, _ = highest(crowd, second, lambda: len(handled) == 500)
        # What one poll takes may come on top.
        assert len(waiting.waiting) <= buffer + 2000
        assert most <= buffer + 2000 + 500
        assert place.end(tier) >= count
