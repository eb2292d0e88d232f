"""Harness: an app in a test, without a broker and without waiting."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from ackfloor import (
    App,
    ConfigError,
    DeadLetter,
    Delivery,
    Discard,
    Pause,
    Retry,
    RetryPolicy,
    current_delivery,
)
from ackfloor.core.records.envelope import Envelope, Reason, write_headers
from ackfloor.observe import Event, Snapshot
from ackfloor.testing import Harness, Trouble, Unsettled
from ackfloor.testing.kit import driver
from ackfloor.testing.kit.observations import parked
from tests.compatibility.cases import FOLLOWER, HELD
from tests.framework.runtime.live import within
from tests.framework.stored import Stored


class Order(BaseModel):
    """What the handlers here take."""

    id: int


SHORT = RetryPolicy("1s", 5, "25s", 2)
ONCE = RetryPolicy("1s", max_redeliveries=0)


@contextmanager
def quick(bound_s: float = 60.0) -> Iterator[None]:
    """What is inside needs no more real time than this, however long it says it takes."""
    start_s = time.monotonic()
    yield
    assert time.monotonic() - start_s < bound_s


# Handling.


def test_what_is_sent_is_handled_before_send_returns() -> None:
    """A model, a dict, text, bytes and a tombstone are written as they would be in production."""
    app, seen = App(group="g"), []

    @app.handler("orders")
    async def take(value: bytes | None) -> None:
        seen.append(value)

    with Harness(app) as h:
        for value in (Order(id=1), {"id": 2}, "text", b"raw", None):
            h.send("orders", value)
        assert seen == [b'{"id":1}', b'{"id":2}', b"text", b"raw", None]
        assert [record.offset for record in h.handled("orders")] == [0, 1, 2, 3, 4]
        assert h.handled("orders")[1].json() == {"id": 2}
        assert h.handled("orders")[4].json() is None
        assert h.errors == []


def test_keys_headers_and_partitions_reach_the_handler() -> None:
    """Names may repeat, values may be anything, and the origin is what send returned."""
    app, seen = App(group="g"), []

    @app.handler("orders")
    def take(delivery: Delivery) -> None:
        seen.append((delivery.key, list(delivery.headers), delivery.origin))

    with Harness(app, partitions={"orders": 3}) as h:
        first = h.send("orders", b"", key="ada", headers={"a": "1", "b": None}, partition=2)
        second = h.send("orders", b"", key=b"\xff", headers=[("a", b"\xff"), ("a", "2")])
        assert seen == [
            (b"ada", [("a", b"1"), ("b", None)], first),
            (b"\xff", [("a", b"\xff"), ("a", b"2")], second),
        ]
        assert first == ("orders", 2, 0)
        assert h.handled()[0].headers == (("a", b"1"), ("b", None))


def test_both_kinds_of_handlers_in_one_app() -> None:
    """`async def` and `def` handlers run side by side; all of many records are waited for."""
    app, threads = App(group="g"), set()

    @app.handler("slow", concurrency=4)
    def slow(order: Order) -> None:
        time.sleep(0.001)
        threads.add(threading.get_ident())

    @app.handler("quick")
    async def quick_(order: Order) -> None:
        assert current_delivery() is not None

    with Harness(app) as h:
        for n in range(40):
            h.send("slow", Order(id=n), settle=False)
            h.send("quick", Order(id=n), settle=False)
        h.settle()
        assert len(h.handled("slow")) == len(h.handled("quick")) == 40
        assert len(h.handled()) == 80
    assert 1 < len(threads) <= 4


def test_lanes_keep_order() -> None:
    """With ordering by key one record of a key runs at a time, in order; keys run side by side."""
    app, log = App(group="g"), []

    @app.handler("orders", ordering="key", on_failure="park")
    async def take(order: Order, delivery: Delivery) -> None:
        log.append((delivery.key, order.id))
        await asyncio.sleep(1)

    with Harness(app) as h:
        for n in range(2):
            for key in ("ada", "bob"):
                h.send("orders", Order(id=n), key=key)
        assert log == [(b"ada", 0), (b"bob", 0)]
        h.advance("1s")
        assert log[2:] == [(b"ada", 1), (b"bob", 1)]


# Failures.


def test_an_error_walks_through_the_tiers_into_the_dlq() -> None:
    """Each wait is exactly the schedule's, and the dead letter says why it is one."""
    app, attempts = App(group="g"), []

    @app.handler("orders", retry=SHORT)
    async def fail(order: Order, delivery: Delivery) -> None:
        attempts.append((delivery.attempt, delivery.topic, h.now))
        raise ValueError(f"no {order.id}")

    with Harness(app) as h:
        start = h.now
        origin = h.send("orders", Order(id=7), key="k", headers={"own": "1"})
        (waiting,) = h.parked("orders")
        assert (waiting.tier, waiting.due, waiting.attempt) == (
            "1s",
            start + timedelta(seconds=1),
            1,
        )
        assert (waiting.reason, waiting.error_type, waiting.error_message) == (
            "error", "ValueError", "no 7",
        )  # fmt: skip
        assert (waiting.key, waiting.value, waiting.headers) == (
            b"k", b'{"id":7}', (("own", b"1"),),
        )  # fmt: skip
        assert waiting.origin == origin
        assert "raise ValueError" in waiting.error_stack
        h.advance("999ms")
        assert len(attempts) == 1
        h.advance("1ms")
        assert [p.tier for p in h.parked("orders")] == ["5s"]
        h.advance("5s")
        assert h.parked("orders") == []
        assert attempts == [
            (1, "orders", start),
            (2, "orders--g--retry-1s", start + timedelta(seconds=1)),
            (3, "orders--g--retry-5s", start + timedelta(seconds=6)),
        ]
        (letter,) = h.dlq("orders")
        assert (letter.reason, letter.attempt, letter.tier, letter.due) == (
            "exhausted", 3, None, None,
        )  # fmt: skip
        assert letter.handler == "fail"
        assert [trouble.where for trouble in h.errors] == [
            f"orders/0/0 attempt {n} (fail)" for n in (1, 2, 3)
        ]
        assert h.errors[0].error == "ValueError: no 7"
        assert h.handled() == []
        assert h.floor("orders") == 1


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_stuck_handler_is_parked_at_its_deadline(kind: str) -> None:
    """An async handler and a thread that never return are timed out by manual time alone."""
    app = App(group="g")
    let_go = threading.Event()

    async def hang(order: Order) -> None:
        await asyncio.Event().wait()

    def block(order: Order) -> None:
        let_go.wait()

    app.handler("orders", consume_timeout="2s", retry=SHORT)(hang if kind == "async" else block)
    with quick(), Harness(app, stuck_after="50ms") as h:
        h.send("orders", Order(id=1))
        h.advance("1999ms")
        assert h.parked("orders") == []
        h.advance("1ms")
        (waiting,) = h.parked("orders")
        assert (waiting.reason, waiting.error_type) == ("timeout", "ConsumeTimeout")
        assert h.errors[0].error == "ConsumeTimeout: no answer within 2 s"
        assert h.floor("orders") == 1
        let_go.set()

        def late() -> int:
            h.settle()
            return sum("ignored" in trouble.error for trouble in h.errors)

        # The thread needs real time to end, which a thread that was left behind is not given.
        within(lambda: kind == "async" or late())
        assert late() == (1 if kind == "thread" else 0)


