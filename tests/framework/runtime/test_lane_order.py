"""Lanes: one record at a time and in order, whatever their handlers do, under both executors."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.queues.handler_queue import Item
from ackfloor.core.records.record import Now
from tests.framework.runtime.live import (
    EVERY_KIND,
    KINDS,
    PATIENCE_S,
    Gate,
    Live,
    live,
    register,
    within,
)

LATER = RetryPolicy.fixed("1h", 1)
EITHER = pytest.mark.parametrize("kind", KINDS)
EVERY = pytest.mark.parametrize("kind", EVERY_KIND)


class Lanes:
    """What ran when in each lane, noted by the handlers themselves."""

    def __init__(self) -> None:
        self.order: dict[bytes | None, list[int]] = defaultdict(list)
        self.overlaps: list[tuple[int, int]] = []
        self.clock = time.monotonic
        self._running: dict[bytes | None, dict[int, Delivery]] = defaultdict(dict)
        self._lock = threading.Lock()

    def enter(self, delivery: Delivery) -> None:
        now_s = self.clock()
        with self._lock:
            running = self._running[delivery.key]
            # Past its deadline a handler is abandoned, which is no longer in flight.
            self.overlaps += [
                (offset, delivery.offset)
                for offset, other in running.items()
                if other.deadline_s is None or now_s < other.deadline_s
            ]
            running[delivery.offset] = delivery
            self.order[delivery.key].append(delivery.offset)

    def leave(self, delivery: Delivery) -> None:
        with self._lock:
            del self._running[delivery.key][delivery.offset]

    def in_order(self) -> bool:
        return all(offsets == sorted(set(offsets)) for offsets in self.order.values())


@EVERY
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_order_holds_under_load_with_hot_keys(kind: str, ordering: str) -> None:
    """Half of thousands of records share one key; slots switch lanes all the time."""
    app, lanes = App("g"), Lanes()
    noise = random.Random(7)

    def script(delivery: Delivery) -> Iterator[Gate]:
        lanes.enter(delivery)
        if delivery.offset % 50 == 0:
            time.sleep(0.0005)
        lanes.leave(delivery)
        return
        yield

    register(app, kind, "orders", script, ordering=ordering, on_failure="park", concurrency=8)
    with live(app, partitions=3) as worker:
        keys = [
            b"hot" if noise.random() < 0.5 else b"k%d" % noise.randrange(40) for _ in range(6000)
        ]
        for start in range(0, 6000, 500):
            for key in keys[start : start + 500]:
                worker.send("orders", b"x", key=key)
            worker.loop.turn(0)
        worker.until(worker.settled)
    assert sum(map(len, lanes.order.values())) == 6000
    assert lanes.overlaps == []
    assert lanes.in_order()


@EITHER
def test_a_lane_goes_on_past_a_stuck_head_in_order(kind: str) -> None:
    """The stuck record is parked at its deadline; the rest of its key follows, none overlaps."""
    app, gate, lanes = App("g"), Gate(), Lanes()

    def script(delivery: Delivery) -> Iterator[Gate]:
        lanes.enter(delivery)
        if delivery.offset in {0, 20}:
            yield gate
        lanes.leave(delivery)

    register(
        app,
        kind,
        "orders",
        script,
        ordering="key",
        on_failure="park",
        concurrency=2,
        consume_timeout="60s",
        retry=LATER,
    )
    with live(app) as worker:
        lanes.clock = worker.clock.monotonic
        worker.send("orders", key=b"k", n=40)
        for stuck in (1, 2):
            worker.until(lambda stuck=stuck: gate.arrived == stuck)
            worker.skip(60)
        worker.until(worker.settled)
        assert {record.origin.offset for record in worker.parked("orders")} == {0, 20}
        gate.open()
        if kind == "thread":
            within(lambda: worker.executor().abandoned() == 0)
    assert lanes.order[b"k"] == list(range(40))
    assert lanes.overlaps == []


@EITHER
def test_handlers_that_end_at_their_deadline_never_share_a_lane(kind: str) -> None:
    """About as long as they may: whoever wins, the next record has the lane for itself."""
    app, lanes = App("g"), Lanes()

    def takes_s(delivery: Delivery) -> float:
        if delivery.offset % 20 == 0:
            return 0.0  # In time on any machine.
        return 0.0185 if delivery.offset % 2 else 0.021

    async def handle_async(delivery: Delivery) -> None:
        lanes.enter(delivery)
        try:
            await asyncio.sleep(takes_s(delivery))
        finally:
            lanes.leave(delivery)

    def handle_sync(delivery: Delivery) -> None:
        lanes.enter(delivery)
        time.sleep(takes_s(delivery))
        lanes.leave(delivery)

    app.handler(
        "orders",
        name="handle",
        ordering="key",
        on_failure="park",
        concurrency=8,
        consume_timeout="20ms",
        retry=LATER,
    )(handle_async if kind == "async" else handle_sync)
    with live(app) as worker:
        for number in range(600):
            worker.send("orders", b"x", key=b"k%d" % (number % 8))
        worker.until(worker.settled)
        parked = len(worker.parked("orders"))
    assert 0 < parked < 600
    assert sum(map(len, lanes.order.values())) == 600
    assert lanes.overlaps == []
    assert lanes.in_order()


def _expire_now(worker: Live, delivery: Delivery) -> list[Item]:
    """Be the owner thread, at this delivery's deadline; returns the lanes it hands out."""
    engine = worker.loop.engine
    engine.expire([delivery], Now(time.monotonic() + 3600, time.time_ns() // 1_000_000))
    return list(delivery.assignment.handler.queue.items)


@EITHER
def test_the_deadline_in_the_last_moment_of_a_handler_takes_the_lane(kind: str) -> None:
    """The owner ends the delivery while its handler is about to return: the slot leaves."""
    app, seen, handed_out = App("g"), [], []
    workers: list[Live] = []
    still = threading.Event()

    def script(delivery: Delivery) -> Iterator[Gate]:
        seen.append(delivery.offset)
        if delivery.offset == 0:
            # This test is the owner from here on: its thread must not turn meanwhile.
            assert still.wait(PATIENCE_S)
            handed_out.extend(_expire_now(workers[0], delivery))
        return
        yield

    register(
        app, kind, "orders", script, ordering="key", on_failure="park", concurrency=4, retry=LATER
    )
    with live(app) as worker:
        workers.append(worker)
        worker.send("orders", key=b"k", n=5)
        worker.until(lambda: worker.queued() or seen)
        still.set()
        within(lambda: handed_out, "the deadline")
        time.sleep(0.05)
        # The slot has left the lane to whomever the owner gives it: nobody turns the owner here.
        assert seen == [0]
        worker.until(worker.settled)
        assert [record.origin.offset for record in worker.parked("orders")] == [0]
    assert seen == [0, 1, 2, 3, 4]


@EITHER
def test_an_answer_in_the_last_moment_before_the_deadline_keeps_the_lane(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner looks right after the handler has its outcome: the answer counts."""
    app, seen, looks = App("g"), [], []
    # Either this test's thread is the owner, or for a moment the handler's: never both.
    owner = threading.RLock()
    register(
        app,
        kind,
        "orders",
        lambda d: iter(seen.append(d.offset) or ()),
        ordering="key",
        on_failure="park",
        retry=LATER,
    )
    with live(app) as worker:
        executor, turn = worker.executor(), worker.loop.turn

        def clock() -> float:
            # The executor reads it right after the outcome is set, before it is posted.
            with owner:
                looks.extend(
                    _expire_now(worker, delivery)
                    for delivery in executor.running()
                    if delivery.outcome is not None and not delivery.closed
                )
            return time.monotonic()

        def turn_as_owner(most_s: float) -> None:
            with owner:
                turn(most_s)

        monkeypatch.setattr(executor, "_clock", clock)
        monkeypatch.setattr(worker.loop, "turn", turn_as_owner)
        worker.send("orders", key=b"k", n=20)
        worker.until(worker.settled)
        assert worker.parked("orders") == []
    assert seen == list(range(20))
    assert looks
    assert not any(looks)


@EVERY
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_snapshot_tells_what_waits_behind_a_record(kind: str, ordering: str) -> None:
    """For those of its lane, whose number no queue of slots tells."""
    gate = Gate()
    app = App(group="g")
    register(app, kind, "orders", lambda _: iter([gate]), ordering=ordering, consume_timeout="1h")
    with live(app) as worker:
        worker.send("orders", key=b"a")
        worker.until(lambda: worker.watcher.latest and worker.watcher.latest.handlers[0].oldest)
        worker.send("orders", key=b"a", n=19)

        def waiting() -> tuple[int, int, int]:
            assert worker.watcher.latest is not None
            (handler,) = worker.watcher.latest.handlers
            return handler.lane_waiting, handler.oldest[0].behind, handler.queued

        worker.until(lambda: waiting() == (19, 19, 0), "19 wait")
        gate.open()
        worker.until(worker.settled)
        told = worker.watcher
        worker.until(lambda: told.latest and not told.latest.handlers[0].lane_waiting)


def test_a_lane_that_is_over_is_known_to_be_before_more_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each record of a busy key would wait for the owner to hear of the one before."""
    app, seen, visits = App("g"), [], []
    register(
        app,
        "async",
        "orders",
        lambda d: iter(seen.append(d.offset) or ()),
        ordering="key",
        on_failure="park",
    )
    with live(app) as worker:
        monkeypatch.setattr(worker.executor(), "_handle_lane", lambda *_: visits.append(seen[-1]))
        for _ in range(20):
            worker.send("orders", b"x", key=b"k")
            worker.loop.turn(0.1)
            # On a busy machine its answer may have been taken in that very turn.
            within(lambda: bool(worker.loop._inbox.answered) or worker.settled())
        worker.until(worker.settled)
    assert (seen, visits) == (list(range(20)), [])
