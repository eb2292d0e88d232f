"""Lanes against a naive model: slots take, end, leave, fail and hang, in any order (L1 to L6)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ackfloor.core.queues.lanes import Lane, Lanes, Work
from ackfloor.core.records.tracked_delivery import LaneKey, TrackedDelivery
from ackfloor.core.state.assignment import Assignment
from tests.examples import examples
from tests.framework.core.queues.test_lanes import deliveries

pytestmark = pytest.mark.usefixtures("without_coverage")

PARTITIONS = (0, 1)
KEYS = (b"a", b"b")
#: Bytes of each record.
SIZE = 2


@dataclass(eq=False)
class Slot:
    """What a slot was given, and what it handles of it."""

    unit: TrackedDelivery | Work
    current: TrackedDelivery


class LanesMachine(RuleBasedStateMachine):
    """Two lanes in each of two partitions, and as many slots as there is work for."""

    singly = True

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes(singly=self.singly)
        self.fresh: dict[int, list[TrackedDelivery]] = {}
        self.assignments: dict[int, Assignment] = {}
        for partition in PARTITIONS:
            self.gain(partition)
        #: Lanes that are free, what executors have and nobody started, and what slots have.
        self.queue: deque[TrackedDelivery | Lane] = deque()
        self.window: deque[TrackedDelivery | Work] = deque()
        self.slots: list[Slot] = []
        #: What slots had that were given up.
        self.old: list[TrackedDelivery | Work] = []
        #: Of each lane by its name: what is to be started, in order.
        self.pending: dict[LaneKey, list[TrackedDelivery]] = {}
        #: What lanes wait for, and whether that is to be delivered again.
        self.blocked: dict[LaneKey, tuple[TrackedDelivery, bool]] = {}
        #: Heads that failed and are not settled, and what their lanes hold.
        self.held: dict[LaneKey, tuple[TrackedDelivery, int]] = {}

    def gain(self, partition: int) -> None:
        """A partition comes, with records of its new assignment."""
        self.fresh[partition] = deliveries(40, partition, KEYS * 20)
        self.assignments[partition] = self.fresh[partition][0].assignment

    def free(self, lane: TrackedDelivery | Lane | None) -> None:
        """The owner queues a lane."""
        if lane is not None:
            self.queue.append(lane)

    @staticmethod
    def key(delivery: TrackedDelivery) -> LaneKey:
        """The name of its lane."""
        return delivery.lane_key(by_key=True)

    def name(self, unit: TrackedDelivery | Lane | Work) -> LaneKey:
        """The name of a lane, or of that of a unit."""
        if isinstance(unit, TrackedDelivery):
            return self.key(unit)
        return unit.key if isinstance(unit, Lane) else unit.lane.key

    # In and out.

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 4), singly=st.booleans())
    def read(self, partition: int, count: int, singly: bool) -> None:
        """Records are read."""
        batch, self.fresh[partition] = self.fresh[partition][:count], self.fresh[partition][count:]
        for delivery in batch:
            key = self.key(delivery)
            self.pending.setdefault(key, []).append(delivery)
            if key in self.held:
                head, held = self.held[key]
                self.held[key] = head, held + 1
        if singly:
            for delivery in batch:
                self.free(self.lanes.admit(self.key(delivery), delivery))
        else:
            self.queue.extend(self.lanes.admit_all(batch, by_key=True))

    @precondition(lambda self: self.queue)
    @rule(most=st.sampled_from([None, None, 1, 2]))
    def give(self, most: int | None) -> None:
        """An executor is given some of a lane."""
        self.hand_out(most)

    def hand_out(self, most: int | None) -> None:
        """What is first in the queue goes to the executor."""
        lane = self.queue.popleft()
        if isinstance(lane, Lane):
            assert self.lanes.begins(lane)
        self.window.append(self.lanes.hand_out(lane, most) if isinstance(lane, Lane) else lane)

    @precondition(lambda self: self.window)
    @rule()
    def take_back(self) -> None:
        """What no slot has taken is given back."""
        units, self.window = self.window, deque()
        for unit in units:
            self.free(self.lanes.back(unit))

    # Slots.

    def take(self, unit: TrackedDelivery | Work) -> None:
        """A slot takes the next record of what it has, or finds none and says so."""
        if isinstance(unit, Work) and not unit:
            self.free(self.lanes.back(unit))
            return
        delivery = unit.popleft() if isinstance(unit, Work) else unit
        assert delivery is self.pending[self.key(delivery)].pop(0), "L2"
        self.slots.append(Slot(unit, delivery))

    @precondition(lambda self: self.window)
    @rule()
    def start(self) -> None:
        """A slot takes what comes next."""
        self.take(self.window.popleft())

    def draw(self, data: st.DataObject) -> Slot:
        """One of the slots that run, which is through with its record."""
        slot = data.draw(st.sampled_from(self.slots))
        self.slots.remove(slot)
        return slot

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), then=st.sampled_from(["go on", "go on", "put last", "leave"]))
    def finish(self, data: st.DataObject, then: str) -> None:
        """A record is handled; its slot goes on with its work, puts it last, or leaves it."""
        slot = self.draw(data)
        self.handled(slot)
        if not isinstance(slot.unit, Work):
            return
        if then == "go on":
            self.take(slot.unit)
        elif then == "put last":
            self.window.append(slot.unit)
        else:
            self.free(self.lanes.back(slot.unit))

    def handled(self, slot: Slot) -> None:
        """The owner hears that a record was handled."""
        key = self.key(slot.current)
        if self.held.get(key, (None, 0))[0] is slot.current:
            self.lanes.free(key, slot.current)
            del self.held[key]
        self.queue.extend(self.lanes.deliveries_ended([slot.current]))

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A record failed, or hangs, and is parked; its lane goes on without its slot."""
        slot = self.draw(data)
        key = self.key(slot.current)
        if self.held.get(key, (None, 0))[0] is slot.current:
            self.lanes.free(key, slot.current)
            del self.held[key]
        self.free(self.lanes.leave(slot.current))
        self.old.append(slot.unit)

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), again=st.booleans())
    def block(self, data: st.DataObject, again: bool) -> None:
        """A record failed, or hangs; its lane waits for it."""
        slot = self.draw(data)
        key, holder = self.key(slot.current), slot.current
        if again:
            holder = slot.current.again(None)
            self.pending[key].insert(0, holder)
        self.lanes.block(key, holder, again=again)
        self.blocked[key] = holder, again
        self.held[key] = holder, len(self.pending[key])
        self.old.append(slot.unit)

    @precondition(lambda self: self.blocked)
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        """What a lane waits for is due, or dead-lettered."""
        key = data.draw(st.sampled_from(sorted(self.blocked, key=repr)))
        holder, again = self.blocked.pop(key)
        self.free(self.lanes.go_on(key, holder, settled=not again))
        if not again:
            del self.held[key]

    @precondition(lambda self: self.old)
    @rule()
    def come_back(self) -> None:
        """L3: whoever was given up says something after all."""
        before = (len(self.lanes), self.lanes.records())
        for unit in self.old:
            assert not (isinstance(unit, Work) and unit)
            assert self.lanes.back(unit) is None
            if isinstance(unit, TrackedDelivery):
                assert self.lanes.deliveries_ended([unit]) == []
        assert (len(self.lanes), self.lanes.records()) == before

    @rule(partition=st.sampled_from(PARTITIONS))
    def drop(self, partition: int) -> None:
        """A partition leaves, and comes again."""

        def is_gone(delivery: TrackedDelivery) -> bool:
            return delivery.partition == partition

        self.lanes.drop("orders", partition)
        for unit in [*self.window, *(slot.unit for slot in self.slots)]:
            if self.name(unit)[1] == partition:
                assert self.lanes.back(unit) is None
        self.queue = deque(lane for lane in self.queue if self.name(lane)[1] != partition)
        self.window = deque(unit for unit in self.window if self.name(unit)[1] != partition)
        self.slots = [slot for slot in self.slots if not is_gone(slot.current)]
        for table in (self.pending, self.blocked, self.held):
            for key in [key for key in table if key[1] == partition]:
                del table[key]
        self.gain(partition)

    # What holds.

    @invariant()
    def each_lane_is_in_one_state(self) -> None:
        """L1 and L4; and a lane that has no work is forgotten."""
        free = [self.name(lane) for lane in self.queue]
        busy = [self.name(u) for u in [*self.window, *(slot.unit for slot in self.slots)]]
        names = [*free, *busy, *self.blocked]
        assert len(names) == len(set(names)) == len(self.lanes)
        lanes = [lane for lane in self.queue if isinstance(lane, Lane)]
        assert all(lane and lane.out is lane.holder is None for lane in lanes)
        assert all(self.lanes.is_blocked(key) == (key in self.blocked) for key in names)
        assert {key for key, records in self.pending.items() if records} <= set(names)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """What nobody has started waits in a lane, or in what was handed out of it."""
        bare = sum(isinstance(unit, TrackedDelivery) for unit in (*self.window, *self.queue))
        waiting = sum(len(records) for records in self.pending.values())
        assert self.lanes.records() == waiting - bare
        for slot in self.slots:
            behind = len(self.pending[self.key(slot.current)])
            assert self.lanes.behind(slot.current) == behind

    @invariant()
    def what_is_blocked_is_known(self) -> None:
        """L6."""
        blocked = [lane.key for lane in self.lanes.blocked.values()]
        assert blocked == list(self.lanes.blocked) == list(self.held)
        leaving = sum(not again for _, again in self.blocked.values())
        assert self.lanes.leaving == leaving

    @invariant()
    def what_is_held_is_counted(self) -> None:
        """L5."""
        assert self.lanes.holding == bool(self.held)
        for partition, assignment in self.assignments.items():
            held = sum(n for head, n in self.held.values() if head.partition == partition)
            assert (assignment.held, assignment.held_bytes) == (held, held * SIZE)

    def teardown(self) -> None:
        """Whoever goes on to the end has started all that was read, and no lane is left."""
        for _ in range(1000):
            if not (self.queue or self.window or self.slots or self.blocked):
                break
            for key, (holder, again) in list(self.blocked.items()):
                self.free(self.lanes.go_on(key, holder, settled=not again))
            self.blocked.clear()
            if self.queue:
                self.hand_out(None)
            elif self.window:
                self.take(self.window.popleft())
            else:
                slot = self.slots.pop()
                self.handled(slot)
                if isinstance(slot.unit, Work):
                    self.take(slot.unit)
        assert not any(self.pending.values())
        assert (len(self.lanes), self.lanes.records()) == (0, 0)


class WorksMachine(LanesMachine):
    """The same where nothing is handed out bare."""

    singly = False


TestLanes = LanesMachine.TestCase
TestLanes.settings = examples(60, 40)
TestWorks = WorksMachine.TestCase
TestWorks.settings = examples(60, 40)
