"""Batch handlers in the harness: they wait for company in manual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from ackfloor import App, ConfigError, Delivery, RetryPolicy
from ackfloor.testing import Harness


class Order(BaseModel):
    """What the handlers here take."""

    id: int


@dataclass
class Database:
    """What the lifespan yields."""

    rows: list[int]


def test_a_batch_is_called_when_its_time_has_come_or_when_it_is_full() -> None:
    """Nothing but the manual clock moves."""
    app, calls = App("shop"), []

    @app.handler("orders", batch=3, batch_wait="200ms")
    async def store(orders: list[Order]) -> None:
        calls.append([order.id for order in orders])

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        h.advance("199ms")
        h.send("orders", Order(id=2))
        assert calls == []
        h.advance("1ms")
        assert calls == [[1, 2]]
        for number in range(3, 6):
            h.send("orders", Order(id=number))
        assert calls == [[1, 2], [3, 4, 5]]
        assert len(h.handled("orders")) == 5
        assert h.errors == []


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_a_poison_record_takes_nobody_down(ordering: str) -> None:
    """Each is tried alone at once, and only the bad one is retried."""
    app = App("shop")
    calls: list[list[int]] = []
    attempts: list[int] = []

    @app.handler("orders", batch=3, ordering=ordering, retry=RetryPolicy.fixed("1s", 2))
    def store(orders: list[Order], deliveries: list[Delivery]) -> None:
        calls.append([order.id for order in orders])
        assert len(orders) == len(deliveries)
        if any(order.id == 2 for order in orders):
            attempts.extend(d.attempt for d in deliveries)
            raise ValueError("bad row")

    with Harness(app) as h:
        for number in range(1, 4):
            h.send("orders", Order(id=number), key="k")
        # Where a lane waits for the bad one, what is behind it does as well.
        assert len(h.handled("orders")) == (2 if ordering == "unordered" else 1)
        h.advance("1m")
        assert [record.json() for record in h.dlq("orders")] == [{"id": 2}]
        assert len(h.handled("orders")) == 2
    assert calls[0] == [1, 2, 3]
    assert sorted(calls[1:]) == [[1], [2], [2], [2], [3]]
    assert attempts == [1, 1, 1, 1, 2, 3]


def test_state_and_deadline_and_answers_by_hand() -> None:
    """What was answered before the deadline stays answered; the rest is parked at it."""

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[Database]:
        yield Database([])

    app = App("shop", lifespan=lifespan)
    seen: list[Database] = []

    @app.handler("orders", batch=3, consume_timeout="5s", retry=RetryPolicy.fixed("1m", 1))
    async def store(orders: list[Order], database: Database, ds: list[Delivery]) -> None:
        seen.append(database)
        assert ds[0].ack()
        assert ds[1].discard("old")
        await asyncio.sleep(60)

    with Harness(app) as h:
        for number in range(3):
            h.send("orders", Order(id=number))
        h.advance("4s")
        assert h.parked("orders") == []
        h.advance("1s")
        assert [(p.reason, p.json()["id"]) for p in h.parked("orders")] == [("timeout", 2)]
    assert isinstance(seen[0], Database)


def test_a_thread_waits_in_manual_time_too() -> None:
    """No real time passes while a batch waits for an hour."""
    app, calls = App("shop"), []

    @app.handler("orders", batch=100, batch_wait="1h")
    def store(orders: list[bytes]) -> None:
        calls.append(len(orders))

    started_s = time.monotonic()
    with Harness(app) as h:
        h.send("orders", b"x")
        h.advance("59m")
        assert calls == []
        h.advance("1m")
    assert calls == [1]
    assert time.monotonic() - started_s < 60


def test_a_batch_that_limits_can_never_fill_is_refused() -> None:
    """At the start, with the limit at fault."""
    app = App("shop")

    @app.handler("orders", batch=100)
    def store(orders: list[bytes]) -> None: ...

    with pytest.raises(ConfigError, match=r"more than app\.partition_open=50 ever holds"):
        Harness(app, settings={"app": {"partition_open": 50}})


def test_the_size_may_change_while_it_runs() -> None:
    """By the next batch."""
    app, calls = App("shop"), []

    @app.handler("orders", batch=2, batch_wait="1m")
    async def store(orders: list[bytes]) -> None:
        calls.append(len(orders))

    with Harness(app) as h:
        for _ in range(3):
            h.send("orders", b"x")
        assert calls == [2]
        h.reload({"handlers": {"store": {"batch": 4, "batch_wait": "10s"}}})
        h.advance("10s")
        assert calls == [2, 1]
        for _ in range(4):
            h.send("orders", b"x")
        assert calls == [2, 1, 4]
