"""Lanes: one at a time and in offset order, whatever the slots and the owner do."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ackfloor.core.assignment import HandlerRules
from ackfloor.core.batch import Batch
from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Lane, Lanes, Work
from ackfloor.core.model import Failure
from ackfloor.core.outcomes import ACKED, Discarded, Failed, Outcome
from tests.examples import examples
from tests.framework.core.worlds import MemoryRecord, World, deliveries_in, offsets_of

BY_KEY = HandlerRules("bill", "key")
KEY = ("orders", 0, b"a")
OTHER_KEY = ("orders", 0, b"b")


def deliveries(count: int, partition: int = 0) -> list[Delivery]:
    """Deliveries of one partition that no lane holds yet."""
    world = World(HandlerRules("bill"))
    world.assign(partition)
    world.read(range(count), partition)
    return [item for item in world.ready if isinstance(item, Delivery)]


def lane_of(count: int, *, singly: bool = True) -> tuple[Lanes, Lane, list[Delivery]]:
    """A free lane with so many records."""
    found = deliveries(count)
    lanes = Lanes(singly=singly)
    lane = lanes.admit(KEY, found[0])
    assert lane is not None
    for delivery in found[1:]:
        assert lanes.admit(KEY, delivery) is None
    return lanes, lane, found


def handed_out(lanes: Lanes, lane: Lane, most: int | None = None) -> Work:
    """A work of a lane."""
    work = lanes.hand_out(lane, most)
    assert isinstance(work, Work)
    return work


class TestIn:
    """What is admitted waits in its lane."""

    def test_an_idle_lane_becomes_free_once(self) -> None:
        """With its first record; later ones wait in it."""
        lanes, lane, found = lane_of(2)
        assert list(lane) == found
        assert all(delivery.lane is lane for delivery in found)
        assert (len(lanes), lanes.idle(KEY), lanes.idle(OTHER_KEY)) == (1, False, True)

    def test_lanes_do_not_wait_for_each_other(self) -> None:
        """Each has records of its own."""
        first, second = deliveries(2)
        lanes = Lanes()
        assert lanes.admit(KEY, first) is not lanes.admit(OTHER_KEY, second)
        assert len(lanes) == 2

    def test_records_without_a_key_run_side_by_side(self) -> None:
        """Under key order a null key is a lane of its own, for each record."""
        world = World(BY_KEY)
        world.assign()
        world.read([0, 1, 2])
        assert len(world.ready) == 3
        world.read([3, 4], key=b"a")
        assert len(world.ready) == 4

    def test_partition_order_has_one_lane(self) -> None:
        """The same key or another, with or without one."""
        world = World(HandlerRules("bill", "partition"))
        world.assign()
        world.read([0], key=b"a")
        world.read([1], key=b"b")
        world.read([2])
        first = world.start()
        assert not world.ready
        world.finish(first)
        assert [len(item) for item in world.ready] == [2]

    def test_what_is_read_together_is_given_together(self) -> None:
        """Its new lanes go out together; those that are out already are not named again."""
        world = World(BY_KEY)
        world.assign()
        world.read([0], key=b"a")
        world.read([1, 2], key=b"a")
        assert [len(units) for units in world.given] == [1]
        records = [MemoryRecord("orders", 0, n, _key=b"%d" % (n // 2)) for n in range(4, 8)]
        world.engine.polled(records, world.now)
        world.take()
        assert [len(units) for units in world.given] == [1, 2]

    def test_admitted_one_by_one_or_together_it_is_the_same(self) -> None:
        """Also where an earlier read has made the lane."""
        one, *rest = deliveries(4)
        lanes = Lanes()
        assert lanes.admit_all([one], by_key=False) == [one]
        assert lanes.admit_all(rest[:2], by_key=False) == []
        assert lanes.admit_all(rest[2:], by_key=False) == []
        (lane,) = lanes.ended([one])
        assert list(lane) == rest


class TestSingle:
    """A lane of one record is that delivery: its own end is the end of it."""

    @pytest.mark.parametrize("outcome", [ACKED, Discarded("old"), Failed(Failure("Boom", "x"))])
    def test_what_comes_behind_it_waits_for_its_end(self, outcome: Outcome) -> None:
        """However it ends."""
        world = World(BY_KEY)
        world.assign()
        world.read([0], key=b"a")
        single = world.start()
        world.read([1, 2], key=b"a")
        world.read([3], key=b"a")
        assert not world.ready
        world.finish(single, outcome)
        (work,) = world.ready
        assert isinstance(work, Work)
        assert offsets_of([work]) == [1, 2, 3]

    def test_what_comes_behind_it_waits_for_its_deadline_at_most(self) -> None:
        """Its late answer does not start anything."""
        world = World(BY_KEY)
        world.assign()
        world.read([0], key=b"a")
        single = world.start()
        world.read([1], key=b"a")
        world.now_s += 60
        world.expire(single)
        assert offsets_of(world.ready) == [1]
        world.finish(single)
        assert len(world.ready) == 1

    def test_an_idle_lane_costs_nothing(self) -> None:
        """It is forgotten, and its next record is by itself as well."""
        world = World(BY_KEY)
        world.assign()
        for offset in range(3):
            world.read([offset], key=b"a")
            assert isinstance(world.ready[0], Delivery)
            world.finish(world.start())
            assert len(world.engine.state.handlers["bill"].lanes) == 0

    def test_it_ends_once(self) -> None:
        """Its lane is somebody else's by then."""
        first, second, third = deliveries(3)
        lanes = Lanes()
        assert lanes.admit_all([first], by_key=False) == [first]
        lanes.admit_all([second, third], by_key=False)
        (lane,) = lanes.ended([first])
        assert list(lane) == [second, third]
        assert lanes.ended([first]) == []
        work = handed_out(lanes, lane)
        assert lanes.ended([first]) == []
        assert lane.out is work

    def test_the_last_of_a_lane_is_handed_out_by_itself(self) -> None:
        """What comes after it waits for its end."""
        lanes, lane, (first, second, third) = lane_of(3)
        work = handed_out(lanes, lane, 2)
        assert list(work) == [first, second]
        work.clear()
        assert lanes.back(work) is lane
        assert lanes.hand_out(lane) is third
        (late,) = deliveries(1)
        assert lanes.admit(KEY, late) is None
        assert lanes.ended([third]) == [lane]
        assert lanes.hand_out(lane) is late
        assert lanes.ended([late]) == []
        assert len(lanes) == 0

    def test_given_back_it_is_the_first_again(self) -> None:
        """All of the lane, or in front of what has come."""
        first, second = deliveries(2)
        lanes = Lanes()
        lanes.admit_all([first], by_key=False)
        assert lanes.back(first) is first
        lanes.admit_all([second], by_key=False)
        lane = lanes.back(first)
        assert isinstance(lane, Lane)
        assert list(lane) == [first, second]
        assert first.lane is lane

    def test_a_partition_takes_it_along(self) -> None:
        """And what is behind it; an answer that comes then is late, and nobody gives it back."""
        world = World(BY_KEY)
        world.assign()
        world.read([0], key=b"a")
        single = world.start()
        world.read([1], key=b"a")
        world.revoke()
        world.finish(single)
        assert not world.ready
        assert world.engine.state.handlers["bill"].lanes.back(single) is None
        world.assign()
        world.read([0], key=b"a")
        world.finish(world.start())
        assert not world.ready

    @pytest.mark.parametrize(
        "rules",
        [replace(BY_KEY, manual=True), replace(BY_KEY, killable=True), replace(BY_KEY, batch=2)],
        ids=["manual", "process", "batch"],
    )
    def test_not_where_a_slot_is_busy_beyond_its_record(self, rules: HandlerRules) -> None:
        """The end of the record does not say that the slot is done with the lane."""
        world = World(rules)
        world.assign()
        world.read([0], key=b"a")
        world.tick(1)
        assert isinstance(world.ready[0], Work | Batch)


