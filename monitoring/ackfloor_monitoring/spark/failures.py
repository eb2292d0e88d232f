"""The failure report: what `jobs.failure_report` found, in plain Python and as JSON.

Here without PySpark, so that whoever runs the job as a process of its own can read its answer,
and `tables` can show it. Causes and topics are two sums of the same counts, taken in one read:
they always agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class CauseCount:
    """The failures of one stage, handler, reason and error type; None: the record does not say.

    A record that was parked three times and then died counts three times under "retry" and once
    under "dlq".
    """

    stage: str
    handler: str | None
    reason: str | None
    error_type: str | None
    records: int
    first_seen: datetime
    last_seen: datetime
    max_attempt: int | None


@dataclass(frozen=True, slots=True)
class TopicCount:
    """The committed records of one retry or dead-letter topic, 0 where it is empty.

    `unreadable_records` of them have a header of ours that could not be read.
    """

    topic: str
    stage: str
    records: int
    unreadable_records: int


@dataclass(frozen=True, slots=True)
class FailureReport:
    """Failures of a consumer group by cause, most frequent first, and records by topic."""

    group: str
    causes: tuple[CauseCount, ...]
    topics: tuple[TopicCount, ...]

    @classmethod
    def from_counts(
        cls, group: str, topics: Iterable[str], counts: Iterable[tuple[CauseCount, TopicCount]]
    ) -> Self:
        """Sum up by cause and by topic.

        Args:
            group: the consumer group.
            topics: all topics that were read, the empty ones included.
            counts: what one cause amounts to in one topic.
        """
        causes: dict[tuple[str | None, ...], CauseCount] = {}
        totals = {topic: TopicCount(topic, stage_of(topic), 0, 0) for topic in topics}
        for cause, topic in counts:
            key = (cause.stage, cause.handler, cause.reason, cause.error_type)
            causes[key] = _sum_of(causes[key], cause) if key in causes else cause
            total = totals.setdefault(topic.topic, TopicCount(topic.topic, topic.stage, 0, 0))
            totals[topic.topic] = TopicCount(
                topic.topic,
                topic.stage,
                total.records + topic.records,
                total.unreadable_records + topic.unreadable_records,
            )
        return cls(
            group,
            tuple(sorted(causes.values(), key=_most_frequent_first)),
            tuple(totals[topic] for topic in sorted(totals)),
        )

    def records(self, stage: str) -> int:
        """How many records are in the topics of a stage, "retry" or "dlq"."""
        return sum(topic.records for topic in self.topics if topic.stage == stage)

    def to_json(self) -> str:
        """The report as JSON; times are ISO 8601 in UTC with milliseconds."""
        return json.dumps(asdict(self), default=_iso, ensure_ascii=False, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The report that `to_json` wrote."""
        data: dict[str, Any] = json.loads(text)
        for cause in data["causes"]:
            for name in ("first_seen", "last_seen"):
                cause[name] = datetime.fromisoformat(cause[name])
        return cls(
            data["group"],
            tuple(CauseCount(**cause) for cause in data["causes"]),
            tuple(TopicCount(**topic) for topic in data["topics"]),
        )


def stage_of(topic: str) -> str:
    """ "dlq" for a dead-letter topic, "retry" for a tier."""
    return "dlq" if topic.endswith("--dlq") else "retry"


def _sum_of(one: CauseCount, other: CauseCount) -> CauseCount:
    attempts = [each.max_attempt for each in (one, other) if each.max_attempt is not None]
    return CauseCount(
        one.stage,
        one.handler,
        one.reason,
        one.error_type,
        one.records + other.records,
        min(one.first_seen, other.first_seen),
        max(one.last_seen, other.last_seen),
        max(attempts, default=None),
    )


def _most_frequent_first(cause: CauseCount) -> tuple[object, ...]:
    names = (cause.handler, cause.reason, cause.error_type)
    return (cause.stage, -cause.records, *(name or "" for name in names))


def _iso(value: object) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"no JSON for {value!r}")
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