def test_a_machine_that_stands_still_makes_no_handler_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time in which nobody ran does not count as time that a handler did not use."""
    app, go = App(group="g"), threading.Event()
    stood_still_s: list[float] = []

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        stood_still_s.append(0.0 if stood_still_s else 5.0)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(stood_still_s), sleep=sleep)
    monkeypatch.setattr(driver, "time", clock)

    @app.handler("orders")
    def slow(order: Order) -> None:
        threading.Timer(0.05, go.set).start()
        go.wait()

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert len(h.handled()) == 1
    assert len(stood_still_s) > 1


def test_a_sleep_in_a_handler_is_manual_time() -> None:
    """A handler that sleeps a minute is done when a minute was advanced, in no real time."""
    app = App(group="g")

    @app.handler("orders", consume_timeout="2m")
    async def sleepy(order: Order) -> None:
        await asyncio.sleep(60)

    with quick(), Harness(app) as h:
        h.send("orders", Order(id=1))
        h.advance("59s")
        assert h.handled() == []
        h.advance("1s")
        assert len(h.handled()) == 1


def test_a_deadline_beats_an_answer_of_the_same_moment() -> None:
    """A handler that would answer exactly at its deadline is timed out, every time."""
    for _ in range(5):
        app = App(group="g")

        @app.handler("orders", consume_timeout="30s", retry=ONCE)
        async def sleepy(order: Order) -> None:
            await asyncio.sleep(30)

        with Harness(app) as h:
            h.send("orders", Order(id=1))
            h.advance("1h")
            assert [letter.error_type for letter in h.dlq("orders")] == ["ConsumeTimeout"]
            assert h.handled() == []


def test_outcomes_are_no_errors() -> None:
    """Retry, DeadLetter, Discard and Pause end a delivery and are not in `errors`."""
    app = App(group="g")
    raised: list[Exception] = [
        Retry(after="10s", reason="later"),
        DeadLetter("hopeless"),
        Discard("unwanted"),
        Pause("30s", "away"),
    ]

    @app.handler("orders", retry=SHORT)
    async def take(order: Order) -> None:
        if raised:
            raise raised.pop(0)

    with Harness(app) as h:
        start = h.now
        for n in range(4):
            h.send("orders", Order(id=n))
        (waiting,) = h.parked("orders")
        assert (waiting.reason, waiting.error_message) == ("retry", "later")
        assert waiting.due == start + timedelta(seconds=10)
        assert [letter.reason for letter in h.dlq("orders")] == ["dead_letter"]
        assert [record.json() for record in h.discarded("orders")] == [{"id": 2}]
        assert h.handled() == []
        h.advance("29s")
        assert h.handled() == []
        h.advance("1s")
        assert {record.json()["id"] for record in h.handled()} == {0, 3}
        assert h.errors == []


def test_an_undecodable_record_is_a_dead_letter() -> None:
    """Its bytes are untouched, and the error says that it was the decoding."""
    app = App(group="g")

    @app.handler("orders")
    async def take(order: Order) -> None:
        """Nothing."""

    with Harness(app) as h:
        h.send("orders", b"\x00not json")
        (letter,) = h.dlq("orders")
        assert (letter.reason, letter.value) == ("decode", b"\x00not json")
        assert len(h.errors) == 1


def test_manual_answers_from_anywhere_and_too_late() -> None:
    """An answer ends the delivery; one after the deadline is False and is told as an error."""
    app, held = App(group="g"), []

    @app.handler("orders", ack="manual", consume_timeout="10s", retry=ONCE)
    async def keep(order: Order, delivery: Delivery) -> None:
        held.append(delivery)

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        h.send("orders", Order(id=2))
        assert h.handled() == []
        assert held[0].ack()
        h.settle()
        assert len(h.handled()) == 1
        h.advance("10s")
        assert [letter.json() for letter in h.dlq("orders")] == [{"id": 2}]
        assert not held[1].ack()
        h.settle()
        assert h.errors[-1] == Trouble("orders (keep)", "a late answer; ignored")


def test_an_error_after_the_answer_is_told() -> None:
    """It changes nothing for the record, and a test can see it."""
    app = App(group="g")

    @app.handler("orders", ack="manual", consume_timeout="10s")
    async def answer_and_fail(order: Order, delivery: Delivery) -> None:
        delivery.ack()
        raise RuntimeError("afterwards")

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert len(h.handled()) == 1
        assert [trouble.error for trouble in h.errors] == ["RuntimeError: afterwards"]


def test_an_exit_is_an_error_of_its_record() -> None:
    """As under `ackfloor run`: it is parked, and the worker goes on."""
    app = App(group="g")

    @app.handler("orders")
    async def leave(order: Order) -> None:
        raise SystemExit(3)

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert h.errors == [Trouble("orders/0/0 attempt 1 (leave)", "SystemExit: 3")]
        (parked,) = h.parked("orders")
        assert parked.error_type == "SystemExit"


def test_an_exit_in_a_background_task_is_told() -> None:
    """It belongs to no record: a test that does not expect it sees it."""
    app = App(group="g")

    @app.handler("orders")
    async def leave(order: Order) -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(0)

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert h.errors == [Trouble("event loop", "SystemExit: 3")]
        assert len(h.handled()) == 1


# What surrounds a handler.


@dataclass
class Database:
    """What a lifespan yields."""

    rows: list[int]
    open: bool = True


def test_lifespan_middleware_and_publish_run() -> None:
    """The lifespan is entered and left, middleware wraps the call, publish reaches a topic."""
    opened: list[Database] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[Database]:
        database = Database([])
        opened.append(database)
        await asyncio.sleep(0)
        yield database
        await asyncio.sleep(30)
        database.open = False

    async def around(delivery: Delivery, call_next: Any) -> None:
        log.append("before")
        await call_next()
        log.append("after")

    log: list[str] = []
    app = App(group="g", lifespan=lifespan, middleware=[around])

    @app.handler("orders")
    async def take(order: Order, database: Database) -> None:
        database.rows.append(order.id)
        await app.publish("invoices", order, key="k", headers=[("h", b"1")])

    with Harness(app) as h:
        h.send("orders", Order(id=3))
        assert opened[0].rows == [3]
        assert log == ["before", "after"]
        (invoice,) = h.published("invoices")
        assert (invoice.json(), invoice.key, invoice.headers) == ({"id": 3}, b"k", (("h", b"1"),))
        assert opened[0].open
    assert not opened[0].open
    with pytest.raises(RuntimeError, match="needs a running worker"):
        app.publish_sync("invoices", b"")


def test_a_lifespan_that_fails_is_raised_and_leaves_nothing_behind() -> None:
    """The error of the start comes out of `with`, and no thread is left."""

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        await asyncio.sleep(5)
        raise OSError("no database")
        yield

    app = App(group="g", lifespan=lifespan)
    app.handler("orders")(_nothing)
    before = threading.active_count()
    with pytest.raises(OSError, match="no database"), Harness(app):
        pytest.fail("never entered")
    assert threading.active_count() == before


async def _nothing(order: Order) -> None:
    """Take it."""


def test_a_lifespan_that_never_starts_is_an_error() -> None:
    """What waits for something else than time is given up and named."""

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    app = App(group="g", lifespan=lifespan)
    app.handler("orders")(_nothing)
    with pytest.raises(Unsettled, match="did not end"), Harness(app, give_up_after="50ms"):
        pytest.fail("never entered")


def test_a_handler_that_swallows_its_cancellation_is_left_behind() -> None:
    """It is abandoned after the grace, in manual time, and does not hold up the end."""
    app = App(group="g", cancel_grace="5s")

    @app.handler("orders", concurrency=1, consume_timeout="2s", retry=ONCE)
    async def stubborn(order: Order) -> None:
        while order.id:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                order.id -= 1

    with quick(), Harness(app) as h:
        h.send("orders", Order(id=2))
        h.send("orders", Order(id=0))
        h.advance("2s")
        assert len(h.dlq("orders")) == 1
        assert h.handled() == []
        h.advance("5s")
        assert len(h.handled()) == 1


def test_a_handler_that_ignores_every_cancellation_does_not_hold_up_the_end() -> None:
    """It is left behind with the event loop that it runs on, and nothing is waited for."""
    app, enough = App(group="g", cancel_grace="1s"), threading.Event()

    @app.handler("orders", consume_timeout="2s", retry=ONCE)
    async def deaf(order: Order) -> None:
        while not enough.is_set():
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    with quick(), Harness(app) as h:
        h.send("orders", Order(id=1))
        h.advance("10s")
        assert len(h.dlq("orders")) == 1
        app_clock = h.clock
    enough.set()
    assert app_clock.monotonic() >= 1010


def test_background_tasks_are_cancelled_at_the_end() -> None:
    """What a lifespan leaves running ends with the harness."""
    tasks: list[asyncio.Task[None]] = []

    async def poll() -> None:
        while True:  # noqa: ASYNC110 -- as they do
            await asyncio.sleep(1)

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        tasks.append(asyncio.create_task(poll()))
        yield

    app = App(group="g", lifespan=lifespan)
    app.handler("orders")(_nothing)
    with Harness(app) as h:
        h.advance("1m")
        h.send("orders", Order(id=1))
        assert h.errors == []
    assert tasks[0].cancelled()


def test_a_timeout_of_the_lifespans_own_is_raised() -> None:
    """It is not taken for the harness's own patience."""

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        raise TimeoutError("database")
        yield

    app = App(group="g", lifespan=lifespan)
    app.handler("orders")(_nothing)
    with pytest.raises(TimeoutError, match="database"), Harness(app):
        pytest.fail("never entered")


