"""Lanes in the engine: what slots are given, and how lanes go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import ACKED, Discarded, Failed, Outcome
from ackfloor.core.records.record import Failure
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import MemoryRecord, World, offsets_of

BY_KEY = HandlerRules("bill", "key")


class TestInTheEngine:
    """What slots are given, and how lanes go on."""

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
        assert [offsets_of([unit]) for unit in world.ready] == [[1, 2]]

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

    @pytest.mark.parametrize("outcome", [ACKED, Discarded("old"), Failed(Failure("Boom", "x"))])
    @pytest.mark.parametrize("offsets", [[0], [0, 1]], ids=["bare", "work"])
    def test_what_comes_behind_what_is_out_waits_for_its_end(
        self, offsets: list[int], outcome: Outcome
    ) -> None:
        """However it ends; of a work, once it is through, or one of its records failed."""
        world = World(BY_KEY)
        world.assign()
        world.read(offsets, key=b"a")
        first = world.start()
        world.read([2, 3], key=b"a")
        world.read([4], key=b"a")
        assert not world.ready
        world.finish(first, outcome)
        left = offsets[1:]
        if left and not isinstance(outcome, Failed):
            assert not world.ready, "its slot goes on with the rest"
            world.leave(first)
        assert [offsets_of([unit]) for unit in world.ready] == [[*left, 2, 3, 4]]
        world.leave(first)
        assert len(world.ready) == 1

    @pytest.mark.parametrize("offsets", [[0], [0, 1]], ids=["bare", "work"])
    def test_what_comes_behind_what_is_out_waits_for_its_deadline_at_most(
        self, offsets: list[int]
    ) -> None:
        """Its late answer, and the end of its work, do not start anything."""
        world = World(BY_KEY)
        world.assign()
        world.read(offsets, key=b"a")
        stuck = world.start()
        world.read([2], key=b"a")
        world.now_s += 60
        world.expire(stuck)
        assert [offsets_of([unit]) for unit in world.ready] == [[*offsets[1:], 2]]
        world.finish(stuck)
        world.leave(stuck)
        assert len(world.ready) == 1

    def test_a_bare_delivery_is_the_last_of_its_lane(self) -> None:
        """An idle lane costs nothing, and its next record is handed out bare as well."""
        world = World(BY_KEY)
        world.assign()
        for offset in range(3):
            world.read([offset], key=b"a")
            assert isinstance(world.ready[0], TrackedDelivery)
            world.finish(world.start())
            assert len(world.engine.state.handlers["bill"].lanes) == 0

    @pytest.mark.parametrize("offsets", [[0], [0, 1]], ids=["bare", "work"])
    def test_a_dropped_partition_takes_what_is_out_along(self, offsets: list[int]) -> None:
        """And what is behind it; an answer that comes then is late."""
        world = World(BY_KEY)
        world.assign()
        world.read(offsets, key=b"a")
        first = world.start()
        world.read([2], key=b"a")
        world.revoke()
        world.finish(first)
        world.leave(first)
        assert not world.ready
        world.assign()
        world.read([0], key=b"a")
        world.finish(world.start())
        assert not world.ready

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

    @pytest.mark.parametrize(
        "rules",
        [replace(BY_KEY, manual=True), replace(BY_KEY, killable=True), replace(BY_KEY, batch=2)],
        ids=["manual", "process", "batch"],
    )
    def test_where_a_slot_is_busy_beyond_its_record_nothing_is_bare(
        self, rules: HandlerRules
    ) -> None:
        """The end of the record does not say that the slot is done with the lane."""
        world = World(rules)
        world.assign()
        world.read([0], key=b"a")
        world.tick(1)
        (unit,) = world.ready
        assert isinstance(unit, Batch if rules.batch else Work)
        assert offsets_of([unit]) == [0]
        lanes = unit.lanes if isinstance(unit, Batch) else [unit.lane]
        assert [lane.out is unit for lane in lanes] == [True]
