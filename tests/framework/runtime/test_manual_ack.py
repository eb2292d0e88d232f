"""Answers by hand: from anywhere, once, and the slot is held until there is one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages.events import (
    DeliveryFailed,
    DeliveryTimedOut,
    LateAnswers,
    RecordDiscarded,
)
from tests.framework.runtime.live import KINDS, Gate, Script, live, register, within

LATER = RetryPolicy.fixed("1h", 1)
EITHER = pytest.mark.parametrize("kind", KINDS)


def keep(into: list[Delivery]) -> Script:
    """A script that hands its deliveries out and returns without an answer."""

    def script(delivery: Delivery) -> Iterator[Gate]:
        into.append(delivery)
        return
        yield

    return script


@EITHER
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda d: d.ack(), None),
        (lambda d: d.discard("a test order"), None),
        (lambda d: d.retry(after="1h", reason="locked"), "retry"),
        (lambda d: d.retry(), "retry"),
        (lambda d: d.dead_letter("no such order"), "dead_letter"),
        (lambda d: d.dead_letter(ValueError("no text")), "dead_letter"),
    ],
    ids=["ack", "discard", "retry_after", "retry", "dead_letter", "dead_letter_exception"],
)
def test_each_answer_counts_once_and_a_second_one_changes_nothing(
    kind: str, answer: object, reason: str | None
) -> None:
    """From the test's thread, long after the handler has returned."""
    app, kept = App("g"), []
    register(app, kind, "orders", keep(kept), ack="manual", retry=LATER)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: kept)
        assert not worker.settled()
        assert answer(kept[0]) is True
        assert [kept[0].ack(), kept[0].retry(), answer(kept[0])] == [False] * 3
        worker.until(worker.settled)
        written = worker.parked("orders") + worker.dlq("orders")
        worker.until(lambda: sum(e.count for e in worker.watcher.told(LateAnswers)) == 3)
    assert [record.reason for record in written] == ([] if reason is None else [reason])
    assert all(type(event.error_message) is str for event in worker.watcher.told(DeliveryFailed))


@EITHER
def test_an_answer_inside_the_handler_counts(kind: str) -> None:
    """The record is settled while the handler goes on."""
    app, gate, answers = App("g"), Gate(), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        answers.append(delivery.ack())
        yield gate
        answers.append(delivery.ack())

    register(app, kind, "orders", script, ack="manual")
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(worker.settled)
        worker.until(lambda: gate.arrived == 1)
        gate.open()
        worker.until(lambda: answers == [True, False])


@EITHER
def test_the_slot_is_held_until_the_answer(kind: str) -> None:
    """With two slots, the third record starts when one of the first two is answered."""
    app, kept = App("g"), []
    register(app, kind, "orders", keep(kept), ack="manual", concurrency=2)
    with live(app) as worker:
        worker.send("orders", n=3)
        worker.until(lambda: len(kept) == 2)
        worker.turn_for(0.1)
        assert len(kept) == 2
        kept[1].ack()
        worker.until(lambda: len(kept) == 3)
        for delivery in kept:
            delivery.ack()
        worker.until(worker.settled)


@EITHER
def test_the_lane_is_held_until_the_answer(kind: str) -> None:
    """The next record of the key starts after the answer, in order."""
    app, kept, order = App("g"), [], []
    register(app, kind, "orders", keep(kept), ack="manual", ordering="key", on_failure="park")
    with live(app) as worker:
        worker.send("orders", key=b"k", n=200)

        def answer() -> None:
            while len(order) < 200:
                if len(kept) > len(order):
                    assert len(kept) == len(order) + 1
                    order.append(kept[-1].offset)
                    assert kept[-1].ack()

        answering = threading.Thread(target=answer)
        answering.start()
        worker.until(worker.settled)
        answering.join()
    assert order == list(range(200))


@EITHER
def test_no_answer_until_the_deadline_is_a_timeout(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The record is parked, the slot is free, and a late answer returns False and is counted.

    The log says what was missing: the handler has returned, and nothing of it is abandoned.
    """
    app, kept = App("g"), []
    register(
        app,
        kind,
        "orders",
        keep(kept),
        ack="manual",
        consume_timeout="60ms",
        concurrency=1,
        retry=LATER,
    )
    with live(app, cancel_grace_s=0.05) as worker:
        worker.send("orders", n=2)
        # On a busy machine the time may be up before the handler has come so far.
        worker.until(lambda: kept and len(worker.parked("orders")) == 2)
        assert kept[0].ack() is False
        worker.until(lambda: worker.watcher.told(LateAnswers))
        within(lambda: worker.executor().abandoned() == 0)
        assert {record.reason for record in worker.parked("orders")} == {"timeout"}
    told = [line for line in caplog.messages if "consume timeout" in line]
    assert any("nobody has answered by hand (ack='manual') for handler" in line for line in told)
    assert not any("is abandoned" in line for line in told)


def test_a_handler_that_swallows_its_cancellation_waits_for_no_answer() -> None:
    """It returns after its deadline, within the grace or later, and its slot is free or gone.

    The slot's next delivery is waited for as ever, also where the handler took the cancellation
    back itself.
    """
    app, kept = App("g"), []

    @app.handler(
        "orders", name="handle", ack="manual", consume_timeout="50ms", concurrency=1, retry=LATER
    )
    async def handle(delivery: Delivery) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None
        if delivery.offset == 1:
            task.uncancel()
        await asyncio.sleep(0.1 if delivery.offset == 2 else 0)
        kept.append(delivery.offset)

    with live(app, cancel_grace_s=0.05) as worker:
        worker.send("orders", n=4)
        worker.until(lambda: sorted(kept) == [0, 1, 2, 3])
        worker.until(lambda: len(worker.parked("orders")) == 4)
        within(lambda: worker.executor().abandoned() == 0)


@EITHER
def test_extend_moves_the_deadline_and_no_further_than_allowed(kind: str) -> None:
    """It counts from now; `max_extend` counts from the handler's start."""
    app, kept = App("g"), []
    register(
        app,
        kind,
        "orders",
        keep(kept),
        ack="manual",
        consume_timeout="60s",
        max_extend="90s",
        retry=LATER,
    )
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: kept)
        for _ in range(8):
            assert kept[0].extend("50s")
            worker.skip(10)
            worker.turn_for(0.05)
        assert worker.parked("orders") == []
        worker.skip(10)
        worker.until(lambda: worker.parked("orders"))
        (parked,) = worker.parked("orders")
        assert not kept[0].extend("50s")
        assert 90 <= kept[0].finished_s - kept[0].started_s < 150
    assert parked.reason == "timeout"


