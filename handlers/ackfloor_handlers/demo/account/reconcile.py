"""Reconciliation: facts in, an account out. Pure; every repetition needs an explanation.

Every order must have ended as its kind says, once or with a reason for more; a dead letter must be
byte-identical to the produced record; and Spark must count what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ackfloor_handlers.demo.account.facts import Facts, Origin, Parked
from ackfloor_handlers.demo.account.order_history import (
    Story,
    Why,
    changed,
    unplanned_timeouts,
    why_repeated,
    wrong,
)
from ackfloor_handlers.demo.seeded_orders import EXPECTED, Kind, counts

#: The share of the orders that may time out unplanned: a stall of the machine hits what is in
#: flight, a twentieth of a small demo.
_MOST_LATE = 0.05


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the account."""

    what: str
    expected: str
    observed: str
    adds_up: bool
    note: str = ""


@dataclass(slots=True)
class Account:
    """The verdict, its evidence, and what does not add up.

    Attributes:
        repeats: the orders delivered more than once, and why.
    """

    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    repeats: list[tuple[Story, Why]] = field(default_factory=list)

    @property
    def adds_up(self) -> bool:
        """Whether everything does."""
        return not self.problems and all(row.adds_up for row in self.rows)


def reconcile(facts: Facts, orders: int) -> Account:
    """Judge a run of the demo.

    Args:
        facts: what was produced and what was found.
        orders: how many orders should have been produced.
    """
    account = Account()
    stories, foreign = _sorted_by_order(facts)
    account.problems += foreign
    _add_totals(account, stories, orders)
    _add_kinds(account, stories, orders)
    _add_repeats(account, stories, facts)
    _add_timeouts(account, stories, facts)
    _add_bytes(account, stories)
    if facts.spark is not None:
        _add_spark(account, facts)
    return account


def _sorted_by_order(facts: Facts) -> tuple[list[Story], list[str]]:
    """Every order's story, and the records of no order."""
    stories = {origin: Story(origin, order, facts.source) for origin, order in facts.ledger.items()}
    foreign = []
    for receipt in facts.receipts:
        story = stories.get(receipt.origin)
        if story is None or story.order.number != receipt.order:
            found = "nothing of ours" if story is None else f"order {story.order.number}"
            foreign.append(
                f"a receipt for order {receipt.order} names origin {receipt.origin}, "
                f"which holds {found}"
            )
        else:
            story.receipts.append(receipt)
    foreign += _sort_in(stories, facts.parked, lambda story: story.parked)
    foreign += _sort_in(stories, facts.dead, lambda story: story.dead)
    return list(stories.values()), foreign


def _sort_in(
    stories: dict[Origin, Story], records: Iterable[Parked], part: Callable[[Story], list[Parked]]
) -> Iterator[str]:
    for record in records:
        story = None if record.origin is None else stories.get(record.origin)
        if story is None:
            where = f"{record.topic}/{record.partition}/{record.offset}"
            yield f"{where} has origin {record.origin}, which holds nothing of ours"
        else:
            part(story).append(record)


def _add_totals(account: Account, stories: list[Story], orders: int) -> None:
    handled = sum(bool(story.receipts) for story in stories)
    dead = sum(bool(story.dead) for story in stories)
    both = sum(bool(story.receipts) and bool(story.dead) for story in stories)
    account.rows.append(
        Row("orders produced", f"{orders:,}", f"{len(stories):,}", len(stories) == orders)
    )
    observed = f"{handled:,} + {dead:,}" + (f" - {both:,} both" if both else "")
    total = handled + dead - both
    account.rows.append(
        Row("handled + dead-lettered", f"{orders:,}", f"{observed} = {total:,}", total == orders)
    )


def _add_kinds(account: Account, stories: list[Story], orders: int) -> None:
    right: Counter[Kind] = Counter()
    for story in stories:
        faults = list(wrong(story))
        if faults:
            account.problems += [f"{story}: {fault}" for fault in faults]
        else:
            right[story.order.kind] += 1
    for kind, count in counts(orders).items():
        expected = f"{count:,} {EXPECTED[kind]}"
        account.rows.append(
            Row(f"  {kind.value}", expected, f"{right[kind]:,}", right[kind] == count)
        )


