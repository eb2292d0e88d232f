"""HandlerQueue: what comes out, how much of it, and when a batch is given (Q1 to Q3)."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.queues.handler_queue import MEASURED_S, HandlerQueue, Unit
from ackfloor.core.queues.lanes import Lane, Lanes
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from tests.examples import examples
from tests.framework.core.worlds import BATCH, batch_deliveries, lanes_of, offsets_of

NOW_S = 1_024.0
SLOTS = 2
RULES = HandlerRules("bill", concurrency=SLOTS, batch=BATCH)
ENDLESS = HandlerRules("bill", concurrency=99, batch=BATCH)


def loose_queue() -> HandlerQueue:
    """The queue of an unordered handler that takes batches."""
    return HandlerQueue(Lanes(singly=False), ordered=False, batches=True)


def queue_of(count: int) -> HandlerQueue:
    """A queue with so many deliveries."""
    queue = loose_queue()
    queue.put(batch_deliveries(count))
    return queue


def queue_of_lanes(lengths: list[int], ordering: str = "key") -> tuple[HandlerQueue, list[Lane]]:
    """A queue with lanes of so many records each."""
    queue = HandlerQueue(Lanes(singly=False), ordered=True, batches=True)
    lanes = lanes_of(batch_deliveries(sum(lengths), ordering), lengths)
    queue.put(lanes)
    return queue, lanes


class TestOrder:
    """Q1: what is put in comes out once, what was put ahead first."""

    def test_ahead_is_before_all_others_in_its_own_order(self) -> None:
        """And what is put at the end is the last."""
        loose = batch_deliveries(6)
        queue = loose_queue()
        queue.put(loose[:2])
        queue.put(loose[2:4], ahead=True)
        queue.put(loose[4:])
        assert len(queue) == 6
        assert offsets_of(queue.take(3)) == [2, 3, 0]
        assert offsets_of(queue.take(9)) == [1, 4, 5]
        assert (len(queue), queue.take(1)) == (0, [])

    def test_what_may_start_alone_counts(self) -> None:
        """Whoever asks how much waits is told of all of it."""
        queue = queue_of(3)
        queue.make_exclusive(queue.items[1])  # type: ignore[arg-type]
        assert (offsets_of(queue.exclusive), offsets_of(queue.items)) == ([1], [0, 2])
        assert len(queue) == 3

    def test_what_is_not_there_can_not_start_alone(self) -> None:
        """It runs, or has ended."""
        queue, (first, _) = queue_of_lanes([1, 2])
        running = first.popleft()
        queue.make_exclusive(running)
        assert (len(queue.items), len(queue.exclusive)) == (2, 0)
        queue.make_exclusive(queue.items[1][0])  # type: ignore[index]
        assert offsets_of(queue.exclusive) == [1, 2]

    def test_what_was_given_back_is_first_in_its_order(self) -> None:
        """Single records, and batches as the records that they are made of."""
        queue = queue_of(8)
        single = queue.take(1)
        batches = queue.take_batches(2, RULES)
        queue.returned([*single, *batches])
        assert offsets_of(queue.items) == list(range(8))
        assert queue.calls == 0

    @given(
        steps=st.lists(
            st.one_of(
                st.tuples(st.sampled_from(["put", "ahead", "take", "batches"]), st.integers(0, 4)),
                st.tuples(st.just("back"), st.integers(0, 9)),
            ),
            max_size=40,
        )
    )
    @examples(100)
    def test_as_a_list_would(self, steps: list[tuple[str, int]]) -> None:
        """Whatever is put in, taken, formed and given back, in any order."""
        spare = batch_deliveries(200)
        queue, model = loose_queue(), list[int]()
        given_: list[Unit] = []
        for what, count in steps:
            if what in ("put", "ahead"):
                fresh, spare = spare[:count], spare[count:]
                queue.put(fresh, ahead=what == "ahead")
                model = offsets_of(fresh) + model if what == "ahead" else model + offsets_of(fresh)
            elif what == "back":
                back, given_ = given_[-count:] if count else [], given_[: -count or None]
                queue.returned(back)
                model = offsets_of(back) + model
            else:
                taken: list[Unit] = []
                taken += queue.take(count) if what == "take" else queue.take_batches(count, ENDLESS)
                offsets = offsets_of(taken)
                assert offsets == model[: len(offsets)]
                if what == "take":
                    assert len(offsets) == min(count, len(model))
                model = model[len(offsets) :]
                given_ += taken
            assert offsets_of(queue.items) == model
            assert queue.calls == sum(isinstance(item, Batch) for item in given_)


class TestWindow:
    """Q2: what the executor has and has not started is at most what it starts in a turn."""

    def test_at_first_it_is_one_for_each_slot(self) -> None:
        """Nothing has been measured yet."""
        queue = queue_of(9)
        assert queue.room(0, SLOTS, NOW_S) == SLOTS
        queue.take(SLOTS)
        assert queue.room(SLOTS, SLOTS, NOW_S) == 0

    def test_it_is_twice_the_most_that_was_started_in_a_turn(self) -> None:
        """So the slots don't run out before the next look, and a pause is not late."""
        queue = queue_of(200)
        queue.room(0, SLOTS, NOW_S)
        queue.take(60)
        for left, turn_s in [(40, 0.02), (10, 0.04), (5, 0.06)]:
            queue.room(left, SLOTS, NOW_S + turn_s)
        assert queue.window == SLOTS
        queue.room(5, SLOTS, NOW_S + 2 * MEASURED_S)
        assert queue.window == 2 * 30

    def test_it_shrinks_to_one_for_each_slot(self) -> None:
        """Slots that hang start nothing, and keep nothing from the others."""
        queue = queue_of(200)
        queue.room(0, SLOTS, NOW_S)
        queue.take(50)
        queue.room(0, SLOTS, NOW_S)
        assert queue.window == 100
        queue.take(10)
        queue.room(10, SLOTS, NOW_S + 2 * MEASURED_S)
        assert queue.room(10, SLOTS, NOW_S + 4 * MEASURED_S) == SLOTS - 10
        assert queue.window == SLOTS

    def test_it_grows_at_once_when_the_slots_have_emptied_it(self) -> None:
        """Within a turn: slots that wait for the next one would be idle."""
        queue = queue_of(200)
        sizes = []
        for _ in range(5):
            room = queue.room(0, SLOTS, NOW_S)
            sizes.append(room)
            queue.take(room)
        assert sizes == [2, 4, 8, 16, 32]

    def test_it_does_not_grow_where_nothing_more_waits(self) -> None:
        """The slots have emptied it because that was all."""
        queue = queue_of(2)
        queue.room(0, SLOTS, NOW_S)
        queue.take(2)
        queue.room(0, SLOTS, NOW_S)
        assert queue.window == SLOTS

    def test_what_was_given_back_was_not_started(self) -> None:
        """A pause must not look like a burst."""
        queue = queue_of(100)
        queue.room(0, SLOTS, NOW_S)
        taken = queue.take(50)
        queue.returned(taken)
        queue.room(0, SLOTS, NOW_S + 2 * MEASURED_S)
        assert queue.window == SLOTS

    def test_what_was_given_back_before_is_not_there_twice(self) -> None:
        """Nor is a lane that has no work out any more."""
        queue, _ = queue_of_lanes([2, 1])
        taken = queue.take(1)
        queue.returned(taken)
        queue.returned(taken)
        assert offsets_of(queue.items) == [0, 1, 2]

    @given(
        looks=st.lists(
            st.tuples(st.floats(0.0, 1.0), st.sampled_from([0.0, 0.005, 0.1, 0.5])), max_size=30
        )
    )
    @examples(100)
    def test_never_more_than_the_window_and_never_a_slot_without(
        self, looks: list[tuple[float, float]]
    ) -> None:
        """However fast its slots are."""
        queue = queue_of(100)
        queued, now_s = 0, NOW_S
        for share, past_s in looks:
            now_s += past_s
            room = queue.room(queued, SLOTS, now_s)
            queued += len(queue.take(max(0, room)))
            if room >= 0:
                assert queued <= queue.window
            assert queue.window >= SLOTS
            assert queued >= SLOTS or not queue.items
            queued = round(queued * share)