class BadObserver:
    """Raises whatever it is told."""

    def observe(self, events: Sequence[Event]) -> None:
        raise KeyError("observed")

    def snapshot(self, snapshot: Snapshot) -> None:
        raise KeyError("snapped")


def test_failures_of_observers_and_tasks_are_errors() -> None:
    """An observer that raises and a task nobody awaits don't hurt the worker, and are seen."""
    app = App(group="g", observers=[BadObserver()])

    @app.handler("orders")
    async def take(order: Order) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert len(h.handled()) == 1
        told = {trouble.error for trouble in h.errors}
        assert "KeyError: 'observed'" in told
        assert "KeyError: 'snapped'" in told
        assert "ZeroDivisionError: division by zero" in told


def test_handlers_that_use_threads_from_async_code_are_waited_for() -> None:
    """`asyncio.to_thread` is real time: the harness waits for it, within its grace."""
    app = App(group="g")

    @app.handler("orders")
    async def take(order: Order) -> None:
        await asyncio.to_thread(time.sleep, 0.02)

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert len(h.handled()) == 1


# Commits, rebalances, crashes.


def test_floors_and_commits() -> None:
    """The floor stays at what is open; it is committed within the interval."""
    app = App(group="g", commit_interval="5s")

    @app.handler("orders")
    async def take(order: Order) -> None:
        await asyncio.sleep(order.id)

    with Harness(app) as h:
        h.send("orders", Order(id=0))
        assert h.committed("orders") == 0
        h.send("orders", Order(id=7))
        h.send("orders", Order(id=0))
        assert h.floor("orders") == 1
        h.advance("5s")
        assert h.committed("orders") == 1
        h.advance("10s")
        assert (h.floor("orders"), h.committed("orders")) == (3, 3)