class TestWork:
    """Several records are handed out as a work, which comes back with what is left in it."""

    def test_what_comes_meanwhile_waits_in_the_lane(self) -> None:
        """Nothing is added to what was handed out."""
        lanes, lane, found = lane_of(2)
        work = handed_out(lanes, lane)
        (late,) = deliveries(1)
        assert lanes.admit(KEY, late) is None
        assert list(work) == found
        assert list(lane) == [late]

    def test_ended_to_its_last_the_lane_is_forgotten(self) -> None:
        """Or goes on with what came meanwhile."""
        lanes, lane, found = lane_of(2)
        work = handed_out(lanes, lane)
        work.clear()
        assert lanes.admit(KEY, found[0]) is None
        assert lanes.back(work) is lane
        work = handed_out(lanes, lane) if len(lane) > 1 else Work((lanes.hand_out(lane),))  # type: ignore[arg-type]
        assert lanes.ended(list(work)) == []
        assert len(lanes) == 0

    def test_what_is_left_in_it_is_first_in_the_lane(self) -> None:
        """In its order; whoever still has it finds nothing."""
        lanes, lane, found = lane_of(4)
        work = handed_out(lanes, lane, 3)
        work.popleft()
        assert lanes.back(work) is lane
        assert (list(lane), list(work)) == (found[1:], [])
        assert lanes.back(work) is None

    def test_of_a_record_that_failed_the_rest_is_taken_away(self) -> None:
        """So it is of one that hangs; what its old slot posts is ignored."""
        lanes, lane, found = lane_of(3)
        work = handed_out(lanes, lane)
        stuck = work.popleft()
        assert lanes.leave(stuck) is lane
        assert (list(lane), list(work)) == (found[1:], [])
        assert lanes.back(work) is None
        assert lanes.leave(stuck) is None
        assert list(handed_out(lanes, lane)) == found[1:]

    def test_with_nothing_behind_it_the_lane_is_forgotten(self) -> None:
        """It was all there was, in a work or by itself."""
        for singly in (True, False):
            lanes, lane, (only,) = lane_of(1, singly=singly)
            unit = lanes.hand_out(lane)
            if isinstance(unit, Work):
                unit.popleft()
            assert lanes.leave(only) is None
            assert len(lanes) == 0

    def test_a_lane_that_was_one_delivery_is_forgotten_when_that_fails(self) -> None:
        """Nothing was behind it."""
        (only,) = deliveries(1)
        lanes = Lanes()
        lanes.admit_all([only], by_key=False)
        assert lanes.leave(only) is None
        assert len(lanes) == 0

    def test_a_partition_takes_its_lanes_along(self) -> None:
        """Those of others stay; what comes back is ignored, and its next epoch begins anew."""
        found, (stays,) = deliveries(3), deliveries(1, partition=1)
        lanes = Lanes()
        (lane,) = lanes.admit_all(found, by_key=False)
        lanes.admit_all([stays], by_key=False)
        assert isinstance(lane, Lane)
        work = handed_out(lanes, lane)
        lanes.drop("orders", 0)
        assert (len(lanes), lanes.idle(lane.key)) == (1, True)
        assert lanes.back(work) is None
        assert lanes.leave(found[0]) is None
        assert lanes.admit(lane.key, found[0]) is not None

    def test_of_a_batch_what_stays_is_first(self) -> None:
        """Once, and not where the lane has gone with its partition."""
        lanes, lane, found = lane_of(3, singly=False)
        batch = Batch()
        batch.lanes, batch.items = [lane], [lane.popleft(), lane.popleft()]
        lane.out = batch
        assert lanes.put_back(lane, batch, found[1:2]) is lane
        assert list(lane) == found[1:]
        assert lanes.put_back(lane, batch, found[:1]) is None
        assert list(lane) == found[1:]


