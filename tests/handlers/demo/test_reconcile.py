"""The reconciliation: a perfect run adds up, and every way not to is caught by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor.core.records.envelope import Envelope
from ackfloor_handlers.demo.account.facts import Facts, Origin, Parked
from ackfloor_handlers.demo.account.reconcile import Account, reconcile
from ackfloor_handlers.demo.seeded_orders import Kind
from tests.handlers.demo.perfect import (
    DLQ,
    ORDERS,
    STARTED_MS,
    TIERS,
    first,
    kill,
    parked,
    perfect,
    receipt,
    with_changes,
    without,
)


@pytest.fixture(scope="module")
def facts() -> Facts:
    """A perfect run."""
    return perfect()


def judged(facts: Facts) -> Account:
    """The account of a run of the usual size."""
    return reconcile(facts, ORDERS)


def the_problem(facts: Facts) -> str:
    """The one thing that does not add up."""
    account = judged(facts)
    assert not account.adds_up
    (problem,) = account.problems
    return problem


def test_a_perfect_run_adds_up(facts: Facts) -> None:
    """Nothing is wrong with it and nothing came twice."""
    account = judged(facts)
    assert account.problems == []
    assert account.adds_up
    assert account.repeats == []
    assert {row.what.strip() for row in account.rows} >= {kind.value for kind in Kind}


def test_fewer_produced_than_asked_for(facts: Facts) -> None:
    """An order that was never produced is missed although all others are well."""
    account = reconcile(facts, ORDERS + 1)
    assert not account.adds_up
    assert "orders produced" in [row.what for row in account.rows if not row.adds_up]


@pytest.mark.parametrize("kind", [Kind.OK, Kind.SLOW, Kind.HEALS_2ND, Kind.STUCK_ONCE])
def test_a_missing_receipt(facts: Facts, kind: Kind) -> None:
    """An order that was neither handled nor dead-lettered is named."""
    origin, order = first(facts, kind)
    problem = the_problem(with_changes(facts, receipts=without(facts.receipts, origin)))
    assert problem.startswith(f"order {order.number} ({kind.value}, origin {origin})")
    assert problem.endswith("neither handled nor dead-lettered")


def test_a_missing_dead_letter(facts: Facts) -> None:
    """So is a hopeless one that vanished."""
    origin, _ = first(facts, Kind.POISON)
    lost = with_changes(facts, dead=without(facts.dead, origin))
    assert "neither handled nor dead-lettered" in the_problem(lost)


def test_an_order_handled_twice_without_a_reason(facts: Facts) -> None:
    """Two receipts for one order, and nothing was done to the run."""
    origin, order = first(facts, Kind.OK)
    doubled = with_changes(facts, receipts=[*facts.receipts, receipt(origin, order)])
    assert "delivered again without a reason (2 receipts, 0 dead letters)" in the_problem(doubled)


def test_a_dead_letter_twice_without_a_reason(facts: Facts) -> None:
    """A park that was written twice is no better."""
    origin, order = first(facts, Kind.INVALID)
    again = parked(origin, order, 1, "dead_letter", dead=True, error="InvalidOrder")
    assert "2 dead letters" in the_problem(with_changes(facts, dead=[*facts.dead, again]))


def test_a_repetition_above_the_killed_workers_floor_is_explained(facts: Facts) -> None:
    """Handled before the kill and not below the floor that was committed then: listed with why."""
    origin, order = first(facts, Kind.OK)
    again = receipt(origin, order, started_ms=STARTED_MS + 20_000)
    killed = kill(**{f"p{origin.partition}": origin.offset})
    account = judged(with_changes(facts, receipts=[*facts.receipts, again], disturbances=[killed]))
    assert account.adds_up, account.problems
    ((story, why),) = account.repeats
    assert story.origin == origin
    assert why == (
        "worker 1 killed",
        f"orders/{origin.partition} offset {origin.offset}, committed {origin.offset}",
    )


def test_a_repetition_below_the_floor_is_not(facts: Facts) -> None:
    """What the killed worker had committed must not come again."""
    origin, order = first(facts, Kind.OK)
    killed = kill(**{f"p{origin.partition}": origin.offset + 1})
    doubled = with_changes(
        facts, receipts=[*facts.receipts, receipt(origin, order)], disturbances=[killed]
    )
    assert "delivered again without a reason" in the_problem(doubled)


def test_a_repetition_in_a_partition_of_the_survivor_is_not(facts: Facts) -> None:
    """The other worker's partitions were not killed."""
    origin, order = first(facts, Kind.OK)
    killed = kill(**{f"p{(origin.partition + 1) % 8}": 0})
    doubled = with_changes(
        facts, receipts=[*facts.receipts, receipt(origin, order)], disturbances=[killed]
    )
    assert "delivered again without a reason" in the_problem(doubled)


