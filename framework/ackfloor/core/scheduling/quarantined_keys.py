"""Quarantines: a failed record is parked, and what follows of its key is parked behind it.

Theory. Retry topics are read by the worker that has the partition of the source, and a record waits
in the same partition number there. So one worker has all that is left of a key: in memory, in the
retry topics it reads, or on its way there. Nothing else says which keys are quarantined: what is
open in the retry topics does, also for the next owner (`quarantine_takeover`).

The head is delivered when it is due, like any redelivery. Handled, it makes room for the next one,
which is due at once. What waits behind it did not fail: it is written with the reason `behind`,
spends no attempt, and leaves at the drip of a circuit breaker that is not closed. When a head is
dead-lettered, the others go on (`continue`), go with it (`dead_letter`), or stay (`hold`). For the
latter two it is written to a retry topic as well, with the reason `held`, and is the head there
until the others are gone, or an operator frees the key.

At most `MOST_KEYS` keys are quarantined at once. Beyond them a failed record blocks its lane.

Invariants (tests/framework/core/scheduling/test_quarantined_keys.py):

Y1  a record of a key starts only when those with lower origin offsets are resolved.
Y2  a record is resolved when it was handled, discarded, or is in the dead-letter topic.
Y3  what is settled here has a copy that is open, or whose record is resolved.
Y4  a key is free when nothing of it is left in retry topics, or on its way there.
Y5  what goes to the dead-letter topic with a head is written in order; those that are written
    together keep it unless the broker refuses one of them alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ackfloor.core.messages.events import KeyFreed, KeyNotQuarantined, KeyQuarantined
from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.outbox.unordered_records import UnorderedRecords
from ackfloor.core.parking.parking import reason_of_wait, source_envelope
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.queues.quarantine import (
    Quarantine,
    Unread,
    has_order,
    is_copy,
    is_newer,
    is_parked,
    is_same,
    written_ms,
)
from ackfloor.core.records.envelope import Reason, read_envelope
from ackfloor.core.records.outcomes import Bury, Verdict
from ackfloor.core.records.record import Now, StartPosition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling.crash_suspects import Suspects
from ackfloor.core.scheduling.quarantine_renewal import Renewals, is_held
from ackfloor.core.scheduling.quarantine_takeover import Takeovers
from ackfloor.core.scheduling.redeliveries import due_s
from ackfloor.core.scheduling.retry_in_place import InPlace
from ackfloor.core.scheduling.withheld import Withheld
from ackfloor.core.state.assignment import AfterDeadLetter, Assignment, HandlerState
from ackfloor.core.state.quarantine_removals import Removals
from ackfloor.core.state.worker_state import WorkerState

#: How many keys of a worker are quarantined at most.
MOST_KEYS = 100_000
#: Seconds between two tries to write what a circuit breaker lets leave at a drip.
DRIP_S = 0.5


class Quarantines:
    """The quarantined keys of one worker; only the owner thread calls it."""

    __slots__ = (
        "_in_place",
        "_outbox",
        "_removals",
        "_renewals",
        "_state",
        "_suspects",
        "_takeovers",
        "_touched",
        "_undrained",
        "_unordered",
        "_withheld",
        "most_keys",
    )

    def __init__(
        self,
        state: WorkerState,
        outbox: Outbox,
        suspects: Suspects,
        in_place: InPlace,
        withheld: Withheld,
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._suspects = suspects
        self._in_place = in_place
        self._withheld = withheld
        self._takeovers = Takeovers(state)
        #: Those of each handler that have, or had, pending records.
        self._undrained: dict[HandlerState, dict[Quarantine, None]] = {}
        #: Those of which partitions have left.
        self._touched: dict[Quarantine, HandlerState] = {}
        self._removals = Removals(state)
        self._renewals = Renewals(state, outbox)
        self._unordered = UnorderedRecords(state, outbox)
        self.most_keys = MOST_KEYS
        outbox.sent, outbox.written = self.sent, self.written
        suspects.go_on = self.released

    # Partitions.

    def assigned(
        self, assignment: Assignment, start: StartPosition, now: Now
    ) -> Sequence[Assignment]:
        """A partition came, with what waits in it; returns those that may begin by that."""
        if assignment.tier_s is None:
            # It may have left alone: what it was read up to is not known of the heads that wait.
            self._touch(assignment)
        return self._takeovers.assigned(assignment, start, now)

    def _touch(self, source: Assignment) -> None:
        for quarantine in source.handler.lanes.quarantined.values():
            if quarantine.key[:2] == (source.topic, source.partition):
                self._touched[quarantine] = source.handler

    def dropped(self, gone: Sequence[Assignment]) -> None:
        """Partitions are gone: what is left of their keys is for the next owner."""
        self._takeovers.dropped(gone)
        self._removals.dropped(gone)
        left_of: dict[HandlerState, dict[tuple[str, int], list[Assignment]]] = {}
        for each in gone:
            if each.handler.rules.quarantines:
                group = each.source_topic, each.partition
                left_of.setdefault(each.handler, {}).setdefault(group, []).append(each)
        for handler, groups in left_of.items():
            for quarantine in list(handler.lanes.quarantined.values()):
                if (left := groups.get(quarantine.key[:2])) is not None:
                    self._forget(quarantine, handler, left)
            for group in groups:
                self._takeovers.copies_left(group)

    def _forget(
        self, quarantine: Quarantine, handler: HandlerState, gone: Sequence[Assignment]
    ) -> None:
        current = quarantine.current
        # What is left of it goes on elsewhere, or when the partition is back: it is not free.
        quarantine.first = -1
        for assignment in gone:
            quarantine.forget(assignment)
        pending = quarantine.take_pending()
        kept = [d for d in pending if not d.assignment.closed]
        handler.lanes.pending -= len(pending) - len(kept)
        quarantine.pend(kept)
        if current is not None and quarantine.current is None:
            # Its lane is there as long as its source partition.
            handler.queue.put(handler.lanes.deliveries_ended((current,)))
        self._touched[quarantine] = handler

    def removed(self, assignment: Assignment, end: int) -> None:
        """The log of a retry partition, which ends there, has lost records that were not read."""
        self._removals.add(assignment, end)

    def deleted(self, assignment: Assignment) -> None:
        """The topic of a partition was deleted: what was not read of it never comes."""
        self._takeovers.deleted.add(assignment.topic)
        self._touched.update(self._removals.deleted(assignment))

    # Records that were read.

    def arrived(
        self, assignment: Assignment, batch: Sequence[TrackedDelivery], now: Now
    ) -> Sequence[TrackedDelivery]:
        """Records of a source partition were read; returns those whose keys are not quarantined."""
        handler = assignment.handler
        quarantined, parked_before = handler.lanes.quarantined, assignment.parked_before
        if parked_before and batch[0].record_offset > assignment.parked_until:
            parked_before.clear()
        if not (quarantined or parked_before):
            return batch
        others: list[TrackedDelivery] = []
        touched: dict[Quarantine, None] = {}
        for delivery in batch:
            quarantine = quarantined.get(delivery.lane_key(True))
            if quarantine is not None and quarantine.is_doubtful(delivery):
                touched[quarantine] = None
                self._put_unwritten(quarantine, delivery)
            elif is_parked(quarantine, delivery):
                self._state.settle_copy(delivery)
            elif quarantine is None:
                others.append(delivery)
            else:
                touched[quarantine] = None
                self._pend(quarantine, handler, [delivery])
        for quarantine in touched:
            self._go_on(quarantine, handler, now)
            self._drain(quarantine, handler, now)
        return others

    def released(
        self, handler: HandlerState, batch: Sequence[TrackedDelivery]
    ) -> Sequence[TrackedDelivery]:
        """Crash suspects, or what waited behind one; returns what no key's head is ahead of."""
        others: list[TrackedDelivery] = []
        for delivery in batch:
            quarantine = handler.lanes.quarantined.get(delivery.lane_key(True))
            if quarantine is None or quarantine.has(delivery):
                others.append(delivery)
            else:
                self._pend(quarantine, handler, [delivery])
                self._touched[quarantine] = handler
        return others

    def read(
        self, assignment: Assignment, batch: Sequence[TrackedDelivery], now: Now
    ) -> Sequence[TrackedDelivery]:
        """Records of a retry partition were read; returns those that are in no key's order."""
        others: list[TrackedDelivery] = []
        touched: dict[Quarantine, None] = {}
        for delivery in batch:
            envelope = delivery.envelope = read_envelope(delivery.headers)
            if envelope.reason is not (reason := reason_of_wait(envelope, now)):
                delivery.envelope = envelope._replace(reason=reason)
            if self._takeovers.is_superseded(delivery):
                self._state.settle_copy(delivery)
            elif has_order(delivery):
                touched[self._add(delivery, now)] = None
            elif not self._unordered.go_home(delivery, now):
                others.append(delivery)
        for quarantine in touched:
            self._go_on(quarantine, assignment.handler, now)
        return others

    def _add(self, delivery: TrackedDelivery, now: Now) -> Quarantine:
        """Put a record of a retry partition where it belongs in its key's order."""
        handler, key = delivery.assignment.handler, delivery.lane_key(True)
        offset = delivery.origin.offset
        quarantine = handler.lanes.quarantined.get(key)
        if quarantine is None:
            quarantine = self._quarantine(delivery, now)
        here = quarantine.at(offset) if quarantine.has(delivery) else None
        if here is None:
            quarantine.add(offset, delivery)
        elif not isinstance(here, TrackedDelivery):
            quarantine.put(offset, delivery)
        elif here is not quarantine.current and here.assignment.tier_s is None:
            # It took the place of this one, of which nobody knew whether it is still there.
            quarantine.put(offset, delivery)
            self._state.settle_copy(here)
        elif here is not quarantine.current and is_newer(delivery, here):
            quarantine.put(offset, delivery)
            quarantine.twin(offset, here)
        else:
            quarantine.twin(offset, delivery)
        return quarantine

    # How deliveries end.

    def failed(self, delivery: TrackedDelivery, verdict: Verdict, now: Now) -> None:
        """A record in a key's order failed: write it elsewhere, and what follows behind it."""
        handler = delivery.assignment.handler
        key, offset = delivery.lane_key(True), delivery.origin.offset
        quarantine = handler.lanes.quarantined.get(key)
        if quarantine is None:
            if self._blocks(delivery, verdict):
                self._in_place.failed(delivery, verdict, now)
                return
            quarantine = self._quarantine(delivery, now)
        self._take_lane(quarantine, delivery)
        self._put_first(quarantine, offset, delivery)
        self._outbox.park(delivery, verdict, now)
        self._drain(quarantine, handler, now)

    def _quarantine(self, delivery: TrackedDelivery, now: Now) -> Quarantine:
        """Quarantine the key of a record."""
        handler, origin = delivery.assignment.handler, delivery.origin
        self._state.events.append(
            KeyQuarantined(origin.topic, origin.partition, handler.rules.name, origin.offset)
        )
        return handler.lanes.quarantine(delivery.lane_key(True), now.wall_ms, origin.offset)

    @staticmethod
    def _put_first(quarantine: Quarantine, offset: int, delivery: TrackedDelivery) -> None:
        """A record that ran is the one that counts; what was read of it meanwhile is its twin."""
        if not quarantine.has(delivery):
            quarantine.add(offset, delivery)
            return
        here = quarantine.at(offset)
        if isinstance(here, TrackedDelivery) and not is_same(here, delivery):
            if here is quarantine.current:
                here.assignment.waiting.take({here.record_offset})
                quarantine.current = None
            quarantine.twin(offset, here)
        quarantine.put(offset, delivery)

    def _blocks(self, delivery: TrackedDelivery, verdict: Verdict) -> bool:
        """Whether a record that failed stays where it is, or holds its lane while it is written."""
        if isinstance(verdict, Bury):
            return delivery.assignment.handler.rules.after_dead_letter == "continue"
        lanes = [handler.lanes for handler in self._state.handlers.values()]
        full = sum(len(each.quarantined) for each in lanes) >= self.most_keys
        if not full and self._state.parking.can_quarantine(delivery):
            return False
        assignment = delivery.assignment
        self._state.events.append(
            KeyNotQuarantined(
                assignment.source_topic,
                assignment.partition,
                assignment.handler.rules.name,
                "full" if full else "partitions",
            )
        )
        return True

    def _take_lane(self, quarantine: Quarantine, delivery: TrackedDelivery) -> None:
        """A record has left its lane: what waits there goes behind it."""
        handler = delivery.assignment.handler
        self._state.free(delivery)
        rest = handler.lanes.take_all(quarantine.key, delivery)
        others: list[TrackedDelivery] = []
        for each in rest:
            if each.closed:
                continue
            if not quarantine.has(each):
                others.append(each)
            elif is_same(quarantine.at(each.origin.offset), each):
                # A redelivery that waited here, behind one that was not quarantined then.
                handler.gives_room(each)
                each.retrying, each.lane, quarantine.current = 0, None, None
            else:
                self._state.settle_copy(each)
        self._pend(quarantine, handler, others)

    def ended(self, delivery: TrackedDelivery, now: Now) -> None:
        """A delivery's record was handled or discarded: the next one of its key is the head."""
        if not has_order(delivery):
            return
        handler, offset = delivery.assignment.handler, delivery.origin.offset
        quarantine = handler.lanes.quarantined.get(delivery.lane_key(True))
        if quarantine is not None and quarantine.has(delivery):
            self._resolve(quarantine, delivery, offset, now)

    def sent(self, write: PendingWrite) -> None:
        """A record is to be written to a retry topic or to the dead-letter topic."""
        delivery = write.delivery
        if not has_order(delivery):
            return
        offset = delivery.origin.offset
        quarantine = delivery.assignment.handler.lanes.quarantined.get(delivery.lane_key(True))
        if quarantine is not None and quarantine.has(delivery):
            if is_same(quarantine.at(offset), delivery):
                quarantine.put(offset, write)
            if is_same(quarantine.current, delivery):
                quarantine.current = None

    def written(self, write: PendingWrite, now: Now) -> None:
        """A record is in a retry topic or in the dead-letter topic."""
        delivery = write.delivery
        handler, offset = delivery.assignment.handler, delivery.origin.offset
        if not has_order(delivery):
            self._unordered.expect(write)
            return
        quarantine = handler.lanes.quarantined.get(delivery.lane_key(True))
        if not write.settles and (quarantine is None or not quarantine.has(delivery)):
            # A record that was in no quarantine: its lane has waited for this.
            quarantine = quarantine or self._quarantine(delivery, now)
            quarantine.add(offset, write)
            self._take_lane(quarantine, delivery)
        if quarantine is None or not quarantine.has(delivery):
            return
        if isinstance(write.verdict, Bury):
            self._dead_lettered(quarantine, write, offset, now)
            return
        where = quarantine.at(offset)
        if isinstance(where, PendingWrite) and where.delivery is delivery:
            for twin in quarantine.take_twins(offset):
                self._state.settle_copy(twin)
            target = self._state.assignments.get((write.topic, write.partition or 0))
            if target is None:
                # A retry partition that this worker does not read: its topic was deleted.
                quarantine.resolve(offset)
            else:
                quarantine.put(offset, Unread(target, written_ms(delivery)))
        self._go_on(quarantine, handler, now)

    def _dead_lettered(
        self, quarantine: Quarantine, write: PendingWrite, offset: int, now: Now
    ) -> None:
        delivery = write.delivery
        if write.settles:
            self._resolve(quarantine, delivery, offset, now)
        elif write.companion is not None or write.after == "hold" or quarantine.behind:
            # In transactions what holds its key is written already.
            quarantine.after = write.after
            self._outbox.hold(write, now)
        else:
            self._outbox.settle(delivery)
            self._resolve(quarantine, delivery, offset, now)

    def _resolve(
        self, quarantine: Quarantine, delivery: TrackedDelivery, offset: int, now: Now
    ) -> None:
        """A record has ended for good, and with it every copy that does not run."""
        where, current = quarantine.at(offset), quarantine.current
        copies = quarantine.resolve(offset)
        if isinstance(where, TrackedDelivery) and not is_same(where, delivery):
            copies.append(where)
        if current and current.origin.offset == offset and is_copy(current, delivery):
            quarantine.current = None
        for copy in copies:
            if not (copy.closed or copy.retrying):
                copy.assignment.waiting.take({copy.record_offset})
                self._state.settle_copy(copy)
        self._go_on(quarantine, delivery.assignment.handler, now)

    # What happens next.

    def _go_on(self, quarantine: Quarantine, handler: HandlerState, now: Now) -> None:
        """Do what a key's head asks for; free the key where it has none."""
        head = quarantine.head
        if head is None:
            self._free(quarantine, handler, now)
            return
        self._bury_behind(quarantine, now)
        first = next(iter(quarantine.pending), None)
        if first is not None and first.record_offset < head:
            head = self._take_first(quarantine, handler, first)
        where = quarantine.at(head)
        if isinstance(where, TrackedDelivery) and is_held(where):
            self._held(quarantine, where, head, now)
        elif isinstance(where, TrackedDelivery) and self._may_begin(quarantine, where, head):
            quarantine.current = where
            envelope = where.envelope
            assert envelope is not None, "a head is from a retry topic, or was given one"
            if envelope.reason is Reason.BEHIND:
                # It is due now, and that it waited is no delay of its own.
                envelope = where.envelope = envelope._replace(not_before_ms=None)
            self._state.wait(where, max(now.mono_s, due_s(where, envelope, now)))

    def _take_first(
        self, quarantine: Quarantine, handler: HandlerState, first: TrackedDelivery
    ) -> int:
        """What is pending comes before what is in retry topics: it is the head, where it is.

        After a takeover, if its park was not confirmed and that of one behind it was; or where it
        had to wait behind a crash suspect.
        """
        self._unhold(handler, quarantine.take_pending(1))
        self._put_unwritten(quarantine, first)
        return first.record_offset

    def _put_unwritten(self, quarantine: Quarantine, delivery: TrackedDelivery) -> None:
        """Put a record of the source where it belongs in its key's order, without a copy."""
        delivery.envelope = source_envelope(delivery)
        quarantine.put(delivery.record_offset, delivery)
        self._renewals.waits_unwritten(quarantine, delivery)

    def _may_begin(self, quarantine: Quarantine, head: TrackedDelivery, offset: int) -> bool:
        """Whether a head has its turn now, and has not had it before."""
        if head is quarantine.current or head.assignment.stopping:
            return False
        return quarantine.gives_way() and self._takeovers.has_read(
            head.assignment, offset, quarantine.key
        )

    def _held(self, quarantine: Quarantine, marker: TrackedDelivery, offset: int, now: Now) -> None:
        """A dead-lettered record is the head: it stays, or goes when those behind it have gone."""
        if not quarantine.gives_way():
            return
        handler = marker.assignment.handler
        after = quarantine.after or handler.rules.after_dead_letter
        if marker.assignment.stopping or after == "hold":
            return
        if after == "dead_letter" and quarantine.condemned < 0:
            if not self._takeovers.has_read_parked(marker.assignment, quarantine.key):
                # What comes before some of them may be in the source, and goes before them.
                return
            self._condemn(quarantine, handler, now)
        if not quarantine.condemned_count:
            self._let_go(quarantine, marker, offset, now)

    def _let_go(
        self, quarantine: Quarantine, marker: TrackedDelivery, offset: int, now: Now
    ) -> None:
        quarantine.spare()
        quarantine.after = None
        self._state.settle_copy(marker)
        self._resolve(quarantine, marker, offset, now)

    def release(
        self,
        quarantine: Quarantine,
        marker: TrackedDelivery,
        after: AfterDeadLetter,
        now: Now,
    ) -> None:
        """An operator decides what becomes of those behind a head that is held."""
        quarantine.after = after
        self._held(quarantine, marker, marker.origin.offset, now)

    def _condemn(self, quarantine: Quarantine, handler: HandlerState, now: Now) -> None:
        """Dead-letter what waits behind a dead-lettered record."""
        while (first := quarantine.next_pending) is not None:
            self._unhold(handler, quarantine.take_pending(1))
            self._put_unwritten(quarantine, first)
        quarantine.condemn()
        self._bury_behind(quarantine, now)

    def _bury_behind(self, quarantine: Quarantine, now: Now) -> None:
        """Dead-letter what is condemned, in order, as far as it was read."""
        for delivery in quarantine.take_condemned():
            self._outbox.bury(delivery, now, Reason.BEHIND)

    def _free(self, quarantine: Quarantine, handler: HandlerState, now: Now) -> None:
        """Nothing of a key is left in retry topics: what is pending goes on from here."""
        handler.lanes.quarantined.pop(quarantine.key, None)
        self._undrained.get(handler, {}).pop(quarantine, None)
        self._touched.pop(quarantine, None)
        if quarantine.first >= 0:
            topic, partition, _ = quarantine.key
            name, after_s = handler.rules.name, (now.wall_ms - quarantine.since_ms) / 1000
            freed = KeyFreed(topic, partition, name, quarantine.first, max(0.0, after_s))
            self._state.events.append(freed)
        pending = quarantine.take_pending()
        self._unhold(handler, pending)
        batch: Sequence[TrackedDelivery] = [
            d for d in pending if not (d.closed or d.assignment.stopping)
        ]
        if batch and self._suspects.watching:
            batch = self._suspects.sift(handler, batch, now)
        if batch:
            self._state.dispatch(handler, batch, ahead=True)

    # What waits behind.

    def _pend(
        self,
        quarantine: Quarantine,
        handler: HandlerState,
        deliveries: Sequence[TrackedDelivery],
    ) -> None:
        """Records of the source wait to be written behind the others of their key."""
        if not deliveries:
            return
        quarantine.pend(deliveries)
        handler.lanes.pending += len(deliveries)
        for delivery in deliveries:
            delivery.lane = None
            delivery.assignment.held += 1
            delivery.assignment.held_bytes += delivery.size
        self._undrained.setdefault(handler, {})[quarantine] = None
        self._state.flow.look_again()

    @staticmethod
    def _unhold(handler: HandlerState, deliveries: Sequence[TrackedDelivery]) -> None:
        handler.lanes.pending -= len(deliveries)
        for delivery in deliveries:
            delivery.assignment.held -= 1
            delivery.assignment.held_bytes -= delivery.size

    def _drain(self, quarantine: Quarantine, handler: HandlerState, now: Now) -> bool:
        """Write what is pending behind the others; False where its handler's breaker keeps it."""
        while quarantine.pending:
            first = quarantine.next_pending
            if first is None or first.assignment.stopping:
                return True
            if not self._withheld.may_follow(handler, now):
                return False
            self._unhold(handler, quarantine.take_pending(1))
            quarantine.put(first.record_offset, first)
            self._outbox.behind(first, now)
        self._undrained.get(handler, {}).pop(quarantine, None)
        self._state.unbalanced = self._state.flow.any_paused
        return True

    # Time.

    def tick(self, now: Now) -> None:
        """Write what may leave now, and write anew what keeps others from being read."""
        self._touched.update(self._removals.read_by_now())
        while self._touched:
            quarantine, handler = self._touched.popitem()
            self._go_on(quarantine, handler, now)
        for handler, undrained in self._undrained.items():
            for quarantine in list(undrained):
                if not self._drain(quarantine, handler, now):
                    # Its breaker answers for all of its keys: there may be thousands.
                    break
        for key, source in self._takeovers.read_by_now():
            waits = source.handler.lanes.quarantined.get(key)
            if waits is not None:
                self._go_on(waits, source.handler, now)
        self._takeovers.report(now)
        self._renewals.tick(now)

    def next_s(self, now: Now) -> float:
        """Monotonic seconds of the next look at what waits; infinity where nothing waits."""
        if self._touched or self._removals.any_read:
            return now.mono_s
        next_s = self._renewals.next_s()
        return min(next_s, now.mono_s + DRIP_S) if any(self._undrained.values()) else next_s