def test_a_crash_brings_back_what_was_not_committed() -> None:
    """Handled but not committed comes again; parked and committed does not."""
    app, seen = App(group="g"), []

    @app.handler("orders", retry=SHORT)
    async def take(order: Order, delivery: Delivery) -> None:
        seen.append((order.id, delivery.attempt))
        if order.id == 1 and delivery.attempt == 1:
            raise ValueError("once")

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        h.advance("10s")
        h.send("orders", Order(id=2))
        committed = h.committed("orders")
        h.restart()
        assert committed == 1
        assert seen == [(1, 1), (1, 2), (2, 1), (2, 1)]
        assert h.committed("orders") == 1
        h.advance("1s")
        assert h.committed("orders") == 2


def test_a_crash_in_the_middle_of_handlers() -> None:
    """What ran is cut short and comes again in the next worker, async and thread."""
    app, let_go = App(group="g"), threading.Event()
    starts: list[str] = []

    @app.handler("a")
    async def hang(order: Order) -> None:
        starts.append("a")
        if len(starts) < 3:
            await asyncio.sleep(3600)

    @app.handler("b")
    def block(order: Order) -> None:
        starts.append("b")
        if len(starts) < 3:
            let_go.wait()

    with quick(), Harness(app, stuck_after="50ms") as h:
        h.send("a", Order(id=1))
        h.send("b", Order(id=1))
        h.restart()
        assert sorted(starts) == ["a", "a", "b", "b"]
        assert sorted(record.topic for record in h.handled()) == ["a", "b"]
        let_go.set()


