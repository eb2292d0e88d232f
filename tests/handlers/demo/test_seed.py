"""The seeded orders: the same seed gives the same orders, and each kind its share."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from pydantic import ValidationError

from ackfloor_handlers.demo.seeded_orders import Kind, counts, seeded_orders
from ackfloor_handlers.orders import Order


def test_same_seed_same_orders() -> None:
    """A run can be repeated byte for byte, and another seed is another run."""
    assert seeded_orders(500, seed=3) == seeded_orders(500, seed=3)
    assert seeded_orders(500, seed=3) != seeded_orders(500, seed=4)


def test_shares_of_the_whole_demo() -> None:
    """Of 20,000 orders 580 misbehave, in the known numbers."""
    assert counts(20_000) == {
        Kind.OK: 19_420,
        Kind.SLOW: 100,
        Kind.HEALS_2ND: 150,
        Kind.HEALS_3RD: 50,
        Kind.STUCK_ONCE: 60,
        Kind.STUCK: 20,
        Kind.INVALID: 100,
        Kind.POISON: 100,
    }
    produced = Counter(order.kind for order in seeded_orders(20_000, seed=7))
    assert produced == counts(20_000)


def test_a_small_demo_has_every_kind() -> None:
    """However few orders there are, none of the paths is left out."""
    assert min(counts(100).values()) >= 1
    assert sum(counts(100).values()) == 100


def test_numbers_are_unique_and_in_order() -> None:
    """An order is known by its number."""
    assert [order.number for order in seeded_orders(300, seed=1)] == list(range(300))


def test_poison_does_not_decode_and_everything_else_does() -> None:
    """What the handler's model says of an order is what its kind says."""
    for order in seeded_orders(5_000, seed=7):
        if order.kind is not Kind.POISON:
            decoded = Order.model_validate_json(order.value or b"")
            assert decoded.id == order.number
            assert (decoded.cents <= 0) == (order.kind is Kind.INVALID)
        elif order.value is not None:
            with pytest.raises(ValidationError):
                Order.model_validate_json(order.value)


def test_parked_records_carry_odd_headers_and_keys() -> None:
    """Among the orders that get parked are repeated, absent and unreadable headers, odd keys."""
    orders = [order for order in seeded_orders(20_000, seed=7) if order.kind is Kind.POISON]
    assert {None, b"", b"\x00\xff"} <= {order.key for order in orders}
    assert {None, b""} <= {order.value for order in orders}
    odd = next(order for order in orders if len(order.headers) > 1)
    assert [name for name, _ in odd.headers].count("tag") == 3
    assert ("nothing", None) in odd.headers


def test_customers_keep_their_key() -> None:
    """The key is the customer in the value, so that order per key is order per customer."""
    orders = [order for order in seeded_orders(2_000, seed=7) if order.kind is Kind.OK]
    assert all(json.loads(order.value or b"")["customer"].encode() == order.key for order in orders)
    assert len({order.key for order in orders}) > 1_000
