"""What is logged of deliveries: the first few of a kind, then a count, and never a payload."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator

import pytest

from ackfloor import App, Delivery, DeliveryFilter, Pause, RetryPolicy
from ackfloor.core.messages.events import (
    DeliveryTimedOut,
    KeyFreed,
    KeyNotQuarantined,
    KeyQuarantined,
    QuarantinesTakenOver,
    RecordDeadLettered,
    RecordDiscarded,
)
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.record import Origin
from ackfloor.runtime.logging.delivery_log import KEYS_WINDOW_S, MOST_OFFSETS, DeliveryLog
from ackfloor.runtime.logging.rate_limit import MOST_LINES
from tests.framework.runtime.live import KINDS, Gate, live, register, within

LATER = RetryPolicy.fixed("1h", 1)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the worker has logged."""
    return [r.getMessage() for r in caplog.records if r.name == "ackfloor.worker"]


def test_what_was_given_up_behind_another_record_has_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its reason is all that there is to say."""
    dead = RecordDeadLettered("orders", 3, 41, "bill", 0, Reason.BEHIND, "", "orders")
    DeliveryLog().happened([dead], 0.0)
    (line,) = lines(caplog)
    assert line == "orders/3/41 attempt 0: handler bill: dead-lettered (behind)"


def test_a_storm_of_timeouts_is_a_few_lines_and_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every timeout is either a line or part of a count; keys, values and headers are in none."""
    app, gate = App("g"), Gate()

    @app.handler("orders", consume_timeout="30ms", concurrency=50, retry=LATER)
    def handle(delivery: Delivery) -> None:
        gate.wait()

    began_s = time.monotonic()
    with live(app, max_abandoned=1000) as worker:
        for _ in range(300):
            worker.broker.produce(
                "orders", b"SECRET-value", key=b"SECRET-key", headers=[("SECRET", b"SECRET")]
            )
        worker.until(worker.settled)
        told = len(worker.watcher.told(DeliveryTimedOut))
        counted = re.compile(r"(\d+) more deliver(?:y|ies) outlived")

        def known() -> int:
            single = sum("gave no answer" in line for line in lines(caplog))
            return single + sum(int(m[1]) for line in lines(caplog) if (m := counted.match(line)))

        worker.until(lambda: known() == told, "the count of the suppressed lines")
        gate.open()
        within(lambda: worker.executor().abandoned() == 0)
    assert told == 300
    # A few in each second, and their number; there are two kinds: late and answered late.
    seconds = int(time.monotonic() - began_s) + 2
    assert len(lines(caplog)) <= 2 * seconds * (MOST_LINES + 1)
    assert "orders/0/0 attempt 1" in caplog.text
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize(
    ("kind", "given_up"),
    [
        ("async", "is cancelled; where it still runs after app.cancel_grace, it is abandoned"),
        ("thread", "can't be interrupted, so it is abandoned: its thread goes on until it returns"),
    ],
)
def test_a_timeout_says_what_becomes_of_its_handler(
    kind: str, given_up: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One that ends at its cancellation was never abandoned."""
    app, gate = App("g"), Gate()

    async def wait_async(delivery: Delivery) -> None:
        await gate.passed()

    def wait(delivery: Delivery) -> None:
        gate.wait()

    app.handler("orders", name="bill", consume_timeout="60s", retry=LATER)(
        wait_async if kind == "async" else wait
    )
    with live(app) as worker:
        worker.send("orders", b"stuck")
        worker.until(lambda: gate.arrived == 1)
        worker.skip(60)
        worker.until(lambda: worker.parked("orders"))
        gate.open()
        within(lambda: worker.executor("bill").abandoned() == 0)
    (line,) = [line for line in lines(caplog) if "gave no answer" in line]
    assert line == (
        "orders/0/0 attempt 1: handler bill gave no answer within its consume timeout; "
        f"the delivery has failed, and the handler {given_up}"
    )


def test_at_most_a_few_lines_a_second_of_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    """A new second admits new lines; what was suppressed is told when its second is over."""
    notices = DeliveryLog()
    caplog.set_level(logging.WARNING)
    for number in range(25):
        notices.pause("bill", 30.0, "bank away", 100.0 + number / 100)
    assert len(lines(caplog)) == MOST_LINES
    notices.flush(100.5)
    assert len(lines(caplog)) == MOST_LINES
    notices.flush(101.1)
    assert lines(caplog)[MOST_LINES:] == ["22 more requests for a pause"]
    notices.pause("bill", 30.0, "bank away", 101.2)
    assert lines(caplog)[MOST_LINES + 1 :] == ["handler bill takes no records for 30 s: bank away"]


def test_what_an_operator_discards_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """All of it, in few lines: nothing else is left of it. What a handler discards is counted."""
    notices = DeliveryLog()
    caplog.set_level(logging.WARNING)
    dropped = [
        RecordDiscarded("orders", n % 2, n, "bill", "test orders", "orders", by_operator=True)
        for n in range(2 * MOST_OFFSETS + 2)
    ]
    notices.happened([*dropped, RecordDiscarded("orders", 0, 7, "bill", "its own")], 100.0)
    notices.happened([], 100.1)
    first, second, third, fourth = lines(caplog)
    assert first.startswith("orders/0: handler bill: an operator discarded offsets 0, 2, 4, ")
    assert first.endswith(", 198: test orders")
    assert second == "orders/0: handler bill: an operator discarded offset 200: test orders"
    assert (third[:8], fourth[:8]) == ("orders/1", "orders/1")


def test_what_an_operator_discards_in_a_retry_topic_is_named_by_its_first_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`lanes ls` shows that place; one that is discarded in its source topic is named once."""
    notices = DeliveryLog()
    tier = "orders--shop--retry-1s"
    first, here = Origin("orders", 0, 61), Origin("orders", 0, 7)
    dropped = [
        RecordDiscarded("orders", 0, 1, "bill", "a test", tier, by_operator=True, origin=first),
        RecordDiscarded("orders", 0, 7, "bill", "a test", "orders", by_operator=True, origin=here),
    ]
    notices.happened(dropped, 100.0)
    assert lines(caplog) == [
        f"{tier}/0: handler bill: an operator discarded offset 1 (orders/0/61): a test",
        "orders/0: handler bill: an operator discarded offset 7: a test",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pause_says_why(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """In the log and for readiness."""
    app, seen = App("g"), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        if not seen:
            raise Pause("1s", reason="the bank is away")
        return
        yield

    register(app, kind, "orders", script)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(
            lambda: (
                worker.watcher.latest
                and worker.watcher.latest.handlers[0].held_reason == "the bank is away"
            )
        )
        seen.append("it")
        worker.until(worker.settled)
    assert "handler handle takes no records for 1 s: the bank is away" in lines(caplog)


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_line_of_a_handler_can_name_its_delivery(kind: str) -> None:
    """Through the filter, from async and thread handlers; outside of one it is a dash."""
    app, gate, named = App("g"), Gate(), []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            named.append((record.getMessage(), record.__dict__["delivery"]))

    log, keep = logging.getLogger("shop.of.notices"), Keep()
    keep.addFilter(DeliveryFilter())
    log.addHandler(keep)
    log.propagate = False
    log.setLevel(logging.INFO)

    def script(delivery: Delivery) -> Iterator[Gate]:
        yield gate
        log.info("%d", delivery.offset)

    register(app, kind, "orders", script, concurrency=4)
    with live(app) as worker:
        worker.send("orders", n=4)
        worker.until(lambda: gate.arrived == 4)
        log.info("outside")
        gate.open()
        worker.until(worker.settled)
    log.removeHandler(keep)
    assert dict(named) == {"outside": "-"} | {str(n): f"orders/0/{n}#1" for n in range(4)}


@pytest.mark.parametrize(
    ("why", "fix"), [("full", "start more workers"), ("partitions", "give it")]
)
def test_a_key_that_is_not_quarantined_is_told_with_what_to_do(
    caplog: pytest.LogCaptureFixture, why: str, fix: str
) -> None:
    """A few lines, and their number; the key itself is not named."""
    notices = DeliveryLog()
    notices.happened([KeyNotQuarantined("orders", 3, "bill", why)] * (MOST_LINES + 2), 0.0)
    notices.flush(2.0)
    told = lines(caplog)
    assert len(told) == MOST_LINES + 1
    assert told[0].startswith(
        "orders/3: handler bill: a key whose record failed is not quarantined"
    )
    assert fix in told[0]
    assert told[-1] == "2 more keys could not be quarantined"


def test_a_key_is_told_when_it_is_quarantined_and_when_it_is_no_longer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the record that failed: the key itself is in no line."""
    caplog.set_level(logging.INFO)
    notices = DeliveryLog()
    notices.happened([QuarantinesTakenOver("orders", 4, "bill", 12)], 1.0)
    notices.happened([KeyQuarantined("orders", 3, "bill", 41)], 2.0)
    notices.happened([KeyFreed("orders", 3, "bill", 41, 12.34)], 14.0)
    assert lines(caplog) == [
        "orders/4: handler bill: 12 keys of it were quarantined before it came to this worker",
        (
            "orders/3: handler bill: the key of offset 41 is quarantined: its later records wait "
            "behind that one, in retry topics"
        ),
        "orders/3: handler bill: the key of offset 41 is no longer quarantined, after 12.3 s",
    ]
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_thousands_of_keys_are_a_few_lines_and_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In each ten seconds: a dependency that is down takes them all."""
    caplog.set_level(logging.INFO)
    notices = DeliveryLog()
    for offset in range(5_000):
        notices.happened([KeyQuarantined("orders", 0, "bill", offset)], 100.0 + offset / 1000)
        notices.happened([KeyFreed("orders", 0, "bill", offset, 0.5)], 100.0 + offset / 1000)
    notices.flush(100.0 + KEYS_WINDOW_S)
    assert len(lines(caplog)) == 2 * (MOST_LINES + 1)
    assert lines(caplog)[-2:] == [
        f"{5_000 - MOST_LINES} more keys were quarantined",
        f"{5_000 - MOST_LINES} more keys are no longer quarantined",
    ]
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_what_an_operator_has_dead_lettered_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """It is what was asked for; lines of it take no room from those of records that were lost."""
    notices = DeliveryLog()
    asked = RecordDeadLettered(
        "orders", 3, 41, "bill", 2, Reason.DEAD_LETTER, "ValueError", "orders", by_operator=True
    )
    failed = RecordDeadLettered(
        "orders", 3, 50, "bill", 7, Reason.EXHAUSTED, "ValueError", "orders"
    )
    notices.happened([asked] * (MOST_LINES + 2) + [failed], 0.0)
    notices.flush(2.0)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [
        (
            "WARNING",
            (
                "orders/3/41 attempt 2: handler bill: dead-lettered by an operator (dead_letter, "
                "ValueError)"
            ),
        )
    ] * MOST_LINES + [
        (
            "ERROR",
            "orders/3/50 attempt 7: handler bill: dead-lettered (exhausted, ValueError)",
        ),
        ("WARNING", "2 more records were dead-lettered as an operator asked"),
    ]
