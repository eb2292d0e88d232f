"""The month played through: every failing message, delivery by delivery, in order of time.

Theory. What happens to a message is drawn from the seed, its number and the delivery's number
alone, never from what happened before. So the same messages fail under any retry policy, and two
runs differ only in what the policy does about it. Events wait in a heap; it holds only what waits
for redelivery, and what is to be replayed, so memory does not grow with the month's length.

Records come out per partition in the order and at the offsets at which a worker would have written
them, with headers made by the runtime's own code.
"""

from __future__ import annotations

import hashlib
import heapq
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from ackfloor import RetryPolicy
from ackfloor.core.acks.gap_set import GapSet, encode, topic_hash
from ackfloor.core.acks.settled import Settled, settled_by
from ackfloor.core.parking.topic_names import dlq_topic, tier_topic
from ackfloor.core.records.envelope import Envelope, Reason, write_headers
from ackfloor.core.records.record import Headers, StartPosition
from ackfloor.core.records.retry_policy import next_hop, tier_wait_s
from benchmarks.failures.arrivals import Message, arrivals, draw
from benchmarks.failures.headers import after_failure, duration_ms, first_envelope
from benchmarks.failures.scenario import END_MS, KILLS, PARTITIONS, START_MS

# About, under the default policy.
RECORDS_OF_A_MESSAGE = 3.7

_KILLED_FOR_MS = 20_000
_REDELIVERED_MS = 12_000
# What is drawn for a message, each with a number of its own; a delivery's is added.
_LUCK, _KILL, _LATE, _REPLAY = 1_000, 20_000, 21_000, 30_000


class Parked(NamedTuple):
    """A record of a retry or dead-letter topic, as Kafka stores it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    own_headers: Headers
    envelope: Envelope

    @property
    def headers(self) -> Headers:
        """All headers, the record's own first."""
        return write_headers(self.envelope, self.own_headers)


class Committed(NamedTuple):
    """What the group has committed for a partition of a tier when the month ends."""

    group: str
    topic: str
    topic_id: str
    partition: int
    position: int
    metadata: str

    def settled(self) -> Settled:
        """What it settles, as an onlooker reads it."""
        return settled_by(
            StartPosition(
                self.topic,
                self.partition,
                self.position,
                metadata=self.metadata,
                topic_id=self.topic_id,
            )
        )


@dataclass(slots=True)
class _Life:
    """One run of a message through the policy: the first, or a replay."""

    message: Message
    envelope: Envelope
    chance: float
    at: tuple[str, int, int] | None = None  # the tier record it waits in, or is handled from
    redelivered: bool = False


def topic_id(topic: str) -> str:
    """What stands for Kafka's id where there is no Kafka."""
    return urlsafe_b64encode(hashlib.md5(topic.encode()).digest()).decode().rstrip("=")


