"""Settings that change while a worker runs: nothing is lost, and nothing is settled twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ackfloor import App, ConfigError, Delivery, RetryPolicy
from ackfloor.core.messages.events import DeliveryTimedOut
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.state.rule_changes import Reloaded
from ackfloor.testing import Harness
from tests.framework.runtime.live import KINDS, Gate, Live, live, register

LATER = RetryPolicy.fixed("1h", jitter=0)


def change(running: Live, *, limits: FlowLimits | None = None, **changes: object) -> None:
    """Change settings of the only handler, as the supervisor's word would."""
    rules = replace(running.worker._handlers[0].rules(), **changes)  # type: ignore[arg-type]
    running.loop.reload(Reloaded((rules,), limits or FlowLimits(), 0.02, 10_000))


# In the test kit, as users test their own settings.


def test_a_shorter_timeout_parks_what_is_overdue_at_once() -> None:
    """And what is not overdue at its new time; a longer one leaves it alone."""
    app = App(group="g")

    @app.handler("orders", consume_timeout="60s", retry=LATER)
    async def bill(order: bytes) -> None:
        await asyncio.sleep(1000)

    with Harness(app) as h:
        h.send("orders", b"old")
        h.advance("30s")
        h.send("orders", b"new")
        h.reload({"handlers": {"bill": {"consume_timeout": "20s"}}})
        assert [record.value for record in h.parked("orders")] == [b"old"]
        h.advance("19s")
        assert len(h.parked("orders")) == 1
        h.reload({"handlers": {"bill": {"consume_timeout": "50s"}}})
        h.advance("30s")
        assert len(h.parked("orders")) == 1
        h.advance("1s")
        assert [record.value for record in h.parked("orders")] == [b"old", b"new"]


def test_concurrency_down_to_one_and_up_again() -> None:
    """Those that run end by themselves; from then on one runs at a time, and then three."""
    app = App(group="g")
    running: Counter[str] = Counter()
    most: list[int] = []

    @app.handler("orders", concurrency=3)
    async def bill(order: bytes) -> None:
        running["now"] += 1
        most.append(running["now"])
        await asyncio.sleep(10)
        running["now"] -= 1

    with Harness(app) as h:
        for _ in range(12):
            h.send("orders", b"x")
        h.reload({"handlers": {"bill": {"concurrency": 1}}})
        assert running["now"] == 3
        h.advance("10s")
        assert running["now"] == 1
        h.advance("20s")
        assert most == [1, 2, 3, 1, 1, 1]
        h.reload({"handlers": {"bill": {"concurrency": 3}}})
        assert running["now"] == 3
        h.advance("30s")
        assert len(h.handled()) == 12
        assert max(most) == 3


def test_what_is_refused_changes_nothing() -> None:
    """A wrong unit beside a good value, an unknown key, a delay without a retry topic."""
    app = App(group="g")

    @app.handler("orders", consume_timeout="60s")
    async def bill(order: bytes) -> None:
        await asyncio.sleep(1000)

    refused = (
        ({"concurrency": 0}, "handlers.bill.concurrency"),
        ({"consume_timeout": "1s", "concurrency": "many"}, "handlers.bill.concurrency"),
        ({"consume_timeout": 5}, "handlers.bill.consume_timeout"),
        ({"consume_timout": "5s"}, "did you mean handlers.bill.consume_timeout"),
        ({"retry": {"initial_delay": "3s"}}, "handlers.bill.retry"),
    )
    with Harness(app) as h:
        h.send("orders", b"x")
        h.advance("30s")
        for settings, named in refused:
            with pytest.raises(ConfigError, match=named):
                h.reload({"handlers": {"bill": settings}})
        h.settle()
        assert h.parked("orders") == []
        h.reload({"handlers": {"bill": {"retry": {"max_redeliveries": 0}}}})
        h.advance("30s")
        assert [record.reason for record in h.dlq("orders")] == ["exhausted"]