@EITHER
def test_an_error_before_the_answer_follows_the_policy(kind: str) -> None:
    """An answer that comes afterwards is stale."""
    app, kept = App("g"), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        kept.append(delivery)
        raise ValueError("before")
        yield

    register(app, kind, "orders", script, ack="manual", retry=LATER)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: worker.parked("orders"))
        assert kept[0].ack() is False
        assert worker.parked("orders")[0].error_message == "before"


@EITHER
def test_an_error_after_the_answer_is_logged_and_counted_and_changes_nothing(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the answer has been settled long before."""
    app, gate = App("g"), Gate()

    def script(delivery: Delivery) -> Iterator[Gate]:
        delivery.ack()
        yield gate
        raise ValueError("afterwards")

    register(app, kind, "orders", script, ack="manual", concurrency=1)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: worker.settled() and gate.arrived == 1)
        gate.open()
        worker.until(lambda: worker.watcher.told(LateAnswers))
        worker.until(lambda: "after its delivery had been answered" in caplog.text)
        assert worker.parked("orders") == []
        worker.send("orders", b"x")
        worker.until(worker.settled)
    raised = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert any(isinstance(exc, ValueError) and str(exc) == "afterwards" for exc in raised)


@EITHER
def test_a_handler_that_hangs_after_its_answer_gives_its_slot_and_lane_back(kind: str) -> None:
    """At its deadline: the next record of the key is handled although it never returns."""
    app, gate, seen = App("g"), Gate(), []

    async def hang() -> None:
        while not gate.is_open:
            try:
                await gate.passed()
            except asyncio.CancelledError:
                continue

    async def handle_async(delivery: Delivery) -> None:
        seen.append(delivery.offset)
        delivery.ack()
        if delivery.offset == 0:
            await hang()

    def handle_sync(delivery: Delivery) -> None:
        seen.append(delivery.offset)
        delivery.ack()
        if delivery.offset == 0:
            gate.wait()

    app.handler(
        "orders",
        name="handle",
        ack="manual",
        consume_timeout="60s",
        concurrency=1,
        ordering="key",
        on_failure="park",
    )(handle_async if kind == "async" else handle_sync)
    with live(app, cancel_grace_s=0.05) as worker:
        worker.send("orders", key=b"k", n=3)
        worker.until(lambda: gate.arrived)
        worker.skip(60)
        worker.until(lambda: worker.settled() and seen == [0, 1, 2])
        assert worker.watcher.told(DeliveryTimedOut) == []
        assert worker.parked("orders") == []
        gate.open()


@EITHER
def test_a_revoke_frees_slots_that_wait_for_answers(kind: str) -> None:
    """The answer is stale then, and the record is delivered again to whoever owns it."""
    app, kept = App("g"), []
    register(app, kind, "orders", keep(kept), ack="manual", concurrency=1, consume_timeout="30s")
    with live(app, drain_s=0.05) as worker:
        for round_ in range(3):
            worker.send("orders", b"x")
            worker.until(lambda round_=round_: len(kept) == 2 * round_ + 1)
            worker.broker.rebalance()
            worker.until(lambda round_=round_: len(kept) == 2 * round_ + 2)
            assert [kept[-2].ack(), kept[-1].ack()] == [False, True]
            worker.until(worker.settled)
        within(lambda: worker.executor().abandoned() == 0)


@EITHER
def test_answers_from_other_threads_race_with_returns_deadlines_and_each_other(kind: str) -> None:
    """Exactly one answer of each delivery returns True, or it timed out; every record ends once."""
    app, kept, results, done = App("g"), [], {}, threading.Event()
    register(
        app,
        kind,
        "orders",
        keep(kept),
        ack="manual",
        consume_timeout="15ms",
        concurrency=32,
        retry=LATER,
    )

    def answer(start: int) -> None:
        position = 0
        while not done.is_set():
            while position < len(kept):
                delivery = kept[position]
                position += 1
                if delivery.offset % 7 == 0:
                    time.sleep(0.002)
                result = delivery.ack() if start else delivery.discard("raced")
                results.setdefault(delivery.offset, []).append(result)
            time.sleep(0.0005)

    with live(app, cancel_grace_s=0.05) as worker:
        threads = [threading.Thread(target=answer, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        worker.send("orders", n=2000)
        worker.until(worker.settled)
        within(lambda: len(results) == 2000 and all(len(r) == 2 for r in results.values()))
        done.set()
        for thread in threads:
            thread.join()
        parked = {record.origin.offset for record in worker.parked("orders")}
        discarded = {event.offset for event in worker.watcher.told(RecordDiscarded)}
        within(lambda: worker.executor().abandoned() == 0)
    assert all(sum(answers) == (offset not in parked) for offset, answers in results.items())
    assert not parked & discarded
    assert len(kept) == 2000
