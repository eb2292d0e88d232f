"""Slots: as many handlers at once as allowed, all of them at work, none asleep over work."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from ackfloor import App, Delivery
from ackfloor.core.messages.events import RecordsAcked
from ackfloor.core.state.snapshot import HandlerSnapshot, LongSlots, NoisyKeys
from tests.framework.runtime.live import EVERY_KIND, KINDS, PATIENCE_S, Gate, live, register

EITHER = pytest.mark.parametrize("kind", KINDS)
EVERY = pytest.mark.parametrize("kind", EVERY_KIND)


class Crowd:
    """How many handlers run at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = self.total = 0

    def enter(self) -> None:
        with self._lock:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)

    def leave(self) -> None:
        with self._lock:
            self.now -= 1


@EVERY
@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_exactly_as_many_run_at_once_as_allowed(kind: str, ordering: str) -> None:
    """All slots fill up, and not one more handler starts."""
    app, gate, crowd = App("g"), Gate(), Crowd()

    def script(delivery: Delivery) -> Iterator[Gate]:
        crowd.enter()
        yield gate
        crowd.leave()

    register(app, kind, "orders", script, concurrency=3, ordering=ordering, on_failure="park")
    with live(app) as worker:
        for number in range(50):
            worker.send("orders", b"x", key=b"k%d" % number)
        worker.until(lambda: crowd.now == 3 and worker.queued() == 47)
        worker.turn_for(0.1)
        assert (crowd.now, worker.queued()) == (3, 47)
        gate.open()
        worker.until(worker.settled)
    assert (crowd.most, crowd.total) == (3, 50)


@EVERY
@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_a_trickle_never_waits_for_a_wake_up(kind: str, ordering: str) -> None:
    """A thousand single records, each sent the moment the one before is done, in real threads.

    A wake-up that is lost would leave a record lying in front of idle slots.
    """
    app, seen = App("g"), []
    # Over the puppets' sockets each takes several times as long.
    count = 200 if kind == "process" else 1000
    register(
        app,
        kind,
        "orders",
        lambda d: iter(seen.append(d.offset) or ()),
        concurrency=4,
        ordering=ordering,
        on_failure="park",
    )
    with live(app) as worker:
        for number in range(count):
            worker.send("orders", b"x", key=b"k%d" % (number % 3))
            until_s = time.monotonic() + PATIENCE_S
            while len(seen) <= number:
                worker.loop.turn(0.001)
                assert time.monotonic() < until_s, f"record {number} lies before idle slots"
        worker.until(worker.settled)
    assert sorted(seen) == list(range(count))


@EITHER
def test_every_slot_wakes_for_a_burst(kind: str) -> None:
    """After an idle time, one batch is taken by all slots although only one is woken directly."""
    app, gates, crowd = App("g"), [Gate() for _ in range(30)], Crowd()
    rounds = iter(gates)
    current = [next(rounds)]

    def script(delivery: Delivery) -> Iterator[Gate]:
        crowd.enter()
        yield current[0]
        crowd.leave()

    register(app, kind, "orders", script, concurrency=16)
    with live(app) as worker:
        for gate in gates:
            current[0] = gate
            worker.send("orders", n=16)
            worker.until(lambda: crowd.now == 16, "all slots at work")
            gate.open()
            worker.until(lambda: worker.settled() and crowd.now == 0)
    assert crowd.total == 480


def test_both_kinds_work_side_by_side_in_one_worker() -> None:
    """An app with an async and a plain handler: each has its own slots, neither waits."""
    app, gate, seen = App("g"), Gate(), []
    register(app, "async", "orders", lambda d: iter((gate,)), name="bill", concurrency=1)
    register(app, "thread", "calls", lambda d: iter(seen.append(d.offset) or ()), name="note")
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.send("calls", b"x", n=100)
        worker.until(lambda: len(seen) == 100)
        gate.open()
        worker.until(worker.settled)
        acked = worker.watcher.told(RecordsAcked)
    assert {(event.topic, event.handler) for event in acked} == {
        ("orders", "bill"),
        ("calls", "note"),
    }


@EVERY
def test_a_snapshot_tells_of_slots_that_are_all_held_for_long(kind: str) -> None:
    """And of the keys that hold them, until these are handled."""
    gate, app = Gate(), App(group="g")
    register(app, kind, "orders", lambda _: iter([gate]), concurrency=2, consume_timeout="1h")

    def shown() -> HandlerSnapshot:
        assert running.watcher.latest is not None
        return running.watcher.latest.handlers[0]

    with live(app) as running:
        running.until(lambda: running.watcher.latest, "the first snapshot")
        for key in (b"a", b"b"):
            running.send("orders", key=key)
        running.until(lambda: shown().running == 2, "both run")
        assert shown().long_slots == LongSlots(0, 1800.0)
        running.skip(1801.0)
        running.until(lambda: shown().long_slots.full, "the slots are held for long")
        running.until(lambda: shown().noisy_keys.hanging == 2, "the keys hang")
        assert shown().long_slots.count == 2
        assert {key.key for key in shown().noisy_keys.newest} == {"a", "b"}
        gate.open()
        running.until(running.settled)
        running.until(lambda: shown().noisy_keys == NoisyKeys(), "no key hangs")
        assert not shown().long_slots.full
