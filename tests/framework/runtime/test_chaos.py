"""Everything at once: whatever handlers do and wherever partitions go, no record, slot or lane is
lost.

Each seed is another history; a failure names it.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ackfloor import App, DeadLetter, Delivery, Discard, Pause, Retry, RetryPolicy
from tests.framework.runtime.live import KINDS, Gate, live, within

TIMEOUT_S = 0.03
SLOTS = 6
RECORDS = 900
BATCH = 4


async def odd_async(choice: random.Random) -> None:
    """Something an async handler may do with its task and its time."""
    task = asyncio.current_task()
    assert task is not None
    what = choice.randrange(9)
    if what == 0:
        task.cancel()
    elif what == 1:
        task.cancel()
        await asyncio.sleep(0)
    elif what == 2:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.sleep(1)
    elif what == 3:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0.001))
    elif what == 4:
        await asyncio.sleep(TIMEOUT_S * choice.uniform(0.9, 1.1))
    elif what == 5:
        try:
            await asyncio.sleep(TIMEOUT_S * 2)
        finally:
            await asyncio.sleep(0.005)
    elif what == 6:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(TIMEOUT_S * 2)
        await asyncio.sleep(0.02)
    elif what == 7:
        asyncio.get_running_loop().call_later(0.002, task.cancel)
    else:
        raise asyncio.CancelledError


def odd_sync(choice: random.Random) -> None:
    """Something a plain handler may do with its time."""
    time.sleep(TIMEOUT_S * choice.choice([0.1, 0.97, 1.0, 1.03, 2.0]))


def fail(choice: random.Random) -> None:
    """Something either may raise."""
    raise choice.choice(
        [
            ValueError("x"),
            TimeoutError(),
            Retry(after="5ms"),
            DeadLetter("x"),
            Discard("x"),
            Pause("4ms"),
            BaseException("x"),
        ]
    )


def answer(delivery: Delivery, choice: random.Random) -> None:
    """An answer by hand, now or soon and from another thread."""
    ways: list[Callable[[], bool]] = [
        delivery.ack,
        lambda: delivery.discard("x"),
        lambda: delivery.retry(after="5ms"),
        lambda: delivery.dead_letter("x"),
        lambda: delivery.extend("5ms") and delivery.ack(),
    ]
    way = choice.choice(ways)
    if choice.random() < 0.5:
        way()
    elif choice.random() < 0.9:
        threading.Timer(TIMEOUT_S * choice.uniform(0, 1.1), way).start()


class Chaos:
    """One history: what each delivery of each record does, by the seed.

    Attributes:
        calm: from now on every handler waits at `gate` and then ends well.
    """

    def __init__(self, seed: int, manual: bool) -> None:
        self.calm = threading.Event()
        self.gate = Gate()
        self._seed = seed
        self._manual = manual
        self._starts: Counter[tuple[str, int, int]] = Counter()

    def _choose(self, delivery: Delivery) -> random.Random:
        """Different each time, so that nobody asks for a pause for ever."""
        place = (delivery.topic, delivery.partition, delivery.offset)
        self._starts[place] += 1
        choice = random.Random(f"{self._seed} {place} {self._starts[place]}")
        if self._manual:
            answer(delivery, choice)
        return choice

    def answer_some(self, deliveries: list[Delivery]) -> None:
        """Answer items of a batch by hand, now or soon and from another thread."""
        if self.calm.is_set():
            return
        for delivery in deliveries:
            choice = self._choose(delivery)
            if choice.random() < 0.3:
                answer(delivery, choice)

    def _wait(self, delivery: Delivery) -> None:
        delivery.extend("1m")

    def _end(self, delivery: Delivery) -> None:
        if self._manual:
            delivery.ack()

    async def handle_async(self, delivery: Delivery) -> None:
        """The async handler."""
        if self.calm.is_set():
            self._wait(delivery)
            await self.gate.passed()
            self._end(delivery)
            return
        choice = self._choose(delivery)
        if choice.random() < 0.3:
            await odd_async(choice)
        if choice.random() < 0.2:
            fail(choice)

    def handle_sync(self, delivery: Delivery) -> None:
        """The plain handler."""
        if self.calm.is_set():
            self._wait(delivery)
            self.gate.wait()
            self._end(delivery)
            return
        choice = self._choose(delivery)
        if choice.random() < 0.2:
            odd_sync(choice)
        if choice.random() < 0.2:
            fail(choice)


def app_of(chaos: Chaos, kind: str, ordering: str, ack: str) -> App:
    """One handler that does anything."""

    async def handle_async(delivery: Delivery) -> None:
        await chaos.handle_async(delivery)

    def handle_sync(delivery: Delivery) -> None:
        chaos.handle_sync(delivery)

    handle = handle_async if kind == "async" else handle_sync
    return registered(handle, ack=ack, ordering=ordering, on_failure="park")


def batch_app_of(chaos: Chaos, kind: str, ordering: str, on_failure: str) -> App:
    """One handler that takes batches, answers some of their items, and does anything."""

    async def handle_async(deliveries: list[Delivery]) -> None:
        chaos.answer_some(deliveries)
        await chaos.handle_async(deliveries[0])

    def handle_sync(deliveries: list[Delivery]) -> None:
        chaos.answer_some(deliveries)
        chaos.handle_sync(deliveries[0])

    handle = handle_async if kind == "async" else handle_sync
    options = {"batch": BATCH, "batch_wait": "5ms"}
    return registered(handle, ordering=ordering, on_failure=on_failure, **options)


def registered(handle: Callable[..., Any], **options: Any) -> App:
    """An app of one handler that is given little time and few attempts."""
    app = App("g")
    retry = RetryPolicy.fixed("10ms", 2)
    app.handler(
        "orders", name="handle", concurrency=SLOTS, consume_timeout="30ms", retry=retry, **options
    )(handle)
    return app


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ack", ["auto", "manual"])
@pytest.mark.parametrize("ordering", ["unordered", "key"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost(kind: str, ordering: str, ack: str, seed: int) -> None:
    """Every record ends, limits are at zero, all slots work, and none but them."""
    chaos = Chaos(seed, ack == "manual")
    live_through(app_of(chaos, kind, ordering, ack), chaos, seed)


@pytest.mark.parametrize(
    ("ordering", "on_failure"),
    [("unordered", "park"), ("key", "park"), ("key", "block"), ("partition", "block")],
)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_in_batches(kind: str, ordering: str, on_failure: str) -> None:
    """The same with batches, items of which are answered by hand."""
    chaos = Chaos(7, manual=False)
    app = batch_app_of(chaos, kind, ordering, on_failure)
    # A failure holds its whole partition: as many records would take minutes.
    live_through(app, chaos, 7, records=RECORDS if on_failure == "park" else RECORDS // 9)


def live_through(app: App, chaos: Chaos, seed: int, records: int = RECORDS) -> None:
    """Send records while partitions come and go; then look at what is left."""
    noise = random.Random(seed)
    with live(app, partitions=2, drain_s=0.02, cancel_grace_s=0.01, max_open=200) as worker:
        for number in range(records):
            worker.send("orders", b"x", key=b"k%d" % noise.randrange(12))
            if number % 150 == 0:
                worker.turn_for(0.02)
                worker.broker.rebalance()
        engine = worker.loop.engine
        worker.until(worker.settled, "the end of every record")
        worker.until(lambda: engine.flow.open_count == 0, "the end of every retry")
        assert engine.flow.open_bytes == 0
        within(lambda: worker.executor().abandoned() == 0)
        # A pause that was asked for last may still be on.
        worker.until(lambda: not engine.state.handlers["handle"].held_until_s)
        chaos.calm.set()
        expected = SLOTS if engine.state.handlers["handle"].rules.ordering != "partition" else 2
        for number in range(3 * SLOTS * BATCH):
            worker.send("orders", b"x", key=b"calm%d" % number)
        worker.until(lambda: chaos.gate.arrived >= expected, "every slot at work")
        assert chaos.gate.arrived == expected
        chaos.gate.open()
        worker.until(worker.settled)
        assert worker.close() == 0
