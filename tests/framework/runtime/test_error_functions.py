"""What `@app.on_error` is told, on which thread, and that it can change nothing of a record."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ackfloor import (
    App,
    DeadLetter,
    Delivery,
    Discard,
    Failure,
    RetryPolicy,
    SettingError,
    current_delivery,
)
from ackfloor.core.messages.events import DeliveryFailed, RecordDeadLettered
from ackfloor.core.records.redaction import Redaction
from ackfloor.runtime.loop.error_functions import MOST_WAITING
from tests.framework.runtime import process_handlers
from tests.framework.runtime.live import Gate, Live, live

GIVES_UP = RetryPolicy(max_redeliveries=0)

Told = list[tuple[BaseException | None, Failure, Delivery]]


def fails(value: str) -> None:
    """Fail as handlers do."""
    raise ValueError(f"no card {value}")


async def fails_async(value: str) -> None:
    """Fail on the event loop."""
    fails(value)


def fails_with_all(values: list[str]) -> None:
    """Fail with a batch."""
    fails(values[0])


async def fails_with_all_async(values: list[str]) -> None:
    """Fail with a batch on the event loop."""
    fails(values[0])


KINDS: dict[str, tuple[Callable[..., object], dict[str, object]]] = {
    "async": (fails_async, {}),
    "thread": (fails, {}),
    "async batch": (fails_with_all_async, {"batch": 1}),
    "thread batch": (fails_with_all, {"batch": 1}),
    "process": (process_handlers.fail_one, {"executor": "process"}),
    "process batch": (process_handlers.fail_all, {"executor": "process", "batch": 1}),
}


def app_of(kind: str) -> tuple[App, Told]:
    """An app whose handler fails, and what its function is told."""
    app, told = App("g"), Told()
    function, options = KINDS[kind]
    app.handler("orders", name="pay", retry=GIVES_UP, **options)(function)  # type: ignore[arg-type]

    @app.on_error
    def report(exc: BaseException | None, failure: Failure, delivery: Delivery) -> None:
        told.append((exc, failure, delivery))

    return app, told


def dead_letters(worker: Live) -> int:
    """How many records were given up."""
    return len(worker.watcher.told(RecordDeadLettered))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_told_of_each_failure(kind: str) -> None:
    """With the exception where that is in this process, and with the failure and the delivery."""
    app, told = app_of(kind)
    with live(app) as worker:
        topic_id = worker.broker.topic_id("orders")
        worker.broker.produce("orders", b"4242", key=b"k", headers=[("h", b"1")])
        worker.broker.produce("orders", b"4243")
        worker.until(lambda: len(told) == 2)
        worker.until(lambda: dead_letters(worker) == 2)
    exc, failure, delivery = min(told, key=lambda one: one[2].offset)
    if "process" in kind:
        assert exc is None
    else:
        assert isinstance(exc, ValueError)
        assert exc.__traceback__ is not None
    assert failure.error_type == "ValueError"
    assert "ValueError: no card " in failure.stack
    assert failure.fingerprint
    assert isinstance(delivery, Delivery)
    assert (delivery.topic, delivery.partition, delivery.offset) == ("orders", 0, 0)
    assert (delivery.key, delivery.value, delivery.attempt) == (b"k", b"4242", 1)
    assert delivery.headers == [("h", b"1")]
    assert tuple(delivery.origin) == ("orders", 0, 0)
    assert delivery.idempotency_key == f"{topic_id}/0/0"
    assert delivery.timestamp > 0
    assert delivery.deadline_s is not None


def test_it_runs_on_a_thread_of_its_own_and_what_it_raises_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also an exit; the next failure is told all the same, and the other functions are called."""
    app, told = app_of("thread")
    where: list[tuple[str, object]] = []

    @app.on_error
    def breaks(_exc: BaseException | None, _failure: Failure, _delivery: Delivery) -> None:
        where.append((threading.current_thread().name, current_delivery()))
        raise SystemExit(3)

    with live(app) as worker:
        for _ in range(20):
            worker.broker.produce("orders", b"x")
        worker.until(lambda: len(where) == 20)
        worker.until(lambda: dead_letters(worker) == 20)
    assert set(where) == {("ackfloor:on_error", None)}
    assert len(told) == 20
    lines = [r.getMessage() for r in caplog.records if r.name == "ackfloor.on_error"]
    assert sum("breaks, a function of `on_error`, failed" in line for line in lines) >= 1
    # Each is a line or in a count.
    counts = [int(line.split()[0]) for line in lines if "more call" in line]
    assert sum("failed" in line and "more" not in line for line in lines) + sum(counts) == 20
    assert not any(t.name == "ackfloor:on_error" for t in threading.enumerate())


