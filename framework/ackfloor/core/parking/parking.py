"""Parking: the record that a failure leaves in a retry topic or the DLQ: its topic and headers.

Everything about *where* and *with which headers*; when, and what a report means, is the
engine's. Nothing here is random: the choice among partitions is passed in.

A tier's wait is its nominal delay times a factor that belongs to (tier, partition), so within
one tier partition `not_before` never decreases and waiting for the head delays nobody. An
explicit wait (`Retry(after=)`) goes by hops: each hop waits in the longest tier that does not
overshoot; what is left is kept in the header `retry_at`.

Records of a handler that quarantines are written to the partition they were first read from, so
that the owner of that partition has all of them. What waits there behind a failed record has no
time of its own: its `retry_at` is so far away that a release that does not know of quarantine
moves it from tier to tier and never handles it. Such a release writes no reason that it does not
know, so `retry_at` says which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.topic_names import TopicTemplates
from ackfloor.core.records.envelope import (
    Envelope,
    Reason,
    read_envelope,
    redriven_key,
    shed,
    write_headers,
)
from ackfloor.core.records.outcomes import CONSUME_TIMEOUT, Bury, Park, Verdict
from ackfloor.core.records.record import Failure, Headless, Now
from ackfloor.core.records.retry_policy import next_hop, tier_wait_s
from ackfloor.core.records.tracked_delivery import TrackedDelivery

if TYPE_CHECKING:
    from ackfloor.core.state.assignment import AfterDeadLetter

FIRST_BACKOFF_S = 0.25
LAST_BACKOFF_S = 10.0
#: How far away the `retry_at` is of what waits behind another record, in ms: ten years, ten times
#: the longest wait that a handler may ask for. That of what holds its key is twice as far away.
FAR_MS = 10 * 365 * 86_400_000
_NOTHING = Envelope()
_NO_FAILURE = Failure("", "")


@dataclass(slots=True)
class Parking:
    """Builds and addresses parked records.

    Attributes:
        group: the consumer group, part of every target's name.
        pick: `pick(n)` is a number in 0..n-1; random in production.
        partitions: topic -> partition count of the known targets.
        release: the running release, for the header of that name.
        worker: this worker, for the header of that name; None where any other would do as well.
    """

    group: str
    pick: Callable[[int], int]
    partitions: Mapping[str, int]
    release: str | None = None
    worker: str | None = None
    templates: TopicTemplates = field(default_factory=TopicTemplates)
    spring_headers: bool = False
    kafka_headers: bool = False
    #: (source topic, delay) -> retry topic.
    _tiers: dict[tuple[str, float], str] = field(default_factory=dict, init=False, repr=False)

    def park(self, delivery: TrackedDelivery, verdict: Verdict, now: Now) -> PendingWrite:
        """The write for a delivery that failed."""
        write = PendingWrite(delivery, verdict, self.envelope(delivery, verdict, now), now.mono_s)
        write.after = _after(delivery, verdict)
        return write

    def envelope(self, delivery: TrackedDelivery, verdict: Verdict, now: Now) -> Envelope:
        """What is known of a record after this failure.

        First origin and last error only: headers never grow with attempts.
        """
        before = delivery.envelope or source_envelope(delivery)
        failure: Failure = verdict.failure
        timed_out = verdict.reason is Reason.TIMEOUT or failure.error_type == CONSUME_TIMEOUT
        origin = delivery.origin
        started_s = delivery.started_s or now.mono_s
        first_ms, first_failed_ms = before.origin_timestamp_ms, before.first_failed_at_ms
        # In the order of its fields: their names would cost five times as much.
        return Envelope(
            origin.topic,
            origin.partition,
            origin.offset,
            delivery.timestamp if first_ms is None else first_ms,
            self.group,
            delivery.assignment.handler.rules.name,
            before.attempt + 1,
            before.failures + (not timed_out),
            before.timeouts + timed_out,
            verdict.reason,
            failure.error_type,
            failure.message,
            failure.stack or None,
            failure.fingerprint or None,
            now.wall_ms if first_failed_ms is None else first_failed_ms,
            now.wall_ms,
            before.not_before_ms,
            None,  # retry_at_ms: an explicit wait is planned when it is addressed
            round(max(0.0, (delivery.finished_s or now.mono_s) - started_s) * 1000),
            self.release,
            self.worker,
            before.replays,
            before.edited,
            before.idempotency_key or delivery.place_key(),
            "headers" if "headers" in (before.truncated or "") else None,
            before.unreadable,
        )

    def hop(self, delivery: TrackedDelivery, now: Now) -> PendingWrite:
        """The write for a tier record that waits on in another tier; spends no attempt."""
        return PendingWrite(delivery, None, delivery.envelope or Envelope(), now.mono_s)

    def bury(
        self,
        delivery: TrackedDelivery,
        now: Now,
        reason: Reason = Reason.DEAD_LETTER,
        after: AfterDeadLetter | None = None,
    ) -> PendingWrite:
        """The write for a record that is dead-lettered though nothing new has failed.

        By an operator, with its last error; or along with the record it waits behind (`BEHIND`).
        """
        envelope = self._moved(delivery, reason)
        verdict = Bury(reason, envelope.failure, by_operator=reason is not Reason.BEHIND)
        write = PendingWrite(delivery, verdict, envelope, now.mono_s)
        write.after = after or _after(delivery, verdict)
        return write

    def behind(self, delivery: TrackedDelivery, now: Now) -> PendingWrite:
        """The write for a record that waits behind a failed one; it spends no attempt."""
        envelope = self._moved(delivery, Reason.BEHIND)
        return self._for_long(delivery, envelope, Reason.BEHIND, now)

    def held(self, write: PendingWrite, now: Now) -> PendingWrite:
        """The write for a record that was dead-lettered by `write`, and holds its key."""
        envelope = write.envelope._replace(reason=Reason.HELD)
        return self._for_long(write.delivery, envelope, Reason.HELD, now)

    def _for_long(
        self, delivery: TrackedDelivery, envelope: Envelope, reason: Reason, now: Now
    ) -> PendingWrite:
        far_ms = FAR_MS * (2 if reason is Reason.HELD else 1)
        envelope = envelope._replace(retry_at_ms=now.wall_ms + far_ms)
        longest_s = delivery.assignment.handler.rules.policy.tiers()[-1]
        verdict = Park(longest_s, False, reason, _NO_FAILURE)
        return PendingWrite(delivery, verdict, envelope, now.mono_s)

    def _moved(self, delivery: TrackedDelivery, reason: Reason) -> Envelope:
        before, origin = delivery.envelope or source_envelope(delivery), delivery.origin
        known_ms = before.origin_timestamp_ms
        return before._replace(
            origin_topic=origin.topic,
            origin_partition=origin.partition,
            origin_offset=origin.offset,
            origin_timestamp_ms=delivery.timestamp if known_ms is None else known_ms,
            group=self.group,
            handler=delivery.assignment.handler.rules.name,
            reason=reason,
            idempotency_key=before.idempotency_key or delivery.place_key(),
        )

    def address(self, write: PendingWrite, now: Now) -> None:
        """Work out target, wait and headers, as of now."""
        verdict = write.verdict
        if isinstance(verdict, Bury):
            self._address_dlq(write)
        elif isinstance(verdict, Park) and not verdict.exact:
            self._address_tier(write, verdict.delay_s, now)
        else:
            self._address_hop(write, now)
        delivery = write.delivery
        own = delivery.headers
        if isinstance(delivery.record, Headless):
            missing = ["headers", *(write.envelope.truncated or "").split(",")]
            named = ",".join(part for part in dict.fromkeys(missing) if part)
            write.envelope = write.envelope._replace(truncated=named)
        write.headers = write_headers(
            write.envelope,
            own,
            spring=self.spring_headers,
            kafka=self.kafka_headers,
            timestamp_type=delivery.record.timestamp()[0],
        )
        if write.companion is not None:
            self.address(write.companion, now)

    def lighten(self, write: PendingWrite) -> bool:
        """Shed the heaviest header of ours left; False where nothing can be shed any more."""
        lighter = shed(write.envelope)
        if lighter is None:
            return False
        write.envelope = lighter
        return True

    def refused(self, write: PendingWrite, now: Now) -> float:
        """Plan the next attempt to write it; returns the wait in seconds."""
        wait_s = min(FIRST_BACKOFF_S * 2.0 ** min(write.refusals, 10), LAST_BACKOFF_S)
        write.refusals += 1
        write.retry_at_s = now.mono_s + wait_s
        return wait_s

    def _address_dlq(self, write: PendingWrite) -> None:
        delivery = write.delivery
        write.topic = self.templates.dlq_topic(delivery.assignment.source_topic, self.group)
        count = self.partitions.get(write.topic)
        write.partition = None if count is None else delivery.origin.partition % count
        write.wait_s = 0.0
        write.envelope = write.envelope._replace(not_before_ms=None, retry_at_ms=None)

    def _address_tier(self, write: PendingWrite, delay_s: float, now: Now) -> None:
        rules = write.delivery.assignment.handler.rules
        topic = self._tier(write, delay_s)
        partition = self.own_partition(write.delivery, topic)
        if partition is None:
            partition = self.pick(self.partitions.get(topic, 1))
        wait_s = tier_wait_s(delay_s, rules.policy.jitter, partition)
        self._wait(write, topic, partition, wait_s, now)

    def _address_hop(self, write: PendingWrite, now: Now) -> None:
        policy = write.delivery.assignment.handler.rules.policy
        if isinstance(write.verdict, Park) and write.envelope.retry_at_ms is None:
            due_ms = now.wall_ms + round(write.verdict.delay_s * 1000)
            write.envelope = write.envelope._replace(retry_at_ms=due_ms)
        due_ms = write.envelope.retry_at_ms or now.wall_ms
        left_s = max(0.0, (due_ms - now.wall_ms) / 1000)
        tiers = policy.tiers()
        if not tiers:
            # The policy changed after a refused write: its old tier is still read.
            self._wait(write, write.topic, write.partition or 0, write.wait_s, now)
            return
        # Tiers of one policy share the source's partition count, so any of them will do.
        topic = self._tier(write, tiers[0])
        count, own = self.partitions.get(topic, 1), self.own_partition(write.delivery, topic)
        hop = next_hop(left_s, tiers, policy.jitter, count, self.pick, own)
        topic = self._tier(write, hop.tier_s)
        self._wait(write, topic, hop.partition, hop.wait_s, now)

    def own_partition(self, delivery: TrackedDelivery, topic: str) -> int | None:
        """The partition of a retry topic in which a record must wait; None where any will do.

        Without it a record of a handler that quarantines could not be kept in order.
        """
        assignment = delivery.assignment
        if not assignment.handler.rules.quarantines:
            return None
        origin = delivery.origin
        if origin.topic != assignment.source_topic:
            return None
        has = origin.partition < self.partitions.get(topic, origin.partition + 1)
        return origin.partition if has else None

    def can_quarantine(self, delivery: TrackedDelivery) -> bool:
        """Whether a record and those behind it would wait in the partition they came from."""
        source, tiers = delivery.assignment.source_topic, delivery.assignment.handler.rules.policy
        return all(
            self.own_partition(delivery, self.tier(source, delay_s)) is not None
            for delay_s in tiers.tiers()
        )

    def _tier(self, write: PendingWrite, delay_s: float) -> str:
        return self.tier(write.delivery.assignment.source_topic, delay_s)

    def tier(self, source: str, delay_s: float) -> str:
        """The retry topic of a source topic and a delay."""
        topic = self._tiers.get((source, delay_s))
        if topic is None:
            topic = self.templates.tier_topic(source, self.group, delay_s)
            self._tiers[source, delay_s] = topic
        return topic

    def _wait(
        self, write: PendingWrite, topic: str, partition: int, wait_s: float, now: Now
    ) -> None:
        write.topic, write.partition, write.wait_s = topic, partition, wait_s
        due_ms = now.wall_ms + round(wait_s * 1000)
        write.envelope = write.envelope._replace(not_before_ms=due_ms)


def reason_of_wait(envelope: Envelope, now: Now) -> Reason | None:
    """Why a record of a handler that quarantines waits, also where an older release moved it."""
    if envelope.reason is not None or envelope.retry_at_ms is None:
        return envelope.reason
    left_ms = envelope.retry_at_ms - now.wall_ms
    if left_ms < FAR_MS // 2:
        return None
    return Reason.HELD if left_ms > FAR_MS * 3 // 2 else Reason.BEHIND


def _after(delivery: TrackedDelivery, verdict: Verdict) -> AfterDeadLetter:
    """What becomes of the records behind one that is written by a verdict."""
    if not isinstance(verdict, Bury) or verdict.reason is Reason.BEHIND or delivery.key is None:
        return "continue"
    assignment = delivery.assignment
    if delivery.origin[:2] != (assignment.source_topic, assignment.partition):
        # It came from another partition, and is in no key's order here.
        return "continue"
    rules = assignment.handler.rules
    return rules.after_dead_letter if rules.quarantines else "continue"


def source_envelope(delivery: TrackedDelivery) -> Envelope:
    """The envelope of a source record: of an earlier redrive it keeps the count and the key.

    Without that count a message could be redriven to its source for ever.
    """
    headers = delivery.headers
    if not headers:
        return _NOTHING
    before = read_envelope(headers)
    key = redriven_key(before, delivery.topic)
    return Envelope(replays=before.replays, idempotency_key=key)
