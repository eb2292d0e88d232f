"""The seeded orders: which misbehave, how, and how each must end.

Pure and deterministic: the same count and seed give the same bytes. An order's card says how it
behaves (see `ackfloor_handlers.payments`), `EXPECTED` how it must end, and the reconciliation
compares the two with the topics.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

CUSTOMERS: Final = 2_000
#: The counts in `MISBEHAVING` are shares of this many orders.
WHOLE: Final = 20_000

Headers = tuple[tuple[str, bytes | None], ...]


class Kind(StrEnum):
    """How an order behaves; the values are for people."""

    OK = "ok"
    SLOW = "slow"
    HEALS_2ND = "fails once"
    HEALS_3RD = "fails twice"
    STUCK_ONCE = "stuck once"
    STUCK = "stuck for ever"
    INVALID = "business error"
    POISON = "undecodable"


@dataclass(frozen=True, slots=True)
class Expected:
    """How an order must end.

    Attributes:
        attempt: the delivery that ends it.
        parked: the reason of each failed delivery before, from the retry topics.
        reason: why it is dead-lettered; None where it is handled.
        error: the error's class in the dead letter; empty for any.
    """

    attempt: int
    parked: tuple[str, ...] = ()
    reason: str | None = None
    error: str = ""

    def __str__(self) -> str:
        which = ("1st", "2nd", "3rd")[self.attempt - 1]
        return f"{'handled' if self.reason is None else self.reason}, {which} delivery"


EXPECTED: Final = {
    Kind.OK: Expected(1),
    Kind.SLOW: Expected(1),
    Kind.HEALS_2ND: Expected(2, ("error",)),
    Kind.HEALS_3RD: Expected(3, ("error", "error")),
    Kind.STUCK_ONCE: Expected(2, ("timeout",)),
    Kind.STUCK: Expected(3, ("timeout", "timeout"), "exhausted", "ConsumeTimeout"),
    Kind.INVALID: Expected(1, (), "dead_letter", "InvalidOrder"),
    Kind.POISON: Expected(1, (), "decode"),
}
#: Few are stuck: after the kill those in flight are tried one by one, and each takes its timeout.
MISBEHAVING: Final = {
    Kind.SLOW: 100,
    Kind.HEALS_2ND: 150,
    Kind.HEALS_3RD: 50,
    Kind.STUCK_ONCE: 60,
    Kind.STUCK: 20,
    Kind.INVALID: 100,
    Kind.POISON: 100,
}
_CARDS: Final = {
    Kind.OK: "ok",
    Kind.SLOW: "slow",
    Kind.HEALS_2ND: "flaky-2",
    Kind.HEALS_3RD: "flaky-3",
    Kind.STUCK_ONCE: "stuck-2",
    Kind.STUCK: "stuck",
    Kind.INVALID: "ok",
}
#: Headers that a parked record must carry unchanged: repeated, empty, absent, not text.
_ODD_HEADERS: Final[Headers] = (
    ("trace", b"7f"),
    ("tag", b"first"),
    ("tag", b"\xff\xfe not text"),
    ("tag", b""),
    ("nothing", None),
)


@dataclass(frozen=True, slots=True)
class Order:
    """One seeded order as it is produced."""

    number: int
    kind: Kind
    key: bytes | None
    value: bytes | None
    headers: Headers


def counts(orders: int) -> dict[Kind, int]:
    """How many orders of each kind there are among `orders`."""
    shares = {kind: max(1, round(n * orders / WHOLE)) for kind, n in MISBEHAVING.items()}
    return {Kind.OK: orders - sum(shares.values()), **shares}


def seeded_orders(orders: int, seed: int) -> list[Order]:
    """All orders, in the order in which they are produced."""
    chance = Random(seed)  # noqa: S311 -- reproducible, not secret
    kinds = [kind for kind, count in counts(orders).items() for _ in range(count)]
    chance.shuffle(kinds)
    return [_order(number, kind, chance) for number, kind in enumerate(kinds)]


def _order(number: int, kind: Kind, chance: Random) -> Order:
    customer = f"customer-{chance.randrange(CUSTOMERS):04d}"
    cents = chance.randrange(100, 100_000)
    key: bytes | None = customer.encode()
    headers: Headers = (("order", str(number).encode()),)
    if kind is not Kind.OK and number % 3 == 0:
        headers += _ODD_HEADERS
    if kind is Kind.POISON:
        key = chance.choice((key, b"", b"\x00\xff", None))
        return Order(number, kind, key, _poison(number, chance), headers)
    if kind is Kind.INVALID:
        cents = -cents
    body = {"id": number, "customer": customer, "cents": cents, "card": _CARDS[kind]}
    return Order(number, kind, key, json.dumps(body).encode(), headers)


def _poison(number: int, chance: Random) -> bytes | None:
    broken: Sequence[bytes | None] = (
        f"order {number}: not JSON".encode(),
        f'{{"id": {number}, "customer": '.encode(),
        f'{{"id": "{number}th", "customer": 1, "cents": "many"}}'.encode(),
        b"\xff\xfe\x00" + chance.randbytes(40),
        b"",
        None,
    )
    return chance.choice(broken)
