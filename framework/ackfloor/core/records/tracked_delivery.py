"""TrackedDelivery: one attempt to handle one record, as the engine keeps it.

Handlers see it as an `ackfloor.Delivery`, which names what they may rely on.

Theory. A delivery belongs to one assignment (one epoch of one partition), one offset and one
attempt: together these are its *token*. It ends once. `closed` is the token's state as the
owner thread sees it: it is set when the outcome is applied, when the deadline passes, and when
the assignment ends, and whatever comes later finds it set and is stale.

Under automatic ack only the owner thread closes a delivery, so a plain flag is enough. Under
manual ack, and in a batch, an answer may come from any thread and must return at once whether it
counted: `_claim`, one byte, is taken by the first to come, because `bytearray.pop` is atomic. (A
list would cost the garbage collector one more object for each record of a batch.) The deadline
claims through the same byte, so an answer and a timeout can't both win.

A lapse and `extend` race like this: the owner closes the delivery and *then* looks at the
deadline once more; `extend` moves the deadline and *then* looks at `closed`. At least one of
the two sees the other, so an extension that returned True is always honoured.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ackfloor.core.records.envelope import Envelope, Reason, read_envelope, redriven_key
from ackfloor.core.records.outcomes import ACKED, Discarded, Failed, Outcome, Rejected, Released
from ackfloor.core.records.output import Output, Outputs
from ackfloor.core.records.record import Failure, Headers, Headless, Origin, Record
from ackfloor.core.values.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ackfloor.core.queues.lanes import Lane
    from ackfloor.core.records.batch import Batch
    from ackfloor.core.state.assignment import Assignment


#: The name of a lane: topic, partition, and key; see `TrackedDelivery.lane_key`.
LaneKey = tuple[str, int, bytes | int | None]
#: Of a redelivery: it is counted among those that take slots, or waits in a lane behind another.
TAKES_ROOM, BEHIND = 1, 2


class TrackedDelivery:
    """One attempt to handle one record; an `ackfloor.Delivery` for its handler."""

    __slots__ = (
        "_claim",
        "_outputs",
        "assignment",
        "batch",
        "closed",
        "envelope",
        "extended_until_s",
        "finished_s",
        "lane",
        "on_answer",
        "outcome",
        "received_s",
        "record",
        "record_offset",
        "retrying",
        "size",
        "started_s",
    )

    #: Set where the handler takes batches, when it starts.
    batch: Batch
    _claim: bytearray
    #: Set where the handler publishes exactly once, before anything runs: its threads may publish
    #: at once, and must find the same.
    _outputs: Outputs
    on_answer: Callable[[], None] | None

    def __init__(
        self,
        assignment: Assignment,
        record: Record,
        offset: int,
        size: int,
        received_s: float,
    ) -> None:
        self.assignment = assignment
        self.record = record
        self.record_offset = offset
        self.size = size
        self.received_s = received_s
        self.started_s = 0.0
        self.finished_s = 0.0
        self.extended_until_s = 0.0
        self.closed = False
        #: `TAKES_ROOM` or `BEHIND` where it is a redelivery that is dispatched and not answered.
        self.retrying = 0
        self.outcome: Outcome | None = None
        #: Of an ordered handler, from when it was queued: its lane, or the name of that while it is
        #: out by itself.
        self.lane: Lane | LaneKey | None = None
        self.envelope: Envelope | None = None

    def __repr__(self) -> str:
        return f"<Delivery {self.topic}/{self.partition}/{self.offset} attempt {self.attempt}>"

    # What was delivered.

    @property
    def topic(self) -> str:
        """The topic it was read from: the source topic, or a retry tier."""
        return self.assignment.topic

    @property
    def partition(self) -> int:
        """The partition it was read from."""
        return self.assignment.partition

    @property
    def offset(self) -> int:
        """The record's own offset there."""
        return self.record_offset

    @property
    def key(self) -> bytes | None:
        """The raw key."""
        return self.record.key()

    @property
    def value(self) -> bytes | None:
        """The raw value; None is a tombstone."""
        return self.record.value()

    @property
    def headers(self) -> Headers:
        """The record's headers in order, repeated names included.

        Empty where the name of one is not UTF-8, which the client can't read.
        """
        try:
            return self.record.headers() or ()
        except SystemError:
            self.record = Headless(self.record)
            return ()

    @property
    def timestamp(self) -> int:
        """The record's timestamp in milliseconds since the epoch; -1 where it has none."""
        return self.record.timestamp()[1]

    @property
    def attempt(self) -> int:
        """Which delivery of the record this is; 1 is the first."""
        envelope = self.envelope
        return 1 if envelope is None else envelope.attempt + 1

    @property
    def origin(self) -> Origin:
        """Topic, partition and offset of the first delivery since it was written to its topic."""
        envelope = self.envelope
        if envelope is None or envelope.origin_topic is None:
            return Origin(self.topic, self.partition, self.offset)
        return Origin(
            envelope.origin_topic, envelope.origin_partition or 0, envelope.origin_offset or 0
        )

    @property
    def idempotency_key(self) -> str:
        """What names the record over all its deliveries; see `ackfloor.Delivery`."""
        envelope = self.envelope
        if envelope is None:
            return redriven_key(read_envelope(self.headers), self.topic) or self.place_key()
        return envelope.idempotency_key or self.place_key()

    def place_key(self) -> str:
        """The idempotency key where no header carries one: from where the record is.

        With the leader epoch where the partition has had several leaders: after an unclean election
        other records take the place of those that were cut off.

        Without the topic's id, the origin's timestamp tells it from one in an earlier topic of the
        name: that is so on a broker without ids, and of what an earlier release has parked.
        """
        envelope, (topic, partition, offset) = self.envelope, self.origin
        parked = envelope is not None and envelope.origin_topic is not None
        if self.assignment.topic_id and not parked:
            epoch = self.record.leader_epoch()
            several = f"@{epoch}" if epoch is not None and epoch > 0 else ""
            return f"{self.assignment.topic_id}/{partition}/{offset}{several}"
        known_ms = envelope.origin_timestamp_ms if envelope is not None else None
        timestamp_ms = self.timestamp if known_ms is None else known_ms
        return f"{topic}/{partition}/{offset}/{timestamp_ms}"

    @property
    def deadline_s(self) -> float | None:
        """When the consume timeout ends, in seconds of the monotonic clock; None for never."""
        timeout_s = self.assignment.handler.rules.consume_timeout_s
        if timeout_s is None or not self.started_s:
            return None
        due = self.started_s + timeout_s
        return due if due > self.extended_until_s else self.extended_until_s

    # How it ends, under manual ack or in a batch.

    def ack(self) -> bool:
        """Settle the record as handled."""
        return self._answer(ACKED)

    def retry(self, after: timedelta | str | None = None, reason: str = "") -> bool:
        """Park the record for another delivery, after the policy's delay or the given one."""
        after_s = None if after is None else parse_duration(after, field="after")
        return self._answer(Failed(Failure("Retry", str(reason)), Reason.RETRY, after_s))

    def dead_letter(self, reason: str) -> bool:
        """Move the record to the dead-letter queue."""
        return self._answer(Rejected(Failure("DeadLetter", str(reason))))

    def discard(self, reason: str) -> bool:
        """Settle the record although nothing was done with it."""
        return self._answer(Discarded(str(reason)))

    def extend(self, by: timedelta | str) -> bool:
        """Move the deadline to `by` from now, at most `max_extend` after the handler's start.

        Never shortens a deadline. Allowed under automatic ack as well. A batch has one deadline, so
        this moves that of all its deliveries.
        """
        by_s = parse_duration(by, field="by")
        rules = self.assignment.handler.rules
        until_s = self.assignment.clock() + by_s
        if rules.max_extend_s is not None:
            until_s = min(until_s, self.started_s + rules.max_extend_s)
        if until_s > self.extended_until_s:
            for delivery in (self,) if rules.batch is None else self.batch.items:
                delivery.extended_until_s = until_s
        return not self.closed and self.outcome is None

    # What it publishes, to be written in one transaction with what settles its record.

    def publish(
        self,
        topic: str,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]] = (),
        partition: int | None = None,
    ) -> bool:
        """Publish a record together with the acknowledgement; see `ackfloor.Delivery`."""
        rules = self.assignment.handler.rules
        if rules.make_output is None:
            raise RuntimeError(
                f"handler {rules.name!r} does not publish through its deliveries: register it with "
                'output="exactly_once", or use `await app.publish(...)`'
            )
        return self.hold(rules.make_output(topic, value, key, headers, partition))

    def hold(self, output: Output) -> bool:
        """Hold an output until the record's outcome is known.

        Returns False where the delivery has ended: the output is dropped with it. One that is
        closed keeps it, for it may be opened again: its deadline was moved at that moment.

        Raises:
            OutputTooLarge: the outputs of the record are too large with it.
        """
        if self.outcome is not None:
            return False
        self._outputs.add(output)
        # Another thread may have answered meanwhile, and may have left this one out.
        return not self.closed and self.outcome is None

    @property
    def outputs(self) -> Outputs | None:
        """What its handler has published; None where it does not publish exactly once."""
        return getattr(self, "_outputs", None)

    def begin_outputs(self) -> None:
        """Hold what is published from now on; what was published before is dropped."""
        self._outputs = Outputs()

    # For the runtime.

    def end(self, outcome: Outcome) -> bool:
        """End it alone, where it can be answered by hand."""
        return self._answer(outcome)

    def lane_key(self, by_key: bool) -> LaneKey:
        """The name of its lane. A record without a key has no order to keep: its own lane."""
        a = self.assignment
        if not by_key:
            return (a.topic, a.partition, None)
        key = self.record.key()
        if key is None:
            return (a.topic, a.partition, self.record_offset)
        return (a.lanes_topic, a.partition, key)

    @property
    def unbatched(self) -> bool:
        """Whether it has a batch of its own: a redelivery, or a suspect of a crash."""
        return self.envelope is not None or self is self.assignment.handler.suspect

    @property
    def last_error(self) -> str | None:
        """The type of the error that the delivery before ended with; None for none."""
        envelope = self.envelope
        return None if envelope is None else envelope.error_type

    @property
    def settled(self) -> bool:
        """Whether its record is settled; only the owner thread may ask."""
        return self.closed and self.record_offset not in self.assignment.tracker.open

    def keeps_lane(self) -> bool:
        """Whether its lane waits for it: it has ended unsettled, and may come again in its place.

        Its slot then reports nothing more: the engine has the lane.
        """
        return isinstance(self.outcome, Failed | Rejected | Released)

    def again(self, envelope: Envelope | None) -> TrackedDelivery:
        """Another delivery of the same record, in the same place."""
        delivery = TrackedDelivery(
            self.assignment, self.record, self.record_offset, self.size, self.received_s
        )
        delivery.envelope = envelope
        if self.assignment.handler.rules.exactly_once:
            delivery.begin_outputs()
        return delivery

    def arm(self, on_answer: Callable[[], None] | None) -> None:
        """Make the delivery answerable by hand; `on_answer` frees the worker's slot."""
        self._claim = bytearray(1)
        self.on_answer = on_answer

    def claim(self) -> bool:
        """Take the right to end a delivery that is answerable by hand; False where it is taken."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        return True

    def unclaim(self) -> None:
        """Give the right back: the deadline was moved while it was being taken."""
        self._claim.append(0)

    def _answer(self, outcome: Outcome) -> bool:
        if not self.assignment.handler.rules.by_hand:
            raise RuntimeError(
                f"handler {self.assignment.handler.rules.name!r} has ack='auto': its answer is "
                "its return or its exception; register it with ack='manual' to answer by hand"
            )
        claimed = self.claim()
        # Claimed though closed: its partition left in the moment between its taking and its start.
        recorded = claimed and not self.closed
        if recorded:
            self.outcome = outcome
            self.finished_s = self.assignment.clock()
            self.assignment.inbox.append(self)
        else:
            self.assignment.stats.late_answers.append(None)
        if claimed and self.on_answer is not None:
            self.on_answer()
        return recorded

    def reopen(self) -> None:
        """Make a held delivery deliverable again, as if it had not been started."""
        self.outcome = None
        self.started_s = 0.0
        self.finished_s = 0.0
        self.extended_until_s = 0.0
        if self.assignment.handler.rules.exactly_once:
            self.begin_outputs()


def first_deliveries(
    assignment: Assignment,
    records: Sequence[Record],
    offsets: Sequence[int],
    sizes: Sequence[int],
    received_s: float,
) -> list[TrackedDelivery]:
    """The first deliveries of records of one partition.

    What `TrackedDelivery.__init__` does, without a call for each record: a third less.
    """
    new, made = TrackedDelivery.__new__, []
    for record, offset, size in zip(records, offsets, sizes, strict=True):
        delivery = new(TrackedDelivery)
        delivery.assignment = assignment
        delivery.record = record
        delivery.record_offset = offset
        delivery.size = size
        delivery.received_s = received_s
        delivery.started_s = delivery.finished_s = delivery.extended_until_s = 0.0
        delivery.closed = False
        delivery.retrying = 0
        delivery.outcome = delivery.envelope = delivery.lane = None
        made.append(delivery)
    if assignment.handler.rules.exactly_once:
        for delivery in made:
            delivery.begin_outputs()
    return made
