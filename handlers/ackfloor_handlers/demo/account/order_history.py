"""A story: all that the topics hold of one order, and whether that is correct.

An order may be redelivered only after a fault of the demo: a worker killed, the broker taken away.
Kafka then redelivers records that were handled without their commit getting through; these were at
or above the position that the group had committed by then. A handler that could not write its
receipt in time times out, and its record is redelivered as well: while the broker is away, and on
a machine so busy that the broker answers late. Nothing else explains a repetition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ackfloor_handlers.demo.account.facts import Disturbance, Origin, Parked, Place, Receipt
from ackfloor_handlers.demo.seeded_orders import EXPECTED, Expected, Order


class Why(NamedTuple):
    """Why an order was redelivered: what happened, and to which record of it."""

    cause: str
    evidence: str


@dataclass(slots=True)
class Story:
    """One order's receipts, retries and dead letters."""

    origin: Origin
    order: Order
    source: str
    receipts: list[Receipt] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    dead: list[Parked] = field(default_factory=list)

    @property
    def expected(self) -> Expected:
        """How it must end."""
        return EXPECTED[self.order.kind]

    @property
    def repeated(self) -> bool:
        """Whether one of its deliveries was repeated, or it ended twice."""
        attempts = [record.envelope.attempt for record in self.parked]
        ends = len(self.receipts) + len(self.dead)
        return ends > 1 or len(attempts) > len(set(attempts))

    def __str__(self) -> str:
        return f"order {self.order.number} ({self.order.kind.value}, origin {self.origin})"


def wrong(story: Story) -> Iterator[str]:
    """What is wrong with it; empty where all is well."""
    expected = story.expected
    if not story.receipts and not story.dead:
        yield "neither handled nor dead-lettered"
        return
    if expected.reason is None:
        yield from _wrongly_handled(story)
    else:
        yield from _wrongly_dead(story, expected)
    yield from _wrongly_parked(story, expected)


def unplanned_timeouts(story: Story, disturbances: Sequence[Disturbance]) -> list[Parked]:
    """Its timeouts that are neither part of its kind nor explained by an absent broker."""
    planned = dict(enumerate(story.expected.parked, 1))
    return [
        record
        for record in (*story.parked, *story.dead)
        if record.timed_out
        and planned.get(record.envelope.attempt) != "timeout"
        and story.expected.error != record.error
        and not _broker_away(record, disturbances)
    ]


def changed(story: Story) -> Iterator[str]:
    """Parked records whose bytes differ from those produced."""
    order = story.order
    for record in (*story.parked, *story.dead):
        where = f"in {record.topic}/{record.partition}/{record.offset}"
        if record.key != order.key:
            yield f"key changed {where}: {order.key!r} became {record.key!r}"
        if record.value != order.value:
            yield f"value changed {where}"
        if record.headers != order.headers:
            yield f"headers changed {where}"


def why_repeated(story: Story, disturbances: Sequence[Disturbance]) -> Why | None:
    """What explains a repetition; None where nothing does."""
    for disturbance in disturbances:
        for place, offset, handled_ms in _deliveries(story):
            floor = disturbance.floors.get(place)
            if floor is not None and offset >= floor and handled_ms <= disturbance.until_ms:
                record = f"{place[0]}/{place[1]} offset {offset}"
                return Why(disturbance.what, f"{record}, committed {floor}")
    for receipt in story.receipts:
        if any(
            record.envelope.attempt == receipt.attempt and record.timed_out
            for record in (*story.parked, *story.dead)
        ):
            return Why("its receipt was confirmed after its timeout", f"delivery {receipt.attempt}")
    return None


def _deliveries(story: Story) -> Iterator[tuple[Place, int, int]]:
    """Each record of the order that was delivered: place, offset, first start of its handler."""
    started = _first_started(story, 1)
    if started is not None:
        yield (story.source, story.origin.partition), story.origin.offset, started
    for record in story.parked:
        started = _first_started(story, record.envelope.attempt + 1)
        if started is not None:
            yield (record.topic, record.partition), record.offset, started


def _first_started(story: Story, attempt: int) -> int | None:
    starts = [receipt.started_ms for receipt in story.receipts if receipt.attempt == attempt]
    settled = (*story.parked, *story.dead)
    starts += [record.started_ms for record in settled if record.envelope.attempt == attempt]
    return min(starts, default=None)


def _wrongly_handled(story: Story) -> Iterator[str]:
    expected = story.expected
    if not story.receipts:
        yield f"dead-lettered ({story.dead[0].reason}) instead of handled"
        return
    for record in story.dead:
        if not record.timed_out:
            yield f"handled, and dead-lettered as well ({record.reason})"
    first = min(receipt.attempt for receipt in story.receipts)
    cut_off = {record.envelope.attempt for record in story.parked if record.timed_out}
    late = first > expected.attempt and set(range(expected.attempt, first)) <= cut_off
    if first != expected.attempt and not late:
        yield f"handled on delivery {first} instead of {expected.attempt}"


def _wrongly_dead(story: Story, expected: Expected) -> Iterator[str]:
    for receipt in story.receipts:
        yield f"handled on delivery {receipt.attempt} instead of dead-lettered"
    for record in story.dead:
        if record.reason != expected.reason or record.envelope.attempt != expected.attempt:
            yield (
                f"dead-lettered as {record.reason!r} after delivery {record.envelope.attempt} "
                f"instead of {expected.reason!r} after {expected.attempt}"
            )
        elif expected.error and record.error != expected.error:
            yield f"dead letter with {record.error} instead of {expected.error}"


def _wrongly_parked(story: Story, expected: Expected) -> Iterator[str]:
    planned = dict(enumerate(expected.parked, 1))
    for record in story.parked:
        attempt = record.envelope.attempt
        if record.reason != planned.get(attempt) and not record.timed_out:
            yield f"parked as {record.reason!r} after delivery {attempt}"
    seen = {record.envelope.attempt for record in story.parked}
    for attempt in planned.keys() - seen:
        yield f"no retry topic holds delivery {attempt}'s failure"


def _broker_away(record: Parked, disturbances: Sequence[Disturbance]) -> bool:
    """Whether the broker was away while its handler ran."""
    return any(
        disturbance.timeouts and disturbance.covers(record.started_ms, record.appended_ms)
        for disturbance in disturbances
    )