def test_a_repetition_that_began_after_the_kill_is_not(facts: Facts) -> None:
    """Both handlings came after the restart: the kill has nothing to do with it."""
    origin, order = first(facts, Kind.OK)
    late = [receipt(origin, order, started_ms=STARTED_MS + 30_000 + n) for n in range(2)]
    killed = kill(**{f"p{origin.partition}": 0})
    doubled = with_changes(
        facts, receipts=[*without(facts.receipts, origin), *late], disturbances=[killed]
    )
    assert "delivered again without a reason" in the_problem(doubled)


def test_a_repetition_through_a_retry_topic_is_explained_by_its_floor(facts: Facts) -> None:
    """The killed worker had taken the record from a tier, where its commit was behind."""
    origin, order = first(facts, Kind.HEALS_2ND)
    twice = [*facts.receipts, receipt(origin, order, 2)]
    tier = (TIERS[0], origin.partition)
    killed = replace(kill(), until_ms=STARTED_MS + 25_000, floors={tier: origin.offset})
    account = judged(with_changes(facts, receipts=twice, disturbances=[killed]))
    assert account.adds_up, account.problems
    above = replace(killed, floors={tier: origin.offset + 1})
    assert not judged(with_changes(facts, receipts=twice, disturbances=[above])).adds_up


def test_a_foreign_receipt(facts: Facts) -> None:
    """A receipt for something that was never produced."""
    _, order = first(facts, Kind.OK)
    stray = receipt(Origin(3, 999_999), order)
    problem = the_problem(with_changes(facts, receipts=[*facts.receipts, stray]))
    assert "names origin 3/999999, which holds nothing of ours" in problem


def test_a_receipt_for_another_order(facts: Facts) -> None:
    """The origin is there but holds another order."""
    origin, order = first(facts, Kind.OK)
    stray = replace(receipt(origin, order), order=order.number + 1)
    problem = the_problem(with_changes(facts, receipts=[*facts.receipts, stray]))
    assert f"which holds order {order.number}" in problem


@pytest.mark.parametrize("origin", [None, Origin(0, 999_999)])
def test_a_foreign_dead_letter(facts: Facts, origin: Origin | None) -> None:
    """A dead letter that belongs to no order, or does not say to which."""
    stray = replace(facts.dead[0], origin=origin)
    problem = the_problem(with_changes(facts, dead=[*facts.dead, stray]))
    assert problem.endswith("which holds nothing of ours")


def test_a_healthy_order_dead_lettered(facts: Facts) -> None:
    """Produced = handled + dead-lettered still holds, and yet its class does not."""
    origin, order = first(facts, Kind.OK)
    letter = parked(origin, order, 1, "decode", dead=True)
    swapped = with_changes(
        facts, receipts=without(facts.receipts, origin), dead=[*facts.dead, letter]
    )
    assert "dead-lettered (decode) instead of handled" in the_problem(swapped)


def test_a_hopeless_order_handled(facts: Facts) -> None:
    """A business error that got through."""
    origin, order = first(facts, Kind.INVALID)
    swapped = with_changes(
        facts,
        receipts=[*facts.receipts, receipt(origin, order)],
        dead=without(facts.dead, origin),
    )
    assert "handled on delivery 1 instead of dead-lettered" in the_problem(swapped)


