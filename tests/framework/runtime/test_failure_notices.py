"""What a failing handler leaves in the log: enough to find the record, a few lines a second."""

from __future__ import annotations

import logging

import pytest

from ackfloor.core.messages.events import (
    BreakerClosed,
    BreakerOpened,
    DeliveryFailed,
    PublishFailed,
    RecordDeadLettered,
    RecordsDeleted,
)
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.redaction import Redaction
from ackfloor.runtime.logging.delivery_log import DeliveryLog
from ackfloor.runtime.logging.logs import FIELDS
from ackfloor.runtime.logging.rate_limit import MOST_LINES


def failed(reason: Reason = Reason.ERROR, message: str = "no stock\nline two") -> DeliveryFailed:
    """A delivery of a retry tier that failed."""
    return DeliveryFailed(
        "orders", 3, 41, "bill", 2, reason, "shop.OutOfStock", message, 0.1, "orders--g--retry-1s"
    )


def test_a_failure_names_the_record_and_the_error(caplog: pytest.LogCaptureFixture) -> None:
    """Topic, partition and offset as read, attempt, handler, error and its first line."""
    DeliveryLog().happened([failed()], 10.0)
    assert [record.getMessage() for record in caplog.records] == [
        "orders--g--retry-1s/3/41 attempt 2: handler bill: shop.OutOfStock: no stock"
    ]
    assert caplog.records[0].levelno == logging.WARNING


def test_a_dead_letter_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """What nobody will try again is logged as such."""
    letter = RecordDeadLettered(
        "orders", 3, 41, "bill", 7, Reason.EXHAUSTED, "shop.OutOfStock", "orders"
    )
    DeliveryLog().happened([letter], 10.0)
    assert caplog.records[0].getMessage() == (
        "orders/3/41 attempt 7: handler bill: dead-lettered (exhausted, shop.OutOfStock)"
    )
    assert caplog.records[0].levelno == logging.ERROR


def test_a_breaker_has_a_line_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    """With the failures that opened it, which are none where an operator did."""
    notices = DeliveryLog()
    notices.happened([BreakerOpened("bill", 50, "shop.BankDown", "no route\nline two")], 10.0)
    notices.happened([BreakerOpened("bill", 0, "", "")], 10.0)
    notices.happened([BreakerClosed("bill", 61.25, "operator")], 10.0)
    told, forced, closed = (record.getMessage() for record in caplog.records)
    assert "50 records in a row failed, the last with shop.BankDown: no route;" in told
    assert forced == "handler bill: circuit breaker opened by an operator"
    assert closed == "handler bill: circuit breaker closed after 61.2 s (operator)"


def test_a_storm_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """After a few lines the rest of the second is one number; timeouts have lines elsewhere."""
    notices = DeliveryLog()
    notices.happened([failed() for _ in range(50)], 10.0)
    notices.happened([failed(Reason.TIMEOUT)], 10.0)
    assert len(caplog.records) == MOST_LINES
    notices.flush(12.0)
    assert caplog.records[-1].getMessage() == f"{50 - MOST_LINES} more deliveries failed"


def test_a_count_of_one_is_said_of_one(caplog: pytest.LogCaptureFixture) -> None:
    """Noun and verb fit the number."""
    notices = DeliveryLog()
    dead = RecordDeadLettered("orders", 3, 41, "bill", 7, Reason.EXHAUSTED, "shop.Own", "orders")
    for more, said in [
        (1, ["1 more delivery failed", "1 more record was dead-lettered"]),
        (2, ["2 more deliveries failed", "2 more records were dead-lettered"]),
    ]:
        notices.happened([failed() for _ in range(MOST_LINES + more)], 10.0 * more)
        notices.happened([dead] * (MOST_LINES + more), 10.0 * more)
        notices.flush(10.0 * more + 5.0)
        assert [record.getMessage() for record in caplog.records[-2:]] == said


def test_what_can_not_be_parked_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """The floor waits for it, so somebody should know."""
    event = PublishFailed(
        "orders", 3, 41, "bill", "orders--g--dlq", "no such topic", 0.25, 2, "orders--g--retry-1s"
    )
    DeliveryLog().happened([event], 10.0)
    assert caplog.records[0].getMessage() == (
        "orders--g--retry-1s/3/41 attempt 2: handler bill: not written to orders--g--dlq: no such "
        "topic; it stays open, and is written again in 0.25 s"
    )


def test_a_retry_topic_that_was_deleted_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """Which one, and what became of its records."""
    DeliveryLog().happened([RecordsDeleted("orders--g--retry-1h", 60, 5)], 10.0)
    assert caplog.records[0].getMessage() == (
        "orders--g--retry-1h: the retry topic was deleted: 60 records in it are lost; 5 had been "
        "read and are handled when they are due"
    )
    assert caplog.records[0].levelno == logging.ERROR


def test_what_can_not_be_parked_is_counted_in_records(caplog: pytest.LogCaptureFixture) -> None:
    """A record whose write fails again and again is one; what all wait for is told as a fault."""
    notices = DeliveryLog()
    for tries in range(1, 6):
        notices.happened(
            [
                PublishFailed(
                    "orders", 0, n, "bill", "orders--g--dlq", "x", 0.25, 1, "orders", tries
                )
                for n in range(10)
            ],
            10.0,
        )
    notices.flush(12.0)
    assert caplog.records[-1].getMessage() == (
        f"{10 - MOST_LINES} more records could not be parked or dead-lettered"
    )
    assert len(caplog.records) == MOST_LINES + 1


def test_lines_about_a_record_have_its_place_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    """Those that the machine's form writes out."""
    DeliveryLog().happened([failed()], 10.0)
    fields = caplog.records[0].__dict__
    assert [fields[name] for name in FIELDS] == ["orders--g--retry-1s", 3, 41, 2, "bill"]


def test_what_an_exception_says_is_masked_before_it_is_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A pattern may span lines, and may need what comes after the cut."""
    message = "x" * 295 + "token=abcdef\nsecond line"
    DeliveryLog(Redaction(patterns=(r"token=\w+\s+second",))).happened(
        [failed(message=message)], 10.0
    )
    assert "tok" not in caplog.text
    assert caplog.records[0].getMessage().endswith("xxx*** l")
