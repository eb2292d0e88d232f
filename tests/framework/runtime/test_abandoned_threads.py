"""Threads that outlive their consume timeout: replaced at once, counted, and never in the way."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages.events import DeliveryTimedOut, LateAnswers
from ackfloor.core.records.batch import Batch
from ackfloor.runtime.executors.thread_executor import ThreadExecutor
from ackfloor.runtime.executors.thread_slot import Slot
from tests.framework.runtime.live import Gate, Live, live, within

LATER = RetryPolicy.fixed("1h", 1)


def handler_threads() -> int:
    """How many threads of handlers there are in this process."""
    return sum(thread.name.startswith("ackfloor:handle:") for thread in threading.enumerate())


def abandoned_fault(worker: Live) -> str | None:
    """What readiness is told of abandoned handlers."""
    latest = worker.watcher.latest
    faults = () if latest is None else latest.faults
    return next((fault.message for fault in faults if fault.kind == "abandoned"), None)


def late(worker: Live) -> int:
    """How many answers have come too late."""
    return sum(event.count for event in worker.watcher.told(LateAnswers))


def test_a_stuck_thread_is_replaced_at_its_deadline() -> None:
    """With one thread only, the records behind the stuck one are handled; it ends unheard."""
    app, gate, ended = App("g"), Gate(), []

    @app.handler("orders", consume_timeout="60s", concurrency=1, retry=LATER)
    def handle(delivery: Delivery) -> None:
        if delivery.value == b"stuck":
            gate.wait()
        ended.append(delivery.value)

    with live(app) as worker:
        worker.send("orders", b"stuck")
        worker.send("orders", b"fine", n=20)
        worker.until(lambda: gate.arrived == 1)
        worker.skip(60)
        worker.until(lambda: worker.settled() and len(ended) == 20)
        assert worker.executor().abandoned() == 1
        worker.until(lambda: abandoned_fault(worker))
        assert "1 abandoned handlers of handle" in (abandoned_fault(worker) or "")
        gate.open()
        worker.until(lambda: worker.watcher.told(LateAnswers))
        worker.until(lambda: abandoned_fault(worker) is None)
        assert worker.executor().abandoned() == 0
        # It has said that it ends, and may not be gone.
        within(lambda: handler_threads() == 1)
        assert len(worker.parked("orders")) == 1
    assert b"stuck" in ended


def test_many_stuck_threads_do_not_stop_the_others() -> None:
    """Two hundred on eight threads: each is parked, the rest is handled, and nothing twice."""
    app, gate, handled = App("g"), Gate(), Counter()

    @app.handler("orders", consume_timeout="60s", concurrency=8, retry=LATER, fairness="off")
    def handle(delivery: Delivery) -> None:
        if delivery.key == b"stuck":
            gate.wait()
        else:
            handled[delivery.value] += 1

    with live(app, max_abandoned=199) as worker:
        for _ in range(200):
            worker.send("orders", b"-", key=b"stuck")
        worker.send("orders", b"fine", n=1000)
        for stuck in range(8, 201, 8):
            worker.until(lambda stuck=stuck: gate.arrived == stuck)
            worker.skip(60)
        worker.until(worker.settled)
        assert len(worker.watcher.told(DeliveryTimedOut)) == 200
        assert worker.executor().abandoned() == 200
        assert worker.loop.executors.worn_out()
        assert handler_threads() == 208
        gate.open()
        within(lambda: worker.executor().abandoned() == 0)
        assert not worker.loop.executors.worn_out()
    assert set(handled.values()) == {1}
    assert len(handled) == 1000


def test_a_thread_that_ends_at_its_deadline_is_never_abandoned_for_its_next_record() -> None:
    """Handlers about as long as their timeout: no more at once than allowed, all are accounted."""
    app, lock, counts = App("g"), threading.Lock(), Counter()
    most = [0]
    started: dict[int, float] = {}

    @app.handler("orders", consume_timeout="20ms", concurrency=4, retry=LATER)
    def handle(delivery: Delivery) -> None:
        with lock:
            started[delivery.offset] = delivery.started_s
            # What is past its deadline may be abandoned and replaced.
            now_s = time.monotonic()
            most[0] = max(most[0], sum(now_s - s < 0.02 for s in started.values()))
        time.sleep(0.0185 if delivery.offset % 2 else 0.0215)
        with lock:
            del started[delivery.offset]
            counts[delivery.offset] += 1

    with live(app) as worker:
        worker.send("orders", n=300)
        worker.until(worker.settled)
        parked = {record.origin.offset for record in worker.parked("orders")}
        within(lambda: len(counts) == 300 and worker.executor().abandoned() == 0)
        worker.until(lambda: late(worker) >= len(parked), "a late answer for each that was parked")
        worker.turn_for(0.05)
        assert late(worker) == len(parked) > 0
        within(lambda: handler_threads() == 4)
    assert most[0] <= 4
    assert set(counts.values()) == {1}


def test_the_worker_stops_without_waiting_for_abandoned_threads() -> None:
    """They are daemons: the end of the worker is bounded although they never return."""
    app, gate = App("g"), Gate()

    @app.handler("orders", consume_timeout="50ms", concurrency=2, retry=LATER)
    def handle(_: Delivery) -> None:
        gate.wait()

    with live(app) as worker:
        worker.send("orders", b"stuck")
        worker.until(lambda: worker.executor().abandoned() == 1)
        started_s = time.monotonic()
        assert worker.close() == 0
        assert time.monotonic() - started_s < 30
        gate.open()
        within(lambda: handler_threads() == 0)


@pytest.mark.parametrize("last_look", range(1, 7))
def test_a_batch_may_end_between_any_two_looks_of_the_owner_at_its_slot(
    last_look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends right after the given look at the batch whose time is up: the worker goes on."""
    app, gate, handled, looks = App("g"), Gate(), Counter(), []

    class WatchedSlot(Slot):
        """Lets its handler end once the owner has seen the batch so often."""

        _unit: Any = None

        @property
        def unit(self) -> Any:
            """What it is at."""
            seen = self._unit
            if threading.current_thread() is not self and isinstance(seen, Batch) and seen.closed():
                looks.append(seen)
                if len(looks) == last_look:
                    gate.open()
                    within(lambda: self._unit is not seen)
            return seen

        @unit.setter
        def unit(self, unit: Any) -> None:
            self._unit = unit

    @app.handler("orders", consume_timeout="60s", concurrency=1, retry=LATER, batch=3)
    def handle(deliveries: list[Delivery]) -> None:
        if not gate.is_open:
            gate.wait()
        handled.update(delivery.value for delivery in deliveries)

    monkeypatch.setattr(ThreadExecutor, "slot_type", WatchedSlot)
    with live(app) as worker:
        worker.send("orders", b"stuck", n=3)
        worker.until(lambda: gate.arrived == 1)
        worker.skip(60)
        worker.until(worker.settled)
        gate.open()
        worker.send("orders", b"fine", n=20)
        worker.until(lambda: worker.settled() and len(handled) == 23)
        assert looks
        assert len(worker.parked("orders")) == 3
        within(lambda: handler_threads() == 1)
    assert set(handled.values()) == {1}