def test_a_wrong_attempt(facts: Facts) -> None:
    """Handled, but a delivery too early or too late."""
    origin, order = first(facts, Kind.HEALS_3RD)
    early = [*without(facts.receipts, origin), receipt(origin, order, 2)]
    assert "handled on delivery 2 instead of 3" in the_problem(with_changes(facts, receipts=early))


def test_a_wrong_reason(facts: Facts) -> None:
    """Dead-lettered, but as something else."""
    origin, order = first(facts, Kind.STUCK)
    letter = parked(origin, order, 3, "crash", dead=True, error="ConsumeTimeout")
    wrong = with_changes(facts, dead=[*without(facts.dead, origin), letter])
    assert "'crash' after delivery 3 instead of 'exhausted' after 3" in the_problem(wrong)


def test_a_wrong_error(facts: Facts) -> None:
    """Dead-lettered for the right reason with another cause."""
    origin, order = first(facts, Kind.INVALID)
    letter = parked(origin, order, 1, "dead_letter", dead=True, error="KeyError")
    wrong = with_changes(facts, dead=[*without(facts.dead, origin), letter])
    assert "dead letter with KeyError instead of InvalidOrder" in the_problem(wrong)


def test_a_retry_that_should_not_be(facts: Facts) -> None:
    """A healthy order in a retry topic: it was held up by something."""
    origin, order = first(facts, Kind.OK)
    extra = [*facts.parked, parked(origin, order, 1, "error")]
    assert "parked as 'error' after delivery 1" in the_problem(with_changes(facts, parked=extra))


def test_a_retry_without_a_trace(facts: Facts) -> None:
    """Handled at the second delivery, but no retry topic knows of the first."""
    origin, _ = first(facts, Kind.STUCK_ONCE)
    lost = with_changes(facts, parked=without(facts.parked, origin))
    assert "no retry topic holds delivery 1's failure" in the_problem(lost)


@pytest.mark.parametrize(
    ("part", "value"),
    [("key", b"other"), ("value", b"{}"), ("value", None), ("headers", (("order", b"-1"),))],
)
def test_changed_bytes(facts: Facts, part: str, value: object) -> None:
    """A dead letter must be what was produced, to the byte."""
    origin, _ = first(facts, Kind.INVALID)
    letters = [
        replace(letter, **{part: value}) if letter.origin == origin else letter
        for letter in facts.dead
    ]
    assert f"{part} changed in {DLQ}/" in the_problem(with_changes(facts, dead=letters))


def test_empty_and_absent_are_not_the_same(facts: Facts) -> None:
    """A null value that comes back empty was changed."""
    origin, order = first(facts, Kind.POISON)
    other = b"" if order.value is None else None
    letters = [
        replace(letter, value=other) if letter.origin == origin else letter for letter in facts.dead
    ]
    assert "value changed" in the_problem(with_changes(facts, dead=letters))


def test_spark_counts_something_else(facts: Facts) -> None:
    """Spark and the topics must agree: on the records, and on what became of each message."""
    told = facts.spark
    assert told is not None
    for name, text in (
        ("records", "records"), ("recovered", "messages recovered"), ("dead", "messages dead"),
        ("open", "messages open"),
    ):  # fmt: skip
        count = getattr(told, name)
        problem = the_problem(replace(facts, spark=replace(told, **{name: count + 1})))
        assert problem == f"Spark counts {count + 1} {text}, there are {count}"


def test_without_spark_its_row_is_left_out(facts: Facts) -> None:
    """`--no-spark` adds up as well, and claims nothing."""
    account = judged(replace(facts, spark=None))
    assert account.adds_up
    assert not any("Spark" in row.what for row in account.rows)


OUTAGE = replace(
    kill(), what="broker away", until_ms=STARTED_MS + 40_000, over_ms=STARTED_MS + 40_000,
    timeouts=True,
)  # fmt: skip


def late_receipt(facts: Facts) -> Facts:
    """An order whose receipt was confirmed after its timeout: handled on deliveries 1 and 2."""
    origin, order = first(facts, Kind.OK)
    return with_changes(
        facts,
        receipts=[*facts.receipts, receipt(origin, order, 2)],
        parked=[*facts.parked, parked(origin, order, 1, "timeout")],
    )


