"""Lanes: one at a time and in offset order, whatever the workers and the owner do."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ackfloor.core.assignment import HandlerRules
from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Lanes, Run
from ackfloor.core.messages import Dispatch
from ackfloor.core.model import Failure
from ackfloor.core.outcomes import ACKED, Discarded, Failed, Outcome
from tests.examples import examples
from tests.framework.core.worlds import World


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


def test_a_batch_is_dispatched_in_one_command() -> None:
    """Its new lanes go out together; those that are out already are not named again."""
    world = World(HandlerRules("bill", "key"))
    world.assign()
    world.read([0], key=b"a")
    world.read([1, 2], key=b"a")
    dispatches = [c for c in world.commands if isinstance(c, Dispatch)]
    assert [len(d.items) for d in dispatches] == [1]


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
    assert isinstance(world.ready[0], Run)


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
        held = [*self.ready, *(run for run, _ in self.workers), *self.empty]
        assert sum(len(run) for run in {id(run): run for run in held}.values()) == len(
            self.admitted
        ) - len(self.taken)


TestLanes = LanesMachine.TestCase
TestLanes.settings = examples(60, 30)