def test_the_clean_up_of_a_crashed_worker_can_not_hurt() -> None:
    """What a lifespan raises on its way out of a crash is noted; at the end it is raised."""

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        yield
        raise OSError("already closed")

    app = App(group="g", lifespan=lifespan)
    app.handler("orders")(_nothing)
    h = Harness(app)
    with pytest.raises(OSError, match="already closed"), h:  # noqa: PT012 -- raised at the end
        h.restart()
        assert h.errors == [Trouble("the crashed worker's clean-up", "OSError: already closed")]
        h.send("orders", Order(id=1))
        assert len(h.handled()) == 1


def test_a_rebalance_commits_and_brings_back_what_is_open() -> None:
    """Floors are committed on the way out; an open record is delivered anew."""
    app, starts = App(group="g", drain_timeout="100ms"), []

    @app.handler("orders")
    async def take(order: Order) -> None:
        starts.append(order.id)
        await asyncio.sleep(order.id)

    with Harness(app) as h:
        h.send("orders", Order(id=0))
        h.send("orders", Order(id=30))
        h.rebalance()
        assert h.committed("orders") == 1
        assert starts == [0, 30, 30]
        h.advance("30s")
        assert [record.json()["id"] for record in h.handled()] == [0, 30]


def test_a_drain_lets_handlers_end() -> None:
    """During a rebalance time passes until running handlers have ended, up to the bound."""
    app = App(group="g")

    @app.handler("orders")
    async def take(order: Order) -> None:
        await asyncio.sleep(2)

    with quick(), Harness(app, give_up_after="1m") as h:
        start = h.now
        h.send("orders", Order(id=1))
        h.rebalance()
        assert len(h.handled()) == 1
        assert timedelta(seconds=2) <= h.now - start < timedelta(seconds=3)
        assert h.committed("orders") == 1


