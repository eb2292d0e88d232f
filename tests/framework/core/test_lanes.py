"""Lanes: one at a time and in offset order, whatever the workers and the owner do."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ackfloor.core.assignment import HandlerRules
from ackfloor.core.batch import Batch
from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Lanes, Run
from ackfloor.core.model import Failure
from ackfloor.core.outcomes import ACKED, Discarded, Failed, Outcome
from tests.examples import examples
from tests.framework.core.worlds import MemoryRecord, World


def deliveries(count: int, partition: int = 0) -> list[Delivery]:
    """Deliveries of one partition that no lane holds yet."""
    world = World(HandlerRules("bill"))
    world.assign(partition)
    world.read(range(count), partition)
    return [item for item in world.ready if isinstance(item, Delivery)]


def test_an_idle_lane_is_dispatched_once() -> None:
    """The first record hands the lane out; later ones wait in it."""
    first, second = deliveries(2)
    lanes = Lanes()
    run = lanes.admit("a", first)
    assert run is not None
    assert lanes.admit("a", second) is None
    assert list(run) == [first, second]
    assert first.run is second.run is run
    assert len(lanes) == 1


def test_lanes_do_not_wait_for_each_other() -> None:
    """Each has a run of its own."""
    first, second = deliveries(2)
    lanes = Lanes()
    assert lanes.admit("a", first) is not lanes.admit("b", second)
    assert len(lanes) == 2


def test_an_empty_run_that_was_left_is_forgotten() -> None:
    """An idle lane costs nothing, and its next record is dispatched again."""
    first, second = deliveries(2)
    lanes = Lanes()
    run = lanes.admit("a", first)
    assert run is not None
    run.popleft()
    assert lanes.left(run) is None
    assert len(lanes) == 0
    assert lanes.admit("a", second) is not run


def test_a_run_filled_while_its_worker_left_goes_out_again() -> None:
    """Only the owner decides that a lane is idle, so nothing is left behind in it."""
    first, second = deliveries(2)
    lanes = Lanes()
    run = lanes.admit("a", first)
    assert run is not None
    run.popleft()
    assert lanes.admit("a", second) is None
    assert lanes.left(run) is run


def test_a_seized_lane_goes_on_without_its_stuck_worker() -> None:
    """The rest goes out in order, and what the old worker posts is ignored."""
    stuck, *rest = deliveries(3)
    lanes = Lanes()
    run = lanes.admit("a", stuck)
    assert run is not None
    for delivery in rest:
        lanes.admit("a", delivery)
    run.popleft()
    taken = lanes.seize(run)
    assert taken is not None
    assert list(taken) == rest
    assert [delivery.run for delivery in rest] == [taken, taken]
    assert not run
    assert lanes.left(run) is None
    assert lanes.seize(run) is None
    assert lanes.left(taken) is taken


def test_seizing_an_empty_lane_forgets_it() -> None:
    """Nothing waits behind the stuck record."""
    (stuck,) = deliveries(1)
    lanes = Lanes()
    run = lanes.admit("a", stuck)
    assert run is not None
    run.popleft()
    assert lanes.seize(run) is None
    assert len(lanes) == 0


def test_a_dropped_partition_takes_its_lanes_along() -> None:
    """Lanes of other partitions stay."""
    gone, stays = deliveries(1)[0], deliveries(1, 1)[0]
    lanes = Lanes()
    run = lanes.admit(gone.lane(by_key=False), gone)
    lanes.admit(stays.lane(by_key=False), stays)
    lanes.drop("orders", 0)
    assert len(lanes) == 1
    assert run is not None
    assert lanes.left(run) is None
    lanes.drop("orders", 1)
    assert len(lanes) == 0


def test_records_without_a_key_run_side_by_side() -> None:
    """Under key order a null key is a lane of its own, for each record."""
    world = World(HandlerRules("bill", "key"))
    world.assign()
    world.read([0, 1, 2])
    assert len(world.ready) == 3
    world.read([3, 4], key=b"a")
    assert len(world.ready) == 4


def test_partition_order_has_one_lane() -> None:
    """The same key or another, with or without one."""
    world = World(HandlerRules("bill", "partition"))
    world.assign()
    world.read([0], key=b"a")
    world.read([1], key=b"b")
    world.read([2])
    first = world.start()
    assert not world.ready
    world.finish(first)
    assert [len(item) for item in world.ready if isinstance(item, Run)] == [2]


def test_what_is_read_together_is_given_together() -> None:
    """Its new lanes go out together; those that are out already are not named again."""
    world = World(HandlerRules("bill", "key"))
    world.assign()
    world.read([0], key=b"a")
    world.read([1, 2], key=b"a")
    assert [len(items) for items in world.given] == [1]
    records = [MemoryRecord("orders", 0, n, _key=b"%d" % (n // 2)) for n in range(4, 8)]
    world.engine.polled(records, world.now)
    world.take()
    assert [len(items) for items in world.given] == [1, 2]


BY_KEY = HandlerRules("bill", "key")


@pytest.mark.parametrize("outcome", [ACKED, Discarded("old"), Failed(Failure("Boom", "x"))])
def test_what_comes_behind_a_lone_delivery_waits_for_its_end(outcome: Outcome) -> None:
    """However it ends; nobody visits its lane who could say so."""
    world = World(BY_KEY)
    world.assign()
    world.read([0], key=b"a")
    lone = world.start()
    world.read([1, 2], key=b"a")
    world.read([3], key=b"a")
    assert not world.ready
    world.finish(lone, outcome)
    (run,) = world.ready
    assert isinstance(run, Run)
    assert [d.offset for d in run] == [1, 2, 3]


def test_what_comes_behind_a_lone_delivery_waits_for_its_deadline_at_most() -> None:
    """Its late answer does not start anything."""
    world = World(BY_KEY)
    world.assign()
    world.read([0], key=b"a")
    lone = world.start()
    world.read([1], key=b"a")
    world.now_s += 60
    world.expire(lone)
    assert [[d.offset for d in run] for run in world.ready if isinstance(run, Run)] == [[1]]
    world.finish(lone)
    assert len(world.ready) == 1


def test_a_lone_delivery_is_the_last_of_its_lane() -> None:
    """An idle lane costs nothing, and its next record is lone as well."""
    world = World(BY_KEY)
    world.assign()
    for offset in range(3):
        world.read([offset], key=b"a")
        assert isinstance(world.ready[0], Delivery)
        world.finish(world.start())
        assert len(world.engine.state.handlers["bill"].lanes) == 0


def test_a_lone_delivery_ends_its_turn_once() -> None:
    """Its lane is somebody else's by then."""
    first, second, third = deliveries(3)
    lanes = Lanes()
    assert lanes.admit_all([first], by_key=False) == [first]
    lanes.admit_all([second, third], by_key=False)
    (run,) = lanes.ended([first])
    assert list(run) == [second, third]
    assert lanes.ended([first]) == []
    assert lanes.has(run)