class TestBatches:
    """Q3: an incomplete batch is given only where fewer calls run than slots."""

    def test_full_ones_are_given_whatever_runs(self) -> None:
        """They would not become better by waiting."""
        queue = queue_of(12)
        assert [len(batch.items) for batch in queue.take_batches(4, RULES)] == [3, 3, 3, 3]
        assert queue.calls == 4

    def test_an_incomplete_one_waits_while_all_slots_are_busy(self) -> None:
        """More may join it; it goes as soon as a call has ended, or when it is full."""
        queue = queue_of(8)
        running = queue.take_batches(9, RULES)
        assert [offsets_of([batch]) for batch in running] == [[0, 1, 2], [3, 4, 5]]
        assert offsets_of(queue.items) == [6, 7]
        assert queue.take_batches(9, RULES) == []
        queue.call_ended(running[0])
        (batch,) = queue.take_batches(9, RULES)
        assert offsets_of([batch]) == [6, 7]
        assert queue.calls == SLOTS

    def test_what_is_handled_alone_fills_no_other(self) -> None:
        """What is before it waits for what may join it, as ever."""
        queue = queue_of(5)
        rules = replace(RULES, concurrency=1)
        (running,) = queue.take_batches(1, rules)
        suspect = cast("TrackedDelivery", queue.items[1])
        suspect.assignment.handler.suspect = suspect
        assert queue.take_batches(9, rules) == []
        assert offsets_of(queue.items) == [3, 4]
        queue.call_ended(running)
        assert offsets_of(queue.take_batches(1, rules)) == [3]

    def test_one_that_waits_is_joined_by_what_comes(self) -> None:
        """In its order."""
        loose = batch_deliveries(9)
        queue = loose_queue()
        queue.put(loose[:8])
        queue.take_batches(2, RULES)
        assert queue.take_batches(1, RULES) == []
        queue.put(loose[8:])
        (batch,) = queue.take_batches(1, RULES)
        assert offsets_of([batch]) == [6, 7, 8]

    def test_no_more_than_there_is_room_for(self) -> None:
        """The rest stays."""
        queue = queue_of(9)
        assert len(queue.take_batches(1, RULES)) == 1
        assert offsets_of(queue.items) == [3, 4, 5, 6, 7, 8]

    def test_a_call_ends_once(self) -> None:
        """Given up at its deadline, it ends a second time, which changes nothing."""
        queue = queue_of(6)
        first, _ = queue.take_batches(2, RULES)
        queue.call_ended(first)
        queue.call_ended(first)
        assert queue.calls == 1

    @pytest.mark.parametrize("lengths", [[1, 1, 2], [4], [2, 2], [3, 1]])
    def test_lanes_of_one_that_waits_are_whole(self, lengths: list[int]) -> None:
        """Nothing is missing in them, and they have kept their turns."""
        queue, lanes = queue_of_lanes(lengths)
        batches = queue.take_batches(9, replace(RULES, ordering="key", concurrency=1))
        assert len(batches) == 1, "the second is not full"
        queue.returned(batches)
        assert list(queue.items) == lanes
        assert [len(lane) for lane in lanes] == lengths
        assert offsets_of(queue.items) == list(range(sum(lengths)))

    def test_by_partition_a_full_lane_is_not_held_up_by_one_that_is_not(self) -> None:
        """It goes ahead while all slots are busy; the others keep their turns."""
        rules = replace(RULES, ordering="partition", concurrency=1)
        queue, lanes = queue_of_lanes([3, 1, 2, 3], "partition")
        (running,) = queue.take_batches(1, rules)
        assert offsets_of([running]) == [0, 1, 2]
        (full,) = queue.take_batches(9, rules)
        assert offsets_of([full]) == [6, 7, 8]
        assert list(queue.items) == lanes[1:3]
        queue.call_ended(running)
        queue.call_ended(full)
        assert [offsets_of([batch]) for batch in queue.take_batches(9, rules)] == [[3]]


