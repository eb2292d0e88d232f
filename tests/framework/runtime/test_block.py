"""Order that survives a failure, under both executors: real threads, real waits."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest

from ackfloor import App, DeadLetter, Delivery, Pause, Retry, RetryPolicy
from ackfloor.core.messages.events import LateAnswers, RecordParked, RedeliveriesStarted
from ackfloor.runtime.reporting.ack_map import ack_map
from tests.framework.runtime.live import EVERY_KIND, KINDS, Gate, live, register

EITHER = pytest.mark.parametrize("kind", KINDS)
EVERY = pytest.mark.parametrize("kind", EVERY_KIND)
SOON = RetryPolicy.fixed("2ms", 3)


class Ledger:
    """What was started and what was done, in order, by lane."""

    def __init__(self) -> None:
        self.started: dict[bytes | None, list[tuple[int, int]]] = defaultdict(list)
        self.done: dict[bytes | None, list[int]] = defaultdict(list)
        self.overlaps: list[tuple[int, int]] = []
        self._running: dict[bytes | None, int] = {}
        self._lock = threading.Lock()

    def enter(self, delivery: Delivery) -> None:
        with self._lock:
            if delivery.key in self._running:
                self.overlaps.append((self._running[delivery.key], delivery.offset))
            self._running[delivery.key] = delivery.offset
            self.started[delivery.key].append((delivery.offset, delivery.attempt))

    def leave(self, delivery: Delivery, *, done: bool) -> None:
        with self._lock:
            del self._running[delivery.key]
            if done:
                self.done[delivery.key].append(delivery.offset)


@EVERY
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_order_holds_across_failures_under_load(kind: str, ordering: str) -> None:
    """Every fourth delivery fails in some way; each key sees its records in order, none lost."""
    app, ledger, noise = App("g"), Ledger(), random.Random(11)
    paused = set[int]()

    def fails(delivery: Delivery) -> Exception | None:
        if delivery.attempt > 3 or noise.random() > 0.25:
            return None
        kinds = [ConnectionError("away"), Retry("1ms"), DeadLetter("hopeless")]
        if delivery.offset not in paused and len(paused) < 5:
            paused.add(delivery.offset)
            return Pause("5ms")
        return noise.choice(kinds)

    def script(delivery: Delivery) -> Iterator[Gate]:
        ledger.enter(delivery)
        failure = fails(delivery)
        ledger.leave(delivery, done=failure is None or isinstance(failure, DeadLetter))
        if failure is not None:
            raise failure
        return
        yield

    register(app, kind, "orders", script, ordering=ordering, retry=SOON, concurrency=8)
    # In a partition's order there is one lane: its key is what every record carries.
    keys = [b"k%d" % (n % 13) if ordering == "key" else b"all" for n in range(600)]
    with live(app, partitions=1 if ordering == "partition" else 3) as worker:
        for key in keys:
            worker.send("orders", b"x", key=key)
        worker.until(worker.settled)
        dead = len(worker.dlq("orders"))
        worker.until(lambda: worker.watcher.told(RedeliveriesStarted))
        assert worker.watcher.told(RecordParked) == []
        assert not [name for name in worker.broker.topics if "--retry-" in name]
    assert sum(map(len, ledger.done.values())) == 600
    assert dead > 0
    assert ledger.overlaps == []
    assert all(offsets == sorted(set(offsets)) for offsets in ledger.done.values())


@EVERY
def test_a_timed_out_record_is_retried_before_its_lane_goes_on(kind: str) -> None:
    """A second attempt starts at the head, whatever became of the first; its answer is late."""
    app, gate, seen = App("g"), Gate(), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        seen.append((delivery.offset, delivery.attempt))
        if seen[-1] == (1, 1):
            yield gate

    register(
        app, kind, "orders", script, ordering="key", retry=SOON, concurrency=2,
        consume_timeout="2s" if kind == "process" else "60s",
    )  # fmt: skip
    with live(app) as worker:
        worker.send("orders", key=b"k", n=4)
        worker.until(lambda: gate.arrived == 1)
        if kind != "process":
            worker.skip(60)
        worker.until(worker.settled)
        gate.open()
        if kind == "thread":
            worker.until(lambda: worker.watcher.told(LateAnswers), "the late answer")
    assert seen == [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1)]


@EVERY
def test_a_waiting_lane_takes_no_slot(kind: str) -> None:
    """With one slot and one key that waits for long, the other keys are handled."""
    app, seen = App("g"), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        seen.append(delivery.offset)
        if delivery.key == b"bad":
            raise ConnectionError("away")
        return
        yield

    register(
        app, kind, "orders", script, ordering="key", retry=RetryPolicy.fixed("1h"), concurrency=1
    )
    with live(app) as worker:
        worker.send("orders", key=b"bad", n=3)
        worker.send("orders", key=b"good", n=20)
        worker.until(lambda: len(seen) == 21)
        assert worker.queued() == 0
        # One from before the others were settled says more are open.
        worker.until(
            lambda: (
                worker.watcher.latest
                and worker.watcher.latest.partitions[0].waiting
                and worker.watcher.latest.partitions[0].open_count == 3
            ),
            "a snapshot of the end",
        )
        assert worker.watcher.latest is not None
        (partition,) = worker.watcher.latest.partitions
        assert (partition.waiting, partition.floor, partition.open_count) == (1, 0, 3)
        assert partition.blocked == 3
        assert "waiting=1 blocked=3" in ack_map(worker.watcher.latest)
        assert partition.next_due_ms is not None
        assert partition.oldest_written_ms == worker.broker.records("orders")[0].timestamp()[1]
        assert (partition.paused, partition.pause_reason) == (False, None)
        (handler,) = worker.watcher.latest.handlers
        policy = (handler.on_failure, handler.delays_s, handler.max_redeliveries)
        assert policy == ("block", (3600.0,), 6)
    assert seen == [0, *range(3, 23)]


@EITHER
def test_an_answer_by_hand_holds_the_lane_as_well(kind: str) -> None:
    """`delivery.retry()` from another thread, while the handler waits for it or has returned."""
    app, seen = App("g"), []
    helpers: list[threading.Thread] = []

    def script(delivery: Delivery) -> Iterator[Gate]:
        seen.append((delivery.offset, delivery.attempt))
        answer = delivery.retry if delivery.attempt < 3 else delivery.ack
        helpers.append(threading.Thread(target=answer))
        helpers[-1].start()
        return
        yield

    register(app, kind, "orders", script, ordering="key", retry=SOON, ack="manual", concurrency=4)
    with live(app) as worker:
        worker.send("orders", key=b"k", n=20)
        worker.until(worker.settled)
    for helper in helpers:
        helper.join()
    assert seen == [(offset, attempt) for offset in range(20) for attempt in (1, 2, 3)]


@EITHER
def test_an_exception_beside_an_answer_by_hand_does_not_open_the_lane(kind: str) -> None:
    """Another thread has the right to answer and has not used it yet when the handler raises."""
    app, seen = App("g"), []
    helpers: list[threading.Thread] = []

    def slowly(delivery: Delivery) -> None:
        assert delivery.claim()
        claimed.set()
        raised.wait(60)
        delivery.unclaim()
        delivery.retry()

    claimed, raised = threading.Event(), threading.Event()

    def script(delivery: Delivery) -> Iterator[Gate]:
        seen.append((delivery.offset, delivery.attempt))
        if seen[-1] == (0, 1):
            helpers.append(threading.Thread(target=slowly, args=(delivery,)))
            helpers[-1].start()
            claimed.wait(60)
            raise ConnectionError("beside the answer")
        delivery.ack()
        return
        yield

    register(app, kind, "orders", script, ordering="key", retry=SOON, ack="manual", concurrency=4)
    with live(app) as worker:
        worker.send("orders", key=b"k", n=3)
        worker.until(claimed.is_set)
        worker.turn_for(0.05)
        assert seen == [(0, 1)]
        raised.set()
        worker.until(worker.settled)
    helpers[0].join()
    assert seen == [(0, 1), (0, 2), (1, 1), (2, 1)]