def test_a_dropped_partition_takes_its_lone_deliveries_along() -> None:
    """And what is behind them; an answer that comes then is late."""
    world = World(BY_KEY)
    world.assign()
    world.read([0], key=b"a")
    lone = world.start()
    world.read([1], key=b"a")
    world.revoke()
    world.finish(lone)
    assert not world.ready
    world.assign()
    world.read([0], key=b"a")
    world.finish(world.start())
    assert not world.ready


def test_what_waits_in_lanes_is_counted() -> None:
    """For a slot, for the one in front, and no longer for one whose lane was taken away."""
    first, second = deliveries(2)
    lanes = Lanes()
    run = lanes.admit("a", first)
    assert run is not None
    assert lanes.admit("a", second) is None
    assert lanes.records() == 2
    assert run.popleft() is first
    assert (lanes.records(), lanes.behind(first)) == (1, 1)
    assert lanes.seize(run) is not None
    assert (lanes.records(), lanes.behind(first)) == (1, 0)


def test_what_is_behind_a_running_record_is_told_of_it() -> None:
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


@pytest.mark.parametrize(
    "rules",
    [replace(BY_KEY, manual=True), replace(BY_KEY, killable=True), replace(BY_KEY, batch=2)],
    ids=["manual", "process", "batch"],
)
def test_where_a_slot_is_busy_beyond_its_record_lanes_have_runs(rules: HandlerRules) -> None:
    """The end of the record does not say that the slot is done with the lane."""
    world = World(rules)
    world.assign()
    world.read([0], key=b"a")
    world.tick(1)
    item = world.ready[0]
    (run,) = item.runs if isinstance(item, Batch) else [item]
    assert isinstance(run, Run)


