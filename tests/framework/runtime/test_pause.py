"""Pause: the record stays open and first in its lane, the handler rests, no budget is spent."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from ackfloor import App, Delivery, Pause
from ackfloor.core.engine.engine import Engine
from ackfloor.core.messages.events import HandlerHeld, LateAnswers
from tests.framework.runtime.live import (
    EVERY_KIND,
    KINDS,
    KINDS_AND_ACKS,
    Gate,
    live,
    register,
    within,
)

EITHER = pytest.mark.parametrize("kind", KINDS)
EVERY = pytest.mark.parametrize("kind", EVERY_KIND)
ORDERED = {"ordering": "key", "on_failure": "park"}


@pytest.mark.parametrize(("kind", "ack"), KINDS_AND_ACKS)
@pytest.mark.parametrize("options", [{}, ORDERED], ids=["unordered", "key"])
def test_a_paused_record_comes_again_as_the_same_attempt(
    kind: str, options: dict[str, str], ack: str
) -> None:
    """After the pause and not before, as often as it asks, with nothing written anywhere."""
    app, starts = App("g"), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        starts.append((delivery.attempt, time.monotonic()))
        if len(starts) < 4:
            raise Pause("100ms", reason="bank away")
        if ack == "manual":
            delivery.ack()
        return
        yield

    register(app, kind, "orders", script, ack=ack, **options)
    with live(app) as worker:
        worker.send("orders", b"x", key=b"k")
        worker.until(worker.settled)
        assert worker.parked("orders") + worker.dlq("orders") == []
        held = worker.watcher.told(HandlerHeld)
    assert [attempt for attempt, _ in starts] == [1] * 4
    waits_s = [later - sooner for (_, sooner), (_, later) in pairwise(starts)]
    assert all(wait_s >= 0.1 for wait_s in waits_s)
    assert [(event.duration_s, event.reason) for event in held] == [(0.1, "bank away")] * 3


class SlowDeque(deque[Any]):
    """Its writer stops after each thing it adds: what it adds elsewhere comes later."""

    def append(self, item: Any) -> None:
        super().append(item)
        time.sleep(0.02)


@EITHER
def test_what_a_pause_stopped_starts_with_its_end_wherever_the_owner_is(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner is within a turn, and has looked for pauses, when the executor gives it back."""
    app, starts, asks = App("g"), [], threading.Event()

    def script(_delivery: Delivery) -> Iterator[Gate]:
        starts.append(time.monotonic())
        if len(starts) == 1:
            within(asks.is_set)
            raise Pause("1h")
        return
        yield

    register(app, kind, "orders", script, concurrency=2)
    with live(app) as worker:
        inbox = worker.loop._inbox
        inbox.returned = SlowDeque()
        inbox.pause_requests = SlowDeque()
        take_commands = Engine.take_commands

        def amid_a_turn(self: Engine) -> Any:
            if starts and not asks.is_set():
                asks.set()
                within(lambda: inbox.returned)
            return take_commands(self)

        monkeypatch.setattr(Engine, "take_commands", amid_a_turn)
        worker.send("orders", b"x")
        worker.until(asks.is_set)
        worker.turn_for(0.1)
        assert len(starts) == 1
        worker.skip(3600)
        worker.until(worker.settled)
    assert len(starts) == 2


@EITHER
@pytest.mark.parametrize("options", [{}, ORDERED], ids=["unordered", "key"])
def test_nothing_starts_while_a_handler_is_held(kind: str, options: dict[str, str]) -> None:
    """Also in a busy lane; records that come meanwhile wait, another handler does not."""
    app, starts, others, paused = App("g"), [], [], []

    def script(delivery: Delivery) -> Iterator[Gate]:
        if delivery.key == b"asks" and not paused:
            paused.append(delivery.offset)
            raise Pause("1h")
        starts.append(delivery.offset)
        time.sleep(0.001)
        return
        yield

    def other(delivery: Delivery) -> Iterator[Gate]:
        others.append(delivery.value)
        return
        yield

    register(app, kind, "orders", script, concurrency=2, **options)
    register(app, kind, "calls", other, name="other")
    with live(app) as worker:
        worker.send("orders", key=b"busy", n=300)
        worker.send("orders", b"x", key=b"asks")
        worker.send("orders", key=b"busy", n=100)
        worker.until(lambda: paused)
        worker.send("orders", key=b"late", n=10)
        worker.send("calls", b"x")
        worker.until(lambda: others)
        worker.until(lambda: worker.watcher.latest and worker.watcher.latest.handlers[0].held_for_s)
        # What had begun beside it has ended.
        worker.until(lambda: not list(worker.executor().running()))
        before = len(starts)
        worker.turn_for(0.2)
        assert len(starts) == before < 411
        worker.skip(3600)
        worker.until(worker.settled)
    assert len(starts) == 411


