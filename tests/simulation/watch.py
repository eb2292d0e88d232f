"""Watch: the oracle. It looks at a run from outside and says which promise was broken.

It sees what users and brokers see: what is produced, what handlers begin and how they end, what is
written to retry and dead-letter topics, what is committed. Of a worker it reads, beside what the
ports are asked, only the events that observers get. Its own account of what is settled is kept
apart for each assignment of each worker, since nobody may commit on somebody else's word.

The numbers of the rules are those of the invariants in docs/simulation.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ackfloor import Delivery
from ackfloor.core.acks.gap_set import MetadataRefused, decode
from ackfloor.core.messages import events as happened
from ackfloor.core.parking.output_write import OutputWrite
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.parking.transaction import Transaction
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.record import CommitPosition, StartPosition, TopicPartition
from ackfloor.testing.memory.consumer_groups import Committed
from ackfloor.testing.memory.memory_log import MemoryRecord
from tests.simulation.committed_outputs import CommittedOutputs
from tests.simulation.hub import FIRST_S, Hub, Killed
from tests.simulation.life import Life
from tests.simulation.plan import Act, Plan

#: The rules that are looked at in every hundred runs.
RULES = (*map(str, range(1, 15)), "accounts", "rate")
#: The states that a record can be in: not started, in its handler, in its handler beyond its end,
#: on its way or waiting for its next delivery, and three ends.
STATES = ("produced", "running", "overdue", "waiting", "handled", "discarded", "dead")
#: Seconds that a handler has to end once it was asked to: the settings of every run.
GRACE_S = 1.0
#: Over so many seconds at most so much of a rate is started, and one call for each worker.
RATE_S = 10.0
RATE_PART = 1.05
#: Faults in which a partition has two owners for a while, of which one does not know it.
TWO_OWNERS = ("freeze", "expel")
#: Seconds after its deadline at which a delivery that runs must have been ended by its worker.
LATE_S = 0.3


#: Events that follow from one record in a retry topic.
EVENTS_EACH = 4


class Broken(BaseException):
    """A promise was broken. No code of a worker may take it for an error of its own."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"[{rule}] {what}")
        self.rule = rule


