"""Partitions leave while handlers run: what may end does, what can't is given up, in bounds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages.events import LateAnswers, PartitionsRevoked, RecordsAcked
from ackfloor.core.records.record import TopicPartition
from ackfloor.testing.memory.memory_client import MemorySource
from tests.framework.runtime.live import EVERY_KIND, KINDS, Gate, Live, live, register, within

#: Far more than an executor takes ahead.
BACKLOG = 400
LATER = RetryPolicy.fixed("1h", 1)
EITHER = pytest.mark.parametrize("kind", KINDS)
EVERY = pytest.mark.parametrize("kind", EVERY_KIND)


def committed(worker: Live) -> int:
    """The group's committed position of orders/0."""
    found = worker.broker.committed("g", "orders")
    return -1 if found is None else found.position


@EVERY
def test_running_handlers_may_end_and_are_committed(kind: str) -> None:
    """What ends within the drain is settled for good; what had not started comes again."""
    app, gate, later, ended = App("g"), Gate(), Gate(), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        yield later if gate.is_open else gate
        ended.append(delivery.offset)

    register(app, kind, "orders", script, concurrency=3)
    with live(app, drain_s=60.0) as worker:
        worker.send("orders", n=10)
        worker.until(lambda: gate.arrived == 3)
        worker.broker.rebalance()
        opening = threading.Timer(0.05, gate.open)
        opening.start()
        worker.until(lambda: worker.watcher.told(PartitionsRevoked))
        assert sorted(ended) == [0, 1, 2]
        assert committed(worker) == 3
        later.open()
        worker.until(worker.settled)
        opening.join()
        assert worker.watcher.told(LateAnswers) == []
    assert sorted(ended) == list(range(10))


@EVERY
def test_a_handler_that_fails_in_the_drain_is_parked_before_the_partition_leaves(kind: str) -> None:
    """Its retry is durable and the floor is past it: the next owner does not see it again."""
    app, gate, attempts = App("g"), Gate(), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        attempts.append(delivery.attempt)
        yield gate
        raise ValueError("in the drain")

    register(app, kind, "orders", script, retry=LATER)
    with live(app, drain_s=60.0) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: gate.arrived == 1)
        worker.broker.rebalance()
        opening = threading.Timer(0.05, gate.open)
        opening.start()
        worker.until(lambda: worker.watcher.told(PartitionsRevoked))
        assert len(worker.parked("orders")) == 1
        assert committed(worker) == 1
        worker.until(worker.settled)
        opening.join()
    assert attempts == [1]


@EVERY
def test_a_stuck_handler_delays_a_revoke_by_the_drain_bound_and_costs_no_slot(kind: str) -> None:
    """Time after time: the record comes again, to the only slot, and the old answer is late."""
    app, gates, seen = App("g"), [Gate() for _ in range(4)], []

    def script(delivery: Delivery) -> Iterator[Gate]:
        seen.append(delivery.attempt)
        yield gates[len(seen) - 1]

    register(app, kind, "orders", script, concurrency=1)
    with live(app, drain_s=0.2) as worker:
        worker.send("orders", b"x")
        for number in range(3):
            worker.until(lambda number=number: len(seen) == number + 1)
            worker.broker.rebalance()
            started_s = time.monotonic()
            worker.until(
                lambda number=number: len(worker.watcher.told(PartitionsRevoked)) == number + 1
            )
            assert 0.2 <= time.monotonic() - started_s < 30
        worker.until(lambda: len(seen) == 4)
        for gate in gates:
            gate.open()
        worker.until(worker.settled)
        within(lambda: worker.executor().abandoned() == 0)
    # Released, never failed: no attempt is spent.
    assert seen == [1] * 4


