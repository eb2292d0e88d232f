"""Gauges: the values of the newest snapshot, each with the function that reads it.

Nothing is kept between two reads, so the series of a revoked partition vanish with it. A reader
that returns None leaves its series out: no commit yet, nothing open, end unknown. Times are
exported as timestamps, because an age is right between two scrapes only as `time() - x`; the last
turn is an age, because it must be right where a clock is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from ackfloor.core.values.durations import format_duration
from ackfloor.observe import HandlerSnapshot, PartitionSnapshot, PauseReason, Snapshot
from ackfloor_monitoring.metrics.metric_spec import PARTITION, MetricSpec, counter, gauge

T = TypeVar("T")

PROGRESS, SATURATION = "Progress", "Saturation"
_saturation = partial(gauge, SATURATION)
_progress = partial(gauge, PROGRESS)
#: The state of a circuit breaker that lets everything run.
CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """A gauge and how it is read from a part of the snapshot."""

    spec: MetricSpec
    read: Callable[[T], float | None]


def _partition(
    name: str, text: str, read: Callable[[PartitionSnapshot], float | None]
) -> Reading[PartitionSnapshot]:
    return Reading(gauge(PROGRESS, name, PARTITION, text), read)


def _handler(
    name: str, text: str, read: Callable[[HandlerSnapshot], float | None]
) -> Reading[HandlerSnapshot]:
    return Reading(gauge(SATURATION, name, ("group", "handler"), text), read)


def _worker(name: str, text: str, read: Callable[[Snapshot], float | None]) -> Reading[Snapshot]:
    return Reading(gauge(SATURATION, name, ("group",), text), read)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _breaker_open(h: HandlerSnapshot) -> bool:
    return h.breaker.state != CLOSED


def _span(p: PartitionSnapshot) -> int:
    """Offsets from the floor to the highest settled one, both included."""
    return max(0, p.highest_settled + 1 - p.floor)


def _lag(p: PartitionSnapshot) -> int | None:
    if p.high_watermark is None:
        return None
    return max(0, p.high_watermark - p.position) + p.open_count


PARTITION_GAUGES = (
    _partition(
        "floor_position",
        "The floor: the lowest open offset, or the next offset to read where none is open.",
        lambda p: p.floor,
    ),
    _partition(
        "committed_position",
        "The last position whose commit was confirmed; absent before the first.",
        lambda p: p.committed,
    ),
    _partition("read_position", "The next offset to read.", lambda p: p.position),
    _partition(
        "highest_settled_offset",
        "The highest settled offset; absent where none is.",
        lambda p: None if p.highest_settled < 0 else p.highest_settled,
    ),
    _partition(
        "high_watermark_position",
        "The end of the log as the client last saw it; not refreshed while paused.",
        lambda p: p.high_watermark,
    ),
    _partition(
        "gap_messages",
        "Settled records above the floor (the gap set): not handled again after a restart.",
        lambda p: p.gap_count,
    ),
    _partition("unacked_messages", "Open records: read and not settled.", lambda p: p.open_count),
    _partition(
        "ack_span_offsets",
        "Offsets from the floor to the highest settled one; 0 where nothing is out of order.",
        _span,
    ),
    _partition(
        "floor_last_advance_timestamp_seconds",
        "When the floor last moved, or the partition was assigned.",
        lambda p: p.floor_advanced_ms / 1000,
    ),
    _partition(
        "oldest_unacked_timestamp_seconds",
        "When the oldest open record was read; absent where none is open.",
        lambda p: _seconds(p.oldest_open_ms),
    ),
    _partition(
        "oldest_unacked_record_timestamp_seconds",
        "The timestamp of the oldest open record: `time()` less this is the lag in seconds; absent "
        "where none is open. In a retry tier it is the time of parking.",
        lambda p: _seconds(p.oldest_written_ms),
    ),
    _partition(
        "lag_messages",
        "Records that are not settled: unread offsets up to the end of the log, and open records.",
        _lag,
    ),
    _partition(
        "retry_waiting_messages",
        "Failed records that are not due yet: read from a retry tier, or retried in place.",
        lambda p: p.waiting,
    ),
    _partition(
        "blocked_messages",
        "Records that wait behind a failed one of their key or partition, itself included.",
        lambda p: p.blocked,
    ),
    _partition(
        "retry_next_due_timestamp_seconds",
        "When the first failed record that waits is due; absent where none waits.",
        lambda p: _seconds(p.next_due_ms),
    ),
    _partition(
        "parking_messages",
        "Failed records that are not confirmed in a retry tier or the dead-letter topic yet: on "
        "their way there, or refused and to be written again.",
        lambda p: p.parking,
    ),
    _partition("partition_epoch", "The epoch of the assignment.", lambda p: p.epoch),
)

BREAKER_SINCE = _handler(
    "breaker_since_timestamp_seconds",
    "When the handler's circuit breaker opened; absent while it is closed.",
    lambda h: _seconds(h.breaker.since_ms),
)

LANES_BLOCKED_SINCE = _handler(
    "lanes_blocked_since_timestamp_seconds",
    "Since when the longest blocked lane is blocked, as far as its worker knows: a record that is "
    "tried again in place counts from its first failure there; absent where none is.",
    lambda h: _seconds(h.blocked.since_ms),
)

QUARANTINED_SINCE = _handler(
    "quarantined_since_timestamp_seconds",
    "Since when the longest quarantined key is quarantined: after a restart or a rebalance, since "
    "the oldest of its records that is left was parked for the first time; absent where none is.",
    lambda h: _seconds(h.quarantined.since_ms),
)

RATE_LIMIT = _handler(
    "handler_rate_limit",
    "The worker's part of the handler's rate in records a second: of all workers together the "
    "rate, less the part of partitions that nobody has; absent where the handler has no rate.",
    lambda h: h.rate.worker_per_s,
)

HANDLER_GAUGES = (
    _handler(
        "inflight_messages", "Deliveries whose handler runs; their age counts.", lambda h: h.running
    ),
    _handler("inflight_limit", "The handler's concurrency.", lambda h: h.concurrency),
    _handler(
        "queued_messages",
        "Deliveries that wait for a slot; under an order, keys or partitions that do.",
        lambda h: h.queued,
    ),
    _handler(
        "lane_waiting_messages",
        "Records that wait in the order of their key or partition: for the one in front of them, "
        "which may run or be retried in place, or, the first, for a slot.",
        lambda h: h.lane_waiting,
    ),
    _handler(
        "lanes_blocked",
        "Keys or partitions, in order, whose first open record failed and is not settled: it waits "
        "to be retried in place, or for a trial of the circuit breaker.",
        lambda h: h.blocked.count,
    ),
    _handler(
        "lanes_blocked_messages",
        "Records that wait behind the failed ones of blocked lanes.",
        lambda h: h.blocked.behind,
    ),
    LANES_BLOCKED_SINCE,
    _handler(
        "quarantined_keys",
        "Keys whose failed record is in a retry topic, with what follows of them behind it "
        '(`on_failure="quarantine"`).',
        lambda h: h.quarantined.count,
    ),
    _handler(
        "quarantined_messages",
        "Records that wait behind the failed ones of quarantined keys.",
        lambda h: h.quarantined.behind,
    ),
    QUARANTINED_SINCE,
    _handler(
        "noisy_keys",
        "Keys that use more than a tenth of what the handler has too little of, slots and time or "
        "its rate: their records wait for those of others.",
        lambda h: h.noisy_keys.noisy,
    ),
    _handler(
        "hanging_keys",
        "Keys of which a delivery runs far longer than usual, or whose last one timed out: they "
        "get a quarter of the slots at most.",
        lambda h: h.noisy_keys.hanging,
    ),
    _handler(
        "noisy_keys_messages",
        "Records of noisy and hanging keys that wait for a slot or in their key's order.",
        lambda h: h.noisy_keys.behind,
    ),
    _handler(
        "inflight_long_slots",
        "Slots whose delivery runs far longer than usual: ten times as long, and for a second at "
        "least. Where these are all, nothing else starts.",
        lambda h: h.long_slots.count,
    ),
    RATE_LIMIT,
    _handler(
        "handler_rate_waiting_messages",
        "Records that wait for the handler's rate; under an order, keys or partitions that do.",
        lambda h: h.rate.waiting,
    ),
    _handler(
        "abandoned_handlers",
        "Handlers still running although their delivery was ended by its timeout.",
        lambda h: h.abandoned,
    ),
    _handler(
        "handler_consume_timeout_seconds",
        "The consume timeout in force; absent where there is none.",
        lambda h: h.consume_timeout_s,
    ),
    _handler(
        "handler_held",
        "1 while the handler takes no records, or trials alone: it asked for a pause, or its "
        "circuit breaker is not closed.",
        lambda h: float(h.held_for_s > 0 or _breaker_open(h)),
    ),
    _handler(
        "handler_paused",
        "1 while an operator pauses the handler (`ackfloor handlers pause`): nothing of it starts.",
        lambda h: float(h.paused),
    ),
    _handler(
        "breaker_open",
        "1 while the handler's circuit breaker is not closed: too many records failed in a row, or "
        "an operator opened it, and only trials start.",
        lambda h: float(_breaker_open(h)),
    ),
    _handler(
        "breaker_allowed",
        "Deliveries of the handler that may run: its concurrency, or fewer while its circuit "
        "breaker is not closed.",
        lambda h: h.breaker.allowed,
    ),
    BREAKER_SINCE,
    _handler(
        "withheld_messages",
        "Failed records that the handler's circuit breaker withholds: they are open, take no slot "
        "and are tried again.",
        lambda h: h.breaker.withheld,
    ),
    _handler(
        "withheld_messages_limit",
        "Records the handler may keep before the worker reads nothing more for it: the withheld "
        "ones, and while its circuit breaker is not closed those that were not tried yet as well.",
        lambda h: h.breaker.withheld_most,
    ),
    _handler(
        "withheld_full",
        "1 while the worker reads nothing for the handler because of what it keeps: its records "
        "or their bytes have reached their limit, and not fallen to half of it since.",
        lambda h: float(h.breaker.full),
    ),
    _handler(
        "guard_tripped",
        "Deprecated alias of `ackfloor_breaker_open`, for one release.",
        lambda h: float(_breaker_open(h)),
    ),
)

POLICY_INFO = _saturation(
    "policy_info",
    ("group", "handler", "ordering", "on_failure", "delays", "max_redeliveries"),
    "Always 1; how the handler's failures are retried: `delays` are the distinct waits, shortest "
    "first; `max_redeliveries` may be `unlimited`.",
)
_ON_KAFKA = (*PARTITION, "kind")
KAFKA_LAG = _progress(
    "kafka_lag_messages",
    _ON_KAFKA,
    "The lag as Kafka's own tools tell it: from the committed position to the end of the log, "
    "whether or not anybody has the partition. `kind` is `source` or `retry`.",
)
KAFKA_OPEN = _progress(
    "kafka_open_messages",
    _ON_KAFKA,
    "What of it is not settled. For `kind` `retry` this is how much waits there; for `dlq` it is "
    "how many dead letters were not replayed, discarded or archived.",
)
KAFKA_OLDEST = _progress(
    "kafka_oldest_dead_letter_timestamp_seconds",
    PARTITION,
    "When the oldest dead letter was written that was not replayed, discarded or archived; absent "
    "where there is none, or the run may not read the topic.",
)
KAFKA_LOOK = _progress(
    "kafka_look_timestamp_seconds",
    ("group",),
    "When the run looked at Kafka for these (every `app.look_interval`); absent, as they are, "
    "where the last look failed.",
)
TOPIC_INFO = _progress(
    "topic_info",
    ("group", "topic", "source_topic", "handler", "kind"),
    "Always 1; whose topic it is of which the worker has partitions: the handler, the topic its "
    "records come from first, and `kind`, which is `source` or `retry`.",
)
FAULT_MESSAGES = _saturation(
    "fault_messages",
    ("group", "kind", "subject", "cause"),
    "Records that wait for a fault in force (`/readyz`): `kind` is `parking`, `kafka`, `commit` or "
    "another, `subject` mostly a topic, `cause` one word. 0 where none waits for it yet.",
)
FAULT_SINCE = _saturation(
    "fault_since_timestamp_seconds",
    ("group", "kind", "subject", "cause"),
    "Since when the fault is in force.",
)
PAUSED = _saturation(
    "partitions_paused",
    ("group", "reason"),
    "Partitions the worker doesn't fetch at the moment. `reason` is `handler` (it is in a "
    "pause, or keeps too many failed records), a limit of the partition (`open`, `waiting`, "
    "`span`, `metadata`), or `worker` (a limit of the worker's); of several the first.",
)

TURN_AGE = _saturation(
    "loop_turn_age_seconds",
    ("group",),
    "How long ago the worker's loop has made its last turn that the run knows of, whatever the "
    "machine's clock says. A quiet worker tells every 3 s.",
)
RATE_WAITED_SECONDS = counter(
    SATURATION,
    "handler_rate_waited_seconds",
    ("group", "handler"),
    "Seconds in which records of the handler waited for its rate. Where this grows by nearly a "
    "second each second, more is written than the rate lets start.",
)
LOOP_SECONDS = counter(
    SATURATION,
    "loop_seconds",
    ("group", "state"),
    "Where the time of the worker's loop goes: `work`, or `poll` (it waits for records, or for "
    "handlers in a rebalance). Where the rate of `work` comes near 1, one process can do no more.",
)


def policy_labels(handler: HandlerSnapshot) -> tuple[str, ...]:
    """The values of `POLICY_INFO`'s labels, without the group."""
    delays = " ".join(format_duration(delay_s) for delay_s in handler.delays_s)
    most = handler.max_redeliveries
    limit = "unlimited" if most is None else str(most)
    return handler.name, handler.ordering, handler.on_failure, delays, limit