@dataclass
class Month:
    """All records of the month: iterate once, then ask for the commits.

    Args:
        messages: how many messages fail; about 3.7 records come of each.
        seed: another seed, another month of the same character.
        policy: what every handler's retries follow.
        from_hour: what arrives before is left out.
    """

    messages: int
    seed: int = 1
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    from_hour: float = 0.0
    _ends: dict[tuple[str, int], int] = field(default_factory=dict, init=False)
    _heap: list[tuple[int, int, str, _Life]] = field(default_factory=list, init=False)
    _pushed: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Parked]:
        """The records in the order of their writing."""
        from_ms = START_MS + self.from_hour * 3_600_000
        every = arrivals(self.messages, self.seed)
        coming = (message for message in every if message.time_ms >= from_ms)
        upcoming = next(coming, None)
        while upcoming or self._heap:
            if upcoming and (not self._heap or upcoming.time_ms <= self._heap[0][0]):
                life = _Life(upcoming, first_envelope(upcoming), upcoming.cause.chance)
                self._push(upcoming.time_ms + duration_ms(upcoming, 1, self.seed), "fails", life)
                upcoming = next(coming, None)
                continue
            if self._heap[0][0] > END_MS:
                return
            now_ms, _, what, life = heapq.heappop(self._heap)
            yield from self._happens(now_ms, what, life)

    def commits(self) -> list[Committed]:
        """What is settled when the month is over: all but what still waits or is being handled."""
        open_offsets: dict[tuple[str, int], set[int]] = {}
        for _, _, _, life in self._heap:
            if life.at is not None:
                topic, partition, offset = life.at
                open_offsets.setdefault((topic, partition), set()).add(offset)
        return [
            _commit(topic, partition, end, sorted(open_offsets.get((topic, partition), ())))
            for (topic, partition), end in sorted(self._ends.items())
            if not topic.endswith("--dlq")
        ]

    def _push(self, time_ms: int, what: str, life: _Life) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (time_ms, self._pushed, what, life))

    def _happens(self, now_ms: int, what: str, life: _Life) -> Iterator[Parked]:
        if what == "due":
            yield from self._due(now_ms, life)
        elif what == "replayed":
            yield self._replayed(now_ms, life)
        else:
            yield from self._failed(now_ms, life)

    def _due(self, now_ms: int, life: _Life) -> Iterator[Parked]:
        envelope = life.envelope
        if envelope.retry_at_ms is not None and now_ms < envelope.retry_at_ms:
            yield self._hops(now_ms, life)
            return
        attempt = envelope.attempt + 1
        if self._succeeds(now_ms, life, attempt):
            return  # settled, and nothing else is written
        self._push(now_ms + duration_ms(life.message, attempt, self.seed), "fails", life)

    def _succeeds(self, now_ms: int, life: _Life, attempt: int) -> bool:
        message, cause = life.message, life.message.cause
        if cause.heals and not life.envelope.replays:
            return now_ms >= message.healed_ms
        if cause.cycle_s and not life.envelope.replays:
            down_s, cycle_s = cause.cycle_s
            return (now_ms - START_MS) / 1000 % cycle_s >= down_s or now_ms >= message.healed_ms
        # A replay is tried with the mended code: it is good or it is not, whatever the attempt.
        luck = _LUCK + 64 * life.envelope.replays + (0 if life.envelope.replays else attempt)
        return draw(self.seed, message.number, luck) < life.chance

    def _failed(self, now_ms: int, life: _Life) -> Iterator[Parked]:
        message, cause = life.message, life.message.cause
        envelope = after_failure(life.envelope, cause, message, now_ms, self.seed)
        delay_s = None if cause.direct else self.policy.delay_s(envelope.attempt)
        lost_ack = _killed(now_ms) and draw(self.seed, message.number, _KILL) < 0.3
        if lost_ack and not life.redelivered:
            # The park was confirmed, its ack was not: the record comes again and fails again.
            again = replace(life, redelivered=True)
            self._push(now_ms + _REDELIVERED_MS, "fails", again)
        life.envelope = envelope
        if delay_s is None:
            yield self._buried(now_ms, life)
        elif cause.wait_s is not None:
            due_ms = now_ms + int(cause.wait_s * 1000)
            life.envelope = envelope._replace(retry_at_ms=due_ms)
            yield self._hops(now_ms, life)
        else:
            partition = int(draw(self.seed, message.number, now_ms) * PARTITIONS)
            wait_s = tier_wait_s(delay_s, self.policy.jitter, partition)
            yield self._waits(now_ms, life, delay_s, partition, wait_s)

    def _hops(self, now_ms: int, life: _Life) -> Parked:
        left_s = max(0.0, ((life.envelope.retry_at_ms or now_ms) - now_ms) / 1000)
        chosen = draw(self.seed, life.message.number, now_ms)
        tier_s, partition, wait_s = next_hop(
            left_s, self.policy.tiers(), self.policy.jitter, PARTITIONS, lambda n: int(chosen * n)
        )
        return self._waits(now_ms, life, tier_s, partition, wait_s)

    def _waits(
        self, now_ms: int, life: _Life, tier_s: float, partition: int, wait_s: float
    ) -> Parked:
        job = life.message.cause.job
        not_before_ms = now_ms + round(wait_s * 1000)
        life.envelope = life.envelope._replace(not_before_ms=not_before_ms)
        parked = self._written(tier_topic(job.topic, job.group, tier_s), partition, now_ms, life)
        life.at = parked.topic, parked.partition, parked.offset
        late_ms = int(80 * draw(self.seed, life.message.number, _LATE + life.envelope.attempt))
        self._push(not_before_ms + late_ms, "due", life)
        return parked

    def _buried(self, now_ms: int, life: _Life) -> Parked:
        cause, message = life.message.cause, life.message
        reason = Reason(cause.direct) if cause.direct else Reason.EXHAUSTED
        life.envelope = life.envelope._replace(reason=reason, not_before_ms=None, retry_at_ms=None)
        topic = dlq_topic(cause.job.topic, cause.job.group)
        parked = self._written(topic, message.partition, now_ms, life)
        if cause.replay_hour is not None and not life.envelope.replays:
            again = _Life(message, life.envelope, cause.replay_chance)
            replay_ms = START_MS + int(cause.replay_hour * 3_600_000)
            # Rate-limited: one after the other, in the order in which they died.
            self._push(max(replay_ms + parked.offset, now_ms + 1_000), "replayed", again)
        return parked

    def _replayed(self, now_ms: int, life: _Life) -> Parked:
        before = life.envelope
        # As `core.redrive` writes it: the origin stays, what went wrong stays behind.
        life.envelope = first_envelope(life.message)._replace(
            first_failed_at_ms=before.first_failed_at_ms,
            replays=before.replays + 1,
            not_before_ms=now_ms,
        )
        partition = int(draw(self.seed, life.message.number, _REPLAY) * PARTITIONS)
        return self._waits(now_ms, life, self.policy.tiers()[0], partition, 0.0)

    def _written(self, topic: str, partition: int, now_ms: int, life: _Life) -> Parked:
        offset = self._ends.get((topic, partition), 0)
        self._ends[topic, partition] = offset + 1
        message = life.message
        own = (("trace-id", f"{message.number:016x}".encode()), ("producer", message.producer))
        return Parked(
            topic, partition, offset, now_ms + 3, message.key, message.value, own, life.envelope
        )


def _killed(now_ms: int) -> bool:
    hours_ms = (START_MS + int(hour * 3_600_000) for hour in KILLS)
    return any(0 <= now_ms - killed_ms < _KILLED_FOR_MS for killed_ms in hours_ms)


def _commit(topic: str, partition: int, end: int, open_offsets: list[int]) -> Committed:
    floor = open_offsets[0] if open_offsets else end
    runs = [
        (before + 1, after)
        for before, after in pairwise([*open_offsets, end])
        if after > before + 1
    ]
    identity = topic_id(topic)
    metadata, _ = encode(GapSet(floor, runs, topic_hash(identity), 0), topic, partition)
    group = topic.split("--")[1]
    return Committed(group, topic, identity, partition, floor, metadata)