def test_a_receipt_confirmed_after_its_timeout_is_explained_by_an_outage(facts: Facts) -> None:
    """The handler was cut off because its receipt could not be written, and came again."""
    account = judged(replace(late_receipt(facts), disturbances=[OUTAGE]))
    assert account.adds_up, account.problems
    assert [why.cause for _, why in account.repeats] == [
        "its receipt was confirmed after its timeout"
    ]


def late(facts: Facts, count: int) -> Facts:
    """So many healthy orders that timed out once: their receipts came with delivery 2."""
    slow = [(o, order) for o, order in facts.ledger.items() if order.kind is Kind.OK][:count]
    origins = {origin for origin, _ in slow}
    on_time = [each for each in facts.receipts if each.origin not in origins]
    return with_changes(
        facts,
        receipts=[*on_time, *(receipt(origin, order, 2) for origin, order in slow)],
        parked=[*facts.parked, *(parked(origin, order, 1, "timeout") for origin, order in slow)],
    )


def test_a_few_late_receipts_are_a_busy_machine(facts: Facts) -> None:
    """A twentieth of the orders may time out though nothing was done to the run; it is shown."""
    account = judged(late(facts, ORDERS // 20))
    assert account.adds_up, account.problems
    (row,) = [row for row in account.rows if row.what == "timed out unplanned"]
    assert (row.expected, row.observed) == ("at most 20", "20")


def test_many_late_receipts_are_a_fault(facts: Facts) -> None:
    """More than that are named one by one, and the account does not add up."""
    account = judged(late(facts, ORDERS // 20 + 1))
    assert not account.adds_up
    assert len(account.problems) == ORDERS // 20 + 1
    assert all("timed out, which its kind does not" in problem for problem in account.problems)


def test_timeouts_of_an_outage_are_not_counted(facts: Facts) -> None:
    """However many handlers an absent broker cut off, none of them is unplanned."""
    account = judged(replace(late(facts, ORDERS // 10), disturbances=[OUTAGE]))
    assert account.adds_up, account.problems
    (row,) = [row for row in account.rows if row.what == "timed out unplanned"]
    assert row.observed == "0"


def test_an_outage_may_end_an_order_both_ways(facts: Facts) -> None:
    """The last delivery's receipt was written late: handled and dead-lettered, counted once."""
    origin, order = first(facts, Kind.HEALS_3RD)
    letter: Parked = parked(origin, order, 3, "exhausted", dead=True, error="ConsumeTimeout")
    both = with_changes(facts, dead=[*facts.dead, letter], disturbances=[OUTAGE])
    account = judged(both)
    assert account.adds_up, account.problems
    assert any("1 both" in row.observed for row in account.rows)


def test_an_order_handled_later_than_planned_because_of_an_outage(facts: Facts) -> None:
    """Its first receipt was never written, the second delivery's was."""
    origin, order = first(facts, Kind.OK)
    late = with_changes(
        facts,
        receipts=[*without(facts.receipts, origin), receipt(origin, order, 2)],
        parked=[*facts.parked, parked(origin, order, 1, "timeout")],
        disturbances=[OUTAGE],
    )
    assert judged(late).adds_up, judged(late).problems


def test_a_parked_record_without_readable_headers_is_a_problem(facts: Facts) -> None:
    """A tier record that does not say why it is there."""
    origin, _ = first(facts, Kind.HEALS_2ND)
    tiers = [
        replace(record, envelope=Envelope(attempt=1)) if record.origin == origin else record
        for record in facts.parked
    ]
    assert "parked as ''" in the_problem(with_changes(facts, parked=tiers))


def test_the_bound_on_repetitions_counts_what_was_exposed(facts: Facts) -> None:
    """The most that a kill may repeat: the records at or above the floors it hit."""
    killed = kill(p0=ORDERS // 8 - 5)
    account = judged(with_changes(facts, disturbances=[killed]))
    (row,) = [row for row in account.rows if row.what == "handled more than once"]
    assert row.expected == "at most 5"