def topics(snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    """The values of `TOPIC_INFO`'s labels, without the group, of each topic once."""
    of_topic = {p.topic: p for p in snapshot.partitions}
    for topic, p in of_topic.items():
        kind = "source" if topic == p.source_topic else "retry"
        yield topic, p.source_topic, p.handler, kind


def paused(snapshot: Snapshot) -> dict[str, int]:
    """The values of `PAUSED` by their reason, those that are 0 included."""
    counts = Counter(p.pause_reason for p in snapshot.partitions)
    return {reason.value: counts[reason] for reason in PauseReason}


WORKER_GAUGES = (
    _worker("buffer_messages", "Open records of the worker.", lambda s: s.open_count),
    _worker("buffer_messages_limit", "Open records it may have.", lambda s: s.max_open),
    _worker("buffer_bytes", "Bytes of its open records.", lambda s: s.open_bytes),
    _worker("buffer_limit_bytes", "Bytes it may have open.", lambda s: s.max_open_bytes),
    _worker(
        "partitions_assigned", "Partitions it has, tiers included.", lambda s: len(s.partitions)
    ),
    _worker(
        "faults_in_force",
        "Faults outside that keep records open, one for each topic and cause, and circuit breakers "
        "that are not closed; `/readyz` names them.",
        lambda s: len(s.faults) + s.more_faults,
    ),
    _worker(
        "max_poll_interval_seconds",
        "How long the group waits for the loop's next turn before it gives the worker's partitions "
        "to others (`max.poll.interval.ms`).",
        lambda s: s.poll_limit_s,
    ),
)