class TestSeen:
    """What waits in lanes is counted for who asks."""

    def test_what_waits_is_counted(self) -> None:
        """For a slot, for the one in front, and no longer for one whose work was taken away."""
        lanes, lane, _ = lane_of(3)
        assert lanes.records() == 3
        work = handed_out(lanes, lane, 2)
        first = work.popleft()
        assert (lanes.records(), lanes.behind(first)) == (2, 2)
        lanes.leave(first)
        assert (lanes.records(), lanes.behind(first)) == (2, 0)

    def test_what_is_behind_a_running_record_is_told_of_it(self) -> None:
        """Nineteen of its key, and nothing of another key's."""
        world = World(BY_KEY)
        world.assign()
        world.read([0], key=b"a")
        world.read([1], key=b"b")
        hung, other = world.start(), world.start()
        lanes = world.engine.state.handlers["bill"].lanes
        assert (lanes.records(), lanes.behind(hung)) == (0, 0)
        world.read(range(2, 21), key=b"a")
        assert not world.ready
        assert (lanes.records(), lanes.behind(hung), lanes.behind(other)) == (19, 19, 0)
        world.finish(hung)
        assert (lanes.records(), lanes.behind(hung)) == (19, 0)

    def test_of_an_unordered_record_nothing_is_behind(self) -> None:
        """It has no lane."""
        (loose,) = deliveries(1)
        assert Lanes().behind(loose) == 0