def test_faults_of_the_broker_keep_records_open() -> None:
    """A park that is refused leaves the record open until the broker is healed."""
    app = App(group="g")

    @app.handler("orders", retry=SHORT)
    async def take(order: Order) -> None:
        raise ValueError("no")

    with Harness(app) as h:
        h.broker.fail_publish("orders--g--retry-1s")
        h.send("orders", Order(id=1))
        h.advance("1m")
        assert h.parked("orders") == []
        assert h.floor("orders") == 0
        h.broker.heal()
        h.advance("10s")
        assert h.floor("orders") == 1
        h.advance("1m")
        assert len(h.dlq("orders")) == 1


# Settings.


def test_settings_come_from_code_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the environment nor a file counts; the argument does."""
    monkeypatch.setenv("ACKFLOOR_HANDLERS__TAKE__CONSUME_TIMEOUT", "1s")
    (tmp_path / "ackfloor.toml").write_text('[handlers.take]\nconsume_timeout = "1s"\n')
    monkeypatch.chdir(tmp_path)
    app = App(group="g")

    @app.handler("orders", consume_timeout="30s", retry=ONCE)
    async def take(order: Order) -> None:
        await asyncio.sleep(5)

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        h.advance("5s")
        assert len(h.handled()) == 1
    with Harness(app, settings={"handlers": {"take": {"consume_timeout": "2s"}}}) as h:
        h.send("orders", Order(id=1))
        h.advance("5s")
        assert h.handled() == []
        assert len(h.dlq("orders")) == 1


def test_jitter_is_off_unless_asked_for() -> None:
    """With it a wait is longer than the schedule's, by the policy's share at most."""
    app = App(group="g")

    @app.handler("orders", retry=RetryPolicy.fixed("10s", jitter=0.5))
    async def take(order: Order) -> None:
        raise ValueError("no")

    for jitter in (False, True):
        with Harness(app, jitter=jitter, start=datetime(2030, 1, 1, tzinfo=UTC)) as h:
            h.send("orders", Order(id=1))
            due = h.parked("orders")[0].due
            assert due is not None
            wait = due - h.now
            assert timedelta(seconds=10) <= wait <= timedelta(seconds=15)
            assert (wait > timedelta(seconds=10)) is jitter
            assert h.now.year == 2030


def test_explicit_delays_keep_their_schedule() -> None:
    """A policy of explicit delays is the same without its jitter."""
    app = App(group="g")

    @app.handler("orders", retry=RetryPolicy(delays=["2s", "3s"], max_redeliveries=2, jitter=0.5))
    async def take(order: Order) -> None:
        raise ValueError("no")

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert [p.tier for p in h.parked("orders")] == ["2s"]
        h.advance("2s")
        assert [p.tier for p in h.parked("orders")] == ["3s"]
        h.advance("3s")
        assert len(h.dlq("orders")) == 1


# Misuse and no end.


def test_misuse_is_told() -> None:
    """A misspelt topic, a harness that is not entered, another thread: each says what to do."""
    app = App(group="g")

    @app.handler("orders", retry=ONCE)
    async def take(order: Order) -> None:
        h.send("orders", order)

    h = Harness(app)
    with pytest.raises(RuntimeError, match="use `with Harness"):
        h.send("orders", b"")
    with h:
        for call in (h.handled, h.discarded, h.parked, h.dlq):
            with pytest.raises(ValueError, match=r"topic='order': no handler .* are: orders"):
                call("order")
        with pytest.raises(ValueError, match="topic='order'"):
            h.send("order", b"")
        h.send("orders", Order(id=1))
        assert "belongs to the thread that entered it" in h.errors[0].error
    with pytest.raises(RuntimeError, match="use `with Harness"):
        h.settle()


def test_middleware_of_the_wrong_kind_is_refused() -> None:
    """As at the start of a real worker."""

    def around(delivery: Delivery, call_next: Any) -> None:
        call_next()

    app = App(group="g", middleware=[around])
    app.handler("orders")(_nothing)
    with pytest.raises(ConfigError, match="middleware"):
        Harness(app)


def test_a_forgotten_await_of_a_publish_is_seen() -> None:
    """As in a worker: the record is not handled, and nothing is published."""
    app = App(group="g")

    @app.handler("orders")
    async def bill(order: Order) -> None:
        app.publish("invoices", order)  # type: ignore[unused-coroutine]

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        (record,) = h.parked("orders")
        assert record.error_type == "ackfloor.errors.PublishNotAwaited"
        assert h.handled("orders") == []


def test_work_without_end_is_an_error() -> None:
    """A handler that feeds itself for ever ends the test with a reason."""
    app = App(group="g")

    @app.handler("orders")
    async def again(order: Order) -> None:
        await app.publish("orders", order)

    with (
        quick(),
        Harness(app, give_up_after="200ms") as h,
        pytest.raises(Unsettled, match="did not come to rest"),
    ):
        h.send("orders", Order(id=1))


def test_a_blocked_event_loop_is_an_error() -> None:
    """An async handler that blocks is named."""
    app, let_go = App(group="g"), threading.Event()

    @app.handler("orders")
    async def block(order: Order) -> None:
        let_go.wait()

    with quick(), Harness(app, give_up_after="100ms") as h:
        with pytest.raises(Unsettled, match=r"blocks the event loop.*orders/0/0 attempt 1"):
            h.send("orders", Order(id=1))
        let_go.set()

        def settled() -> bool:
            try:
                h.settle()
            except Unsettled:
                return False
            return True

        within(settled)
        assert len(h.handled()) == 1


def test_days_pass_in_no_time() -> None:
    """A record on ActiveMQ-like and RocketMQ-like schedules ends in the DLQ at once."""
    app = App(group="g")

    @app.handler("orders", retry=RetryPolicy.rocketmq())
    async def fail(order: Order) -> None:
        raise ValueError("no")

    with quick(), Harness(app) as h:
        h.send("orders", Order(id=1))
        h.advance("5h")
        (letter,) = h.dlq("orders")
        assert letter.attempt == 17


@pytest.mark.asyncio
async def test_it_works_in_an_async_test() -> None:
    """`async with` does the same; the app's event loop is its own, so nothing is awaited."""
    app = App(group="g")

    @app.handler("orders", retry=SHORT)
    async def take(order: Order, delivery: Delivery) -> None:
        await asyncio.sleep(1)
        if delivery.attempt == 1:
            raise ValueError("once")

    async with Harness(app) as h:
        h.send("orders", Order(id=1))
        h.advance("3s")
        assert [record.attempt for record in h.handled()] == [2]


def test_the_example_handlers_run_on_it() -> None:
    """Twice in a row, with nothing carried over."""
    from ackfloor_handlers.echo import app

    topic = app.handlers[0].topics[0]
    for _ in range(2):
        with Harness(app) as h:
            h.send(topic, "hello")
            assert len(h.handled()) == 1


@pytest.mark.parametrize("told", [FOLLOWER, HELD])
def test_what_waits_behind_another_record_has_no_error_and_no_due_time(told: Envelope) -> None:
    """Its `retry_at` is for releases that do not know its reason."""
    record = parked(Stored(b"v", "orders--billing--retry-1s", write_headers(told, [])))
    assert (record.reason, record.due, record.tier) == (told.reason, None, "1s")
    assert (record.error_type, record.error_message, record.error_stack) == ("", "", "")
    assert record.origin == ("orders", 3, told.origin_offset)
    failed = told._replace(reason=Reason.RETRY)
    record = parked(Stored(b"v", "orders--billing--retry-1s", write_headers(failed, [])))
    assert record.due is not None
    assert record.due.timestamp() * 1000 == pytest.approx(told.retry_at_ms)
