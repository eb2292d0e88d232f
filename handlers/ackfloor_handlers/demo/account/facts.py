"""Facts: what was produced, and what the topics, the group and Spark hold afterwards.

Plain data between the steps that use Kafka and those that judge. An *origin* is the place of an
order in the source topic: partition and offset; everything is matched by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ackfloor.core.records.envelope import Envelope
from ackfloor_handlers.demo.seeded_orders import Headers, Order

Place = tuple[str, int]
#: The error type of a delivery that outlived its consume timeout.
TIMED_OUT = "ConsumeTimeout"


class Origin(NamedTuple):
    """Where an order is in the source topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"


Ledger = Mapping[Origin, Order]


@dataclass(frozen=True, slots=True)
class Receipt:
    """One handling of an order: the record that was delivered and when its handler started.

    Attributes:
        topic: of the delivered record: the source topic or a retry tier.
        due_ms: when a redelivery was due, None for a first delivery.
    """

    order: int
    origin: Origin
    attempt: int
    topic: str
    partition: int
    offset: int
    started_ms: int
    due_ms: int | None


@dataclass(frozen=True, slots=True)
class Parked:
    """A record of a retry tier or of the dead-letter topic.

    Attributes:
        origin: None where its headers lack it.
        headers: the record's own, without ours.
        appended_ms: the record's timestamp: the broker's where `by_broker`.
    """

    topic: str
    partition: int
    offset: int
    origin: Origin | None
    envelope: Envelope
    key: bytes | None
    value: bytes | None
    headers: Headers
    appended_ms: int
    by_broker: bool

    @property
    def reason(self) -> str:
        """Why it was parked; empty where the headers lack it."""
        return "" if self.envelope.reason is None else self.envelope.reason.value

    @property
    def error(self) -> str:
        """The class of the error, without its module."""
        return (self.envelope.error_type or "").rpartition(".")[2]

    @property
    def timed_out(self) -> bool:
        """Whether the delivery before outlived its timeout."""
        return self.error == TIMED_OUT

    @property
    def started_ms(self) -> int:
        """When the handler of the failed delivery started."""
        return (self.envelope.failed_at_ms or 0) - (self.envelope.duration_ms or 0)


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault that the demo injected, and its possible effects.

    Attributes:
        what: for people: "worker 1 killed".
        until_ms: until when a record may have been handled without its commit getting through.
        over_ms: when every partition had a worker, and the broker answered, again.
        floors: the group's committed position in each affected partition at that moment;
            records at or above it may be redelivered.
        timeouts: whether handlers may have timed out because their receipts could not be
            written.
    """

    what: str
    at_ms: int
    until_ms: int
    over_ms: int
    floors: Mapping[Place, int]
    timeouts: bool = False

    def covers(self, from_ms: int, to_ms: int) -> bool:
        """Whether the span overlaps the time until it was over."""
        return from_ms <= self.over_ms and to_ms >= self.at_ms


@dataclass(frozen=True, slots=True)
class SparkReport:
    """Spark's failure report on the retry and dead-letter topics.

    Attributes:
        records: rows of its table, one for each record of those topics.
        recovered, dead, open: messages that failed at least once, by outcome; open are those
            that wait, and those with an unknown outcome.
        causes: the failure groups, as they stand in the report's JSON.
    """

    records: int
    recovered: int
    dead: int
    open: int = 0
    causes: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All evidence of the verdict."""

    ledger: Ledger
    receipts: Sequence[Receipt]
    parked: Sequence[Parked]
    dead: Sequence[Parked]
    source: str
    topic_records: Mapping[str, int] = field(default_factory=dict)
    disturbances: Sequence[Disturbance] = ()
    spark: SparkReport | None = None