class Place(NamedTuple):
    """Where a copy of a record is."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(slots=True)
class Call:
    """One call of a handler for one delivery."""

    delivery: Delivery
    life: Life
    uid: int
    started_s: float
    #: Why it is no longer in flight: "" while it is.
    over: str = ""
    #: Whether its return settles the record, unless the deadline was first.
    settles: str = ""


@dataclass(slots=True)
class Owned:
    """One partition in the hands of one worker, from its assignment to its end."""

    life: Life
    key: TopicPartition
    start: int
    known: frozenset[int]
    #: Offsets that this worker may call settled.
    settled: set[int] = field(default_factory=set)
    #: Handled, and not settled before their outputs are committed.
    handled: set[int] = field(default_factory=set)
    committed: int = -1
    #: What the broker has stored of it: the position, and what is settled above.
    landed: int = -1
    gaps: set[int] = field(default_factory=set)
    #: Whether the answer to its last commit was not a plain yes.
    doubt: bool = False
    #: Of these, those that its engine knows of.
    reported: set[int] = field(default_factory=set)


class Watch:
    """What is known of one run.

    Args:
        hub: time and trace.
        plan: the run.

    Attributes:
        broken: the first promise that was broken.
        over: the run has ended: what still comes is of no interest.
        fate: uid -> how the record ended: "handled", "discarded" or "dead".
        first_start_s: uid -> when its handler first began.
        checks: rule -> how often it was looked at.
    """

    def __init__(self, hub: Hub, plan: Plan) -> None:
        self._hub = hub
        self._plan = plan
        self._records = {record.uid: record for record in plan.records}
        self.over = False
        self.broken: Broken | None = None
        self.fate: dict[int, str] = {}
        self.first_start_s: dict[int, float] = {}
        self.produced_s: dict[int, float] = {}
        self.gone: set[int] = set()
        #: uid -> the processes that have handled, discarded or dead-lettered it, ever.
        self._resolved: dict[int, set[int]] = {}
        self.starts: dict[int, int] = {}
        #: uid -> the idempotency key of its first delivery; and whose each key is.
        self._keys: dict[int, str] = {}
        self._named: dict[str, int] = {}
        self._copies: dict[Place, int] = {}
        #: uid -> where it was produced.
        self._places: dict[int, Place] = {}
        #: Partition -> its copies, in the order of their offsets.
        self._logs: dict[tuple[str, int], list[tuple[Place, int]]] = {}
        #: Settled, and by which processes.
        self._settled: dict[Place, set[int]] = {}
        #: Those that were written to a retry or dead-letter topic, and to which.
        self._copied: dict[Place, list[str]] = {}
        self._removed: set[Place] = set()
        #: Copies of which the worker that has written them does not know yet.
        self._unconfirmed: dict[Place, tuple[Life, PendingWrite]] = {}
        self._content: dict[int, tuple[bytes | None, bytes | None]] = {}
        self._owned: dict[tuple[int, str, int], Owned] = {}
        self._calls: dict[Delivery, Call] = {}
        self._by_life: dict[int, dict[Delivery, Call]] = {}
        self._counts: dict[int, dict[str, int]] = {}
        self.transitions = 0
        #: Seconds of slots that sick records have had.
        self.sick_slots_s = 0.0
        self.checks: dict[str, int] = {}
        #: Handler -> when records were started lately, and by which workers, where it has a rate.
        self._lately: dict[int, deque[tuple[float, int]]] = {}
        #: uid -> the processes in which it is handled, and its outputs are not committed.
        self._held: dict[int, set[int]] = {}
        self.outputs = CommittedOutputs(self, plan)

    def check(self, rule: str, held: bool, what: str) -> None:
        """Look at one promise.

        Raises:
            Broken: it was not kept.
        """
        self.checks[rule] = self.checks.get(rule, 0) + 1
        if not held:
            # Kept as well as raised: user code's exceptions are caught, whatever they are.
            self.broken = self.broken or Broken(
                rule, f"{what} (at {self._hub.now_s - FIRST_S:.3f} s)"
            )
            raise self.broken

    # Records.

    def produced(self, uid: int, record: MemoryRecord) -> None:
        """A record was produced to its source topic."""
        place = Place(record.topic(), record.partition(), record.offset())
        self._add_copy(place, uid)
        self._places[uid] = place
        self.produced_s[uid] = self._hub.now_s
        self._content[uid] = (record.value(), record.key())

    def _add_copy(self, place: Place, uid: int) -> None:
        self._copies[place] = uid
        self._logs.setdefault((place.topic, place.partition), []).append((place, uid))

    def removed(self, place: Place, *, by: str) -> None:
        """The log has lost a record, by retention or compaction."""
        uid = self._copies.get(place)
        self._removed.add(place)
        if uid is not None and place not in self._settled:
            self.gone.add(uid)
        self._hub.note(f"{by} takes {place}")

    def known_below(self, topic: str, partition: int, most: int) -> int:
        """Up to which offset those who have written the copies in a log know of them."""
        unknown = [
            place.offset
            for place, (life, _) in self._unconfirmed.items()
            if place[:2] == (topic, partition) and life.alive
        ]
        return min([most, *unknown])

    def place_of(self, uid: int) -> Place:
        """Where a record was produced."""
        return self._places[uid]

    def uid_of(self, delivery: Delivery) -> int:
        """Which record a delivery is of."""
        place = Place(delivery.topic, delivery.partition, delivery.offset)
        return self._copies[place]

    # Assignments.

    def assigned(self, life: Life, starts: Sequence[StartPosition]) -> None:
        """A worker takes partitions over."""
        for start in starts:
            known: frozenset[int] = frozenset()
            if start.metadata:
                known = frozenset(_gaps(start.metadata, start.topic, start.partition))
            key = TopicPartition(start.topic, start.partition)
            for owned in self._owned.values():
                if owned.key == key:
                    # It was expelled, perhaps in the middle of giving it up, and can't commit.
                    owned.doubt = True
            position = start.position
            self._owned[life.number, start.topic, start.partition] = Owned(
                life, key, position, known
            )
            self._hub.note(f"{life} takes {start.topic}/{start.partition} at {position}")

    def released(self, life: Life, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """A worker has given partitions up, or lost them."""
        for key in partitions:
            owned = self._owned.pop((life.number, key.topic, key.partition), None)
            self._hub.note(f"{life} {'loses' if lost else 'gives up'} {key.topic}/{key.partition}")
            if owned is not None:
                self._forget_held(owned)
            if owned is None or lost:
                continue
            self._check_last_commit(owned)

    def _forget_held(self, owned: Owned) -> None:
        """Outputs that are not committed when a partition leaves are dropped."""
        for offset in owned.handled:
            self._held[self._copies[Place(*owned.key, offset)]].discard(owned.life.number)

    def _check_last_commit(self, owned: Owned) -> None:
        """What was settled before a partition is given up, its last commit says."""
        stored = self.stored(owned.key)
        if owned.doubt or stored is None:
            return
        gaps = _gaps(stored.metadata, *owned.key) if stored.metadata else ()
        for offset in owned.reported:
            self.check(
                "5",
                offset < stored.position or offset in gaps,
                f"{Place(*owned.key, offset)} was settled, and no commit said so before "
                f"{owned.life} gave the partition up",
            )

    def stored(self, key: TopicPartition) -> Committed | None:
        """What the broker has committed; set by the world."""
        raise NotImplementedError

    # Handlers.

    def started(self, life: Life, delivery: Delivery) -> Act:
        """A handler begins; returns what it is to do."""
        if not life.alive or self.over:
            raise Killed
        self.transitions += 1
        uid = self.uid_of(delivery)
        number = self.starts.get(uid, 0)
        self.starts[uid] = number + 1
        self.first_start_s.setdefault(uid, self._hub.now_s)
        self._hub.note(f"{life} starts {uid} for the {number + 1}. time ({delivery.topic})")
        self._check_start(life, delivery, uid)
        self._check_key_of(delivery, uid)
        self._check_rate(life, self._records[uid].handler)
        call = Call(delivery, life, uid, self._hub.now_s)
        self._calls[delivery] = call
        self._by_life.setdefault(life.number, {})[delivery] = call
        acts = self._records[uid].acts
        return acts[min(number, len(acts) - 1)]

    def _check_start(self, life: Life, delivery: Delivery, uid: int) -> None:
        owned = self._owned.get((life.number, delivery.topic, delivery.partition))
        if owned is None or delivery.closed:
            # Its partition left in the moment between the check of its slot and its start.
            return
        offset = delivery.offset
        self.check(
            "5",
            offset >= owned.start and offset not in owned.known,
            f"{uid} is handled again although the commit that {life} began with has it settled",
        )
        self.check(
            "4", offset not in owned.reported, f"{uid} is handled again after it was settled"
        )
        self._check_retry(delivery, uid)
        self._check_lane(life, delivery, uid)

    def _check_key_of(self, delivery: Delivery, uid: int) -> None:
        """A record has one idempotency key, wherever it is delivered from, and for itself."""
        key = delivery.idempotency_key
        known, owner = self._keys.setdefault(uid, key), self._named.setdefault(key, uid)
        self.check("13", key == known, f"{uid} has the key {key}, and had {known} before")
        self.check("13", owner == uid, f"{uid} has the key {key}, which is that of {owner}")

    def timed_out(self, life: Life, delivery: Delivery) -> None:
        """A worker has ended a delivery for its deadline: its handler has had the time it has."""
        call = self._calls.get(delivery)
        timeout_s = delivery.assignment.handler.rules.consume_timeout_s
        if call is None or timeout_s is None:
            return
        had_s = self._hub.now_s - call.started_s
        self.check(
            "9",
            had_s >= timeout_s - LATE_S or life.thaws_s > call.started_s,
            f"{call.uid} was ended after {had_s:.3f} s, and its handler has {timeout_s} s",
        )

    def _check_rate(self, life: Life, number: int) -> None:
        """The whole group starts no more than the rate of a handler, redeliveries included."""
        handler = self._plan.handlers[number]
        if not handler.rate_per_s:
            return
        lately = self._lately.setdefault(number, deque())
        lately.append((self._hub.now_s, life.number))
        while lately[0][0] <= self._hub.now_s - RATE_S:
            lately.popleft()
        if any(fault.kind.startswith(TWO_OWNERS) for fault in self._plan.faults):
            return
        workers = len({worker for _, worker in lately})
        most = RATE_PART * RATE_S * handler.rate_per_s + workers * (handler.batch or 1)
        self.check(
            "rate",
            len(lately) <= most,
            f"{len(lately)} records of h{number} were started in {RATE_S:g} s, "
            f"and its rate is {handler.rate_per_s}/s",
        )

    def _check_retry(self, delivery: Delivery, uid: int) -> None:
        """A retry is neither early nor one too many."""
        plan = self._plan.handlers[self._records[uid].handler]
        self.check(
            "10",
            delivery.attempt <= plan.redeliveries + 1,
            f"{uid} is delivered {delivery.attempt} times, {plan.redeliveries + 1} are its most",
        )
        envelope = delivery.envelope
        # What waits behind another record is due when that is resolved.
        waits = envelope is not None and envelope.reason is not Reason.BEHIND
        due_ms = envelope.not_before_ms if envelope is not None and waits else None
        if due_ms is not None and not any(f.kind.startswith("wall") for f in self._plan.faults):
            early_ms = due_ms - self._hub.wall_ms
            self.check("10", early_ms <= 1, f"{uid} is retried {early_ms} ms early")

    def _check_lane(self, life: Life, delivery: Delivery, uid: int) -> None:
        rules = delivery.assignment.handler.rules
        if rules.ordering == "unordered":
            return
        lane = delivery.lane_key(rules.ordering == "key")
        for other in self._by_life.get(life.number, {}).values():
            if other.over or other.delivery.closed or other.delivery is delivery:
                continue
            mate = other.delivery
            if mate.assignment is not delivery.assignment:
                continue
            same = mate.lane_key(rules.ordering == "key") == lane
            if same and rules.batch is not None and other.started_s == self._hub.now_s:
                # One batch may take several records of a lane, in order.
                self.check("8", mate.offset < delivery.offset, f"{uid} overtakes {other.uid}")
                continue
            self.check("8", not same, f"{uid} starts while {other.uid} of its lane is in flight")
        if rules.in_place and parse_topic(delivery.topic) is None:
            self._check_followers(life, delivery, uid, lane)
        if rules.quarantines:
            self._check_key(life, uid)

    def _check_key(self, life: Life, uid: int) -> None:
        """Where a key is quarantined, none of its records overtakes another, wherever both are."""
        mine = self._records[uid]
        if mine.key is None:
            return
        place = self._places[uid]
        for before, other in self._logs[place.topic, place.partition]:
            if before.offset >= place.offset:
                return
            if self._records[other].key != mine.key or before in self._removed:
                continue
            done = other in self.gone or bool(self._resolved.get(other))
            done = done or life.number in self._held.get(other, ())
            self.check("8", done, f"{uid} starts before {other}, which is ahead of it of its key")

    def _check_followers(self, life: Life, delivery: Delivery, uid: int, lane: object) -> None:
        """Where a lane waits for its failed record, none overtakes it."""
        owned = self._owned[life.number, delivery.topic, delivery.partition]
        for place, other in self._logs.get((delivery.topic, delivery.partition), ()):
            if place.offset >= delivery.offset:
                break
            done = place.offset in owned.settled or place.offset in owned.known
            done = done or place.offset in owned.handled
            if place.offset < owned.start or done or place in self._removed:
                continue
            batch = getattr(delivery, "batch", None)
            if batch is not None and any(d.offset == place.offset for d in batch.items):
                continue
            key = self._records[other].key
            mine = self._records[uid].key
            by_key = delivery.assignment.handler.rules.ordering == "key"
            self.check(
                "8",
                by_key and (key is None or key != mine),
                f"{uid} starts before {other}, which is ahead of it in its lane",
            )

    def ended(self, life: Life, delivery: Delivery, exc: BaseException | None) -> None:
        """A handler has ended."""
        call = self._calls.get(delivery)
        if not life.alive or self.over or call is None:
            return
        self.transitions += 1
        if self._records[call.uid].sick:
            self.sick_slots_s += self._slot_s(call, exc)
        how = "returns" if exc is None else f"raises {type(exc).__name__}"
        self._hub.note(f"{life} {how} for {call.uid}")
        manual = delivery.assignment.handler.rules.manual
        answered = delivery.outcome is not None
        if not manual or exc is not None:
            call.over = call.over or how
            self._by_life[life.number].pop(delivery, None)
        if exc is None and not manual and not delivery.closed and not answered:
            self._settles(life, delivery, "handled")
        elif type(exc).__name__ == "Discard" and not delivery.closed and not answered:
            self._settles(life, delivery, "discarded")

    def _slot_s(self, call: Call, exc: BaseException | None) -> float:
        """How long a call has its slot: under manual ack until the answer or the deadline."""
        delivery = call.delivery
        took_s = self._hub.now_s - call.started_s
        waits = delivery.assignment.handler.rules.manual and exc is None and not call.over
        deadline_s = delivery.deadline_s
        return max(took_s, deadline_s - call.started_s) if waits and deadline_s else took_s

    def slots_s(self) -> float:
        """Seconds of slots that sick records have had; of those that never return, until they are
        given up."""
        left = [call for calls in self._by_life.values() for call in calls.values()]
        handlers, records = self._plan.handlers, self._records
        return self.sick_slots_s + sum(
            handlers[records[call.uid].handler].timeout_s + GRACE_S
            for call in left
            if records[call.uid].sick
        )

    def ack(self, life: Life, delivery: Delivery) -> None:
        """Code says that a record is handled."""
        if life.alive and not self.over:
            self.answered(life, delivery, "handled", delivery.ack())

    def answered(self, life: Life, delivery: Delivery, how: str, recorded: bool) -> None:
        """Code has answered a delivery by hand."""
        call = self._calls.get(delivery)
        if call is None or not life.alive or self.over:
            return
        self.transitions += 1
        self._hub.note(f"{life} answers {call.uid}: {how} is {recorded}")
        if not recorded:
            return
        self.check("4", not call.over.startswith("answered"), f"{call.uid} took two answers")
        call.over = f"answered {how}"
        self._by_life[life.number].pop(delivery, None)
        if how in ("handled", "discarded", "discard"):
            self._settles(life, delivery, "handled" if how == "handled" else "discarded")

    def _settles(self, life: Life, delivery: Delivery, how: str) -> None:
        """A worker may call a record settled from now on."""
        place = Place(delivery.topic, delivery.partition, delivery.offset)
        owned = self._owned.get((life.number, delivery.topic, delivery.partition))
        if owned is None or delivery.assignment.closed:
            return
        uid = self._copies[place]
        call = self._calls.get(delivery)
        if call is not None:
            call.settles = how
        if how == "handled" and self.outputs.expected(uid):
            owned.handled.add(delivery.offset)
            self._held.setdefault(uid, set()).add(life.number)
            return
        self._settled.setdefault(place, set()).add(life.number)
        owned.settled.add(delivery.offset)
        self._resolved.setdefault(uid, set()).add(life.number)
        if self.fate.get(uid) != "dead":
            self.fate[uid] = how

    def discarded(self, life: Life, place: Place) -> None:
        """An operator has a worker settle a record that nobody has handled."""
        uid = self._copies[place]
        self._hub.note(f"{life} discards {uid} by order")
        owned = self._owned[life.number, place.topic, place.partition]
        self._settled.setdefault(place, set()).add(life.number)
        owned.settled.add(place.offset)
        owned.reported.add(place.offset)
        self._resolved.setdefault(uid, set()).add(life.number)
        if self.fate.get(uid) != "dead":
            self.fate[uid] = "discarded"

    def taken(self, life: Life, deliveries: Iterable[tuple[Delivery, bool]]) -> None:
        """A worker's engine has taken answers; late ones must change nothing."""
        for delivery, late in deliveries:
            call = self._calls.get(delivery)
            owned = self._owned.get((life.number, delivery.topic, delivery.partition))
            if call is None or not call.settles or owned is None:
                continue
            if call.settles == "handled" and self.outputs.expected(call.uid):
                if late:
                    owned.handled.discard(delivery.offset)
                    self._held[call.uid].discard(life.number)
                continue
            if not late:
                owned.reported.add(delivery.offset)
                continue
            place = Place(delivery.topic, delivery.partition, delivery.offset)
            if delivery.offset not in owned.reported:
                owned.settled.discard(delivery.offset)
                self._resolved.get(call.uid, set()).discard(life.number)
                settled_by = self._settled.get(place, set())
                settled_by.discard(life.number)
                if settled_by:
                    # Another process has settled it as well.
                    continue
                self._settled.pop(place, None)
                if self.fate.get(call.uid) == call.settles:
                    del self.fate[call.uid]
                if place in self._removed:
                    self.gone.add(call.uid)

    def confirmed(self, life: Life, parcel: PendingWrite) -> None:
        """A worker knows that a parked record is durable."""
        delivery = parcel.delivery
        for known in [p for p, (_, other) in self._unconfirmed.items() if other is parcel]:
            del self._unconfirmed[known]
        owned = self._owned.get((life.number, delivery.topic, delivery.partition))
        if owned is not None and not delivery.assignment.closed:
            place = Place(delivery.topic, delivery.partition, delivery.offset)
            self.check("2", place in self._settled, f"{place} counts as parked, and is nowhere")
            if parcel.settles or self._plan.transactional:
                owned.reported.add(delivery.offset)

    # What is written elsewhere.

    def leaves(self, delivery: Delivery) -> None:
        """A worker decides to park or dead-letter a record whose lane goes on at once."""
        place = Place(delivery.topic, delivery.partition, delivery.offset)
        self.outputs.leaves(self._copies[place])

    def publish_sent(self, life: Life, parcel: PendingWrite) -> None:
        """A worker sends a record to a retry or dead-letter topic."""
        delivery = parcel.delivery
        self.transitions += 1
        place = Place(delivery.topic, delivery.partition, delivery.offset)
        self._hub.note(f"{life} parks {place} in {parcel.topic}")
        if not isinstance(parcel, OutputWrite):
            self.outputs.leaves(self._copies[place])
        owned = self._owned.get((life.number, delivery.topic, delivery.partition))
        if owned is not None and owned.life is life:
            self.check(
                "4",
                delivery.offset not in owned.reported,
                f"{place} is parked although it was settled before",
            )

    def written(self, life: Life, parcel: PendingWrite, record: MemoryRecord) -> None:
        """The broker has a parked record."""
        # A record that waits for long in a short tier is written anew again and again; one whose
        # writes are not confirmed, as several copies. The end of the plan's time ends that.
        self._hub.allow(EVENTS_EACH)
        delivery = parcel.delivery
        source = Place(delivery.topic, delivery.partition, delivery.offset)
        uid = self._copies[source]
        place = Place(record.topic(), record.partition(), record.offset())
        self._hub.note(f"broker has {uid} as {place}")
        self.check(
            "2",
            (record.value(), record.key()) == self._content[uid],
            f"{place} is not byte for byte what was produced",
        )
        self._add_copy(place, uid)
        self._unconfirmed[place] = life, parcel
        self._settled.setdefault(source, set()).add(life.number)
        self._check_copies(source, parcel, record.topic())
        owned = self._owned.get((life.number, source.topic, source.partition))
        if owned is not None and not delivery.assignment.closed:
            owned.settled.add(source.offset)
        if record.topic().endswith("--dlq"):
            self._resolved.setdefault(uid, set()).add(life.number)
            if self.fate.get(uid) != "handled":
                self.fate[uid] = "dead"
        elif parcel.envelope.reason is not Reason.HELD and self.fate.get(uid) != "dead":
            # What holds its key is in the DLQ already; of what is there a copy may come late.
            self.fate.pop(uid, None)

    def _check_copies(self, source: Place, parcel: PendingWrite, topic: str) -> None:
        """In a transaction a copy settles what it was made from; a dead letter may hold its key."""
        uid = self._copies[source]
        self.outputs.parked(uid, topic)
        before = self._copied.setdefault(source, [])
        along = parcel.envelope.reason is Reason.HELD and [t[-5:] for t in before] == ["--dlq"]
        self.check(
            "4",
            not (self._plan.transactional and before) or along,
            f"{source} is written to {topic} after {before}",
        )
        before.append(topic)

    def output_written(self, life: Life, write: OutputWrite, record: MemoryRecord) -> None:
        """The broker has an output, in a transaction that is committed."""
        delivery = write.delivery
        source = Place(delivery.topic, delivery.partition, delivery.offset)
        uid = self._copies[source]
        self._hub.note(f"broker has {record!r} of {uid}")
        self.outputs.written(uid, delivery, record)
        self._settled.setdefault(source, set()).add(life.number)
        owned = self._owned.get((life.number, source.topic, source.partition))
        if owned is not None and not delivery.assignment.closed:
            owned.settled.add(source.offset)
        self._resolved.setdefault(uid, set()).add(life.number)
        self.fate[uid] = "handled"

    def carried_out(self, life: Life, transaction: Transaction) -> None:
        """A transaction is committed: what it has as settled is settled, or was by it."""
        uids = {
            self._copies[Place(w.delivery.topic, w.delivery.partition, w.delivery.offset)]
            for w in transaction.writes
            if isinstance(w, OutputWrite)
        }
        self.outputs.complete(uids)
        for position in transaction.positions:
            owned = self._owned.get((life.number, position.topic, position.partition))
            if owned is not None:
                self._check_commit(owned, position.position, position.metadata)

    # Commits.

    def commit_sent(self, life: Life, positions: Sequence[CommitPosition]) -> None:
        """A worker sends a commit."""
        for position in positions:
            owned = self._owned.get((life.number, position.topic, position.partition))
            if owned is None:
                self.check("1", False, f"{life} commits {position.topic}, which is not its own")
                continue
            place = f"{position.topic}/{position.partition}"
            self._hub.note(f"{life} commits {position.position} of {place}")
            self.check(
                "3",
                position.position >= owned.committed,
                f"the floor of {place} goes back from {owned.committed} to {position.position}",
            )
            owned.committed = position.position
            self._check_commit(owned, position.position, position.metadata)

    def _check_commit(self, owned: Owned, position: int, metadata: str) -> None:
        gaps = _gaps(metadata, *owned.key) if metadata else ()
        for place, _ in self._logs.get(owned.key, ()):
            if not (place.offset < position or place.offset in gaps):
                continue
            if place.offset < owned.start or place.offset in owned.known:
                continue
            if place in self._removed:
                continue
            known_settled = place.offset in owned.settled
            if not known_settled and self._quarantines(place) and self._is_spare(place):
                # From now on: retention may take the other copy, which nobody can foresee.
                owned.settled.add(place.offset)
            self.check(
                "1",
                place.offset in owned.settled,
                f"{owned.life} commits {position} of {owned.key.topic}/{owned.key.partition} "
                f"(gaps {sorted(gaps)[:5]}) past {place}, which it has not settled",
            )

    def _is_spare(self, place: Place) -> bool:
        """Whether a copy of a record may be settled for the sake of another one.

        That was made from it, or waits; or the record has ended.
        """
        uid = self._copies[place]
        if place in self._copied or self._resolved.get(uid):
            return True
        return any(
            other == uid and copy != place and self._is_open(copy)
            for copy, other in self._copies.items()
            if copy not in self._removed
        )

    def _is_open(self, copy: Place) -> bool:
        """Whether a copy is delivered yet: nobody may settle it, or the next owner does not know.

        The broker has what was made from it, and the answer was lost: no commit says so.
        """
        if copy not in self._settled:
            return True
        key = TopicPartition(copy.topic, copy.partition)
        stored = self.stored(key)
        if stored is None:
            return True
        gaps = _gaps(stored.metadata, *key) if stored.metadata else ()
        return copy.offset >= stored.position and copy.offset not in gaps

    def _quarantines(self, place: Place) -> bool:
        handler = self._plan.handlers[self._records[self._copies[place]].handler]
        return handler.on_failure == "quarantine"

    def landed(self, life: Life, positions: Iterable[tuple[TopicPartition, int, str]]) -> None:
        """The broker has stored a commit: it says no less than the one before."""
        for key, position, metadata in positions:
            owned = self._owned.get((life.number, key.topic, key.partition))
            if owned is None:
                continue
            gaps = _gaps(metadata, *key) if metadata else set()
            place = f"{key.topic}/{key.partition}"
            # An offset that never arrives may be in the gap set of one commit and not of the next.
            places = {g: Place(*key, g) for g in owned.gaps}
            records = {g for g, p in places.items() if p in self._copies and p not in self._removed}
            self.check(
                "3",
                position >= owned.landed and all(g < position or g in gaps for g in records),
                f"what is stored of {place} goes back: {owned.landed} with {sorted(owned.gaps)} to "
                f"{position} with {sorted(gaps)}",
            )
            owned.landed, owned.gaps = position, gaps

    def committed(self, life: Life, results: Iterable[tuple[CommitPosition, str | None]]) -> None:
        """A worker gets the answer to a commit."""
        for position, error in results:
            owned = self._owned.get((life.number, position.topic, position.partition))
            if owned is not None:
                owned.doubt = error is not None

    def in_transaction(self, life: Life, positions: Iterable[CommitPosition]) -> None:
        """A transaction with commits of these partitions has begun: until it is known how it ended,
        nothing else may be committed of them."""
        for position in positions:
            owned = self._owned.get((life.number, position.topic, position.partition))
            if owned is not None:
                owned.doubt = True

    def out_of_transaction(self, life: Life, positions: Iterable[CommitPosition]) -> None:
        """It is known how it ended."""
        for position in positions:
            owned = self._owned.get((life.number, position.topic, position.partition))
            if owned is not None:
                owned.doubt = False

    # Turns and observers.

    def turn(self, life: Life, running: Iterable[Delivery]) -> None:
        """A worker's owner thread has ended a turn."""
        now_s = self._hub.now_s
        for delivery in running:
            deadline_s = delivery.deadline_s
            if deadline_s is None or delivery.closed or delivery.outcome is not None:
                continue
            if delivery.assignment.handler.rules.killable:
                continue
            self.check(
                "9",
                now_s <= deadline_s + LATE_S or life.thaws_s > deadline_s,
                f"{delivery!r} runs {now_s - deadline_s:.3f} s beyond its deadline",
            )

    def levels(self, life: Life, open_count: int, partitions: int) -> None:
        """A worker holds no more than it may, but for what it read last.

        What waits for its retry, or behind a failed head, has a part of its own; and of each
        partition a batch may be read before its gate is seen to be shut.
        """
        most = self._plan.max_open * 2 + self._plan.batch * (1 + partitions)
        self.check("7", open_count <= most, f"{life} holds {open_count} records, {most} at most")

    def observe(self, life: Life, events: Iterable[happened.Event]) -> None:
        """A worker's observers get events."""
        counts = self._counts.setdefault(life.number, {})
        for event in events:
            match event:
                case happened.RecordsReceived():
                    _add(counts, "read", event.count)
                case happened.RecordsRewound():
                    _add(counts, "read", -event.count)
                case happened.RecordsAcked():
                    _add(counts, "handled", len(event.durations_s))
                case happened.RecordParked(reason=Reason.HELD):
                    # It has been dead-lettered just now.
                    pass
                case happened.RecordParked() | happened.RecordHopped():
                    _add(counts, "parked", 1)
                case happened.RecordDeadLettered():
                    _add(counts, "dead", 1)
                case happened.CopySettled() | happened.RecordDiscarded():
                    _add(counts, "discarded", 1)
                case happened.PartitionsRevoked():
                    _add(counts, "dropped", event.open_count)

    def account(self, life: Life, open_count: int) -> None:
        """A worker is at rest: everything that it read is somewhere."""
        counts = self._counts.get(life.number, {})
        read = counts.get("read", 0)
        ends = {name: n for name, n in counts.items() if name != "read"}
        # What is dead-lettered and holds its key is open until it is written for that, too; in a
        # transaction both are written at once.
        holds = any(h.after_dead_letter != "continue" for h in self._plan.handlers)
        holds = holds and not self._plan.transactional
        twice = counts.get("dead", 0) if holds else 0
        self.check(
            "accounts",
            read <= sum(ends.values()) + open_count <= read + twice,
            f"{life} read {read}, and has {ends} and {open_count} open",
        )

    def check_end(self) -> None:
        """The faults are over and everything is at rest."""
        for uid, record in self._records.items():
            if uid in self.gone or uid not in self.produced_s:
                continue
            self.check(
                "10",
                self.fate.get(uid) is not None,
                f"{uid} ({record.acts[0].kind}) has neither been handled nor dead-lettered",
            )
            self.outputs.check_end(uid, self.fate[uid])
            if not record.sick and not self._may_hurt_others():
                self.check("2", self.fate[uid] == "handled", f"{uid} is {self.fate[uid]}")

    def _may_hurt_others(self) -> bool:
        """Whether a record may end in the DLQ although its own code is well.

        It may where it shares a call with others, where its key goes with its head, where its
        process stands still beyond its
        deadline, and where its process dies again and again.
        """
        return (
            any(handler.batch is not None for handler in self._plan.handlers)
            or any(h.after_dead_letter == "dead_letter" for h in self._plan.handlers)
            or self._may_take_along()
            or any(f.kind.startswith(("freeze", "crash")) for f in self._plan.faults)
            or any(f.kind == "output_too_small" for f in self._plan.faults)
            or any(act.kind == "crash" for r in self._plan.records for act in r.acts)
        )

    def _may_take_along(self) -> bool:
        """Whether an operator may dead-letter what is behind the head of a quarantined key."""
        quarantines = any(h.on_failure == "quarantine" for h in self._plan.handlers)
        return quarantines and any(f.kind == "lane_order" for f in self._plan.faults)

    def states(self) -> set[str]:
        """In which states records are now."""
        found = {"produced"} if len(self.first_start_s) < len(self.produced_s) else set()
        calls = [call for calls in self._by_life.values() for call in calls.values()]
        found.update("running" if not call.delivery.closed else "overdue" for call in calls)
        found.update(self.fate.values())
        parked = set(self.first_start_s) - set(self.fate) - {call.uid for call in calls}
        if parked:
            found.add("waiting")
        return found

    def all_ended(self) -> bool:
        """Whether every record that was produced has ended."""
        return all(u in self.fate or u in self.gone for u in self.produced_s)


def _add(counts: dict[str, int], name: str, count: int) -> None:
    counts[name] = counts.get(name, 0) + count


def _gaps(metadata: str, topic: str, partition: int) -> set[int]:
    try:
        runs = decode(metadata, topic, partition).runs
    except MetadataRefused:
        return set()
    return {offset for first, end in runs for offset in range(first, end)}
