"""The same seeded messages and outages through any policy, by the real worker on a manual clock.

Each message waits in the same partitions in every run, so its waits have the same shares of jitter.

Two services are away for known stretches of time; a message needs one of them, fails while it is
away and is handled otherwise. Some messages are poison: they fail for ever, some by the handler's
own word.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from ackfloor import App, DeadLetter, RetryPolicy
from ackfloor.commits import Settled
from ackfloor.core.acks.settled import settled_by
from ackfloor.core.parking.parking import Parking
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.envelope import read_envelope
from ackfloor.core.records.record import StartPosition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.values.durations import format_exact_unit
from ackfloor.testing import Harness
from ackfloor_monitoring.spark.table.columns import HEADER_COLUMNS

START = datetime(2026, 11, 1, tzinfo=UTC)
PARTITIONS = 4
# From second to second, by service.
OUTAGES = {"cards": ((20, 65), (240, 480)), "mail": ((120, 210),)}


class CardsAway(Exception):
    """The card service did not answer."""


class MailAway(Exception):
    """The mail service did not answer."""


@dataclass(frozen=True)
class Message:
    """What is sent when, and how long its handler takes."""

    at_s: float
    needs: str
    takes_ms: int


def messages(seed: int, count: int) -> list[Message]:
    """So many, in order of time: those that fail, for the others leave no trace."""
    rng = random.Random(seed)
    spans = [(s, a, b) for s, each in OUTAGES.items() for a, b in each]
    lengths = [b - a for _, a, b in spans]
    made = []
    for _ in range(count):
        needs, begin, end = rng.choices(spans, lengths)[0]
        needs = rng.choices((needs, "poison", "nothing good"), (95, 4, 1))[0]
        made.append(Message(rng.uniform(begin, end), needs, rng.randint(5, 400)))
    return sorted(made, key=lambda message: message.at_s)


@dataclass
class Rerun:
    """What came of it: counts, rows of the table of failures, and the group's commits."""

    recovered: int
    dead: int
    redeliveries: int
    to_recovery_s: float
    took_s: list[float]
    rows: list[dict[str, Any]]
    commits: list[Settled]


def run(policy: RetryPolicy, sent: list[Message]) -> Rerun:
    """All of it, until nothing waits any more."""
    app = App(group="billing")
    failed: dict[bytes, datetime] = {}
    took_s: dict[bytes, float] = {}

    @app.handler("orders", retry=policy, concurrency=1_000, breaker=None)
    async def bill(body: bytes) -> None:
        message, began = sent[int(body)], h.now
        await asyncio.sleep(message.takes_ms / 1000)
        try:
            _call(message.needs, (began - START).total_seconds())
        except Exception:
            failed.setdefault(body, h.now)
            raise
        if body in failed:
            took_s[body] = (began - failed[body]).total_seconds()

    with (
        patch.object(Parking, "own_partition", _same_partition),
        Harness(app, partitions=PARTITIONS, jitter=True, start=START) as h,
    ):
        for number, message in enumerate(sent):
            h.advance(START + timedelta(seconds=message.at_s) - h.now)
            h.send("orders", str(number), settle=False)
        h.advance(timedelta(seconds=policy.total_s() * 1.2 + 60))
        assert h.parked("orders") == []
        rows = list(_rows(h))
        return Rerun(
            recovered=len(took_s),
            dead=len(h.dlq("orders")),
            redeliveries=sum(row["stage"] == "retry" for row in rows),
            to_recovery_s=sum(took_s.values()) / len(took_s),
            took_s=sorted(took_s.values()),
            rows=rows,
            commits=list(_commits(h)),
        )


def _same_partition(_parking: Parking, delivery: TrackedDelivery, _topic: str) -> int:
    """A partition by the message and its attempt, where a worker draws one at random."""
    number = int(delivery.record.value() or b"")
    return (5 * number + 7 * delivery.attempt) % PARTITIONS


def _call(service: str, began_s: float) -> None:
    if service == "nothing good":
        raise DeadLetter("it says so itself")
    if service == "poison":
        raise KeyError("amount")
    if any(begin <= began_s < end for begin, end in OUTAGES[service]):
        raise CardsAway if service == "cards" else MailAway


def _rows(h: Harness) -> Iterator[dict[str, Any]]:
    for name in h.broker.topics:
        topic = parse_topic(name)
        if topic is None or topic.kind not in {"retry", "dlq"}:
            continue
        for record in h.broker.records(name):
            told = read_envelope(record.headers())
            read = {
                spec.column: _time(getattr(told, f"{spec.column}_ms"))
                if spec.kind == "time"
                else getattr(told, spec.column)
                for spec in HEADER_COLUMNS
            }
            yield read | {
                "topic_id": name, "topic": name, "partition": record.partition(),
                "tier": None if topic.delay_s is None else format_exact_unit(topic.delay_s),
                "offset": record.offset(), "stage": topic.kind, "event_time": read["failed_at"],
                "kafka_time": _time(record.timestamp()[1]), "unreadable": [], "foreign": [],
            }  # fmt: skip


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def _commits(h: Harness) -> Iterator[Settled]:
    for name, count in h.broker.topics.items():
        for partition in range(count):
            if (found := h.broker.committed("billing", name, partition)) is not None:
                start = StartPosition(name, partition, found.position, metadata=found.metadata)
                yield settled_by(start)._replace(topic_id=name)