def lane_of(count: int) -> tuple[Lanes, Run, list[Delivery]]:
    """A lane with so many records, its run, which nobody visits, and what is in it."""
    found = deliveries(count)
    lanes = Lanes()
    run = lanes.admit("a", found[0])
    assert run is not None
    for delivery in found[1:]:
        assert lanes.admit("a", delivery) is None
    return lanes, run, found


class TestLent:
    """The first record of a lane is tried by itself; the rest waits until that has been left."""

    def test_it_is_alone_in_its_run(self) -> None:
        """And what is behind it is told of."""
        lanes, run, found = lane_of(3)
        first = lanes.lend(run)
        assert list(first) == [found[0]]
        assert lanes.has(first)
        assert not lanes.has(run)
        assert lanes.records() == 3
        assert first.popleft() is found[0]
        assert (lanes.records(), lanes.behind(found[0])) == (2, 2)

    def test_once_it_was_left_the_rest_goes_out(self) -> None:
        """In order, with what has come meanwhile."""
        lanes, run, found = lane_of(2)
        (late,) = deliveries(1)
        first = lanes.lend(run)
        first.popleft()
        assert lanes.admit("a", late) is None
        assert not first, "it would be started behind the trial, and be none"
        again = lanes.left(first)
        assert again is not None
        assert list(again) == [found[1], late]
        assert lanes.has(again)
        assert found[1].run is late.run is again

    def test_what_is_read_together_joins_what_is_behind_it(self) -> None:
        """Whole reads go the same way."""
        world = World(BY_KEY)
        world.assign()
        world.engine.hold("bill", 1.0, "away", world.now)
        world.read([0, 1], key=b"a")
        handler = world.engine.state.handlers["bill"]
        run = handler.queue.items.popleft()
        assert isinstance(run, Run)
        first = handler.lanes.lend(run)
        world.read([2, 3], key=b"a")
        assert [d.offset for d in first] == [0]
        assert [d.offset for d in handler.lanes.whole(first)] == [0, 1, 2, 3]

    def test_a_lane_that_has_nothing_more_is_forgotten(self) -> None:
        """It was all there was."""
        lanes, run, _ = lane_of(1)
        first = lanes.lend(run)
        first.popleft()
        assert lanes.left(first) is None
        assert len(lanes) == 0
        assert lanes.records() == 0

    def test_given_back_it_is_the_first_of_its_lane_again(self) -> None:
        """Nobody has started it; who has the lent run finds nothing in it."""
        lanes, run, found = lane_of(3)
        first = lanes.lend(run)
        whole = lanes.whole(first)
        assert list(whole) == found
        assert (list(first), lanes.has(whole), lanes.has(first)) == ([], True, False)
        assert all(delivery.run is whole for delivery in found)
        assert lanes.whole(whole) is whole
        assert lanes.left(first) is None
        assert list(lanes.lend(whole)) == [found[0]]

    def test_what_is_no_longer_its_lanes_stays_as_it_is(self) -> None:
        """The lane has gone on, and is lent anew; an old run is given back then."""
        lanes, run, found = lane_of(3)
        old = lanes.lend(run)
        old.popleft()
        rest = lanes.seize(old)
        assert rest is not None
        lanes.lend(rest)
        assert lanes.whole(old) is old
        assert not old
        assert lanes.records() == len(found) - 1

    def test_a_stuck_trial_lets_its_lane_go_on(self) -> None:
        """What is behind it goes out in order."""
        lanes, run, found = lane_of(3)
        first = lanes.lend(run)
        first.popleft()
        rest = lanes.seize(first)
        assert rest is not None
        assert list(rest) == found[1:]
        assert lanes.left(first) is None
        assert lanes.behind(found[0]) == 0
        rest.clear()
        assert lanes.left(rest) is None
        assert len(lanes) == 0

    @pytest.mark.parametrize("again", [True, False], ids=["again", "dead-lettered"])
    def test_a_trial_that_failed_holds_its_lane(self, again: bool) -> None:
        """All of it is in one run, which waits for the head, and what comes joins it."""
        lanes, run, found = lane_of(3)
        (late,) = deliveries(1)
        head = found[0]
        first = lanes.lend(run)
        first.popleft()
        lanes.block("a", head, again=again)
        assert lanes.admit("a", late) is None
        assert head.assignment.held == (3 if again else 2)
        assert late.assignment.held == 1
        assert lanes.left(first) is None
        rest = lanes.go_on("a", head, settled=not again)
        assert rest is not None
        assert list(rest) == [head, *found[1:], late][0 if again else 1 :]

    def test_a_trial_that_asked_for_a_pause_is_the_first_again(self) -> None:
        """Put back while its lane is lent."""
        lanes, run, found = lane_of(3)
        first = lanes.lend(run)
        first.popleft()
        rest = lanes.put_back("a", [found[0]])
        assert list(rest) == found
        assert lanes.left(first) is None
        assert lanes.left(rest) is rest

    def test_a_partition_takes_what_is_lent_along(self) -> None:
        """Its next assignment begins with a lane that is idle."""
        found = deliveries(2)
        lanes = Lanes()
        lane = found[0].lane(by_key=False)
        (run,) = lanes.admit_all(found, by_key=False)
        assert isinstance(run, Run)
        first = lanes.lend(run)
        lanes.drop("orders", 0)
        assert (len(lanes), lanes.records(), lanes.idle(lane)) == (0, 0, True)
        assert lanes.left(first) is None
        assert lanes.admit(lane, found[1]) is not None

    def test_behind_a_lone_delivery_that_was_given_up_is_nothing(self) -> None:
        """Its lane goes on without it, and what is tried there has the rest behind it."""
        lone, *found = deliveries(3)
        lanes = Lanes()
        lane = lone.lane(by_key=False)
        lanes.admit_all([lone], by_key=False)
        lanes.admit_all(found, by_key=False)
        assert lanes.behind(lone) == 2
        (run,) = lanes.ended([lone])
        first = lanes.lend(run)
        assert first.popleft() is found[0]
        assert (lanes.behind(lone), lanes.behind(found[0])) == (0, 1)
        assert lone.lone == lane


