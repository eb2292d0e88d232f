"""The shop: five handlers, one of them with a bug in release 2.4.0.

Run it with `ackfloor run ackfloor_handlers.incident.app:app`, its release in ACKFLOOR_RELEASE.
"""

from __future__ import annotations

import os

from pydantic import BaseModel

from ackfloor import App, RetryPolicy
from ackfloor_handlers.incident.outside import lock_row, pick

GROUP = "shop"
BAD_RELEASE = "2.4.0"

app = App(group=GROUP)
#: Short, so that what can't be charged is a dead letter within seconds.
SOON = RetryPolicy.fixed("500ms", max_redeliveries=2)
#: One retry topic for each, so that there is less to look at.
LATER = RetryPolicy.fixed("5s")


class Coupon(BaseModel):
    """A discount."""

    percent: int


class Payment(BaseModel):
    """What is charged; most customers have no coupon."""

    id: int
    cents: int
    coupon: Coupon | None = None


class Points(BaseModel):
    """Loyalty points of a customer, whose order matters."""

    customer: str
    points: int


@app.handler("payments", retry=SOON)
async def charge(payment: Payment) -> None:
    """Charge a payment."""
    _price(payment)


def _price(payment: Payment) -> int:
    if payment.coupon is None:
        return payment.cents
    if os.environ.get("ACKFLOOR_RELEASE") == BAD_RELEASE:
        # The field was renamed in 2.4.0, and not everywhere.
        return payment.cents * (100 - payment.coupon.rate) // 100  # type: ignore[attr-defined, no-any-return]
    return payment.cents * (100 - payment.coupon.percent) // 100


@app.handler("parcels", retry=LATER)
async def ship(number: int) -> None:
    """Have a parcel picked."""
    await pick(number)


@app.handler("points", ordering="key", consume_timeout="5m", retry=LATER)
async def credit(points: Points) -> None:
    """Credit a customer's points, one after the other."""
    await lock_row(points.customer)


@app.handler("mails", retry=LATER)
def mail(_address: str) -> None:
    """Send a mail."""


@app.handler("searches", retry=LATER)
def index(_query: str) -> None:
    """Index a search."""
