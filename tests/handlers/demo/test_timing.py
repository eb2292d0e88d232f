"""Deadline precision and retry lateness from the topics' own times."""

from __future__ import annotations

from dataclasses import replace

from ackfloor_handlers.demo.account.timing import Spread, deadline_precision, retry_lateness
from tests.handlers.demo.perfect import LATE_MS, STARTED_MS, TIMEOUT_MS, kill, perfect


def test_precision_is_the_time_beyond_the_timeout() -> None:
    """From the handler's start to the record in its next topic, less the timeout."""
    facts = perfect()
    stuck = sum(record.timed_out for record in (*facts.parked, *facts.dead))
    spread = deadline_precision(facts, TIMEOUT_MS)
    assert spread.values_ms == (LATE_MS,) * stuck
    assert spread.disturbed == 0


def test_lateness_is_the_time_from_due_to_start() -> None:
    """Of redeliveries only: a first delivery was never due."""
    facts = perfect()
    redelivered = sum(receipt.attempt > 1 for receipt in facts.receipts)
    assert retry_lateness(facts).values_ms == (3,) * redelivered


def test_what_fell_into_a_disturbance_is_counted_apart() -> None:
    """No partition without a worker can be on time; a killed worker delays no other deadline."""
    whole = replace(kill(), at_ms=0, over_ms=STARTED_MS * 2)
    facts = replace(perfect(), disturbances=[whole])
    late = retry_lateness(facts)
    assert late.values_ms == ()
    assert late.disturbed > 0
    assert deadline_precision(facts, TIMEOUT_MS).disturbed == 0
    away = replace(facts, disturbances=[replace(whole, timeouts=True)])
    assert deadline_precision(away, TIMEOUT_MS).values_ms == ()


def test_percentiles_are_values_that_occurred() -> None:
    """The nearest rank: p99 of a hundred is the ninety-ninth."""
    spread = Spread(tuple(range(1, 101)), disturbed=2)
    assert (spread.percentile(0.5), spread.percentile(0.99)) == (50, 99)
    assert str(spread) == "50 / 99 ms over 100, 2 disturbed"
    assert Spread((4,)).percentile(0.99) == 4


def test_nothing_measured_is_said() -> None:
    """An empty spread has no percentile."""
    assert Spread(()).percentile(0.99) is None
    assert str(Spread(())) == "nothing measured"
