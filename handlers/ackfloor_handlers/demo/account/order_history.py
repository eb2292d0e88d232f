"""A story: everything the topics say about one order, and whether it is as it must be.

An order may be delivered again only where something was done to the run: a worker killed, the
broker taken away. Then a record comes again that had been handled without its commit getting
through, and such a record was at or above the position that the group had committed by then. A
handler whose receipt could not be written in time is cut off by its timeout and comes again as
well. Nothing else explains a repetition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ackfloor_handlers.demo.account.facts import Disturbance, Origin, Parked, Place, Receipt
from ackfloor_handlers.demo.seeded_orders import EXPECTED, Expected, Order


class Why(NamedTuple):
    """Why an order was delivered again: what happened, and to which record of it."""

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
        """What must become of it."""
        return EXPECTED[self.order.kind]

    @property
    def repeated(self) -> bool:
        """Whether a delivery of it was repeated, or it ended twice."""
        attempts = [record.envelope.attempt for record in self.parked]
        ends = len(self.receipts) + len(self.dead)
        return ends > 1 or len(attempts) > len(set(attempts))

    def __str__(self) -> str:
        return f"order {self.order.number} ({self.order.kind.value}, origin {self.origin})"


def wrong(story: Story, disturbances: Sequence[Disturbance]) -> Iterator[str]:
    """What is not as it must be, in words; nothing where all is well."""
    expected = story.expected
    if not story.receipts and not story.dead:
        yield "neither handled nor dead-lettered"
        return
    if expected.reason is None:
        yield from _wrongly_handled(story, disturbances)
    else:
        yield from _wrongly_dead(story, expected)
    yield from _wrongly_parked(story, expected, disturbances)


def changed(story: Story) -> Iterator[str]:
    """Parked records whose bytes are not those that were produced."""
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
            record.envelope.attempt == receipt.attempt and _cut_off(record, disturbances)
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


def _wrongly_handled(story: Story, disturbances: Sequence[Disturbance]) -> Iterator[str]:
    expected = story.expected
    if not story.receipts:
        yield f"dead-lettered ({story.dead[0].reason}) instead of handled"
        return
    for record in story.dead:
        if not _cut_off(record, disturbances):
            yield f"handled, and dead-lettered as well ({record.reason})"
    first = min(receipt.attempt for receipt in story.receipts)
    cut_off = {r.envelope.attempt for r in story.parked if _cut_off(r, disturbances)}
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


def _wrongly_parked(
    story: Story, expected: Expected, disturbances: Sequence[Disturbance]
) -> Iterator[str]:
    planned = dict(enumerate(expected.parked, 1))
    for record in story.parked:
        attempt = record.envelope.attempt
        if record.reason != planned.get(attempt) and not _cut_off(record, disturbances):
            yield f"parked as {record.reason!r} after delivery {attempt}"
    seen = {record.envelope.attempt for record in story.parked}
    for attempt in planned.keys() - seen:
        yield f"no retry topic holds delivery {attempt}'s failure"


def _cut_off(record: Parked, disturbances: Sequence[Disturbance]) -> bool:
    """Whether a handler timed out because what it waits for was taken away."""
    return record.timed_out and any(
        disturbance.timeouts and disturbance.covers(record.started_ms, record.appended_ms)
        for disturbance in disturbances
    )