def test_the_record_goes_on_while_it_hangs_and_what_waits_is_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No record waits for it; the failures that it was not told of are counted."""
    app, gate, told = App("g"), Gate(), Told()
    count = MOST_WAITING + 50
    app.handler("orders", name="pay", retry=GIVES_UP)(fails)

    @app.on_error
    def slow(exc: BaseException | None, failure: Failure, delivery: Delivery) -> None:
        told.append((exc, failure, delivery))
        gate.wait()

    with live(app) as worker:
        worker.broker.produce("orders", b"x")
        worker.until(lambda: gate.arrived == 1)
        for _ in range(count):
            worker.broker.produce("orders", b"x")
        worker.until(lambda: dead_letters(worker) == count + 1)
        worker.until(worker.settled)
        gate.open()
    assert len(told) == MOST_WAITING + 1
    lines = [r.getMessage() for r in caplog.records if r.name == "ackfloor.on_error"]
    counts = [int(line.split()[0]) for line in lines if "more failure" in line]
    assert sum(line.startswith("a failure was not given") for line in lines) + sum(counts) == 50


@pytest.mark.parametrize("options", [{"ack": "manual"}, {"batch": 1}, {}], ids=str)
def test_its_delivery_takes_no_answer(options: dict[str, object]) -> None:
    """It is for reading."""
    app, answers = App("g"), list[bool]()
    function = fails_with_all if "batch" in options else fails
    app.handler("orders", name="pay", retry=GIVES_UP, **options)(function)  # type: ignore[arg-type]

    @app.on_error
    def answer(_exc: BaseException | None, _failure: Failure, delivery: Delivery) -> None:
        answers.extend(
            (
                delivery.ack(),
                delivery.retry("1s"),
                delivery.dead_letter("x"),
                delivery.discard("x"),
                delivery.extend("1s"),
                delivery.publish("invoices", b"x"),
            )
        )

    with live(app) as worker:
        worker.broker.produce("orders", b"x")
        worker.until(lambda: len(answers) == 6)
        worker.until(lambda: dead_letters(worker) == 1)
    assert not any(answers)


def test_what_a_handler_asks_for_is_no_error() -> None:
    """Neither a dead letter nor a discarded record; what `dead_letter_on` names is one."""
    app, told = App("g"), Told()

    @app.handler("orders", retry=GIVES_UP, dead_letter_on=(KeyError,))
    def handle(value: str) -> None:
        if value == "key":
            raise KeyError(value)
        raise DeadLetter("asked") if value == "dead" else Discard("asked")

    @app.on_error
    def report(exc: BaseException | None, failure: Failure, delivery: Delivery) -> None:
        told.append((exc, failure, delivery))

    with live(app) as worker:
        for value in (b"dead", b"discard", b"key"):
            worker.broker.produce("orders", value)
        worker.until(worker.settled)
        worker.until(lambda: bool(told))
    assert [failure.error_type for _, failure, _ in told] == ["KeyError"]


def test_a_process_that_dies_is_told_of(tmp_path: Path) -> None:
    """As a failure without an exception."""
    app, told = App("g"), Told()
    app.handler("orders", executor="process", name="pay", retry=GIVES_UP)(process_handlers.do)

    @app.on_error
    def report(exc: BaseException | None, failure: Failure, delivery: Delivery) -> None:
        told.append((exc, failure, delivery))

    with live(app) as worker:
        worker.broker.produce("orders", f"leave {tmp_path}".encode())
        worker.until(lambda: bool(told))
        worker.until(lambda: bool(worker.watcher.told(DeliveryFailed)))
    ((exc, failure, _),) = told
    assert (exc, failure.error_type) == (None, "ProcessCrash")


def test_the_failures_text_is_masked() -> None:
    """By the rules for the log; the exception is the exception."""
    app, told = app_of("thread")
    with live(app, redaction=Redaction(patterns=(r"\d{4}",))) as worker:
        worker.broker.produce("orders", b"4242")
        worker.until(lambda: bool(told))
    ((exc, failure, _),) = told
    assert str(exc) == "no card 4242"
    assert failure.message == "no card ***"
    assert "4242" not in failure.stack


def test_an_async_function_is_refused() -> None:
    """It would never run."""

    async def report(_exc: BaseException | None, _failure: Failure, _delivery: Delivery) -> None:
        """Do nothing."""

    with pytest.raises(SettingError, match="plain `def`"):
        App("g").on_error(report)