class TestBlocked:
    """L4 and L5: nothing of a blocked lane is out, and what waits in it is held."""

    @pytest.mark.parametrize("again", [True, False], ids=["again", "dead-lettered"])
    @pytest.mark.parametrize("most", [None, 1], ids=["work", "single"])
    def test_a_head_that_failed_holds_its_lane(self, again: bool, most: int | None) -> None:
        """All of it waits for the head, and what comes joins it."""
        *found, late = deliveries(4)
        lanes = Lanes()
        (lane,) = lanes.admit_all(found, by_key=False)
        assert isinstance(lane, Lane)
        unit, head = lanes.hand_out(lane, most), found[0]
        if isinstance(unit, Work):
            unit.popleft()
        if again:
            head = head.again(None)
        lanes.block(lane.key, head, again=again)
        assert lanes.admit(lane.key, late) is None
        assert (lanes.is_blocked(lane.key), lanes.holding) == (True, True)
        assert head.assignment.held == (4 if again else 3)
        assert lanes.back(unit) is None
        assert lanes.go_on(lane.key, found[1], settled=False) is None
        assert lanes.go_on(lane.key, head, settled=not again) is lane
        assert list(lane) == [head, *found[1:], late][0 if again else 1 :]
        assert head.assignment.held == (4 if again else 0)
        assert lanes.is_blocked(lane.key) is False

    def test_a_head_that_was_handled_after_all_holds_nothing(self) -> None:
        """What is behind it is counted no more."""
        lanes, _, (head, *_) = lane_of(3)
        lanes.block(KEY, head, again=False)
        assert head.assignment.held == 3
        lanes.free(KEY, head)
        assert (head.assignment.held, head.assignment.held_bytes, lanes.holding) == (0, 0, False)
        lanes.free(OTHER_KEY, head)

    def test_a_lane_that_was_idle_can_wait_for_a_record(self) -> None:
        """It has nothing else, and is forgotten when that is dead-lettered."""
        (head,) = deliveries(1)
        lanes = Lanes()
        lanes.block(KEY, head, again=False)
        assert (lanes.is_blocked(KEY), lanes.idle(KEY)) == (True, False)
        assert lanes.go_on(KEY, head, settled=True) is None
        assert lanes.idle(KEY)

    def test_a_record_that_is_settled_before_its_turn_is_held_no_more(self) -> None:
        """Of a batch; the head itself is not counted twice."""
        lanes, _, (head, second, _) = lane_of(3)
        lanes.block(KEY, head, again=False)
        lanes.settled(KEY, second)
        lanes.settled(KEY, head)
        lanes.settled(OTHER_KEY, second)
        assert second.assignment.held == 2

    def test_a_partition_takes_what_is_held_along(self) -> None:
        """No lane holds anything then."""
        lanes, _, (head, *_) = lane_of(2)
        lanes.block(KEY, head, again=True)
        lanes.drop("orders", 0)
        assert (lanes.holding, lanes.is_blocked(KEY)) == (False, False)
        assert lanes.go_on(KEY, head, settled=False) is None


class TestBegins:
    """Whether a free lane has a record that may start."""

    def test_what_may_start_stays(self) -> None:
        """It is not taken by the question."""
        lanes, lane, found = lane_of(2)
        assert lanes.begins(lane)
        assert list(lane) == found

    def test_what_may_not_any_more_is_passed_over(self) -> None:
        """It has ended; the next one is the first."""
        lanes, lane, found = lane_of(3)
        found[0].closed = found[1].closed = True
        assert lanes.begins(lane)
        assert list(lane) == [found[2]]

    @pytest.mark.parametrize("stopping", [True, False], ids=["stopping", "closed"])
    def test_a_lane_that_has_nothing_else_is_forgotten(self, stopping: bool) -> None:
        """An idle lane costs nothing."""
        lanes, lane, found = lane_of(2)
        for delivery in found:
            delivery.closed = not stopping
        found[0].assignment.stopping = stopping
        assert not lanes.begins(lane)
        assert len(lanes) == 0

    def test_a_blocked_lane_whose_partition_is_about_to_leave_holds_nothing(self) -> None:
        """Its head was due again, and may not start any more."""
        lanes, lane, (head,) = lane_of(1)
        lanes.block(KEY, head, again=True)
        assert lanes.go_on(KEY, head, settled=False) is not None
        head.assignment.stopping = True
        assert not lanes.begins(lane)
        assert (len(lanes), lanes.holding) == (0, False)

    def test_a_lane_that_left_with_its_partition_takes_no_other_along(self) -> None:
        """Its name may be that of another one by now."""
        lanes, lane, found = lane_of(1)
        lanes.drop("orders", 0)
        lanes.admit(KEY, deliveries(1)[0])
        found[0].closed = True
        assert not lanes.begins(lane)
        assert not lanes.idle(KEY)


