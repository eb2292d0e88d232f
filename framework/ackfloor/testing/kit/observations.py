"""Observations: what a harness saw, in the form a test asserts on.

The records here are plain data with everything decoded that a test compares: raw key and value,
the record's own headers (ours are taken out and given as fields), origin, attempt, reason.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from ackfloor.core.engine.engine import Engine
from ackfloor.core.messages.events import Event, LateAnswers
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.envelope import DID_NOT_FAIL, PREFIX, Reason, read_envelope
from ackfloor.core.records.outcomes import ACKED, Discarded, Failed, Rejected
from ackfloor.core.records.record import Headers, Now, Origin, Record
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.ports import Observer

T = TypeVar("T")

#: What a handler raises on purpose to end a delivery: no error.
_ASKED = ("Retry", "DeadLetter")


class Trouble(NamedTuple):
    """Something a test would rather not have happen.

    Attributes:
        where: the delivery, the handler or the observer it came from.
        error: what was raised, or what happened.
    """

    where: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRecord:
    """A record in a topic; `headers` are its own, without those of ackfloor."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def json(self) -> Any:
        """The value read as JSON."""
        return json.loads(self.value or b"null")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandledRecord(SeenRecord):
    """A record that a handler has handled; topic, partition and offset are its origin's."""

    handler: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedRecord(SeenRecord):
    """A record in a retry topic or in the dead-letter topic.

    Attributes:
        origin: where it was first delivered from.
        reason: why it is here: "timeout", "error", "retry", "dead_letter", "decode",
            "exhausted", "crash", "behind" or "held".
        attempt: how many deliveries it has had.
        error_type: the last error's class; "ConsumeTimeout" for a timeout; empty where it did not
            fail ("behind", "held").
        tier: the nominal delay of its retry topic ("5s"); None in the dead-letter topic.
        due: when it is delivered again; None in the dead-letter topic, and where it waits for
            another record of its key.
    """

    origin: Origin
    handler: str
    reason: Reason | None
    attempt: int
    error_type: str
    error_message: str
    error_stack: str
    tier: str | None
    due: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedKey:
    """A key of a handler with `on_failure="quarantine"`, whose first record failed and is parked.

    Attributes:
        partition: of the source topic.
        offset: of the record that failed, in that partition.
        behind: how many records wait behind it.
        held: it is dead-lettered, and its key waits for an operator (`after_dead_letter="hold"`).
    """

    partition: int
    offset: int
    behind: int
    held: bool


def own_headers(headers: Headers | None) -> tuple[tuple[str, bytes | None], ...]:
    """A record's headers without those of ackfloor."""
    return tuple(header for header in headers or () if not header[0].startswith(PREFIX))


def seen(record: Record) -> SeenRecord:
    """A record of any topic, for a test to read."""
    return SeenRecord(
        topic=record.topic(),
        partition=record.partition(),
        offset=record.offset(),
        key=record.key(),
        value=record.value(),
        headers=own_headers(record.headers()),
    )


def parked(record: Record) -> ParkedRecord:
    """A record of a retry or dead-letter topic, for a test to read."""
    envelope = read_envelope(record.headers())
    topic = parse_topic(record.topic())
    is_tier = topic is not None and topic.kind == "retry"
    due_ms = None
    if envelope.reason not in DID_NOT_FAIL:
        due_ms = envelope.retry_at_ms or envelope.not_before_ms
    return ParkedRecord(
        topic=record.topic(),
        partition=record.partition(),
        offset=record.offset(),
        key=record.key(),
        value=record.value(),
        headers=own_headers(record.headers()),
        origin=Origin(
            envelope.origin_topic or record.topic(),
            envelope.origin_partition or 0,
            envelope.origin_offset or 0,
        ),
        handler=envelope.handler or "",
        reason=envelope.reason,
        attempt=envelope.attempt,
        error_type=envelope.error_type or "",
        error_message=envelope.error_message or "",
        error_stack=envelope.error_stack or "",
        tier=record.topic().rpartition("--retry-")[2] if is_tier else None,
        due=datetime.fromtimestamp(due_ms / 1000, UTC) if is_tier and due_ms else None,
    )


def _handled(delivery: TrackedDelivery) -> HandledRecord:
    origin = delivery.origin
    return HandledRecord(
        topic=origin.topic,
        partition=origin.partition,
        offset=origin.offset,
        key=delivery.key,
        value=delivery.value,
        headers=own_headers(delivery.headers),
        handler=delivery.assignment.handler.rules.name,
        attempt=delivery.attempt,
    )


def describe(delivery: TrackedDelivery) -> str:
    """A delivery in a few words: origin, attempt and handler."""
    topic, partition, offset = delivery.origin
    handler = delivery.assignment.handler.rules.name
    return f"{topic}/{partition}/{offset} attempt {delivery.attempt} ({handler})"


