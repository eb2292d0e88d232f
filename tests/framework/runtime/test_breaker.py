"""The circuit breaker over real executors: an outage of what all records need, and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ackfloor import App, Delivery, Pause, RetryPolicy
from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.messages.events import (
    BatchFailed,
    BreakerClosed,
    BreakerOpened,
    DeliveryFailed,
    RecordWithheld,
    TrialEnded,
)
from tests.framework.runtime import puppets
from tests.framework.runtime.live import EVERY_KIND, Gate, Live, live, register

ANY = pytest.mark.parametrize("kind", EVERY_KIND)
FAILURES, RECORDS = 10, 60
#: The burst of the drip, beyond the failures that followed the policy before it opened.
BURST = 10
RULES = CircuitBreaker(failures=FAILURES, park_rate="1/h")
LATER = RetryPolicy.fixed("1m", 1, jitter=0)


class Dependency:
    """What every record needs, and who asked for it."""

    def __init__(self) -> None:
        self.away = True
        self._lock = threading.Lock()
        self.asked: list[tuple[int, int]] = []

    def ask(self, delivery: Delivery) -> None:
        """Fail while it is away."""
        with self._lock:
            self.asked.append((delivery.offset, delivery.attempt))
        if self.away:
            raise ConnectionError("away")

    def script(self, delivery: Delivery) -> Iterator[Gate]:
        """Of a handler that asks once."""
        self.ask(delivery)
        return
        yield


def send(worker: Live, count: int = RECORDS) -> None:
    """Each record has a key of its own."""
    for number in range(count):
        worker.send("orders", b"x", key=str(number).encode())


def failed(worker: Live) -> set[int]:
    """The offsets whose failure the engine knows."""
    return {event.offset for event in worker.watcher.told(DeliveryFailed)}


def come_back(worker: Live, bank: Dependency) -> None:
    """End an outage and wait until everything is handled, what was parked included."""
    bank.away = False
    worker.until(lambda: worker.watcher.told(BreakerClosed), "the end of the outage")
    worker.until(worker.settled)
    worker.skip(60)
    worker.until(lambda: worker.loop.engine.flow.open_count == 0, "the redeliveries")


@ANY
@pytest.mark.parametrize(
    ("ordering", "on_failure"), [("unordered", "park"), ("key", "park"), ("key", "block")]
)
def test_an_outage_costs_no_record_and_leaves_few_parked(
    kind: str, ordering: str, on_failure: str
) -> None:
    """Every record is tried, few leave, none is dead-lettered; then all are handled once."""
    app, bank = App("g"), Dependency()
    register(
        app, kind, "orders", bank.script, concurrency=4, retry=LATER, breaker=RULES,
        ordering=ordering, on_failure=on_failure, consume_timeout=None,
    )  # fmt: skip
    with live(app, breakers=True) as worker:
        send(worker)
        tried = range(RECORDS)
        worker.until(lambda: {offset for offset, _ in bank.asked} == set(tried), "a try of each")
        worker.until(lambda: worker.watcher.told(BreakerOpened))
        if on_failure == "block":
            # The policy goes on in place, but for the last attempt. The delay of a record begins
            # once the engine has its failure.
            worker.until(lambda: failed(worker) == set(tried), "a failure of each")
            worker.skip(60)
        worker.until(lambda: worker.watcher.told(RecordWithheld))
        worker.until(lambda: worker.watcher.told(TrialEnded), "a trial that fails")
        (opened,) = worker.watcher.told(BreakerOpened)
        assert (opened.handler, opened.error_type) == ("handle", "ConnectionError")
        assert opened.failing >= FAILURES
        parked = len(worker.parked("orders"))
        assert parked <= FAILURES - 1 + BURST
        assert (parked == 0) == (on_failure == "block")
        come_back(worker, bank)
        assert worker.dlq("orders") == []
        assert len(worker.parked("orders")) == parked
        (closed,) = worker.watcher.told(BreakerClosed)
        assert closed.why == "recovered"
        told = worker.watcher.told(TrialEnded)
        assert {trial.error_type for trial in told} == {"ConnectionError", ""}


@ANY
@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_a_record_that_can_be_handled_waits_for_none_that_fails(kind: str, ordering: str) -> None:
    """The breaker is open, and what is new is tried before all that is withheld."""
    app, bank = App("g"), Dependency()
    handled: list[int] = []

    def script(delivery: Delivery) -> Iterator[Gate]:
        if delivery.value == b"good":
            handled.append(delivery.offset)
        else:
            bank.ask(delivery)
        return
        yield

    register(
        app, kind, "orders", script, concurrency=4, retry=LATER, breaker=RULES,
        ordering=ordering, on_failure="park", consume_timeout=None,
    )  # fmt: skip
    with live(app, breakers=True) as worker:
        send(worker)
        worker.until(lambda: {offset for offset, _ in bank.asked} == set(range(RECORDS)))
        worker.until(lambda: worker.watcher.told(RecordWithheld))
        # What is withheld comes again, one by one.
        worker.until(lambda: worker.watcher.told(TrialEnded))
        before = len(bank.asked)
        worker.send("orders", b"good", key=b"good")
        worker.until(lambda: handled)
        assert handled == [RECORDS]
        assert len(bank.asked) - before < RECORDS // 3
        assert worker.watcher.told(BreakerClosed) == []


@ANY
def test_an_outage_of_a_batch_handler(kind: str) -> None:
    """What a call leaves behind is tried alone, and the breaker goes by what fails alone."""
    app, bank = App("g"), Dependency()
    sizes: list[int] = []

    def script(deliveries: list[Delivery]) -> None:
        sizes.append(len(deliveries))
        if bank.away:
            raise ConnectionError("away")

    def play(_: list[str], deliveries: list[Delivery]) -> None:
        script(deliveries)

    async def handle_async(deliveries: list[Delivery]) -> None:
        script(deliveries)

    def handle_sync(deliveries: list[Delivery]) -> None:
        script(deliveries)

    options: dict[str, Any] = {"batch": 5, "batch_wait": "20ms", "consume_timeout": None}
    functions = {"async": handle_async, "thread": handle_sync, "process": puppets.loose}
    if kind == "process":
        puppets.play("orders", play)
        options["executor"] = "process"
    app.handler(
        "orders", name="handle", concurrency=2, retry=LATER, breaker=RULES, **options
    )(functions[kind])  # fmt: skip
    with live(app, breakers=True) as worker:
        send(worker)
        worker.until(lambda: worker.watcher.told(BreakerOpened))
        worker.until(lambda: len(worker.watcher.told(RecordWithheld)) > RECORDS // 2)
        assert len(worker.parked("orders")) <= FAILURES - 1 + BURST
        assert worker.watcher.told(BatchFailed)
        come_back(worker, bank)
        assert worker.dlq("orders") == []
    assert max(sizes) == 5


@ANY
def test_a_trial_that_asks_for_a_pause_says_nothing(kind: str) -> None:
    """Nothing starts before it is over; then trials go on, and it closes."""
    app, bank = App("g"), Dependency()
    paused: list[int] = []

    def script(delivery: Delivery) -> Iterator[Gate]:
        if not bank.away and not paused:
            paused.append(delivery.offset)
            raise Pause("100ms", "in a moment")
        bank.ask(delivery)
        return
        yield

    register(
        app, kind, "orders", script, concurrency=4, retry=LATER, breaker=RULES,
        consume_timeout=None,
    )  # fmt: skip
    with live(app, breakers=True) as worker:
        send(worker)
        worker.until(lambda: len(worker.watcher.told(RecordWithheld)) > RECORDS // 2)
        come_back(worker, bank)
        assert worker.dlq("orders") == []
        assert len(worker.watcher.told(BreakerOpened)) == 1
    assert len(paused) == 1
