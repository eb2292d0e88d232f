"""Batches on real threads and a real event loop: what is shared, and what each record has alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ackfloor import App, DeadLetter, Delivery, Discard, Pause, Retry, RetryPolicy
from ackfloor.core.messages.events import (
    BatchFailed,
    DeliveryTimedOut,
    LateAnswers,
    RecordsAcked,
    RecordsReceived,
)
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.record import TopicPartition
from ackfloor.runtime.calls.invoke import current_delivery
from tests.framework.runtime import puppets
from tests.framework.runtime.live import EVERY_KIND, KINDS, Gate, live, within

EITHER = pytest.mark.parametrize("kind", KINDS)
ANY = pytest.mark.parametrize("kind", EVERY_KIND)
ORDERINGS = pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
SIZE = 5
Script = Callable[[list[str], list[Delivery]], Iterator[Gate]]


def batch_app(kind: str, script: Script, **options: Any) -> App:
    """An app of one handler that takes batches and runs a script."""
    app = App("g")

    async def handle_async(items: list[str], deliveries: list[Delivery]) -> None:
        for gate in script(items, deliveries):
            await gate.passed()

    def handle_sync(items: list[str], deliveries: list[Delivery]) -> None:
        for gate in script(items, deliveries):
            gate.wait()

    given = {"batch": SIZE, "batch_wait": "20ms", "retry": RetryPolicy.fixed("10ms", 1)}
    if kind == "process":
        puppets.play("orders", handle_sync)
        given |= {"executor": "process", "concurrency": 1}
    functions = {"async": handle_async, "thread": handle_sync, "process": puppets.puppets}
    app.handler("orders", name="handle", **(given | options))(functions[kind])  # type: ignore[arg-type]
    return app


@ANY
@ORDERINGS
def test_lists_have_the_same_order_and_length(kind: str, ordering: str) -> None:
    """Values and deliveries belong together; nobody waits for more than a batch."""
    calls: list[list[tuple[str, int]]] = []

    def script(items: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        assert [(d.value or b"").decode() for d in deliveries] == items
        assert current_delivery() is None
        calls.append([(item, d.attempt) for item, d in zip(items, deliveries, strict=True)])
        return
        yield

    with live(batch_app(kind, script, ordering=ordering)) as worker:
        worker.send("orders", b"", n=12, key=b"k")
        worker.until(worker.settled)
        acked = [n for event in worker.watcher.told(RecordsAcked) for n in event.durations_s]
    assert sorted(int(item) for call in calls for item, _ in call) == list(range(12))
    assert max(map(len, calls)) <= SIZE
    assert len(acked) == 12, "durations are per record"


@ANY
def test_a_failed_batch_is_tried_one_by_one_at_once(kind: str) -> None:
    """Those that nobody answered, as the same attempt: a poison record fails alone."""
    calls: list[list[tuple[str, int]]] = []

    def script(items: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        calls.append([(item, d.attempt) for item, d in zip(items, deliveries, strict=True)])
        if len(deliveries) > 1:
            answer_three(deliveries)
        if "4" in items:
            raise ValueError("x")
        return
        yield

    with live(batch_app(kind, script, batch_wait="2s")) as worker:
        worker.send("orders", b"", n=5)
        worker.until(lambda: len(worker.dlq("orders")) == 2 and worker.settled())
        parked, dead = worker.parked("orders"), worker.dlq("orders")
        failed = worker.watcher.told(BatchFailed)
    assert calls[0] == [(str(n), 1) for n in range(5)]
    assert sorted(calls[1:]) == [[("3", 1)], [("4", 1)], [("4", 2)]]
    assert [(event.count, event.error_type) for event in failed] == [(2, "ValueError")]
    assert [(record.value, record.reason) for record in parked] == [(b"4", Reason.ERROR)]
    assert sorted((r.value, r.reason) for r in dead if r.value) == [
        (b"1", Reason.DEAD_LETTER),
        (b"4", Reason.EXHAUSTED),
    ]


@ANY
def test_a_wait_that_is_asked_for_goes_for_all(kind: str) -> None:
    """That nobody answered: it is a plan, and says of each when it comes again, alone."""
    calls: list[list[tuple[str, int]]] = []

    def script(items: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        calls.append([(item, d.attempt) for item, d in zip(items, deliveries, strict=True)])
        if deliveries[0].attempt == 1:
            answer_three(deliveries)
            raise Retry(after="10ms")
        return
        yield

    with live(batch_app(kind, script, batch_wait="2s")) as worker:
        worker.send("orders", b"", n=5)
        worker.until(lambda: len(calls) >= 3 and worker.settled())
        parked, dead = worker.parked("orders"), worker.dlq("orders")
        assert worker.watcher.told(BatchFailed) == []
    assert calls[0] == [(str(n), 1) for n in range(5)]
    assert sorted(calls[1:]) == [[("3", 2)], [("4", 2)]]
    assert {(record.value, record.reason) for record in parked} == {
        (b"3", Reason.RETRY),
        (b"4", Reason.RETRY),
    }
    assert [record.value for record in dead] == [b"1"]


def answer_three(deliveries: list[Delivery]) -> None:
    """Answer the first three of a batch by hand, each in another way."""
    assert deliveries[0].ack()
    assert not deliveries[0].retry()
    assert deliveries[1].dead_letter("bad")
    assert deliveries[2].discard("old")


@ANY
def test_what_does_not_decode_is_not_in_the_batch(kind: str) -> None:
    """It is dead-lettered; where nothing decodes the function is not called."""
    calls: list[list[str]] = []

    def script(items: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        calls.append(items)
        assert len(deliveries) == len(items)
        return
        yield

    with live(batch_app(kind, script)) as worker:
        for value in (b"a", b"\xff", b"b"):
            worker.send("orders", value)
        worker.until(lambda: worker.settled() and len(worker.dlq("orders")) == 1)
        worker.send("orders", b"\xfe")
        worker.until(lambda: len(worker.dlq("orders")) == 2)
        assert {record.reason for record in worker.dlq("orders")} == {Reason.DECODE}
    assert sorted(item for call in calls for item in call) == ["a", "b"]


@EITHER
@ORDERINGS
def test_returning_something_is_a_failure_that_says_so(kind: str, ordering: str) -> None:
    """The records are retried and not lost."""
    app = App("g")

    async def handle_async(items: list[str]) -> Any:
        return items

    def handle_sync(items: list[str]) -> Any:
        return items

    app.handler(
        "orders", name="handle", batch=2, batch_wait="5ms", ordering=ordering,
        retry=RetryPolicy.fixed("5ms", 1),
    )(handle_async if kind == "async" else handle_sync)  # fmt: skip
    with live(app) as worker:
        worker.send("orders", b"x", key=b"k")
        worker.until(lambda: worker.dlq("orders"))
        (dead,) = worker.dlq("orders")
    assert dead.error_type == "TypeError"
    assert "a batch handler returned list: return nothing" in dead.error_message


@ANY
@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_one_deadline_ends_all_that_nobody_answered(kind: str, ordering: str) -> None:
    """They are parked at once and come back alone; the answer of the late call changes nothing."""
    gate = Gate()
    calls: list[int] = []

    def script(items: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        calls.append(len(items))
        if deliveries[0].attempt == 1:
            deliveries[0].ack()
            yield gate

    # A process reads its own clock: that of the machine, which nobody puts forward.
    app = batch_app(
        kind, script, consume_timeout="3s" if kind == "process" else "60s", ordering=ordering,
        on_failure="park",
        batch_wait="2s", concurrency=1,
    )  # fmt: skip
    with live(app, cancel_grace_s=0.01) as worker:
        worker.send("orders", b"", n=5, key=b"k")
        worker.until(lambda: gate.arrived == 1)
        if kind != "process":
            worker.skip(60)
        worker.until(lambda: len(worker.parked("orders")) == 4, "the park of the others")
        assert {record.reason for record in worker.parked("orders")} == {Reason.TIMEOUT}
        worker.until(lambda: worker.settled() and worker.loop.engine.flow.open_count == 0)
        gate.open()
        within(lambda: worker.executor().abandoned() == 0)
        worker.until(lambda: worker.watcher.told(LateAnswers) or kind != "thread")
        assert len(worker.watcher.told(DeliveryTimedOut)) == 4
        assert len(worker.parked("orders")) == 4
    assert calls == [5, 1, 1, 1, 1]


@ANY
def test_extending_one_extends_all(kind: str) -> None:
    """A batch has one deadline."""
    gate = Gate()
    extended = threading.Event()

    def script(_: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        assert deliveries[2].extend("1h")
        assert len({d.deadline_s for d in deliveries}) == 1
        extended.set()
        yield gate

    timeout = "3s" if kind == "process" else "60s"
    with live(batch_app(kind, script, consume_timeout=timeout, batch_wait="2s")) as worker:
        worker.send("orders", b"", n=5)
        worker.until(extended.is_set)
        if kind != "process":
            worker.skip(60)
        worker.turn_for(3.2 if kind == "process" else 0.1)
        gate.open()
        worker.until(worker.settled)
        assert worker.parked("orders") == []


@ANY
@ORDERINGS
def test_a_pause_keeps_what_nobody_answered(kind: str, ordering: str) -> None:
    """The same attempts come again, in their order, and nothing starts before."""
    calls: list[list[str]] = []
    attempts: set[int] = set()

    def script(items: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        calls.append(items)
        attempts.update(d.attempt for d in deliveries)
        if len(calls) == 1:
            deliveries[1].ack()
            raise Pause("50ms", "away")
        return
        yield

    app = batch_app(kind, script, ordering=ordering, batch_wait="200ms", concurrency=1)
    with live(app) as worker:
        worker.send("orders", b"", n=5, key=b"k")
        worker.until(worker.settled)
        assert worker.parked("orders") + worker.dlq("orders") == []
    assert calls[0] == [str(n) for n in range(5)]
    assert [item for call in calls[1:] for item in call] == ["0", "2", "3", "4"]
    assert attempts == {1}


@ANY
@pytest.mark.parametrize("raised", [DeadLetter("x"), Discard("x")], ids=["dead letter", "discard"])
def test_what_is_raised_goes_for_all(kind: str, raised: Exception) -> None:
    """That nobody has answered; what the dead letters get has said so of each record alone."""
    sizes: list[int] = []

    def script(_: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        sizes.append(len(deliveries))
        if len(deliveries) > 1:
            deliveries[0].ack()
        raise raised
        yield

    with live(batch_app(kind, script, batch_wait="2s")) as worker:
        worker.send("orders", b"", n=5)
        expected = 4 if isinstance(raised, DeadLetter) else 0
        worker.until(lambda: worker.settled() and len(worker.dlq("orders")) == expected)
        assert worker.parked("orders") == []
    assert sizes == [5] + [1] * expected


@EITHER
def test_an_error_after_all_answers_is_logged(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """It concerns no record, and is not swallowed."""

    def script(_: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        for delivery in deliveries:
            delivery.ack()
        raise ValueError("afterwards")
        yield

    with live(batch_app(kind, script)) as worker:
        worker.send("orders", b"", n=2)
        worker.until(lambda: worker.settled() and "afterwards" in caplog.text)
        assert worker.parked("orders") == []


@ANY
@ORDERINGS
def test_failures_in_place_keep_the_order(kind: str, ordering: str) -> None:
    """A failed batch is handled record by record, each once its predecessor is settled."""
    done: list[str] = []
    calls: list[tuple[int, int]] = []

    def script(items: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        calls.append((deliveries[0].attempt, len(items)))
        if len(items) > 1 or (items == ["2"] and deliveries[0].attempt < 3):
            raise ValueError("not in company")
        done.extend(items)
        return
        yield

    app = batch_app(
        kind, script, ordering=ordering, on_failure="block", batch_wait="1s",
        retry=RetryPolicy.fixed("10ms", 3),
    )  # fmt: skip
    with live(app) as worker:
        worker.send("orders", b"", n=10, key=b"k")
        worker.until(worker.settled)
        assert worker.parked("orders") + worker.dlq("orders") == []
    assert sorted(done) == [str(n) for n in range(10)]
    if ordering != "unordered":
        assert done == [str(n) for n in range(10)]
    assert [call for call in calls if call[0] > 1] == [(2, 1), (3, 1)]
    assert sum(size == 1 for _, size in calls) == 12, "nobody but the third failed alone"


@ANY
def test_a_revoke_waits_for_the_batch(kind: str) -> None:
    """What runs may end within the drain; what waits for company comes again."""
    gate, started = Gate(), threading.Event()
    handled: list[str] = []

    def script(items: list[str], _: list[Delivery]) -> Iterator[Gate]:
        started.set()
        yield gate
        handled.extend(items)

    app = batch_app(kind, script, batch_wait="1h")
    with live(app, drain_s=30.0) as worker:
        worker.send("orders", b"", n=7)
        worker.until(started.is_set)
        opening = threading.Timer(0.05, gate.open)
        opening.start()
        worker.broker.rebalance()
        worker.until(lambda: len(handled) == 5)
        worker.send("orders", b"more", n=3)
        worker.until(worker.settled)
        opening.join()
    assert sorted(handled) == ["0", "1", "2", "3", "4", "5", "6", "more0", "more1", "more2"]


@ANY
def test_a_batch_of_two_partitions_outlives_the_loss_of_one(kind: str) -> None:
    """The handler goes on for the other; what it says of the lost one is stale."""
    gate, started = Gate(), threading.Event()
    calls: list[list[tuple[int, int]]] = []

    def script(_: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        calls.append([(d.partition, d.offset) for d in deliveries])
        started.set()
        if len(calls) == 1:
            yield gate

    app = batch_app(kind, script, batch=2, batch_wait="1h", concurrency=1)
    with live(app, partitions=2) as worker:
        for partition in (0, 1):
            worker.broker.produce("orders", b"x", partition=partition)
        worker.until(started.is_set)
        worker.loop.on_lost([TopicPartition("orders", 0)])
        worker.turn_for(0.05)
        assert len(list(worker.executor().running())) == 2
        gate.open()
        other = worker.loop.engine.assignments["orders", 1]
        worker.until(lambda: other.tracker.floor() == 1)
        assert ("orders", 0) not in worker.loop.engine.assignments
        received = worker.watcher.told(RecordsReceived)
        assert sum(event.count for event in received) == 2
    assert sorted(calls[0]) == [(0, 0), (1, 0)]


@ANY
def test_the_end_of_the_worker_waits_for_the_batch(kind: str) -> None:
    """And cuts it short when the time is over: its records stay open."""
    gate, started = Gate(), threading.Event()

    def script(_: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        deliveries[0].ack()
        started.set()
        yield gate

    with live(batch_app(kind, script, batch_wait="2s"), shutdown_s=0.05) as worker:
        worker.send("orders", b"", n=5)
        worker.until(started.is_set)
        engine = worker.loop.engine
        worker.until(lambda: engine.flow.open_count == 4)
        assert worker.close() == 4
        gate.open()
        assert worker.parked("orders") + worker.dlq("orders") == []


@ANY
def test_many_batches_at_once(kind: str) -> None:
    """As many calls as the concurrency says, however many records they have."""
    gate, lock = Gate(), threading.Lock()
    most, now = [0], [0]

    def script(_: list[str], __: list[Delivery]) -> Iterator[Gate]:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        yield gate
        with lock:
            now[0] -= 1

    with live(batch_app(kind, script, concurrency=3)) as worker:
        worker.send("orders", b"", n=40)
        worker.until(lambda: gate.arrived == 3)
        worker.turn_for(0.05)
        assert gate.arrived == 3
        gate.open()
        worker.until(worker.settled)
    assert most == [3]
