"""Redrive: the new record that a dead letter is sent back as, and which may not be sent.

A dead letter goes back as a new record: into the first retry tier of its group, so that only this
group sees it; into its source topic, where every group does; or into a topic that the operator
names. Key, value and own headers stay byte for byte, and so does what is known of the origin.
The budget is whole again: no attempt, failure or timeout is counted. The last error stays in the
dead letter only: the new record has not failed. `replays` counts how often this has
happened, and a cap on it keeps a message from being redriven for ever.

Invariants. A dead letter with a disposition is not sent again. One without our headers goes only
where the operator says by name, and gets none of ours but the count. Whatever was asked for and is
not sent is counted under its reason.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.envelope import (
    EDITED,
    PREFIX,
    REPLAYS,
    Envelope,
    copies_for_others,
    read_envelope,
    write_headers,
)
from ackfloor.core.records.record import Headers
from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.rules.dispositions import Disposed, Disposition
from ackfloor.dead_letters.rules.foreign_headers import read_foreign
from ackfloor.dead_letters.rules.kept_edits import KeptEdit
from ackfloor.dead_letters.rules.record_size import Fit, SizeLimits

#: How often one message may be redriven, unless the operator says otherwise.
MAX_REPLAYS: Final = 5
#: Where a dead letter goes: these two words, or the name of a topic.
TO_RETRY: Final = "retry"
TO_SOURCE: Final = "source"

#: So many dead letters, and bytes of them, are held in memory to be put in order.
ORDERED: Final = 5_000
ORDERED_BYTES: Final = 32 * 1024 * 1024

#: Bytes that a redrive adds to a record at most; it takes the last error away.
_MOST_ADDED: Final = 2_048

#: Dead letters asked for, of one topic: partition -> offsets, ascending, each once.
Wanted = Mapping[int, "array[int]"]


class Left(StrEnum):
    """Why a dead letter that was asked for was not sent."""

    DISPOSED = "disposed"
    GONE = "gone"
    CAPPED = "capped"
    FOREIGN = "foreign"
    UNREADABLE = "unreadable"
    TOO_LARGE = "too_large"
    NO_TARGET = "no_target"

    @property
    def words(self) -> str:
        """The reason for people."""
        return _REASONS[self]


_REASONS: Final = {
    Left.DISPOSED: "replayed, discarded or archived before",
    Left.GONE: "not in the topic: removed by retention, or never there",
    Left.CAPPED: "replayed as often as allowed",
    Left.FOREIGN: "without ackfloor's headers: goes only to a topic that is named",
    Left.UNREADABLE: "the name of a header is not UTF-8, and the client can't carry it over",
    Left.TOO_LARGE: "larger than the target topic allows",
    Left.NO_TARGET: "no topic to go to",
}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of a dead-letter topic; `headers` None where the client can't read them."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    timestamp_ms: int = -1

    @property
    def envelope(self) -> Envelope:
        """Our headers, completed from another tool's where it wrote the dead letter."""
        envelope = read_envelope(self.headers)
        if envelope.origin_topic is not None or (other := read_foreign(self.headers)) is None:
            return envelope
        return envelope._replace(
            group=envelope.group or other.group,
            handler=envelope.handler or other.handler,
            attempt=envelope.attempt or other.attempt,
            error_type=envelope.error_type or other.error_type,
            error_message=envelope.error_message or other.error_message,
            error_stack=envelope.error_stack or other.error_stack,
        )

    @property
    def place(self) -> str:
        """Where it is, as `dlq ls` prints it: `orders--billing--dlq/0/3`."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def origin(self) -> str:
        """The record that it was, as far as headers say: `orders/3/41927`; "" where none does."""
        envelope = read_envelope(self.headers)
        if envelope.origin_topic is None:
            return other.origin if (other := read_foreign(self.headers)) else ""
        parts = (envelope.origin_topic, envelope.origin_partition, envelope.origin_offset)
        return "/".join("?" if part is None else str(part) for part in parts)

    @property
    def says_it_failed(self) -> bool:
        """Whether headers of ours, or of another tool, mark it as a dead letter."""
        ours = read_envelope(self.headers)
        return ours.origin_topic is not None or read_foreign(self.headers) is not None

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        own = sum(len(name) + len(value or b"") for name, value in self.headers or ())
        return len(self.key or b"") + len(self.value or b"") + own


@dataclass(frozen=True, slots=True)
class Order:
    """What an operator asks for.

    Attributes:
        dlq: the dead-letter topic.
        to: `TO_RETRY`, `TO_SOURCE` or the name of a topic; where nothing is sent, what the
            dispositions name as the target.
        job: the job's name, in every disposition.
        by: who asks, in every disposition.
        rate_per_s: at most so many records a second; None for no limit.
        limit: at most so many records in all; None for no limit.
        max_replays: what has been replayed so often stays where it is.
        action: what is done with each; only `REPLAYED` sends it anywhere.
        asked: what was asked for, as JSON has it, for the job's note.
        before: how many this job had done when it was ended.
        kept: the edit of its one dead letter, which the job keeps until it is sent.
        keeps_selection: whether the job is to keep the places that it is given, for whoever
            resumes it.
    """

    dlq: str
    to: str
    job: str
    by: str
    rate_per_s: float | None = None
    limit: int | None = None
    max_replays: int = MAX_REPLAYS
    action: Disposition = Disposition.REPLAYED
    asked: Mapping[str, Any] = field(default_factory=dict)
    before: int = 0
    kept: KeptEdit | None = None
    keeps_selection: bool = False

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise SettingError("max", self.limit, "nothing would be sent", "give 1 or more")
        if self.max_replays < 1:
            raise SettingError(
                "max_replays", self.max_replays, "nothing would be sent", "give 1 or more"
            )

    @property
    def sends(self) -> bool:
        """Whether dead letters go somewhere."""
        return self.action is Disposition.REPLAYED

    @property
    def resumes(self) -> bool:
        """Whether the job ran before: it has done some, or it has kept what it is about."""
        has_kept = self.asked.get("selection_kept") is True and not self.keeps_selection
        return self.before > 0 or has_kept

    @property
    def named(self) -> bool:
        """Whether the operator names the target topic."""
        return self.to not in {TO_RETRY, TO_SOURCE}


@dataclass(frozen=True, slots=True)
class Target:
    """Where an order's records go; `partitions` is how many it has."""

    topic: str
    partitions: int
    to: str
    limits: SizeLimits = field(default_factory=SizeLimits)