def test_a_drain_begins_nothing_of_other_partitions_while_the_group_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others may have them by now, and no poll says so before the drain is over."""
    app, leaving, staying, seen = App("g"), Gate(), Gate(), []

    @app.handler("orders", concurrency=2)
    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.partition)
        await (staying if delivery.partition else leaving).passed()

    with live(app, partitions=2, drain_s=60.0) as worker:
        worker.broker.produce("orders", b"x", partition=0)
        worker.until(lambda: leaving.arrived == 1)
        for _ in range(BACKLOG):
            worker.broker.produce("orders", b"x", partition=1)
        worker.until(lambda: staying.arrived == 1)
        worker.turn_for(0.1)
        monkeypatch.setattr(MemorySource, "silent", lambda self: True)
        staying.open()
        # Time enough for all of them, were they begun.
        opening = threading.Timer(1.0, leaving.open)
        opening.start()
        worker.loop.on_revoked([TopicPartition("orders", 0)])
        opening.join()
        # What the executor had already, no more.
        assert seen.count(1) < BACKLOG / 2
        monkeypatch.setattr(MemorySource, "silent", lambda self: False)
        worker.until(lambda: seen.count(1) == BACKLOG)


def test_an_async_handler_of_a_partition_that_left_is_cancelled() -> None:
    """It stops working on a record that is another's now, and its clean-up runs."""
    app, begun, ends = App("g"), [], []

    @app.handler("orders", concurrency=1)
    async def handle(delivery: Delivery) -> None:
        try:
            begun.append(delivery.offset)
            if not ends:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ends.append(delivery.closed)

    with live(app, drain_s=0.05) as worker:
        worker.send("orders", b"x")
        # A slot that is about to begin would not begin any more.
        worker.until(lambda: begun)
        worker.broker.rebalance()
        worker.until(lambda: len(ends) == 2 and worker.settled())
        assert worker.parked("orders") == []
        assert worker.watcher.told(LateAnswers) == []
    assert ends[0] is True


@EVERY
def test_lost_partitions_commit_nothing_and_wait_for_nobody(kind: str) -> None:
    """They belong to others already; handlers are given up at once, their answers are stale."""
    app, gate, seen = App("g"), Gate(), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        seen.append(delivery.offset)
        if len(seen) <= 2:
            yield gate

    register(app, kind, "orders", script, concurrency=2, retry=LATER)
    with live(app, drain_s=60.0, commit_interval_s=60.0) as worker:
        worker.send("orders", n=2)
        worker.until(lambda: gate.arrived == 2)
        before = committed(worker)
        source = worker.loop._source
        assert isinstance(source, MemorySource)
        source.expel()
        started_s = time.monotonic()
        worker.until(lambda: worker.watcher.told(PartitionsRevoked))
        assert time.monotonic() - started_s < 30
        assert worker.watcher.told(PartitionsRevoked)[0].lost
        assert committed(worker) == before
        worker.until(lambda: len(seen) == 4)
        gate.open()
        worker.until(worker.settled)
        within(lambda: worker.executor().abandoned() == 0)
    assert sorted(seen) == [0, 0, 1, 1]


@EITHER
def test_a_revoke_waits_for_a_handler_that_is_just_about_to_start(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between taking a record and starting its handler a slot counts as running."""
    app, seen = App("g"), []
    at_the_start, go_on = threading.Event(), threading.Event()
    register(app, kind, "orders", lambda d: iter(seen.append(d.offset) or ()), concurrency=1)
    with live(app, drain_s=60.0) as worker:

        def clock() -> float:
            # The executor reads it in that very moment.
            if not at_the_start.is_set():
                at_the_start.set()
                go_on.wait(60)
            return time.monotonic()

        monkeypatch.setattr(worker.executor(), "_clock", clock)
        worker.send("orders", b"x")
        worker.until(at_the_start.is_set)
        worker.broker.rebalance()
        starting = threading.Timer(0.1, go_on.set)
        starting.start()
        worker.until(lambda: worker.watcher.told(PartitionsRevoked))
        assert seen == [0]
        assert committed(worker) == 1
        worker.until(worker.settled)
        starting.join()
        assert worker.watcher.told(RecordsAcked)
    assert seen == [0]


@EVERY
def test_rebalances_in_the_middle_of_work_lose_nothing_and_end_everything(kind: str) -> None:
    """A storm of them: every record is handled, limits return to zero, slots are all there."""
    app, handled, lock = App("g"), {}, threading.Lock()

    def script(delivery: Delivery) -> Iterator[Gate]:
        time.sleep(0.0005)
        with lock:
            key = (delivery.partition, delivery.offset)
            handled[key] = handled.get(key, 0) + 1
        return
        yield

    register(app, kind, "orders", script, concurrency=4, ordering="key", on_failure="park")
    with live(app, partitions=4, drain_s=1.0, max_open=300) as worker:
        for number in range(2000):
            worker.send("orders", b"x", key=b"k%d" % (number % 50))
        for _ in range(20):
            before = len(handled)
            worker.until(lambda before=before: len(handled) >= min(2000, before + 50))
            worker.broker.rebalance()
        worker.until(worker.settled)
        assert worker.loop.engine.flow.open_count == 0
        assert worker.loop.engine.flow.open_bytes == 0
        within(lambda: worker.executor().abandoned() == 0)
    assert len(handled) == 2000