@dataclass(slots=True)
class Observations:
    """What has happened so far; an observer of the worker.

    Attributes:
        handled: settled as handled, in order.
        discarded: settled by an explicit `Discard`, in order.
        errors: exceptions of handlers, timeouts, late answers, failed observers.
        abandoned: timed out, and their threads had not returned at the last check.
        listening: off while a crashed worker is cleaned up: its answers are lost.
    """

    handled: list[HandledRecord] = field(default_factory=list)
    discarded: list[HandledRecord] = field(default_factory=list)
    errors: list[Trouble] = field(default_factory=list)
    abandoned: set[TrackedDelivery] = field(default_factory=set)
    listening: bool = True
    #: Late answers reported with their delivery already; the next count includes them.
    _late_reported: int = 0

    def answered(self, delivery: TrackedDelivery, *, late: bool) -> None:
        """A delivery was answered."""
        outcome = delivery.outcome
        if not self.listening:
            return
        if late:
            self._late_reported += 1
            self.errors.append(
                Trouble(describe(delivery), "answered after its delivery had ended; ignored")
            )
        elif outcome is ACKED:
            self.handled.append(_handled(delivery))
        elif isinstance(outcome, Discarded):
            self.discarded.append(_handled(delivery))
        elif isinstance(outcome, Failed | Rejected) and outcome.failure.error_type not in _ASKED:
            failure = outcome.failure
            self.errors.append(
                Trouble(describe(delivery), f"{failure.error_type}: {failure.message}")
            )

    def timed_out(self, delivery: TrackedDelivery) -> None:
        """A delivery outlived its consume timeout."""
        limit_s = (delivery.deadline_s or 0.0) - delivery.started_s
        if not delivery.assignment.handler.rules.manual:
            self.abandoned.add(delivery)
        self.errors.append(
            Trouble(describe(delivery), f"ConsumeTimeout: no answer within {limit_s:g} s")
        )

    def raised(self, where: str, exc: BaseException) -> None:
        """Something was raised outside of any delivery."""
        self.errors.append(Trouble(where, f"{type(exc).__qualname__}: {exc}"))

    def raised_late(self, item: tuple[TrackedDelivery, BaseException]) -> None:
        """A handler raised after its delivery had been answered; it is counted as well."""
        self._late_reported += 1
        delivery, exc = item
        handler = delivery.assignment.handler.rules.name
        self.raised(f"handler {handler}, after its answer", exc)

    def broke(self, exc: BaseException) -> None:
        """A part of the worker has ended; `ackfloor run` would replace the worker."""
        self.raised("the worker would be replaced", exc)

    def strayed(self, exc: BaseException) -> None:
        """An exit left a task or a callback on the event loop."""
        self.raised("event loop", exc)

    # Observer.

    def observe(self, events: Sequence[Event]) -> None:
        """Note manual answers that came too late: only their number is known."""
        for event in events:
            if isinstance(event, LateAnswers):
                unreported, self._late_reported = event.count - self._late_reported, 0
                self.errors.extend(
                    Trouble(f"{event.topic} ({event.handler})", "a late answer; ignored")
                    for _ in range(unreported)
                )

    def snapshot(self, snapshot: Snapshot) -> None:
        """Nothing to note."""


class WatchedEngine(Engine):
    """An engine that records how deliveries ended."""

    def __init__(self, observations: Observations, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._observations = observations

    def answered(self, deliveries: Iterable[TrackedDelivery], now: Now) -> None:
        """As the engine."""
        batch = [(delivery, delivery.closed) for delivery in deliveries]
        super().answered([delivery for delivery, _ in batch], now)
        for delivery, late in batch:
            self._observations.answered(delivery, late=late)

    def expire(self, running: Iterable[TrackedDelivery], now: Now) -> None:
        """As the engine."""
        live = [delivery for delivery in running if not delivery.closed]
        super().expire(live, now)
        for delivery in live:
            if delivery.closed:
                self._observations.timed_out(delivery)


class WatchedObserver:
    """A user's observer whose failures a test can see."""

    def __init__(self, observer: Observer, observations: Observations) -> None:
        self._observer = observer
        self._observations = observations

    def observe(self, events: Sequence[Event]) -> None:
        """As the observer."""
        try:
            self._observer.observe(events)
        except Exception as exc:
            self._observations.raised(f"observer {type(self._observer).__name__}", exc)
            raise

    def snapshot(self, snapshot: Snapshot) -> None:
        """As the observer."""
        try:
            self._observer.snapshot(snapshot)
        except Exception as exc:
            self._observations.raised(f"observer {type(self._observer).__name__}", exc)
            raise


class WatchedErrors(deque[T]):
    """One of the inbox's deques of exceptions; each is noted and passed on."""

    def __init__(self, note: Callable[[T], None]) -> None:
        super().__init__()
        self._note = note

    def append(self, item: T) -> None:
        """Note it, and pass it on."""
        self._note(item)
        super().append(item)
