"""Snapshot: what the worker's state is right now, immutable, for gauges, health and people.

Built on the owner thread about once a second and swapped in one assignment, so a reader on
another thread needs no lock and a revoked partition vanishes by itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """One assigned partition. Positions are next offsets; times are wall-clock ms.

    Attributes:
        floor: the lowest open offset, or the position.
        committed: the last confirmed commit, None before the first.
        position: the next offset to read.
        highest_settled: the highest settled offset, -1 where none is.
        waiting: failed records that are not due yet, of a tier or retried in place.
        blocked: records in lanes whose head failed and is not settled.
        oldest_open_ms: when the oldest open record was read, None where none is open.
        oldest_written_ms: that record's timestamp, None where it has none.
        parking: failed records that are to be written elsewhere and are not confirmed yet, those
            that were refused and wait for the next attempt among them.
        pause_reason: why it is paused (`PauseReason`), None where it is not.
    """

    topic: str
    partition: int
    epoch: int
    handler: str
    source_topic: str
    tier_s: float | None
    floor: int
    committed: int | None
    position: int
    highest_settled: int
    high_watermark: int | None
    open_count: int
    gap_count: int
    waiting: int
    next_due_ms: int | None
    parking: int
    paused: bool
    floor_advanced_ms: int
    oldest_open_ms: int | None
    blocked: int = 0
    oldest_written_ms: int | None = None
    pause_reason: str | None = None


@dataclass(frozen=True, slots=True)
class RunningDelivery:
    """One of the longest-running deliveries of a handler.

    Attributes:
        left_s: how long it may still take, in seconds, below 0 where it goes on beyond its end;
            None where it has no deadline.
        stack: where its handler is, the innermost last: file, line and function, nothing else.
            Only for the first few that have been running for a second.
        behind: records of its key or partition that wait for it, under an order.
    """

    topic: str
    partition: int
    offset: int
    attempt: int
    running_s: float
    left_s: float | None = None
    stack: tuple[str, ...] = ()
    behind: int = 0


@dataclass(frozen=True, slots=True)
class BlockedLane:
    """A key or partition, in order, whose first open record failed and is not settled.

    Attributes:
        offset: of that record.
        key: its key as it may be shown; None where the lane is a partition.
        head: what it is doing: "waiting" for its backoff, "withheld" by the circuit breaker until a
            trial, "queued", "running", or "dead_lettering" until the broker confirms it.
        attempt: which delivery of it failed last.
        error: type and first words of that failure.
        since_ms: when it failed for the first time, milliseconds since the epoch.
        next_try_ms: when it is delivered again; None where that is not planned.
        behind: how many records wait behind it.
        at_least: it may have waited for longer: another worker had it before.
    """

    topic: str
    partition: int
    offset: int
    key: str | None
    head: str
    attempt: int
    error: str
    since_ms: int
    next_try_ms: int | None
    behind: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class BlockedLanes:
    """The blocked lanes of one handler.

    Attributes:
        count: how many there are.
        behind: how many records wait behind their heads.
        since_ms: since when the oldest is blocked, milliseconds since the epoch; None without any.
        oldest: some of them, those first that have been blocked for longest.
    """

    count: int = 0
    behind: int = 0
    since_ms: int | None = None
    oldest: tuple[BlockedLane, ...] = ()


@dataclass(frozen=True, slots=True)
class NoisyKey:
    """A key whose records wait for those of others.

    Attributes:
        key: as it may be shown.
        hanging: it hangs; otherwise it is noisy.
        running: how many of its deliveries have a slot.
        behind: how many of its records wait.
    """

    key: str | None
    hanging: bool
    running: int
    behind: int


@dataclass(frozen=True, slots=True)
class NoisyKeys:
    """The keys of one handler whose records wait for those of others.

    Attributes:
        noisy: how many use too much of the handler.
        hanging: how many hang.
        behind: how many records of both wait.
        newest: some of them, those first that were found last.
        behind_hanging: how many of those that wait are of keys that hang.
    """

    noisy: int = 0
    hanging: int = 0
    behind: int = 0
    newest: tuple[NoisyKey, ...] = ()
    behind_hanging: int = 0


@dataclass(frozen=True, slots=True)
class LongSlots:
    """The slots of one handler whose deliveries run far longer than usual.

    Attributes:
        count: how many there are; a batch has one.
        after_s: for how long a delivery has to run to be counted: ten times what is usual, and a
            second at least; half the consume timeout before anything was handled.
        full: these are all slots.
    """

    count: int = 0
    after_s: float = 0.0
    full: bool = False


@dataclass(frozen=True, slots=True)
class RateSnapshot:
    """A handler's rate for the whole group.

    Attributes:
        group_per_s: how many records all workers may start, in records a second; None for no limit.
        worker_per_s: this worker's part of it, None for no limit.
        waiting: how many records wait for the rate; under an order, keys or partitions that do.
        waited_s: for how many seconds something has waited for it, since the worker started.
    """

    group_per_s: float | None = None
    worker_per_s: float | None = None
    waiting: int = 0
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BreakerSnapshot:
    """A handler's circuit breaker.

    Attributes:
        enabled: whether failures may open it.
        state: "closed", "open" (one trial at a time) or "slow_start".
        since_ms: when it opened, milliseconds since the epoch; None while it is closed.
        failing: records that failed in a row: until it opened, or while it is closed, so far.
        error: type and first words of the last failure; empty where there was none.
        allowed: how many deliveries may run; all of them while it is closed.
        next_trial_s: seconds until the next trial, None while it is closed or nothing is to try.
        withheld: failed records that are open, have no slot and wait for their next trial.
        withheld_most: how many records the handler may keep before nothing more is read for it.
        full: it keeps as many.
        forced: what an operator forced: "open", "closed", or empty for automatic.
        forced_reason: why.
        forced_for_s: for how long yet, in seconds; None until further notice.
    """

    enabled: bool = True
    state: str = "closed"
    since_ms: int | None = None
    failing: int = 0
    error: str = ""
    allowed: int = 0
    next_trial_s: float | None = None
    withheld: int = 0
    withheld_most: int = 0
    full: bool = False
    forced: str = ""
    forced_reason: str = ""
    forced_for_s: float | None = None


@dataclass(frozen=True, slots=True)
class HandlerSnapshot:
    """One handler: its slots and limits.

    Attributes:
        held_for_s: how long it still takes no records, because it asked for a pause.
        tripped: its circuit breaker is not closed; for one release, from the flood guard.
        lane_waiting: records that wait in the order of their key or partition, for the one in front
            of them or, the first, for a slot. A key with one record has none.
        on_failure: "park", "block" or "quarantine".
        after_dead_letter: what becomes of the records behind a dead-lettered one where it
            quarantines: "continue", "dead_letter" or "hold"; otherwise empty.
        delays_s: the distinct waits of its retry policy, shortest first.
        max_redeliveries: None for no limit.
        breaker: its circuit breaker.
        blocked: its lanes whose first record failed and is not settled.
        quarantined: its keys that are quarantined.
        paused: an operator paused it.
        paused_for_s: for how long yet, in seconds; None until further notice.
        paused_reason: why.
        fairness: what its records are grouped by, so that noisy keys wait for others: "key" or
            "function"; "off" where they do not.
        noisy_keys: its keys that are noisy or hang.
        long_slots: its slots whose deliveries run far longer than usual.
        rate: its rate for the group.
    """

    name: str
    ordering: str
    concurrency: int
    consume_timeout_s: float | None
    running: int
    queued: int
    abandoned: int
    held_for_s: float
    held_reason: str
    oldest: tuple[RunningDelivery, ...]
    tripped: bool = False
    on_failure: str = "park"
    after_dead_letter: str = ""
    delays_s: tuple[float, ...] = ()
    max_redeliveries: int | None = None
    lane_waiting: int = 0
    breaker: BreakerSnapshot = BreakerSnapshot()
    blocked: BlockedLanes = BlockedLanes()
    quarantined: BlockedLanes = BlockedLanes()
    paused: bool = False
    paused_for_s: float | None = None
    paused_reason: str = ""
    fairness: str = "off"
    noisy_keys: NoisyKeys = NoisyKeys()
    long_slots: LongSlots = LongSlots()
    rate: RateSnapshot = RateSnapshot()


@dataclass(frozen=True, slots=True)
class Fault:
    """Something outside that keeps records open: named by readiness until it ends.

    One for each subject and cause, however many records wait for it.

    Attributes:
        subject: mostly a topic.
        message: what is in the way, and what to do.
        cause: one word for it (`missing`, `denied`, `too_large`, `unconfirmed`, or what Kafka calls
            the error); empty where its kind says it all.
        records: how many records can't be parked for it.
    """

    kind: str
    subject: str
    message: str
    since_ms: int
    cause: str = ""
    records: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole worker.

    Attributes:
        polled_s: seconds that its loop has waited in polls so far.
        worked_s: seconds that it has done anything else.
        poll_limit_s: how long its group waits for its next poll; None where nobody waits.
        more_faults: faults in force that are not among `faults`, which are some dozens at most.
    """

    group: str
    state: str
    taken_ms: int
    open_count: int
    open_bytes: int
    max_open: int
    max_open_bytes: int
    partitions: tuple[PartitionSnapshot, ...]
    handlers: tuple[HandlerSnapshot, ...]
    faults: tuple[Fault, ...]
    polled_s: float = 0.0
    worked_s: float = 0.0
    poll_limit_s: float | None = None
    more_faults: int = 0
