"""The first failure of each cause is logged with its traceback, later ones with their number."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages.events import BatchFailed, DeliveryFailed
from ackfloor.core.records.redaction import Redaction
from ackfloor.runtime.logging import failure_causes
from ackfloor.runtime.logging.logs import JsonFormatter, TextFormatter
from tests.framework.runtime import process_handlers
from tests.framework.runtime.live import Live, live

GIVES_UP = RetryPolicy(max_redeliveries=0)
SECRET = "4242-4242"


def fails(text: str) -> None:
    """What handlers of all kinds call."""
    raise ValueError(f"no card {SECRET}: {text}")


def app_of(kind: str) -> App:
    """An app whose handler fails for every record."""
    app = App("g")
    if kind == "async":

        @app.handler("orders", retry=GIVES_UP, name="pay")
        async def pay_async(value: str) -> None:
            fails(value)

    elif kind == "thread":

        @app.handler("orders", retry=GIVES_UP, name="pay")
        def pay(value: str) -> None:
            fails(value)

    elif kind in ("async batch", "thread batch"):

        async def pay_all_async(values: list[str]) -> None:
            fails(values[0])

        def pay_all(values: list[str]) -> None:
            fails(values[0])

        function = pay_all_async if kind == "async batch" else pay_all
        app.handler("orders", retry=GIVES_UP, name="pay", batch=4, batch_wait="50ms")(function)
    else:
        batch = {"batch": 4, "batch_wait": "50ms"} if "batch" in kind else {}
        function = process_handlers.fail_all if batch else process_handlers.fail_one
        app.handler(
            "orders", executor="process", concurrency=1, retry=GIVES_UP, name="pay", **batch
        )(function)
    return app


KINDS = ("async", "thread", "process", "async batch", "thread batch", "process batch")


def run(worker: Live, count: int) -> None:
    """Have so many records fail."""
    for number in range(count):
        worker.broker.produce("orders", str(number).encode())
    worker.until(worker.settled)
    worker.until(lambda: len(worker.watcher.told(DeliveryFailed)) == count)


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The lines that have one."""
    return [r for r in caplog.records if r.name == "ackfloor.worker" and r.exc_text]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_failure_of_a_cause_shows_its_traceback(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with the user's frames and none of those that call handlers."""
    with live(app_of(kind), redaction=Redaction(patterns=(r"\d{4}-\d{4}",))) as worker:
        run(worker, 6)
    (line,) = tracebacks(caplog)
    assert "(the first of cause " in line.getMessage()
    assert "handler pay: " in line.getMessage()
    told = line.exc_text or ""
    assert told.startswith("Traceback (most recent call last):\n")
    assert told.count("raise ValueError(") == 1
    assert told.splitlines()[-1].startswith("ValueError: no card ***: ")
    for own in ("executors/", "calls/invoke", "child_calls"):
        assert own not in told
    assert SECRET not in caplog.text


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_line_has_the_traceback_of_its_own_record(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where many records fail of one cause before the first line is written."""
    app, gate = App("g"), threading.Event()
    if kind == "async":

        @app.handler("orders", retry=GIVES_UP)
        async def pay(value: str) -> None:
            await asyncio.to_thread(gate.wait, 60)
            fails(value)

    else:

        @app.handler("orders", retry=GIVES_UP)
        def pay_in_thread(value: str) -> None:
            gate.wait(60)
            fails(value)

    with live(app) as worker:
        for number in range(20):
            worker.broker.produce("orders", b"record %d." % number)
        worker.until(lambda: len(list(worker.loop.executors.running())) == 20)
        gate.set()
        worker.until(lambda: len(worker.watcher.told(DeliveryFailed)) == 20)
    (line,) = tracebacks(caplog)
    (record,) = re.findall(r"record \d+\.", line.exc_text or "")
    assert record in line.getMessage()


def test_later_failures_of_it_have_their_number(caplog: pytest.LogCaptureFixture) -> None:
    """And the cause by which they are found."""
    with live(app_of("thread")) as worker:
        run(worker, 1)
        (first,) = tracebacks(caplog)
        cause = first.getMessage().rpartition(" ")[2]
        worker.broker.produce("orders", b"again")
        worker.until(lambda: len(worker.watcher.told(DeliveryFailed)) == 2)
        worker.until(lambda: any("(failure 2 of cause " in r.getMessage() for r in caplog.records))
    (second,) = [r for r in caplog.records if "failure 2 of cause" in r.getMessage()]
    assert second.getMessage().endswith(f"(failure 2 of cause {cause}")
    assert not second.exc_text


def test_a_call_with_several_records_shows_its_traceback_with_its_own_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That is the first one of its cause."""
    app = app_of("thread batch")
    with live(app, partitions=1) as worker:
        run(worker, 4)
        told = worker.watcher.told(BatchFailed)
    (line,) = tracebacks(caplog)
    assert ("a call with" in line.getMessage()) == bool(told)


def test_each_cause_has_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """Another exception, or another place, is another cause."""
    app = App("g")

    @app.handler("orders", retry=GIVES_UP)
    def handle(value: str) -> None:
        if value == "0":
            raise KeyError(value)
        fails(value)

    with live(app) as worker:
        run(worker, 5)
    assert sorted(
        (r.exc_text or "").splitlines()[-1].split(":")[0] for r in tracebacks(caplog)
    ) == [
        "KeyError",
        "ValueError",
    ]


def test_middleware_is_the_users_and_stays(caplog: pytest.LogCaptureFixture) -> None:
    """What goes between it and the handler is not."""

    def around(_delivery: Delivery, call_next: object) -> object:
        assert callable(call_next)
        return call_next()

    app = App("g", middleware=[around])

    @app.handler("orders", retry=GIVES_UP)
    def handle(value: str) -> None:
        fails(value)

    with live(app) as worker:
        run(worker, 1)
    (line,) = tracebacks(caplog)
    places = [row for row in (line.exc_text or "").splitlines() if row.startswith("  File ")]
    assert [row.rpartition(" in ")[2] for row in places] == ["around", "handle", "fails"]


def test_both_formats_print_it(caplog: pytest.LogCaptureFixture) -> None:
    """Below the line for people, in a field for machines; masked there too."""
    with live(app_of("thread")) as worker:
        run(worker, 1)
    (line,) = tracebacks(caplog)
    hides = Redaction(patterns=(r"\d{4}-\d{4}",))
    text = TextFormatter("w", hides).format(line)
    assert "\nTraceback (most recent call last):\n" in text
    assert text.endswith("ValueError: no card ***: 0")
    entry = json.loads(JsonFormatter("w", hides).format(line))
    assert entry["traceback"].endswith("ValueError: no card ***: 0")
    assert entry["offset"] == 0
    assert "Traceback" not in entry["message"]


def test_what_is_remembered_is_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cause that was forgotten is shown again; no more are kept than the bound says."""
    monkeypatch.setattr(failure_causes, "MOST_CAUSES", 1)
    monkeypatch.setattr(failure_causes, "MOST_NOTED", 1)
    app = App("g")

    @app.handler("orders", retry=GIVES_UP)
    def handle(value: str) -> None:
        if value == "other":
            raise KeyError(value)
        fails(value)

    with live(app) as worker:
        for count, value in enumerate((b"one", b"other", b"one"), start=1):
            worker.broker.produce("orders", value)
            worker.until(lambda: len(worker.watcher.told(DeliveryFailed)) == count)  # noqa: B023
    assert [(r.exc_text or "").splitlines()[-1].split(":")[0] for r in tracebacks(caplog)] == [
        "ValueError",
        "KeyError",
        "ValueError",
    ]
