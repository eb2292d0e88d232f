"""What a handler returns without `to=` is dropped, and that is said at the start."""

from __future__ import annotations

from typing import Any

import pytest

from ackfloor import App, Delivery
from ackfloor.launch import Launch


def bill(order: bytes) -> str:
    """A handler that promises a result."""
    return order.decode()


def bill_many(orders: list[bytes]) -> list[str]:
    """A batch handler that does."""
    return [order.decode() for order in orders]


def bill_by_hand(order: bytes, delivery: Delivery) -> str:
    """One that answers by hand."""
    delivery.ack()
    return order.decode()


def note(order: bytes) -> None:
    """One that promises nothing."""


def told(caplog: pytest.LogCaptureFixture, function: Any, **options: Any) -> list[str]:
    """What the start of a run says of one handler, checked once."""
    app = App("shop")
    app.handler("orders", name="bill", **options)(function)
    Launch.of(app, flags={}).check_handlers()
    return [line for line in caplog.messages if line.startswith("handlers.bill")]


def test_it_is_told_once_with_the_fix(caplog: pytest.LogCaptureFixture) -> None:
    """The handler, its hint, and both ways out."""
    (line,) = told(caplog, bill)
    assert line == (
        "handlers.bill: it returns str, which is published nowhere: "
        'name its topic with to="...", or return nothing (-> None)'
    )


@pytest.mark.parametrize(
    ("function", "options"),
    [(bill, {"executor": "process"}), (bill_by_hand, {"ack": "manual"})],
    ids=["process", "manual"],
)
def test_to_is_not_advised_where_it_would_be_refused(
    caplog: pytest.LogCaptureFixture, function: Any, options: dict[str, Any]
) -> None:
    """Neither a process nor an answer by hand publishes results."""
    assert told(caplog, function, **options) == [
        "handlers.bill: it returns str, which is published nowhere: return nothing (-> None)"
    ]


@pytest.mark.parametrize(
    ("function", "options"),
    [(note, {}), (bill, {"to": "invoices"}), (bill_many, {"batch": 5})],
    ids=["nothing", "published", "batch"],
)
def test_nothing_is_told_where_nothing_is_dropped(
    caplog: pytest.LogCaptureFixture, function: Any, options: dict[str, Any]
) -> None:
    """A batch that returns something fails, and says so itself."""
    assert told(caplog, function, **options) == []