class TestBegins:
    """Whether a lane has a record that may start."""

    def test_what_may_start_stays(self) -> None:
        """It is not taken by the question."""
        lanes, run, found = lane_of(2)
        assert lanes.begins(run)
        assert list(run) == found

    def test_what_may_not_any_more_is_passed_over(self) -> None:
        """It has ended; the next one is the first."""
        lanes, run, found = lane_of(3)
        found[0].closed = found[1].closed = True
        assert lanes.begins(run)
        assert list(run) == [found[2]]

    @pytest.mark.parametrize("stopping", [True, False], ids=["stopping", "closed"])
    def test_a_lane_that_has_nothing_else_is_forgotten(self, stopping: bool) -> None:
        """An idle lane costs nothing."""
        lanes, run, found = lane_of(2)
        for delivery in found:
            delivery.closed = not stopping
        found[0].assignment.stopping = stopping
        assert not lanes.begins(run)
        assert len(lanes) == 0

    def test_an_old_run_changes_nothing(self) -> None:
        """Its lane has another one by now."""
        lanes, run, _ = lane_of(2)
        assert lanes.seize(run) is not None
        assert not lanes.begins(run)
        assert len(lanes) == 1


class LanesMachine(RuleBasedStateMachine):
    """One lane, many workers: take, finish, find it empty, get stuck, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes()
        self.ready: deque[Run] = deque()
        self.spare = deliveries(60)
        self.admitted: list[Delivery] = []
        self.taken: list[Delivery] = []
        #: Each worker's run, and what it handles; a stuck one is forgotten by the owner.
        self.workers: list[tuple[Run, Delivery]] = []
        self.stuck: list[Run] = []
        self.empty: list[Run] = []

    def out(self, run: Run | None) -> None:
        """The owner hands a run out."""
        if run is not None:
            self.ready.append(run)

    @precondition(lambda self: self.spare)
    @rule()
    def admit(self) -> None:
        """A record is read."""
        delivery = self.spare.pop(0)
        self.admitted.append(delivery)
        self.out(self.lanes.admit("a", delivery))

    def take(self, run: Run) -> None:
        """A worker claims the next record of its run, or finds the run empty."""
        if run:
            delivery = run.popleft()
            self.taken.append(delivery)
            self.workers.append((run, delivery))
        else:
            self.empty.append(run)

    @precondition(lambda self: self.ready)
    @rule()
    def begin(self) -> None:
        """A worker takes a run."""
        self.take(self.ready.popleft())

    @precondition(lambda self: self.ready)
    @rule()
    def lend(self) -> None:
        """A lane that waits is tried by its first record."""
        run = self.ready.popleft()
        if self.lanes.begins(run):
            self.ready.append(self.lanes.lend(self.lanes.whole(run)))

    @precondition(lambda self: self.ready)
    @rule()
    def take_back(self) -> None:
        """What no worker has taken is given back."""
        self.ready.append(self.lanes.whole(self.ready.popleft()))

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def leave_early(self, data: st.DataObject) -> None:
        """A worker leaves its run after the record at hand, empty or not."""
        run, delivery = data.draw(st.sampled_from(self.workers))
        self.workers.remove((run, delivery))
        self.empty.append(run)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """A worker goes on with its run."""
        run, delivery = data.draw(st.sampled_from(self.workers))
        self.workers.remove((run, delivery))
        self.take(run)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def time_out(self, data: st.DataObject) -> None:
        """A worker is stuck; its lane goes on without it."""
        run, delivery = data.draw(st.sampled_from(self.workers))
        self.workers.remove((run, delivery))
        self.stuck.append(run)
        self.out(self.lanes.seize(run))

    @precondition(lambda self: self.stuck)
    @rule()
    def come_back(self) -> None:
        """A stuck worker finds its old run empty after all."""
        run = self.stuck.pop()
        assert not run
        self.empty.append(run)

    @precondition(lambda self: self.empty)
    @rule()
    def left(self) -> None:
        """The owner hears of an empty run."""
        self.out(self.lanes.left(self.empty.pop(0)))

    @precondition(lambda self: self.empty)
    @rule()
    def all_left(self) -> None:
        """The owner hears of all empty runs at once."""
        empty, self.empty = self.empty, []
        for run in self.lanes.left_all(empty):
            self.out(run)

    @invariant()
    def one_at_a_time_in_order_and_none_forgotten(self) -> None:
        """L1 to L3, and no record stays behind in a run that nobody holds."""
        assert len(self.workers) <= 1
        assert self.taken == self.admitted[: len(self.taken)]
        assert self.lanes.records() == len(self.admitted) - len(self.taken)

    def teardown(self) -> None:
        """Whoever visits the lane to its end has taken all that was admitted."""
        while self.ready or self.workers or self.empty:
            if self.ready:
                self.begin()
            elif self.workers:
                self.take(self.workers.pop()[0])
            else:
                self.all_left()
        assert self.taken == self.admitted
        assert len(self.lanes) == 0


TestLanes = LanesMachine.TestCase
TestLanes.settings = examples(60, 30)