def _add_repeats(account: Account, stories: list[Story], facts: Facts) -> None:
    repeated = [story for story in stories if story.repeated]
    for story in repeated:
        why = why_repeated(story, facts.disturbances)
        if why is None:
            ends = f"{len(story.receipts)} receipts, {len(story.dead)} dead letters"
            account.problems.append(f"{story}: delivered again without a reason ({ends})")
        else:
            account.repeats.append((story, why))
    twice = sum(len(story.receipts) > 1 for story in repeated)
    row = Row(
        "handled more than once",
        f"at most {_exposed(facts):,}",
        f"{twice:,}",
        len(account.repeats) == len(repeated),
        f"{len(repeated):,} with retries and dead letters that came twice",
    )
    account.rows.append(row)


def _add_timeouts(account: Account, stories: list[Story], facts: Facts) -> None:
    """A busy machine makes a few handlers late; a fault of the deadlines makes many."""
    late = [story for story in stories if unplanned_timeouts(story, facts.disturbances)]
    most = int(len(stories) * _MOST_LATE)
    if len(late) > most:
        account.problems += [f"{story}: timed out, which its kind does not" for story in late]
    account.rows.append(
        Row(
            "timed out unplanned",
            f"at most {most:,}",
            f"{len(late):,}",
            len(late) <= most,
            "the broker of a busy machine may answer after the consume timeout",
        )
    )


def _exposed(facts: Facts) -> int:
    """How many of the orders' records a disturbance left at or above the committed floor."""
    floors = [disturbance.floors for disturbance in facts.disturbances]
    places = [((facts.source, origin.partition), origin.offset) for origin in facts.ledger]
    places += [((record.topic, record.partition), record.offset) for record in facts.parked]
    return sum(
        any(place in each and offset >= each[place] for each in floors) for place, offset in places
    )


def _add_bytes(account: Account, stories: list[Story]) -> None:
    dead_letters = sum(len(story.dead) for story in stories)
    parked = sum(len(story.parked) for story in stories)
    faulty = 0
    for story in stories:
        faults = list(changed(story))
        faulty += len(faults)
        account.problems += [f"{story}: {fault}" for fault in faults]
    account.rows.append(
        Row(
            "bytes unchanged",
            f"{parked:,} parked + {dead_letters:,} dead",
            "all" if not faulty else f"{faulty:,} differ",
            not faulty,
            "key, value and own headers",
        )
    )


def _add_spark(account: Account, facts: Facts) -> None:
    spark = facts.spark
    assert spark is not None
    dead = {dead_letter.origin for dead_letter in facts.dead if dead_letter.origin}
    failed = {record.origin for record in facts.parked if record.origin} | dead
    expected = {
        "records": sum(facts.topic_records.values()),
        "messages recovered": len(failed - dead),
        "messages dead": len(dead),
        "messages open": 0,
    }
    counted = dict(
        zip(expected, (spark.records, spark.recovered, spark.dead, spark.open), strict=True)
    )
    for name, there in expected.items():
        if counted[name] != there:
            account.problems.append(f"Spark counts {counted[name]} {name}, there are {there}")
    account.rows.append(
        Row(
            "records that Spark stored",
            f"{expected['records']:,}",
            f"{spark.records:,}",
            spark.records == expected["records"],
            "retry and dead-letter topics",
        )
    )
    account.rows.append(
        Row(
            "failed once, by Spark's report",
            f"{len(failed - dead):,} recovered + {len(dead):,} dead",
            f"{spark.recovered:,} + {spark.dead:,}"
            + (f" + {spark.open:,} open" * bool(spark.open)),
            (spark.recovered, spark.dead, spark.open) == (len(failed - dead), len(dead), 0),
        )
    )
