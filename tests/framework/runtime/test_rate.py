"""A rate for the group: as a user of the test kit sees it, and with real threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ackfloor import App, Delivery, Pause, RetryPolicy
from ackfloor.runtime.loop.loop import ENOUGH
from ackfloor.testing import Harness
from tests.framework.runtime.live import KINDS_AND_ACKS, Gate, live, register

FAILED = RuntimeError("no")


class Times:
    """Seconds from the beginning of a test to each start."""

    def __init__(self) -> None:
        self.h: Harness | None = None
        self.starts_s: list[float] = []
        self.began_s = 0.0

    def begin(self, h: Harness) -> None:
        """The test begins."""
        self.h, self.began_s = h, h.now.timestamp()

    def note(self) -> None:
        """A handler starts."""
        assert self.h is not None
        self.starts_s.append(self.h.now.timestamp() - self.began_s)

    def most(self, seconds: float) -> int:
        """The most that was started in any stretch of so many seconds."""
        starts = self.starts_s
        return max(sum(s <= each < s + seconds for each in starts) for s in starts)


def app_of(times: Times, act: Callable[[Delivery], Any] = lambda _: None, **options: Any) -> App:
    """An app whose handler notes its starts."""
    app = App(group="g")

    @app.handler("orders", **{"retry": RetryPolicy.fixed("1s", 6, jitter=0), **options})
    async def bill(_order: bytes, delivery: Delivery) -> None:
        times.note()
        act(delivery)

    return app


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_no_more_is_started_than_the_rate_and_no_less(ordering: str) -> None:
    """A backlog of a minute takes a minute, under any order."""
    times = Times()
    with Harness(app_of(times, rate="10/s", ordering=ordering), partitions=4) as h:
        times.begin(h)
        for n in range(200):
            h.send("orders", b"x", key=b"%d" % (n % 7))
        h.advance("30s")
    assert len(times.starts_s) == 200
    assert times.most(10.0) <= 105
    assert times.starts_s[-1] == pytest.approx(20.0, abs=1.0)


def test_redeliveries_count() -> None:
    """What fails takes as much as what does not."""

    def fail(delivery: Delivery) -> None:
        if delivery.attempt < 3:
            raise FAILED

    times = Times()
    with Harness(app_of(times, fail, rate="10/s", breaker=None)) as h:
        times.begin(h)
        for _ in range(60):
            h.send("orders", b"x")
        h.advance("30s")
        assert len(h.handled()) == 60
    assert len(times.starts_s) == 180
    assert times.most(10.0) <= 105


def test_retries_in_place_count() -> None:
    """Those of blocked lanes too."""

    def fail(delivery: Delivery) -> None:
        if delivery.attempt < 3:
            raise FAILED

    times = Times()
    app = app_of(times, fail, rate="10/s", breaker=None, ordering="key", on_failure="block")
    with Harness(app) as h:
        times.begin(h)
        for n in range(60):
            h.send("orders", b"x", key=b"%d" % n)
        h.advance("30s")
        assert len(h.handled()) == 60
    assert len(times.starts_s) == 180
    assert times.most(10.0) <= 105


def test_a_record_that_can_be_handled_takes_turns_with_those_that_fail() -> None:
    """It waits for no more of those that fail again and again than go before it in its topic."""
    times = Times()
    handled: list[float] = []

    def act(delivery: Delivery) -> None:
        if delivery.value == b"bad":
            raise FAILED
        handled.append(times.starts_s[-1])

    with Harness(app_of(times, act, rate="10/s", breaker=None)) as h:
        times.begin(h)
        for _ in range(40):
            h.send("orders", b"bad")
        h.advance("10s")
        assert len(h.parked("orders")) > 20
        for _ in range(10):
            h.send("orders", b"good")
        h.advance("3s")
    assert len(handled) == 10


def test_a_batch_counts_its_records() -> None:
    """Ten a second are two batches of five."""
    app, times = App(group="g"), Times()

    @app.handler("orders", batch=5, batch_wait="0s", rate="10/s")
    async def bill(orders: list[bytes]) -> None:
        for _ in orders:
            times.note()

    with Harness(app) as h:
        times.begin(h)
        for _ in range(100):
            h.send("orders", b"x")
        h.advance("20s")
    assert len(times.starts_s) == 100
    assert times.most(10.0) <= 105 + 5


def test_a_pause_of_the_handler_has_taken_its_token() -> None:
    """A handler that asks for one has run."""
    left = [5]

    def act(_delivery: Delivery) -> None:
        if left[0]:
            left[0] -= 1
            raise Pause("100ms")

    times = Times()
    with Harness(app_of(times, act, rate="2/s")) as h:
        times.begin(h)
        for _ in range(10):
            h.send("orders", b"x")
        h.advance("15s")
        assert len(h.handled()) == 10
    assert times.most(5.0) <= 11 + 1


def test_a_slow_handler_saves_nothing_up() -> None:
    """When its slots come free, no more starts than the rate."""
    times = Times()
    app = App(group="g")

    @app.handler("orders", concurrency=20, rate="10/s")
    async def bill(_order: bytes) -> None:
        times.note()
        await asyncio.sleep(10)

    with Harness(app) as h:
        times.begin(h)
        for _ in range(80):
            h.send("orders", b"x")
        h.advance("60s")
    assert len(times.starts_s) == 80
    assert times.most(10.0) <= 105


def test_it_is_changed_while_records_wait() -> None:
    """Slower, faster, none, and again."""
    times = Times()
    with Harness(app_of(times, rate="10/s")) as h:
        times.begin(h)
        for _ in range(400):
            h.send("orders", b"x")
        h.advance("5s")
        counts = [len(times.starts_s)]
        for rate in ("2/s", "20/s", "none"):
            h.reload({"handlers": {"bill": {"rate": rate}}})
            h.advance("5s")
            counts.append(len(times.starts_s) - sum(counts))
    assert counts[0] == pytest.approx(50, abs=2)
    assert counts[1] == pytest.approx(10, abs=2)
    assert counts[2] == pytest.approx(100, abs=3)
    assert sum(counts) == 400


def test_one_is_set_while_the_executor_is_full() -> None:
    """What it was given without a token is given back, also of a lane at work."""
    times = Times()
    app = App(group="g")

    @app.handler("orders", concurrency=2, ordering="partition")
    async def bill(_order: bytes) -> None:
        times.note()
        await asyncio.sleep(0.01)

    with Harness(app) as h:
        times.begin(h)
        for _ in range(400):
            h.send("orders", b"x")
        h.advance("1s")
        before = len(times.starts_s)
        assert before > 50
        h.reload({"handlers": {"bill": {"rate": "5/s"}}})
        h.advance("10s")
        assert len(times.starts_s) - before == pytest.approx(50, abs=3)
        h.reload({"handlers": {"bill": {"rate": "none"}}})
        h.advance("10s")
    assert len(times.starts_s) == 400


def test_after_a_rebalance_nothing_was_saved_up() -> None:
    """The partitions come back, and with them the rate."""
    times = Times()
    with Harness(app_of(times, rate="10/s"), partitions=2) as h:
        times.begin(h)
        h.advance("10s")
        for n in range(100):
            h.send("orders", b"x", partition=n % 2)
            if n % 10 == 0:
                h.rebalance()
        h.advance("20s")
    assert len(times.starts_s) == 100
    assert times.most(5.0) <= 53 + 1


# With real threads.


@pytest.mark.parametrize(("kind", "ack"), KINDS_AND_ACKS)
@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_every_kind_of_handler_keeps_to_it(kind: str, ack: str, ordering: str) -> None:
    """However late an executor tells that something has begun, what it was given counts."""
    app = App(group="g")
    starts_s: list[float] = []

    def script(delivery: Delivery) -> Iterator[Gate]:
        starts_s.append(time.monotonic())
        yield from ()
        if ack == "manual":
            delivery.ack()

    options = {"ordering": ordering, "on_failure": "park", "ack": ack, "rate": "40/s"}
    register(app, kind, "orders", script, concurrency=3, **options)
    with live(app) as worker:
        worker.send("orders", key=b"k", n=60)
        worker.until(lambda: len(starts_s) == 60)
        worker.until(worker.settled)
    # Of a second and a half's records no more than the bucket holds came together.
    assert starts_s[-1] - starts_s[0] >= (60 - 13 - 1) / 40 - 0.1


def test_a_worker_that_waits_for_its_rate_does_not_spin() -> None:
    """Nor where so much waits that nothing more is to be read."""
    app = App(group="g")

    @app.handler("orders", rate="60/m")
    def bill(_order: bytes) -> None:
        """Does nothing."""

    with live(app) as worker:
        queue = worker.loop.engine.state.handlers["bill"].queue
        worker.send("orders", n=ENOUGH + 500)
        worker.until(lambda: len(queue) >= ENOUGH + 400)
        until_s, turns = time.monotonic() + 2.0, 0
        while time.monotonic() < until_s:
            worker.loop.turn()
            turns += 1
    assert turns <= 2 * 100
