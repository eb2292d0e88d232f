"""The report in plain Python: the results of `build`, for the page, the terminal and JSON.

Needs no PySpark. Times are in UTC, durations in seconds; None stands for what records do not
hold. The JSON is this tree, name for name: fields are added, never renamed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole table, or one group's part of it.

    Attributes:
        records: rows; `failures`, `hops`, `replays` and `behind` add up to them.
        without_origin: rows whose origin could not be read: not among the messages.
        messages: distinct messages that failed; the four outcomes add up to them.
        recovered: a bound from above, see `lives`.
        unknown: neither dead nor known to be settled.
        behind: records that did not fail: they wait, or were given up, behind one of their key.
    """

    records: int
    failures: int
    hops: int
    replays: int
    without_origin: int
    unreadable: int
    messages: int
    recovered: int
    dead: int
    waiting: int
    unknown: int
    behind: int = 0


@dataclass(frozen=True, slots=True)
class Bucket:
    """Failures that began in one stretch of time, of one handler and reason."""

    start: datetime
    group: str | None
    handler: str | None
    reason: str | None
    failures: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One record of a group of failures, the latest; `error_message` as the table has it."""

    topic: str
    partition: int
    offset: int
    error_message: str | None


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one handler with one cause.

    Attributes:
        cause: the fingerprint, or where there is none the error's class or the reason.
        share: of all failures.
        trend: failures in each of the report's stretches of time, oldest first.
        replayed: how many of its dead letters were replayed, as far as the table shows: into a
            retry topic, or into the source topic where it failed again.
        healed: how many of these replays recovered (a bound from above, as in `Totals`). Says
            nothing where `Report.commits_known` is false; in the JSON it is null there.
    """

    group: str | None
    handler: str | None
    cause: str
    fingerprint: str | None
    error_type: str | None
    failures: int
    dead: int
    share: float
    first: datetime
    last: datetime
    releases: tuple[str, ...]
    trend: tuple[int, ...]
    sample: Sample
    replayed: int = 0
    healed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a handler's retries, in the first lives of its messages.

    `failed` = `dead` + `recovered` + `waiting` + `unknown` + `failed` of the next step.

    Attributes:
        attempt: the failed deliveries so far.
        tiers: the delays in which its messages waited for the next one.
        failed: messages that failed this often.
        recovered: of them, saved by the next delivery (a bound from above).
    """

    group: str | None
    handler: str | None
    attempt: int
    tiers: tuple[str, ...]
    failed: int
    recovered: int
    dead: int
    waiting: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds from the first failure to the end, percentiles 50, 95 and 99.

    Those to recovery are a bound from below: the end of the last wait.
    """

    group: str | None
    handler: str | None
    recovered_messages: int
    to_recover_s: tuple[float, ...] | None
    dead_messages: int
    to_death_s: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key with many failures; as text where it is that, else in hexadecimal."""

    group: str | None
    topic: str | None
    key: str
    failures: int
    messages: int
    dead: int
    share: float


@dataclass(frozen=True, slots=True)
class HotPartition:
    """Failures of a source partition, and how many times the average of its topic that is."""

    group: str | None
    topic: str | None
    partition: int | None
    failures: int
    messages: int
    times_average: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """What retries add to the input of a topic.

    Attributes:
        input: records between the first and the last failing one of each partition: the visible
            part of the input.
        multiple: `tier_records` divided by `input`.
    """

    group: str | None
    topic: str | None
    input: int
    messages: int
    tier_records: int
    multiple: float


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler's failures by kind, and how long its failed calls took.

    Attributes:
        duplicates: failed deliveries that repeat an attempt, after a crash or a lost ack.
        duration_s: percentiles 50, 95, 99 and the longest.
    """

    group: str | None
    handler: str | None
    timeouts: int
    errors: int
    duplicates: int
    duration_s: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a handler's replayed dead letters; one replayed twice counts twice."""

    group: str | None
    handler: str | None
    replayed: int
    recovered: int
    dead: int
    waiting: int
    unknown: int


@dataclass(frozen=True, slots=True)
class FarRecord:
    """A record whose failure lies so far from all others that a clock was probably wrong.

    Attributes:
        failed_at: when it failed, as its header says.
        written_at: the record's own timestamp.
    """

    group: str | None
    handler: str | None
    topic: str
    partition: int
    offset: int
    failed_at: datetime
    written_at: datetime


@dataclass(frozen=True, slots=True)
class Erased:
    """Records that were erased from the table on request.

    Attributes:
        at: when that began.
        by: who asked for it, as `user@host`.
        done: whether it came to its end; else some of it may be left.
    """

    at: datetime
    by: str
    rows: int
    messages: int
    done: bool


@dataclass(frozen=True, slots=True)
class Report:
    """All of it.

    Attributes:
        groups: consumer groups in the table.
        first, last: of the failures that are drawn: `far` is neither.
        commits_known: whether the groups' commits could be read: else recovered messages can't
            be told from waiting ones.
        commits_refused: partitions whose commit's metadata was refused: records above their
            position count as waiting.
        bucket_s: the length of a stretch of time, in seconds.
        since: from when on a group of failures is new; with `since_release`, when that began.
        new: groups of failures that were first seen then.
        far_records: how many records have a time far from all others. They count wherever a time
            is not needed.
        far: the furthest of them.
        erased: what was erased on request in the last seven days, the first one first.
        days_counted: days whose rows were read for this report.
        days_kept: days whose counts had been kept by an earlier one.
    """

    made_at: datetime
    table: str
    groups: tuple[str, ...]
    first: datetime
    last: datetime
    commits_known: bool
    commits_refused: int
    totals: Totals
    bucket_s: int
    buckets: tuple[datetime, ...]
    over_time: tuple[Bucket, ...]
    failure_groups: tuple[FailureGroup, ...]
    failure_groups_left_out: int
    since: datetime
    since_release: str | None
    new: tuple[FailureGroup, ...]
    funnel: tuple[Step, ...]
    times: tuple[Times, ...]
    hot_keys: tuple[HotKey, ...]
    hot_partitions: tuple[HotPartition, ...]
    traffic: tuple[Traffic, ...]
    handlers: tuple[Handler, ...]
    replays: tuple[Replayed, ...]
    far_records: int = 0
    far: tuple[FarRecord, ...] = ()
    erased: tuple[Erased, ...] = ()
    days_counted: int = 0
    days_kept: int = 0

    def to_json(self) -> str:
        """The report as JSON; times are ISO 8601 in UTC with milliseconds."""
        tree = asdict(self)
        if not self.commits_known:
            for cause in (*tree["failure_groups"], *tree["new"]):
                if cause["replayed"]:
                    cause["healed"] = None
        return json.dumps(tree, default=_iso, ensure_ascii=False, indent=2)


def _iso(value: object) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"no JSON for {value!r}")
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
