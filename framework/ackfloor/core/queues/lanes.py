"""Lanes: per-key or per-partition ordering, one record at a time in offset order.

Theory. A lane is named by (topic, partition, key) or by (topic, partition). It is there as long as
it has work, and is in one of four states:

FREE     its records may be handed out: it is in its handler's queue, or waits for a batch;
BUSY     an executor has some of it (`out`): one delivery, a `Work` of several, or a batch;
BLOCKED  it waits for its head (`holder`), which is to be delivered again, or is on its way to the
         dead-letter topic;
QUARANTINED  its records wait in retry topics, behind one that failed (`quarantine`): the first of
         them is delivered when it is due, alone, and what is read of the others goes behind it.

A slot takes from a work with `popleft()`: that call is atomic, so each record is taken by exactly
one party. Nothing is added to a work that was handed out; what is read meanwhile waits in the lane.
So the engine alone decides what a lane does next: when a slot has posted the end of its work, with
what is left in it; and at once when a record failed, or outlived its deadline: then the engine
takes the rest away, and the old work is empty for its slot.

A record behind which nothing waits is handed out without a work around it: its own end is the end.
With many keys most lanes have a single record, ever. Such a lane is that delivery itself: in its
handler's queue, with a slot, and here, until it has ended or something comes behind it. Not where a
slot may be busy for longer than with its record.

Invariants (tests/framework/core/queues/test_lanes.py, test_lanes_model.py):

L1  a lane is in one state; what is out of it is with one slot at most (a delivery that was a lane
    by itself perhaps in the queue yet).
L2  a lane's records are taken in the order in which they were admitted.
L3  what was taken away or dropped is detached: whatever its old slot posts is ignored.
L4  nothing of a blocked lane is out until what it waits for lets it go on.
L5  an assignment's `held` and `held_bytes` are those of the records that are in lanes whose head
    failed, or were when it did or came since: until that head is settled.
L6  the lanes in `blocked` are those whose head failed and is not settled, those first that wait
    for longest; `leaving` counts those of them whose head has left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ackfloor.core.queues.quarantine import Quarantine, Tally
from ackfloor.core.records.tracked_delivery import LaneKey, TrackedDelivery

if TYPE_CHECKING:
    from ackfloor.core.records.batch import Batch


class Lane(deque[TrackedDelivery]):
    """The records that wait in one lane, in order.

    Attributes:
        key: its name.
        out: what an executor has of it.
        holder: the delivery that it waits for.
        head: a delivery of the record that failed, from when it failed until that is settled.
        held: records and bytes that it holds for as long.
        leaving: its head is on its way to the dead-letter topic: that one is not in it any more.
    """

    __slots__ = ("head", "held", "holder", "key", "leaving", "out")

    key: LaneKey
    out: TrackedDelivery | Work | Batch | None
    holder: TrackedDelivery | None
    head: TrackedDelivery | None
    held: list[int] | None
    leaving: bool


class Work(deque[TrackedDelivery]):
    """Records of one lane that were handed out together; `popleft()` takes the next one.

    Attributes:
        lane: whose they are.
        recalls, last: the executor's (see runtime/executors/window.py).
    """

    __slots__ = ("lane", "last", "recalls")

    lane: Lane
    recalls: int
    last: bool


class Lanes:
    """The lanes of one handler that have work.

    Args:
        singly: a slot is done with a lane when its delivery has ended: no work is needed around it.
    """

    __slots__ = ("_blocked", "_live", "_singly", "leaving", "pending", "quarantined", "tally")

    def __init__(self, *, singly: bool = True) -> None:
        self._singly = singly
        #: Name -> the lane, or its one delivery.
        self._live: dict[LaneKey, Lane | TrackedDelivery] = {}
        #: Those that wait for a head that failed, in the order in which these failed first.
        self._blocked: dict[LaneKey, Lane] = {}
        #: How many of these wait for a head that is on its way to the dead-letter topic.
        self.leaving = 0
        #: Those that are quarantined, the oldest first. Of the first record of one there is a lane
        #: while it runs.
        self.quarantined: dict[LaneKey, Quarantine] = {}
        #: How many records are in them, and how many of the source are pending.
        self.tally = Tally()
        self.pending = 0

    def __len__(self) -> int:
        return len(self._live)

    @property
    def holding(self) -> bool:
        """Whether records are held behind one that failed."""
        return bool(self._blocked) or self.pending > 0

    def records(self) -> int:
        """How many records wait for the one in front of them, or for a slot.

        Looks at each lane: don't call it more often than once a second.
        """
        lanes = [lane for lane in self._live.values() if isinstance(lane, Lane)]
        return sum(len(lane) + _left(lane) for lane in lanes)

    def behind(self, delivery: TrackedDelivery) -> int:
        """How many records of its lane wait for a delivery that runs."""
        lane = self._of(delivery)
        return 0 if lane is None or lane.out is None or delivery.closed else len(lane) + _left(lane)

    @property
    def blocked(self) -> Mapping[LaneKey, Lane]:
        """The lanes whose head failed and is not settled, those first that wait for longest."""
        return self._blocked

    def idle(self, key: LaneKey) -> bool:
        """Whether nothing of a lane is open."""
        return key not in self._live

    def is_blocked(self, key: LaneKey) -> bool:
        """Whether a lane waits for its head to be delivered again or dead-lettered."""
        lane = self._find(key)
        return lane is not None and lane.holder is not None

    def _find(self, key: LaneKey) -> Lane | None:
        """A lane that is more than its one delivery."""
        lane = self._live.get(key)
        return lane if isinstance(lane, Lane) else None

    def _of(self, delivery: TrackedDelivery) -> Lane | None:
        """The lane of a delivery that was handed out, if it is more than that."""
        lane = delivery.lane
        return lane if lane is None or isinstance(lane, Lane) else self._find(lane)

    # In.

    def admit(self, key: LaneKey, delivery: TrackedDelivery) -> Lane | None:
        """Put a delivery last in its lane; returns the lane if it has become free by that."""
        lane = self._live.get(key)
        if isinstance(lane, Lane):
            if lane.held is not None:
                _hold(lane.held, delivery)
            free = None
        else:
            single, lane = lane, self._begin(key)
            free = lane if single is None else None
            lane.out = single
        lane.append(delivery)
        delivery.lane = lane
        return free

    def admit_all(
        self, batch: Iterable[TrackedDelivery], by_key: bool
    ) -> list[TrackedDelivery | Lane]:
        """Put deliveries last in their lanes; returns the lanes that have become free by that."""
        if not self._singly:
            admitted = [self.admit(d.lane_key(by_key), d) for d in batch]
            return [lane for lane in admitted if lane is not None]
        live = self._live
        free: dict[LaneKey, TrackedDelivery | Lane] = {}
        for delivery in batch:
            key = delivery.lane_key(by_key)
            first = live.setdefault(key, delivery)
            if first is delivery:
                delivery.lane = key
                free[key] = delivery
            elif isinstance(first, Lane):
                # What `admit` does, without a call for each record.
                if first.held is not None:
                    _hold(first.held, delivery)
                first.append(delivery)
                delivery.lane = first
            elif key not in free:
                self.admit(key, delivery)
            else:
                lane = free[key] = self._begin(key)
                lane.extend((first, delivery))
                first.lane = delivery.lane = lane
        return list(free.values())

    def _begin(self, key: LaneKey) -> Lane:
        lane = self._live[key] = Lane()
        lane.key = key
        lane.out = lane.holder = lane.head = lane.held = None
        lane.leaving = False
        return lane

    # Out, and back.

    def hand_out(self, lane: Lane, most: int | None = None) -> TrackedDelivery | Work:
        """Take what waits in a free lane (at least one), or so many of it at most.

        Of a lane whose head failed that head alone: what is behind it may have to leave memory.
        """
        if lane.held is not None:
            most = 1
        count = len(lane) if most is None else min(most, len(lane))
        if count == 1 and self._singly:
            single = lane.out = lane.popleft()
            single.lane = lane.key
            return single
        if count == len(lane):
            work = Work(lane)
            lane.clear()
        else:
            work = Work(lane.popleft() for _ in range(count))
        work.lane = lane
        lane.out = work
        return work

    def begins(self, lane: Lane) -> bool:
        """Whether a free lane has a record that may start; what may not is passed over."""
        while lane and (lane[0].closed or lane[0].assignment.stopping):
            lane.popleft()
        return self._freed(lane) is not None

    def deliveries_ended(self, deliveries: Iterable[TrackedDelivery]) -> list[Lane]:
        """Deliveries have ended; returns the lanes that are free now and have records."""
        live = self._live
        free: list[Lane] = []
        for delivery in deliveries:
            key = delivery.lane
            if key is None or isinstance(key, Lane):
                # It was in a work, or in a batch.
                continue
            lane = live.get(key)
            if lane is delivery:
                del live[key]
            elif isinstance(lane, Lane) and lane.out is delivery:
                lane.out = None
                if lane:
                    free.append(lane)
                else:
                    del live[key]
        return free

    def back(self, out: TrackedDelivery | Work) -> TrackedDelivery | Lane | None:
        """A slot has finished a work, or gives back what it did not start.

        Returns the lane if it is free now and has records.
        """
        if isinstance(out, Work):
            lane = out.lane
            if lane.out is not out:
                return None
            if out:
                self._take_over(lane)
            lane.out = None
            if lane:
                return lane
            # As `_freed` does, without a call for each work.
            if lane.held is None:
                del self._live[lane.key]
            else:
                self._forget(lane)
            return None
        found = self._live.get(cast("LaneKey", out.lane))
        if isinstance(found, Lane) and found.out is out:
            found.out = None
            found.appendleft(out)
            out.lane = found
            return found
        return out if found is out else None

    def withdraw(self, delivery: TrackedDelivery) -> bool:
        """Take a record that has not started out of its lane, unless another is in there."""
        lane = delivery.lane
        if isinstance(lane, Lane):
            if len(lane) > 1:
                return False
            lane.clear()
            self._freed(lane)
        elif lane is not None:
            if self._live.get(lane) is not delivery:
                return False
            del self._live[lane]
        delivery.lane = None
        return True

    def leave(self, delivery: TrackedDelivery) -> Lane | None:
        """Take a failed record out of its lane, so that those behind it need not wait for its slot.

        Returns the lane if it has records.
        """
        lane = self._of(delivery)
        if lane is None:
            self.deliveries_ended((delivery,))
            return None
        if lane.out is None:
            return None
        self._take_over(lane)
        return self._freed(lane)

    def quarantine(self, key: LaneKey, now_ms: int, first: int) -> Quarantine:
        """Quarantine a lane, for the record with that origin offset."""
        quarantine = self.quarantined[key] = Quarantine(key, now_ms, self.tally, first)
        return quarantine

    def inherit(self, key: LaneKey, since_ms: int, first: int) -> Quarantine:
        """A lane is quarantined since then or longer; `oldest_first` must follow."""
        quarantine = Quarantine(key, since_ms, self.tally, first, inherited=True)
        self.quarantined[key] = quarantine
        return quarantine

    def oldest_first(self) -> None:
        """Order the quarantined lanes by their age, after one came that is no new one."""
        ordered = sorted(self.quarantined.items(), key=lambda each: each[1].since_ms)
        self.quarantined.clear()
        self.quarantined.update(ordered)

    def take_all(self, key: LaneKey, delivery: TrackedDelivery) -> list[TrackedDelivery]:
        """Take a failed record out of its lane, and all that has not started; returns the rest."""
        lane = self.leave(delivery) or self._find(key)
        if lane is None or lane.out is not None:
            return []
        rest = list(lane)
        lane.clear()
        self._forget(lane)
        return rest

    def put_back(
        self, lane: Lane, batch: Batch, deliveries: Sequence[TrackedDelivery]
    ) -> Lane | None:
        """A batch has ended: put those of its deliveries that stay first in one of its lanes.

        Returns the lane if it has records.
        """
        if lane.out is not batch:
            return None
        lane.out = None
        for delivery in deliveries:
            delivery.lane = lane
        lane.extendleft(reversed(deliveries))
        return self._freed(lane)

    @staticmethod
    def _take_over(lane: Lane) -> None:
        """Take back what is out of a lane: what is left of a work is first in it again."""
        out, lane.out = lane.out, None
        if not isinstance(out, Work):
            return
        rest: list[TrackedDelivery] = []
        while True:
            try:
                rest.append(out.popleft())
            except IndexError:
                break
        # A slot puts back a record that asked for a pause, perhaps after its deadline closed it.
        # Handed out by itself it would be skipped, and its lane would never be freed.
        lane.extendleft(reversed([delivery for delivery in rest if not delivery.closed]))

    def _freed(self, lane: Lane) -> Lane | None:
        """A lane of which nothing is out; None, and forgotten, where it has no records."""
        if lane:
            return lane
        if self._live.get(lane.key) is lane:
            self._forget(lane)
        return None

    def _forget(self, lane: Lane) -> None:
        del self._live[lane.key]
        # Where its partition is about to leave, its holder was skipped.
        self._blocked.pop(lane.key, None)
        self._leaves(lane, leaving=False)
        lane.held = lane.head = None

    def _leaves(self, lane: Lane, *, leaving: bool) -> None:
        self.leaving += leaving - lane.leaving
        lane.leaving = leaving

    # Blocking.

    def block(self, key: LaneKey, holder: TrackedDelivery, *, again: bool) -> None:
        """Let a lane wait for one delivery, whose record was its head.

        Args:
            key: the lane's name.
            holder: what the lane waits for.
            again: the holder is to be delivered, first of the lane; otherwise it is on its way
                to the dead-letter topic.
        """
        lane = self._find(key)
        if lane is None:
            lane = self._begin(key)
        self._take_over(lane)
        if again:
            lane.appendleft(holder)
            holder.lane = lane
        lane.holder = holder
        failed_before = lane.head is not None and lane.head.record_offset == holder.record_offset
        self._release_held(lane, holder, goes_on=not failed_before)
        lane.head = holder
        held = lane.held = [0, 0]
        # A head that fails again keeps its lane's place.
        self._blocked[key] = lane
        self._leaves(lane, leaving=not again)
        for delivery in lane:
            if not delivery.settled:
                _hold(held, delivery)

    def take_head(self, key: LaneKey, holder: TrackedDelivery) -> bool:
        """What a lane waits for is not to be delivered again: take it out of the lane.

        Returns whether a lane waited for it.
        """
        lane = self._find(key)
        if lane and lane.holder is holder and lane[0] is holder:
            lane.popleft()
            return True
        return False

    def go_on(self, key: LaneKey, holder: TrackedDelivery, *, settled: bool) -> Lane | None:
        """Unblock a lane; returns it if it has records.

        Args:
            key: the lane's name.
            holder: what it waits for.
            settled: the holder is dead-lettered; otherwise it is due.
        """
        lane = self._find(key)
        if lane is None or lane.holder is not holder:
            return None
        lane.holder = None
        if settled:
            self._release_held(lane, holder)
        return self._freed(lane)

    def settled(self, key: LaneKey, delivery: TrackedDelivery) -> None:
        """A record of a batch is settled before its turn: it is no longer held in its lane."""
        lane = self._find(key)
        if lane is not None and lane.held is not None and lane.holder is not delivery:
            _unhold(lane.held, delivery)

    def drop_last(self, delivery: TrackedDelivery) -> bool:
        """Take a record out of its lane that is last there, behind a head that failed.

        Returns False where it is not, or is the head, or is on its way to the dead-letter topic, or
        may be taken by a slot or a batch.
        """
        lane = delivery.lane
        if not isinstance(lane, Lane) or lane.held is None or not lane:
            return False
        if lane[-1] is not delivery or delivery is lane.head:
            return False
        if delivery.closed or delivery.envelope is not None:
            return False
        if lane.holder is None and lane.out is None:
            # It is in its handler's queue, or waits for a batch.
            return False
        lane.pop()
        delivery.lane = None
        _unhold(lane.held, delivery)
        return True

    def free(self, key: LaneKey, head: TrackedDelivery) -> None:
        """The head of a lane is settled: nothing is held behind it any more."""
        lane = self._find(key)
        if lane is not None:
            self._release_held(lane, head)

    def _release_held(self, lane: Lane, head: TrackedDelivery, *, goes_on: bool = True) -> None:
        if lane.held is not None:
            count, size = lane.held
            lane.held = lane.head = None
            if goes_on:
                del self._blocked[lane.key]
            self._leaves(lane, leaving=False)
            head.assignment.held -= count
            head.assignment.held_bytes -= size

    def drop(self, topic: str, partition: int) -> None:
        """Forget every lane of one partition that is no longer ours."""
        gone = [key for key in self._live if key[0] == topic and key[1] == partition]
        for key in gone:
            lane = self._live[key]
            if isinstance(lane, Lane):
                lane.out = lane.holder = None
                self._forget(lane)
            else:
                del self._live[key]


def _left(lane: Lane) -> int:
    """How many records of what is out of a lane no slot has taken."""
    return len(lane.out) if isinstance(lane.out, Work) else 0


def _hold(held: list[int], delivery: TrackedDelivery) -> None:
    """A record waits behind a head that failed."""
    held[0] += 1
    held[1] += delivery.size
    delivery.assignment.held += 1
    delivery.assignment.held_bytes += delivery.size


def _unhold(held: list[int], delivery: TrackedDelivery) -> None:
    """It does not wait there any more."""
    held[0] -= 1
    held[1] -= delivery.size
    delivery.assignment.held -= 1
    delivery.assignment.held_bytes -= delivery.size