class TestSingly:
    """Trials, and what runs alone: one record of a lane, and nothing that may not start."""

    def test_of_a_lane_it_is_the_first_record(self) -> None:
        """The rest waits in the lane, which has no other turn before."""
        queue, (lane, _) = queue_of_lanes([3, 1])
        batches = queue.take_singly(2)
        assert [offsets_of([batch]) for batch in batches] == [[0], [3]]
        assert (offsets_of([lane]), len(queue)) == ([1, 2], 0)
        queue.returned(batches)
        assert offsets_of(queue.items) == [0, 1, 2, 3]

    def test_what_may_not_start_is_passed_over(self) -> None:
        """It has ended, or its partition is about to leave."""
        queue = queue_of(3)
        first, _, last = list(queue.items)
        first.closed = True  # type: ignore[union-attr]
        assert offsets_of(queue.take_singly(1)) == [1]
        last.assignment.stopping = True  # type: ignore[union-attr]
        assert (queue.take_singly(1), len(queue)) == ([], 0)

    def test_what_is_to_run_alone_goes_by_itself(self) -> None:
        """Nothing of the others is given with it."""
        queue = queue_of(3)
        queue.make_exclusive(queue.items[1])  # type: ignore[arg-type]
        assert offsets_of(queue.take_exclusive()) == [1]
        assert offsets_of(queue.items) == [0, 2]