def target_topic(order: Order, topics: Iterable[str]) -> str:
    """The topic that an order means.

    Args:
        topics: all topics of the cluster.

    Raises:
        SettingError: there is none; the message says why and what to do.
    """
    known = set(topics)
    if order.named:
        target = _existing(order.to, known)
        if target == order.dlq:
            raise SettingError(
                "to", order.to, "they are there already: each would become another dead letter",
                "name the topic that a handler reads",
            )  # fmt: skip
        return target
    parsed = parse_topic(order.dlq)
    if parsed is None or parsed.kind != "dlq":
        raise SettingError(
            "to", order.to, f"{order.dlq} is not one of ackfloor's dead-letter topics, so it has "
            "neither a retry topic nor a source", "name the target: --to TOPIC",
        )  # fmt: skip
    if order.to == TO_SOURCE:
        return _existing(parsed.topic, known)
    tiers = []
    for name in known:
        tier = parse_topic(name)
        if tier is not None and (tier.topic, tier.group) == (parsed.topic, parsed.group):
            tiers += [(tier.delay_s, name)] if tier.delay_s is not None else []
    if not tiers:
        raise SettingError(
            "to", order.to, f"group {parsed.group!r} has no retry topic for {parsed.topic!r} (its "
            "handler retries in place, or this user may not see it)",
            "use --to source or --to TOPIC",
        )  # fmt: skip
    return min(tiers)[1]


def _existing(topic: str, known: set[str]) -> str:
    if topic not in known:
        raise SettingError(
            "to", topic, "the topic does not exist, or this user may not see it",
            "create it or grant DESCRIBE on it, or correct the name",
        )  # fmt: skip
    if (parsed := parse_topic(topic)) is not None and parsed.kind != "retry":
        raise SettingError(
            "to", topic, f"a {parsed.kind} topic is not read by any handler",
            "name a retry topic or a source topic",
        )  # fmt: skip
    return topic


