"""What a failing handler leaves in the log: enough to find the record, a few lines a second."""

from __future__ import annotations

import logging

import pytest

from ackfloor.core.envelope import Reason
from ackfloor.core.messages import DeliveryFailed, RecordDeadLettered
from ackfloor.runtime.notices import MOST_LINES, Notices


def failed(reason: Reason = Reason.ERROR, message: str = "no stock\nline two") -> DeliveryFailed:
    """A delivery of a retry tier that failed."""
    return DeliveryFailed(
        "orders", 3, 41, "bill", 2, reason, "shop.OutOfStock", message, 0.1, "orders--g--retry-1s"
    )


def test_a_failure_names_the_record_and_the_error(caplog: pytest.LogCaptureFixture) -> None:
    """Topic, partition and offset as read, attempt, handler, error and its first line."""
    Notices().happened([failed()], 10.0)
    assert [record.getMessage() for record in caplog.records] == [
        "orders--g--retry-1s/3/41 attempt 2: handler bill: shop.OutOfStock: no stock"
    ]
    assert caplog.records[0].levelno == logging.WARNING


def test_a_dead_letter_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """What nobody will try again is logged as such."""
    letter = RecordDeadLettered(
        "orders", 3, 41, "bill", 7, Reason.EXHAUSTED, "shop.OutOfStock", "orders"
    )
    Notices().happened([letter], 10.0)
    assert caplog.records[0].getMessage() == (
        "orders/3/41 attempt 7: dead-lettered (exhausted, shop.OutOfStock)"
    )
    assert caplog.records[0].levelno == logging.ERROR


def test_a_storm_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """After a few lines the rest of the second is one number; timeouts have lines elsewhere."""
    notices = Notices()
    notices.happened([failed() for _ in range(50)], 10.0)
    notices.happened([failed(Reason.TIMEOUT)], 10.0)
    assert len(caplog.records) == MOST_LINES
    notices.flush(12.0)
    assert caplog.records[-1].getMessage() == f"{50 - MOST_LINES} more deliveries failed"