@EVERY
def test_a_paused_record_is_first_in_its_lane(kind: str) -> None:
    """However many lanes ask for a pause at once: each goes on with the record that asked."""
    app, asked, order = App("g"), set(), {}

    def script(delivery: Delivery) -> Iterator[Gate]:
        name = (delivery.key, delivery.offset)
        if delivery.offset % 3 == 0 and name not in asked:
            asked.add(name)
            raise Pause("5ms")
        order.setdefault(delivery.key, []).append(delivery.offset)
        return
        yield

    register(app, kind, "orders", script, concurrency=16, ordering="key", on_failure="park")
    with live(app) as worker:
        for number in range(300):
            worker.send("orders", b"x", key=b"k%d" % (number % 10))
        worker.until(worker.settled)
        assert worker.parked("orders") == []
    assert {len(offsets) for offsets in order.values()} == {30}
    assert all(offsets == sorted(offsets) for offsets in order.values())


@EITHER
def test_many_handlers_may_ask_at_once(kind: str) -> None:
    """The pause ends once, nothing is lost or handled twice, and the slots are all in use again."""
    app, gate, later, asked, ended = App("g"), Gate(), Gate(), set(), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        if delivery.offset not in asked:
            yield gate
            asked.add(delivery.offset)
            raise Pause("50ms")
        yield later
        ended.append(delivery.offset)

    register(app, kind, "orders", script, concurrency=8)
    with live(app) as worker:
        worker.send("orders", n=8)
        worker.until(lambda: gate.arrived == 8)
        gate.open()
        worker.until(lambda: later.arrived == 8)
        later.open()
        worker.until(worker.settled)
    assert sorted(ended) == list(range(8))


@EITHER
def test_a_pause_after_the_deadline_pauses_nothing(kind: str) -> None:
    """The delivery has ended: its record is parked, and the late wish is counted, not granted."""
    app, gate = App("g"), Gate()
    ended = []

    def script(delivery: Delivery) -> Iterator[Gate]:
        if delivery.value == b"late":
            try:
                yield gate
            finally:
                raise Pause("1h")
        ended.append(delivery.value)

    register(app, "thread", "orders", script, concurrency=1, consume_timeout="50ms")
    if kind == "async":
        app = App("g")

        @app.handler("orders", name="handle", concurrency=1, consume_timeout="50ms")
        async def handle(delivery: Delivery) -> None:
            if delivery.value == b"late":
                try:
                    await gate.passed()
                finally:
                    raise Pause("1h")
            ended.append(delivery.value)

    with live(app) as worker:
        worker.send("orders", b"late")
        worker.until(lambda: worker.parked("orders"))
        gate.open()
        worker.until(lambda: worker.watcher.told(LateAnswers))
        worker.send("orders", b"next")
        worker.until(lambda: b"next" in ended)
        assert worker.watcher.told(HandlerHeld) == []


# An operator's.


@EVERY
@pytest.mark.parametrize("options", [{}, ORDERED], ids=["unordered", "key"])
def test_nothing_starts_while_an_operator_pauses_a_handler(
    kind: str, options: dict[str, str]
) -> None:
    """What runs ends, the executor gives back the rest, and the snapshot says for how long."""
    app, gate, starts = App("g"), Gate(), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        starts.append((delivery.partition, delivery.offset))
        if not gate.is_open:
            yield gate

    register(app, kind, "orders", script, concurrency=2, **options)
    with live(app) as worker:
        engine = worker.loop.engine
        worker.send("orders", b"x", key=b"a", n=20)
        worker.send("orders", b"x", key=b"b", n=20)
        worker.until(lambda: gate.arrived == 2)
        engine.pause("handle", worker.clock.now().mono_s + 3600, "a migration", worker.clock.now())
        worker.loop.turn(0.005)
        worker.until(lambda: not worker.executor().queued())
        gate.open()
        worker.until(lambda: not list(worker.executor().running()))
        worker.turn_for(0.2)
        assert len(starts) == 2
        worker.until(lambda: worker.watcher.latest and worker.watcher.latest.handlers[0].paused)
        shown = worker.watcher.latest.handlers[0]
        assert (shown.paused_reason, shown.held_for_s) == ("a migration", 0.0)
        assert 3500 < shown.paused_for_s <= 3600
        engine.resume("handle", worker.clock.now())
        worker.until(worker.settled)
        worker.until(lambda: not worker.watcher.latest.handlers[0].paused)
    assert len(starts) == len(set(starts)) == 40
