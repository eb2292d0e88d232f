"""A perfect run of the demo as facts: what the tests of the reconciliation then damage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ackfloor.core.records.envelope import Envelope, Reason
from ackfloor_handlers.demo.account.facts import (
    Disturbance,
    Facts,
    Origin,
    Parked,
    Receipt,
    SparkReport,
)
from ackfloor_handlers.demo.seeded_orders import EXPECTED, Kind, Order, seeded_orders

ORDERS = 400
SOURCE = "orders"
DLQ = "orders--billing--dlq"
TIERS = ("orders--billing--retry-500ms", "orders--billing--retry-1s")
STARTED_MS = 1_000_000
TIMEOUT_MS = 2_000
LATE_MS = 7


def receipt(origin: Origin, order: Order, attempt: int = 1, **changes: Any) -> Receipt:
    """A receipt as the handler writes it."""
    plain = Receipt(
        order=order.number,
        origin=origin,
        attempt=attempt,
        topic=SOURCE if attempt == 1 else TIERS[attempt - 2],
        partition=origin.partition,
        offset=origin.offset,
        started_ms=STARTED_MS + attempt * 10_000,
        due_ms=None if attempt == 1 else STARTED_MS + attempt * 10_000 - 3,
    )
    return replace(plain, **changes)


def parked(
    origin: Origin, order: Order, attempt: int, reason: str, *, dead: bool = False, error: str = ""
) -> Parked:
    """A record of a tier, or of the dead-letter topic."""
    timed_out = reason == "timeout" or error == "ConsumeTimeout"
    failed_at_ms = STARTED_MS + attempt * 10_000 + (TIMEOUT_MS if timed_out else 1)
    return Parked(
        topic=DLQ if dead else TIERS[attempt - 1],
        partition=origin.partition,
        offset=origin.offset,
        origin=origin,
        envelope=Envelope(
            attempt=attempt,
            reason=Reason(reason),
            error_type="ConsumeTimeout" if timed_out else error or "ProviderUnavailable",
            failed_at_ms=failed_at_ms,
            duration_ms=TIMEOUT_MS if timed_out else 1,
        ),
        key=order.key,
        value=order.value,
        headers=order.headers,
        appended_ms=failed_at_ms + LATE_MS,
        by_broker=True,
    )


def perfect(orders: int = ORDERS) -> Facts:
    """A run in which everything went as planned and nothing was done to it."""
    ledger = {Origin(n % 8, n // 8): order for n, order in enumerate(seeded_orders(orders, seed=1))}
    receipts, tiers, dead = [], [], []
    for origin, order in ledger.items():
        expected = EXPECTED[order.kind]
        tiers += [
            parked(origin, order, attempt, reason)
            for attempt, reason in enumerate(expected.parked, 1)
        ]
        if expected.reason is None:
            receipts.append(receipt(origin, order, expected.attempt))
        else:
            dead.append(
                parked(
                    origin,
                    order,
                    expected.attempt,
                    expected.reason,
                    dead=True,
                    error=expected.error,
                )
            )
    facts = Facts(ledger, receipts, tiers, dead, SOURCE)
    return replace(facts, **counted(facts))


def counted(facts: Facts) -> dict[str, Any]:
    """What the topics hold and Spark therefore counts."""
    records: dict[str, int] = {}
    for record in (*facts.parked, *facts.dead):
        records[record.topic] = records.get(record.topic, 0) + 1
    dead = {record.origin for record in facts.dead if record.origin}
    failed = {record.origin for record in facts.parked if record.origin} | dead
    spark = SparkReport(sum(records.values()), len(failed) - len(dead), len(dead))
    return {"topic_records": records, "spark": spark}


def with_changes(facts: Facts, **changes: Any) -> Facts:
    """The facts with other parts, and counts that fit them."""
    changed = replace(facts, **changes)
    return replace(changed, **counted(changed)) if {"parked", "dead"} & changes.keys() else changed


def first(facts: Facts, kind: Kind) -> tuple[Origin, Order]:
    """The first order of a kind."""
    return next((o, order) for o, order in facts.ledger.items() if order.kind is kind)


def without(records: Iterable[Any], origin: Origin) -> list[Any]:
    """All but those of one order."""
    return [record for record in records if record.origin != origin]


def kill(**floors: int) -> Disturbance:
    """A worker killed while the first deliveries were running; `p3=17`: floor 17 in orders/3."""
    return Disturbance(
        what="worker 1 killed",
        at_ms=STARTED_MS + 10_500,
        until_ms=STARTED_MS + 10_500,
        over_ms=STARTED_MS + 17_000,
        floors={(SOURCE, int(name[1:])): floor for name, floor in floors.items()},
    )