class LanesMachine(RuleBasedStateMachine):
    """One lane, many slots: take, finish, leave early, get stuck, give back, in any order."""

    singly = True

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes(singly=self.singly)
        self.queue: deque[Delivery | Lane] = deque()
        self.window: deque[Delivery | Work] = deque()
        self.spare = deliveries(60)
        self.admitted: list[Delivery] = []
        self.taken: list[Delivery] = []
        #: What each slot is at, and the record that it handles.
        self.slots: list[tuple[Delivery | Work, Delivery]] = []
        self.stuck: list[Delivery | Work] = []
        self.ends: list[Work] = []

    def free(self, lane: Delivery | Lane | None) -> None:
        """The owner queues a lane."""
        if lane is not None:
            self.queue.append(lane)

    @precondition(lambda self: self.spare)
    @rule(count=st.integers(1, 3))
    def read(self, count: int) -> None:
        """Records are read together."""
        found, self.spare = self.spare[:count], self.spare[count:]
        self.admitted += found
        self.queue.extend(self.lanes.admit_all(found, by_key=False))

    @precondition(lambda self: self.queue)
    @rule(most=st.sampled_from([None, 1, 2]))
    def give(self, most: int | None) -> None:
        """The executor is given what is first in the queue."""
        item = self.queue.popleft()
        self.window.append(self.lanes.hand_out(item, most) if isinstance(item, Lane) else item)

    @precondition(lambda self: self.window)
    @rule()
    def give_back(self) -> None:
        """What no slot has taken is given back."""
        self.free(self.lanes.back(self.window.popleft()))

    @precondition(lambda self: self.window)
    @rule()
    def start(self) -> None:
        """A slot takes what it was given."""
        unit = self.window.popleft()
        self.go_on(unit, unit.popleft() if isinstance(unit, Work) else unit)

    def go_on(self, unit: Delivery | Work, delivery: Delivery) -> None:
        """A slot begins with a record."""
        self.taken.append(delivery)
        self.slots.append((unit, delivery))

    @precondition(lambda self: self.slots)
    @rule(early=st.booleans())
    def finish(self, early: bool) -> None:
        """A record is handled; its slot goes on with its work, ends it, or leaves it early."""
        unit, delivery = self.slots.pop()
        for lane in self.lanes.ended([delivery]):
            self.free(lane)
        if isinstance(unit, Work):
            if unit and not early:
                self.go_on(unit, unit.popleft())
            else:
                self.ends.append(unit)

    @precondition(lambda self: self.slots)
    @rule(stuck=st.booleans())
    def fail(self, stuck: bool) -> None:
        """A record fails, or hangs: its lane goes on without its slot."""
        unit, delivery = self.slots.pop()
        if stuck:
            self.stuck.append(unit)
        self.free(self.lanes.leave(delivery))

    @precondition(lambda self: self.stuck)
    @rule()
    def come_back(self) -> None:
        """A stuck slot finds nothing in its work, and ends it."""
        unit = self.stuck.pop()
        if isinstance(unit, Work):
            assert not unit
            self.ends.append(unit)

    @precondition(lambda self: self.ends)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """The owner takes the end of a work."""
        work = data.draw(st.sampled_from(range(len(self.ends))))
        self.free(self.lanes.back(self.ends.pop(work)))

    @invariant()
    def one_at_a_time_in_order_and_none_forgotten(self) -> None:
        """L1 to L3, and no record stays behind where nobody has it."""
        assert len(self.slots) <= 1
        assert len(self.queue) + len(self.window) + len(self.slots) <= 1
        assert self.taken == self.admitted[: len(self.taken)]
        waiting = [d for item in (*self.queue, *self.window) for d in _in(item)]
        rest = sum(len(unit) for unit, _ in self.slots if isinstance(unit, Work))
        left = sum(map(len, self.ends))
        assert len(waiting) + rest + left <= len(self.admitted) - len(self.taken)

    def teardown(self) -> None:
        """Played to the end, all that was admitted was taken."""
        while self.queue or self.window or self.slots or self.ends:
            if self.slots:
                self.finish(early=False)
            elif self.window:
                self.start()
            elif self.queue:
                self.give(None)
            else:
                self.free(self.lanes.back(self.ends.pop()))
        assert self.taken == self.admitted
        assert len(self.lanes) == 0


def _in(item: Delivery | Lane | Work) -> list[Delivery]:
    return list(item) if isinstance(item, Lane) else deliveries_in(item)


class WorksMachine(LanesMachine):
    """The same where each record is in a work."""

    singly = False


TestLanes = LanesMachine.TestCase
TestLanes.settings = examples(60, 30)
TestWorks = WorksMachine.TestCase
TestWorks.settings = examples(60, 30)