def why_left(dead_letter: DeadLetter, order: Order, disposed: Disposed) -> Left | None:
    """Why this dead letter is not sent; None where it is."""
    if disposed.hides(dead_letter.partition, dead_letter.offset):
        return Left.DISPOSED
    if order.action is Disposition.DISCARDED:
        return None
    if dead_letter.headers is None:
        return Left.UNREADABLE
    if not order.sends:
        return None
    envelope = dead_letter.envelope
    if envelope.replays >= order.max_replays:
        return Left.CAPPED
    if envelope.origin_topic is None and not order.named:
        return Left.FOREIGN
    return None


def own_headers(headers: Headers | None) -> list[tuple[str, bytes | None]]:
    """A record's headers without ours."""
    return [(name, value) for name, value in headers or () if not name.startswith(PREFIX)]


def redriven_headers(dead_letter: DeadLetter, now_ms: int) -> list[tuple[str, bytes | None]]:
    """The headers of the new record: own ones as they are, then ours with a whole budget."""
    headers = dead_letter.headers or ()
    before = dead_letter.envelope
    if before.origin_topic is None:
        edited = [] if before.edited is None else [(EDITED, before.edited.encode())]
        return [*own_headers(headers), (REPLAYS, b"%d" % (before.replays + 1)), *edited]
    envelope = Envelope(
        origin_topic=before.origin_topic,
        origin_partition=before.origin_partition,
        origin_offset=before.origin_offset,
        origin_timestamp_ms=before.origin_timestamp_ms,
        group=before.group,
        handler=before.handler,
        first_failed_at_ms=before.first_failed_at_ms,
        not_before_ms=now_ms,
        replays=before.replays + 1,
        edited=before.edited,
        idempotency_key=before.idempotency_key,
        truncated="headers" if "headers" in (before.truncated or "") else None,
    )
    spring, kafka = copies_for_others(headers)
    return write_headers(envelope, headers, spring=spring, kafka=kafka)


def redriven_fit(dead_letter: DeadLetter, target: Target) -> Fit:
    """Whether the new record of a dead letter fits into its topic."""
    if dead_letter.size + _MOST_ADDED <= target.limits.batch:
        return Fit.YES
    # The times in its headers are as long whatever the time is.
    headers = redriven_headers(dead_letter, dead_letter.timestamp_ms)
    return target.limits.fit(dead_letter.key, dead_letter.value, headers)


def target_partition(dead_letter: DeadLetter, target: Target) -> int | None:
    """The partition of the new record; None leaves it to the producer.

    A source topic is entered where the record came from, and so is a retry topic by a record with a
    key: a handler that quarantines looks for what is parked of a key in the partition of its
    origin, and no topic says whether the handler does. There records without a key are spread
    evenly: they have no order to keep.
    """
    parsed = parse_topic(target.topic)
    into_tier = target.to == TO_RETRY or (parsed is not None and parsed.kind == "retry")
    if into_tier and dead_letter.key is None:
        return dead_letter.offset % target.partitions
    origin = dead_letter.envelope.origin_partition
    if (into_tier or target.to == TO_SOURCE) and origin is not None and origin < target.partitions:
        return origin
    return zlib.crc32(dead_letter.key or b"") % target.partitions if into_tier else None


def in_order(dead_letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    """The same, by the place of their origin, as far as `ORDERED` of them in a row can be sorted.

    What was redriven and given up again lies in the dead-letter topic behind later records of its
    key. Those whose origin is not known come first, as they were.
    """
    some: list[DeadLetter] = []
    size = 0
    for dead_letter in dead_letters:
        some.append(dead_letter)
        size += dead_letter.size
        if len(some) >= ORDERED or size >= ORDERED_BYTES:
            yield from sorted(some, key=_place_of_origin)
            some, size = [], 0
    yield from sorted(some, key=_place_of_origin)


def _place_of_origin(dead_letter: DeadLetter) -> tuple[str, int, int]:
    envelope = read_envelope(dead_letter.headers)
    partition, offset = envelope.origin_partition, envelope.origin_offset
    if envelope.origin_topic is None or partition is None or offset is None:
        return "", -1, -1
    return envelope.origin_topic, partition, offset