@pytest.mark.parametrize(
    ("settings", "next_four"),
    [
        ((), ["late", "a4", "a5", "a6"]),
        (("off",), ["a4", "a5", "a6", "a7"]),
        (("off", "key"), ["late", "a4", "a5", "a6"]),
    ],
)
def test_fairness_is_switched_while_records_wait(
    settings: tuple[str, ...], next_four: list[str]
) -> None:
    """By the code's function, also after it was off, what comes late goes before a noisy group; not
    while it is off."""
    app = App(group="g")
    started: list[str] = []

    @app.handler("orders", concurrency=4, fairness=lambda d: (d.value or b"").decode()[:1])
    async def bill(order: str) -> None:
        started.append(order)
        await asyncio.sleep(0.5)

    with Harness(app) as h:
        for n in range(20):
            h.send("orders", f"a{n}")
        h.advance("100ms")
        for fairness in settings:
            h.reload({"handlers": {"bill": {"fairness": fairness}}})
            h.advance("100ms")
        h.send("orders", "late")
        h.advance(f"{400 - 100 * len(settings)}ms")
        assert started[4:8] == next_four
        h.advance("5s")
        assert sorted(started) == sorted([*(f"a{n}" for n in range(20)), "late"])


# With real threads, where they meet.


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_middle_of_a_revoke(kind: str) -> None:
    """What the revoke waits for is parked at its new deadline, and committed before it leaves."""
    app, gate = App(group="g"), Gate()

    def script(delivery: Delivery) -> Iterator[Gate]:
        yield gate

    register(app, kind, "orders", script, consume_timeout="60s", retry=LATER)
    with live(app, drain_s=30.0) as running:
        running.send("orders")
        running.until(lambda: gate.arrived == 1)

        def during_the_drain() -> None:
            if any(a.stopping for a in running.loop.engine.assignments.values()):
                running.loop.interlude = lambda: None
                change(running, consume_timeout_s=0.001)

        running.loop.interlude = during_the_drain
        running.broker.rebalance("g")
        running.until(lambda: len(running.parked("orders")) == 1, "the park")
        running.until(running.settled)
        committed = running.broker.committed("g", "orders", 0)
        assert committed is not None
        assert committed.position == 1
        assert gate.arrived == 1
        gate.open()


@pytest.mark.parametrize("kind", KINDS)
def test_timeouts_and_concurrency_change_while_handlers_answer(kind: str) -> None:
    """Each record ends once: handled or parked, never both and never neither."""
    app, chance = App(group="g"), random.Random(7)
    ended: Counter[int] = Counter()

    def script(delivery: Delivery) -> Iterator[Gate]:
        if delivery.offset % 10 == 0:
            gate = Gate()
            waiting.append(gate)
            yield gate
        ended[delivery.offset] += 1

    waiting: list[Gate] = []
    register(app, kind, "orders", script, concurrency=8, consume_timeout="60s", retry=LATER)
    with live(app) as running:
        running.send("orders", n=600)
        while not running.settled():
            change(
                running,
                consume_timeout_s=chance.choice((None, 0.001, 0.01, 60.0)),
                concurrency=chance.choice((1, 2, 8)),
                limits=FlowLimits(max_open=chance.choice((4, 100, 50_000))),
            )
            running.loop.turn(0.002)
            if waiting and chance.random() < 0.3:
                waiting.pop().open()
        timed_out = {event.offset for event in running.watcher.told(DeliveryTimedOut)}
        parked = [record.origin.offset for record in running.parked("orders")]
        assert sorted(parked) == sorted(timed_out)
        assert {*range(600)} - {*ended} <= timed_out
        assert max(ended.values()) == 1
        for gate in waiting:
            gate.open()


@pytest.mark.parametrize("kind", KINDS)
def test_it_changes_while_the_worker_drains(kind: str) -> None:
    """A handler that would keep the end waiting is ended by a shorter timeout."""
    app, gate = App(group="g"), Gate()

    def script(delivery: Delivery) -> Iterator[Gate]:
        yield gate

    register(app, kind, "orders", script, consume_timeout="60s", retry=LATER)
    with live(app, shutdown_s=30.0) as running:
        running.send("orders")
        running.until(lambda: gate.arrived == 1)
        running.loop.interlude = lambda: change(running, consume_timeout_s=0.001)
        assert running.close() == 0
        assert len(running.parked("orders")) == 1
        gate.open()
