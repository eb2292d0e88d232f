"""Transactions: parks and the commit that settles them, together; abort and revoke.

Theory. A write that is confirmed without its commit doubles the record after a crash. Here both are
in one Kafka transaction. A transaction takes the writes that were queued while the one before it
ran: of many partitions, and for each of them the commit as it will be once they are written.

T1  One transaction at a time. What it commits is worked out when it begins, and its records are
    settled when it is known to be committed, not before.
T2  A partition has one commit outstanding (see `partition_commits`), plain or transactional:
    Kafka lets a plain commit that is sent meanwhile undo the transaction's. So a write waits
    while a plain commit of its partition is outstanding, or came back without a clear answer.
T3  A write goes only if the commit says that its record is settled. Where a gap set is too long
    to be stored whole, the writes beyond its end wait until the floor is nearer. A write to a
    topic that the brokers report as unwritable waits too: it would delay all the others.
T4  One write that fails aborts all. Those that did not cause it go again at once; a topic that
    refused one has transactions of its own until it takes one, and a record that was refused
    for its size has one to itself, in which each of its writes has a request to itself.
T5  A dead letter that holds its key and what holds it there (`together`) are written in one
    transaction, which settles the record. What is led is never queued: it is refused, or goes
    again, as its dead letter does.
T6  A partition that was lost while a transaction carries it may come back before its end: the group
    takes the commit as long as this worker is the same member. A start from the position before it
    would handle once more what the transaction writes elsewhere, and its commits would be undone.
    So whoever assigns asks first (`carries`), and waits for the end. Another member can't come
    between: the group refuses what a member sends that it has thrown out, and tells no position
    that a transaction is about to change. What the group has committed of a partition that was
    dropped does not say how the transaction ended (`Transaction.is_in`).
T7  All outputs of a record go together, the first one leading the others. A lane's outputs keep
    their order: where one stays, for whatever reason, those behind it stay as well. So what was
    refused waits in the queue, in its place. A lane of a handler that quarantines has records in
    several partitions: one that is settled without outputs, and not committed, would come again and
    put its outputs behind. So the commits of these partitions go along.
T8  A broker stores all commits of a transaction in one batch, which its largest message bounds: so
    many partitions go together at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from ackfloor.core.messages.fault_causes import Trouble
from ackfloor.core.parking.output_write import OutputWrite
from ackfloor.core.parking.parking import Parking
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Refusal, Transact, Transaction, TransactionOutcome
from ackfloor.core.records.record import CommitPosition, Now, TopicPartition
from ackfloor.core.records.tracked_delivery import LaneKey
from ackfloor.core.state.assignment import Assignment
from ackfloor.core.state.commit_schedule import (
    METADATA_TOO_LARGE,
    commit_position,
    foreseen,
    is_uncommitted,
)
from ackfloor.core.state.worker_state import WorkerState

#: Records of one transaction. What its four requests cost is shared by so many at most.
MOST_WRITES = 2_000
#: Bytes of their values: ten seconds is all the time that a transaction has.
MOST_BYTES = 32 * 1024 * 1024
#: Partitions of one: each may have 4,095 bytes of metadata, and a batch has 1 MiB by default.
MOST_PARTITIONS = 200
#: Where more than so many writes wait and none may go, the next look is so many seconds later.
MANY = 1_000
REST_S = 0.01
#: Seconds until writes that no commit could settle are looked at again.
LOOK_AGAIN_S = 0.5


def together(write: PendingWrite) -> tuple[PendingWrite, ...]:
    """What is written with a queued write, or not at all; that one first.

    A dead letter with nothing behind it that would go along holds no key.
    """
    if isinstance(write, OutputWrite):
        return (write, *write.rest)
    held, delivery = write.companion, write.delivery
    if held is None:
        return (write,)
    quarantine = delivery.assignment.handler.lanes.quarantined.get(delivery.lane_key(True))
    if quarantine is None or not quarantine.has(delivery):
        # What waits in its lane is behind it too.
        return write, held
    return (write, held) if write.after == "hold" or quarantine.behind else (write,)


def lane_of(write: PendingWrite) -> LaneKey | None:
    """The lane in whose order a write goes; None where it has none."""
    return write.lane


def targets(write: PendingWrite, parking: Parking, now: Now) -> list[str]:
    """Where a write goes, and what it leads; what waits may not have been addressed yet."""
    writes = together(write)
    if not all(each.topic for each in writes):
        parking.address(write, now)
    return [each.topic for each in writes]


class Transactions:
    """The writes that wait for a transaction, and the one transaction under way."""

    __slots__ = (
        "_oversized",
        "_queue",
        "_rests_until_s",
        "_spans",
        "_state",
        "_suspects",
        "_too_far",
        "_unwritable",
        "_waiting",
        "under_way",
    )

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._queue: deque[PendingWrite] = deque()
        #: Refused for their size in a transaction with others.
        self._oversized: set[PendingWrite] = set()
        #: Of the look for a transaction: partition -> those that are committed with its writes.
        self._spans: dict[Assignment, tuple[Assignment, ...]] = {}
        #: Topics that refused a record, and have taken none since.
        self._suspects: set[str] = set()
        #: Partitions with writes that no commit can settle now -> when to look again.
        self._too_far: dict[Assignment, float] = {}
        self.under_way: Transaction | None = None
        #: Nothing is looked for until then (monotonic seconds).
        self._rests_until_s = 0.0
        #: Refused outputs that wait in the queue for their next attempt.
        self._waiting: set[PendingWrite] = set()
        #: Topics that nothing can be written to, as the brokers say.
        self._unwritable: Mapping[str, Trouble] = {}

    def troubled(self, unwritable: Mapping[str, Trouble]) -> None:
        """These topics can't be written now: what is under way there is given up."""
        self._unwritable = unwritable
        if self.under_way is not None and unwritable:
            for write in self.under_way.writes:
                if write.topic in unwritable:
                    self.under_way.hopeless[write] = Refusal(unwritable[write.topic].why)

    def add(self, write: PendingWrite, *, first: bool = False) -> None:
        """Queue a write; first, where it takes the place of one that was refused."""
        if first:
            self._queue.appendleft(write)
        else:
            self._queue.append(write)

    def again(self, writes: Iterable[PendingWrite]) -> None:
        """Queue writes of an aborted transaction that are to go first, in their order.

        Those that did not cause the abort, and outputs in any case.
        """
        self._queue.extendleft(reversed(list(writes)))

    def forget_closed(self) -> list[PendingWrite]:
        """Partitions were dropped: returns their queued writes, which are not made.

        Of the transaction under way they say nothing any more.
        """
        if self.under_way is not None:
            dropped = [p.delivery.assignment for p in self.under_way.writes]
            self.under_way.left.update(
                TopicPartition(a.topic, a.partition) for a in dropped if a.closed
            )
        forgotten = [p for p in self._queue if p.delivery.assignment.closed]
        if forgotten:
            self._queue = deque(p for p in self._queue if not p.delivery.assignment.closed)
        self._waiting = {p for p in self._waiting if not p.delivery.assignment.closed}
        self._oversized = {p for p in self._oversized if not p.delivery.assignment.closed}
        self._too_far = {a: at_s for a, at_s in self._too_far.items() if not a.closed}
        return forgotten

    def carries(self, partition: TopicPartition) -> bool:
        """Whether the transaction under way commits a partition or writes to it (T6)."""
        transaction = self.under_way
        return transaction is not None and (
            any((p.topic, p.partition) == partition for p in transaction.positions)
            or any((write.topic, write.partition) == partition for write in transaction.writes)
        )

    def begin(self, now: Now) -> None:
        """Begin a transaction if there is something to write and none is under way."""
        if self.under_way is not None or not self._queue or now.mono_s < self._rests_until_s:
            return
        self._spans = {}
        if self._waiting:
            self._waiting = {w for w in self._waiting if w.retry_at_s > now.mono_s}
        queued, positions = self._carried(self._chosen(now), now)
        if not queued:
            self._rests_until_s = now.mono_s + REST_S if len(self._queue) > MANY else 0.0
            return
        writes: list[PendingWrite] = []
        led: dict[PendingWrite, PendingWrite] = {}
        for write in queued:
            # Only now: the tier's wait begins when the record is written.
            if not isinstance(write, OutputWrite):
                self._state.parking.address(write, now)
            parts = together(write)
            writes += parts
            if len(parts) > 1:
                led.update(dict.fromkeys(parts[1:], write))
        own = {write.delivery.assignment for write in queued}
        along = {TopicPartition(p.topic, p.partition) for p in positions}.difference(
            TopicPartition(assignment.topic, assignment.partition) for assignment in own
        )
        for position in positions:
            commit = self._state.assignments[position.topic, position.partition].commit
            commit.outstanding = commit.transacting = True
            commit.sent_s = now.mono_s
        singly = queued[0] in self._oversized
        self.under_way = Transaction(tuple(writes), tuple(positions), led, frozenset(along), singly)
        self._state.commands.append(Transact(self.under_way))

    def _chosen(self, now: Now) -> list[PendingWrite]:
        """Take what may go together, as much as fits, oldest first."""
        queue = self._queue
        chosen: list[PendingWrite] = []
        passed_over: list[PendingWrite] = []
        held: set[LaneKey | None] = set()
        partitions: set[Assignment] = set()
        chosen_group, count, size = "", 0, 0
        while queue and count < MOST_WRITES:
            write = queue.popleft()
            group, lane = self._group(write, now), lane_of(write)
            committed = self._committed_with(write)
            if (
                not self._may_go(write, committed, now)
                or (chosen and group != chosen_group)
                or (lane is not None and lane in held)
                or not _have_room(partitions, committed)
            ):
                passed_over.append(write)
                held.add(lane)
                continue
            parts = together(write)
            count, size = count + len(parts), size + sum([part.size for part in parts])
            if chosen and (count > MOST_WRITES or size > MOST_BYTES):
                queue.appendleft(write)
                break
            chosen_group = group
            chosen.append(write)
            partitions.update(committed)
            if write in self._oversized:
                break
        queue.extendleft(reversed(passed_over))
        return chosen

    def _group(self, write: PendingWrite, now: Now) -> str:
        """Only writes of the same group may share a transaction."""
        if self._oversized and write in self._oversized:
            return f"only {id(write)}"
        if not self._suspects:
            return ""
        topics = targets(write, self._state.parking, now)
        return " ".join(topic for topic in topics if topic in self._suspects)

    def _may_go(self, write: PendingWrite, committed: Iterable[Assignment], now: Now) -> bool:
        if write.retry_at_s > now.mono_s:
            return False
        for assignment in committed:
            if assignment.commit.outstanding or assignment.commit.in_doubt:
                return False
        if self._unwritable:
            topics = targets(write, self._state.parking, now)
            if not self._unwritable.keys().isdisjoint(topics):
                return False
        return self._too_far.get(write.delivery.assignment, 0.0) <= now.mono_s

    def _committed_with(self, write: PendingWrite) -> tuple[Assignment, ...]:
        """The partitions that are committed with a write: its own, and its lane's others."""
        own = write.delivery.assignment
        found = self._spans.get(own)
        if found is None:
            found = self._spans[own] = (own, *self._others(own))
        return found

    def _others(self, own: Assignment) -> Iterator[Assignment]:
        """Partitions with other records of a partition's lanes, where these have outputs."""
        rules = own.handler.rules
        if rules.exactly_once and rules.quarantines:
            for topic, route in self._state.routes.items():
                if route.source_topic == own.source_topic and topic != own.topic:
                    other = self._state.assignments.get((topic, own.partition))
                    if other is not None and not other.orphaned:
                        yield other

    def _carried(
        self, chosen: Sequence[PendingWrite], now: Now
    ) -> tuple[list[PendingWrite], list[CommitPosition]]:
        """The writes that a commit can settle now, and these commits."""
        for write in chosen:
            self._too_far.pop(write.delivery.assignment, None)
        carried = list(chosen)
        while True:
            positions, ends = self._positions(carried, now)
            left, fits = _beyond(carried, ends)
            carried = [write for write in carried if write not in left]
            if not fits:
                break
            # The commits have some as settled that stay for the order of their lanes.
        if len(carried) < len(chosen):
            kept = set(carried)
            self.again([write for write in chosen if write not in kept])
        return carried, positions

    def _positions(
        self, chosen: Sequence[PendingWrite], now: Now
    ) -> tuple[list[CommitPosition], dict[Assignment, int]]:
        """The commits as they will be once all of these are written, and where each ends."""
        offsets: dict[Assignment, set[int]] = {}
        for write in chosen:
            delivery = write.delivery
            offsets.setdefault(delivery.assignment, set()).add(delivery.record_offset)
        positions: list[CommitPosition] = []
        ends: dict[Assignment, int] = {}
        for assignment, settling in offsets.items():
            if assignment.orphaned:
                # Its topic was deleted: nothing can be committed.
                ends[assignment] = assignment.tracker.position
                continue
            position, ends[assignment] = foreseen(assignment, settling)
            if min(settling) < ends[assignment]:
                positions.append(position)
            if max(settling) >= ends[assignment]:
                self._too_far[assignment] = now.mono_s + LOOK_AGAIN_S
        others = dict.fromkeys(a for write in chosen for a in self._committed_with(write))
        positions += [commit_position(a) for a in others if a not in offsets and is_uncommitted(a)]
        return positions, ends

    def transaction_ended(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        """The transaction under way has ended: its partitions may commit again."""
        self.under_way = None
        state = self._state
        for position in transaction.positions:
            assignment = state.assignments.get((position.topic, position.partition))
            if assignment is None or assignment.epoch != position.epoch:
                continue
            assignment.commit.outstanding = assignment.commit.transacting = False
            state.faults.clear("commit", (position.topic, position.partition))
        if outcome.committed:
            for write in transaction.writes:
                self._suspects.discard(write.topic)
                self._oversized.discard(write)
            return
        if outcome.error.startswith(METADATA_TOO_LARGE):
            self._shorten(transaction)
        for write in outcome.refusals or transaction.writes:
            refusal = outcome.refusals.get(write)
            if refusal is None or not refusal.too_large:
                self._suspects.add(write.topic)
            elif transaction.batched:
                self._oversized.add(transaction.led.get(write, write))

    def rejected(self, write: PendingWrite) -> None:
        """Outputs are too large, and are not to be written."""
        self._oversized.discard(write)

    def refused(self, write: PendingWrite) -> None:
        """Outputs were refused: they wait in the queue until `retry_at_s`."""
        self._waiting.add(write)

    def hasten(self, topics: Iterable[str], now: Now) -> None:
        """Topics can be written again: what waits for them waits no longer."""
        mended = set(topics)
        for write in self._waiting:
            if not mended.isdisjoint([part.topic for part in together(write)]):
                write.retry_at_s = now.mono_s

    def next_s(self) -> float:
        """Monotonic seconds of the next attempt to write refused outputs; inf without any."""
        return min((write.retry_at_s for write in self._waiting), default=inf)

    def _shorten(self, transaction: Transaction) -> None:
        """The broker takes less metadata than the longest of a transaction's commits has."""
        longest = max(transaction.positions, key=lambda position: len(position.metadata))
        assignment = self._state.assignments.get((longest.topic, longest.partition))
        if assignment is not None:
            assignment.commit.limit_metadata(len(longest.metadata) // 2)

    def not_at_fault(
        self, transaction: Transaction, refused: Mapping[PendingWrite, tuple[str, Refusal]]
    ) -> list[PendingWrite]:
        """Writes of an aborted transaction that did not cause the abort.

        A record that was refused for its size among others is one of them: a broker refuses a
        batch as a whole.
        """
        if not refused:
            return []
        return [
            write
            for write in transaction.queued
            if write not in refused or (refused[write][1].too_large and transaction.batched)
        ]


def _have_room(partitions: set[Assignment], more: tuple[Assignment, ...]) -> bool:
    """Whether a transaction has room for the commits of these partitions as well."""
    # Mostly they are far from the limit, and then nothing is to be put together.
    if len(partitions) + len(more) <= MOST_PARTITIONS:
        return True
    return len(partitions.union(more)) <= MOST_PARTITIONS


def _beyond(
    chosen: Sequence[PendingWrite], ends: Mapping[Assignment, int]
) -> tuple[set[PendingWrite], bool]:
    """Writes that their commits do not cover, and what is behind them in their lanes.

    Returns them, and whether a commit covers one of them all the same.
    """
    left: set[PendingWrite] = set()
    held: set[LaneKey | None] = set()
    covered = False
    for write in chosen:
        delivery, lane = write.delivery, lane_of(write)
        fits = delivery.record_offset < ends[delivery.assignment]
        if not fits or (lane is not None and lane in held):
            left.add(write)
            held.add(lane)
            covered |= fits
    return left, covered
