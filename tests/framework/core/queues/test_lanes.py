"""Lanes: one at a time and in offset order, whatever the slots and the owner do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ackfloor.core.queues.lanes import Lane, Lanes, Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.envelope import Envelope
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import World

BY_KEY = HandlerRules("bill", "key")
KEY = ("orders", 0, b"a")
OTHER_KEY = ("orders", 0, b"b")


def deliveries(count: int, partition: int = 0, keys: Sequence[bytes] = ()) -> list[TrackedDelivery]:
    """Deliveries of one partition that no lane holds yet."""
    world = World(HandlerRules("bill"))
    world.assign(partition)
    if not keys:
        world.read(range(count), partition)
    for offset, key in enumerate(keys):
        world.read([offset], partition, key)
    return [item for item in world.ready if isinstance(item, TrackedDelivery)]


def lane_of(count: int, *, singly: bool = True) -> tuple[Lanes, Lane, list[TrackedDelivery]]:
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

    def test_admitted_one_by_one_or_together_it_is_the_same(self) -> None:
        """Also where an earlier read has made the lane."""
        one, *rest = deliveries(4)
        lanes = Lanes()
        assert lanes.admit_all([one], by_key=False) == [one]
        assert lanes.admit_all(rest[:2], by_key=False) == []
        assert lanes.admit_all(rest[2:], by_key=False) == []
        (lane,) = lanes.deliveries_ended([one])
        assert list(lane) == rest


class TestSingle:
    """A lane of one record is that delivery: its own end is the end of it."""

    def test_it_ends_once(self) -> None:
        """Its lane is somebody else's by then."""
        first, second, third = deliveries(3)
        lanes = Lanes()
        assert lanes.admit_all([first], by_key=False) == [first]
        lanes.admit_all([second, third], by_key=False)
        (lane,) = lanes.deliveries_ended([first])
        assert list(lane) == [second, third]
        assert lanes.deliveries_ended([first]) == []
        work = handed_out(lanes, lane)
        assert lanes.deliveries_ended([first]) == []
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
        assert lanes.deliveries_ended([third]) == [lane]
        assert lanes.hand_out(lane) is late
        assert lanes.deliveries_ended([late]) == []
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

    def test_ended_to_its_last_the_lane_goes_on_with_what_came(self) -> None:
        """And is forgotten where nothing did."""
        lanes, lane, _ = lane_of(2)
        work = handed_out(lanes, lane)
        work.clear()
        (late,) = deliveries(1)
        assert lanes.admit(KEY, late) is None
        assert lanes.back(work) is lane
        assert lanes.hand_out(lane) is late
        assert lanes.deliveries_ended([late]) == []
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

    def test_what_asked_for_a_pause_too_late_is_left_out(self) -> None:
        """Its deadline has ended it: given out by itself, nobody would ever end its lane."""
        lanes, lane, (_, late) = lane_of(2)
        work = handed_out(lanes, lane)
        work.clear()
        late.closed = True
        work.appendleft(late)
        assert lanes.leave(late) is None
        assert len(lanes) == 0
        assert lanes.back(work) is None

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


class TestDropLast:
    """What waits behind a failed head may leave memory, from the end of its lane."""

    def test_a_head_that_is_due_again_is_handed_out_alone(self) -> None:
        """What is behind it stays in the lane, and can be dropped while the head runs."""
        lanes, free, (head, second, third) = lane_of(3)
        assert lanes.hand_out(free, 1) is head
        lanes.block(KEY, head, again=True)
        assert lanes.drop_last(third)
        lane = lanes.go_on(KEY, head, settled=False)
        assert lane is not None
        assert not lanes.drop_last(second)
        assert lanes.hand_out(lane) is head
        assert head.assignment.held == 2
        assert lanes.drop_last(second)
        assert (head.assignment.held, second.lane, len(lane)) == (1, None, 0)
        lanes.free(KEY, head)
        assert lanes.deliveries_ended([head]) == []
        assert (head.assignment.held, head.assignment.held_bytes, len(lanes)) == (0, 0, 0)

    def test_only_the_last_of_a_lane_with_a_failed_head_can_be_dropped(self) -> None:
        """Not the head, nor one with another behind it, nor one of a lane that goes well."""
        lanes, free, (head, second, third) = lane_of(3)
        assert lanes.hand_out(free, 1) is head
        assert not lanes.drop_last(third)
        lanes.block(KEY, head, again=True)
        assert not lanes.drop_last(second)
        assert lanes.drop_last(third)
        assert lanes.drop_last(second)
        assert not lanes.drop_last(head)
        assert head.assignment.held == 1

    def test_what_is_on_its_way_to_the_dead_letters_is_not_dropped(self) -> None:
        """A record of a batch that failed with its head keeps its place until it is written."""
        lanes, free, (head, second) = lane_of(2)
        assert lanes.hand_out(free, 1) is head
        lanes.block(KEY, head, again=True)
        second.closed = True
        assert not lanes.drop_last(second)
        assert head.assignment.held == 2

    def test_a_redelivery_is_not_dropped(self) -> None:
        """A later read would be its first delivery."""
        lanes, free, (head, second) = lane_of(2)
        assert lanes.hand_out(free, 1) is head
        second.envelope = Envelope(attempt=1)
        lanes.block(KEY, head, again=True)
        assert not lanes.drop_last(second)


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

    def test_a_work_that_was_passed_over_holds_nothing(self) -> None:
        """Its head was due again, and its partition is about to leave."""
        lanes, free, (head,) = lane_of(1, singly=False)
        handed_out(lanes, free).clear()
        lanes.block(KEY, head, again=True)
        lane = lanes.go_on(KEY, head, settled=False)
        assert lane is not None
        work = handed_out(lanes, lane)
        work.clear()
        assert lanes.back(work) is None
        assert (len(lanes), lanes.holding) == (0, False)

    def test_a_lane_that_left_with_its_partition_takes_no_other_along(self) -> None:
        """Its name may be that of another one by now."""
        lanes, lane, found = lane_of(1)
        lanes.drop("orders", 0)
        lanes.admit(KEY, deliveries(1)[0])
        found[0].closed = True
        assert not lanes.begins(lane)
        assert not lanes.idle(KEY)
