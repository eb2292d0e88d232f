"""Quarantine: the records of one key, by origin offset, wherever they are; its three invariants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.queues.quarantine import Quarantine, Tally, Unread
from ackfloor.core.records.envelope import Envelope
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import Assignment
from tests.framework.core.quarantine_worlds import LONG, SHORT, SOURCE, QuarantineWorld, rules
from tests.framework.core.worlds import MemoryRecord


@pytest.fixture
def world() -> QuarantineWorld:
    """A world with its partitions."""
    world = QuarantineWorld(rules())
    world.gain()
    return world


@pytest.fixture
def tier(world: QuarantineWorld) -> Assignment:
    """A partition of a retry topic."""
    return world.engine.assignments[SHORT, 0]


def quarantine(*offsets: int, at: Assignment) -> Quarantine:
    """Records that are to be read from a retry partition."""
    made = Quarantine((SOURCE, 0, b"a"), 0, Tally(), 0)
    made.fill((offset, Unread(at, None)) for offset in offsets)
    return made


def delivery(of: Assignment, offset: int) -> TrackedDelivery:
    """A record that was read."""
    return TrackedDelivery(of, MemoryRecord(of.topic, 0, offset, _key=b"a"), offset, 2, 0.0)


def origin(of: Assignment, offset: int, first: int, written_ms: int) -> TrackedDelivery:
    """A record that was read, first delivered at that offset of a source record of that time."""
    read = delivery(of, offset)
    read.envelope = Envelope(
        origin_topic=SOURCE,
        origin_partition=0,
        origin_offset=first,
        origin_timestamp_ms=written_ms,
    )
    return read


def writing(of: Assignment, offset: int) -> PendingWrite:
    """A record that is being written."""
    return PendingWrite(delivery(of, offset), None, Envelope(), 0.0)


def test_the_head_is_the_lowest_that_is_not_resolved(tier: Assignment) -> None:
    """Q1: in whatever order they come and are resolved."""
    found = quarantine(7, 3, at=tier)
    found.put(5, Unread(tier, None))
    assert found.head == 3
    found.resolve(5)
    found.resolve(3)
    assert found.head == 7
    found.put(1, Unread(tier, None))
    assert found.head == 1
    found.resolve(1)
    found.resolve(7)
    assert found.head is None
    assert len(found) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=40))
def test_the_head_is_the_lowest_after_any_changes(steps: list[tuple[bool, int]]) -> None:
    """Q1 against a set: also of a record that comes once more after it was resolved."""
    world = QuarantineWorld(rules())
    world.gain()
    tier = world.engine.assignments[SHORT, 0]
    found, model = Quarantine((SOURCE, 0, b"a"), 0, Tally(), 0), set[int]()
    for comes, offset in steps:
        if comes:
            found.put(offset, Unread(tier, None))
            model.add(offset)
        elif offset in model:
            found.resolve(offset)
            model.discard(offset)
        assert found.head == min(model, default=None)
        assert len(found) == len(model)


def test_a_record_is_in_it_once_wherever_it_goes(tier: Assignment) -> None:
    """Q2: to be read, read, and being written are places of one record."""
    found, read, write = quarantine(4, at=tier), delivery(tier, 0), writing(tier, 0)
    for place in (Unread(tier, None), read, write):
        found.put(4, place)
        assert found.at(4) is place
        assert len(found) == 1
        assert 4 in found
    found.resolve(4)
    assert 4 not in found
    assert found.head is None


def test_the_partition_of_one_of_two_records_with_one_offset_leaves(
    world: QuarantineWorld, tier: Assignment
) -> None:
    """Q4: its copies from elsewhere stay, once as a record and then as twins of that."""
    other_tier = world.engine.assignments[LONG, 0]
    found = quarantine(at=tier)
    first, other = origin(tier, 0, 4, 100), origin(other_tier, 0, 4, 200)
    copies = [origin(tier, number, 4, 200) for number in (1, 2)]
    found.put(4, first)
    found.add(4, other)
    for copy in copies:
        found.twin(4, copy)
    found.forget(other_tier)
    assert len(found) == 2
    left = [found.at(4)]
    twins = found.resolve(4)
    left.append(found.at(4))
    twins += found.resolve(4)
    assert sorted(map(id, [*left, *twins])) == sorted(map(id, [first, *copies]))
    assert len(found) == 0


def test_what_is_pending_is_in_the_order_of_its_offsets(world: QuarantineWorld) -> None:
    """Q3: also where what comes last was before the others."""
    source = world.engine.assignments[SOURCE, 0]
    found = Quarantine((SOURCE, 0, b"a"), 0, Tally(), 0)
    found.pend([])
    assert list(found.pending) == []
    found.pend([delivery(source, 5), delivery(source, 8)])
    found.pend([delivery(source, 9)])
    found.pend([delivery(source, 2), delivery(source, 6)])
    assert [d.record_offset for d in found.pending] == [2, 5, 6, 8, 9]
    assert [d.record_offset for d in found.take_pending(2)] == [2, 5]
    assert [d.record_offset for d in found.take_pending()] == [6, 8, 9]
    assert found.take_pending() == []
    assert list(found.pending) == []


def test_how_many_wait_behind_the_head(world: QuarantineWorld, tier: Assignment) -> None:
    """What is pending waits as well; where nothing but that is left, all of it does."""
    found = quarantine(3, 4, 5, at=tier)
    assert found.behind == 2
    found.pend([delivery(world.engine.assignments[SOURCE, 0], 9)])
    assert found.behind == 3
    for offset in (3, 4, 5):
        found.resolve(offset)
    assert found.behind == 1


def test_a_twin_leaves_with_its_record(tier: Assignment) -> None:
    """And is told to whoever resolves it, once."""
    found = quarantine(3, 4, at=tier)
    one, two = delivery(tier, 7), delivery(tier, 8)
    found.twin(3, one)
    found.twin(3, two)
    assert found.take_twins(4) == []
    assert found.resolve(3) == [one, two]
    assert found.take_twins(3) == []


def test_the_condemned_are_all_but_the_head(tier: Assignment) -> None:
    """Those that come later and belong among them are counted; those behind them are spared."""
    found = quarantine(3, 4, 6, at=tier)
    found.condemn()
    assert (found.condemned, found.condemned_count) == (6, 2)
    found.put(5, Unread(tier, None))
    found.put(9, Unread(tier, None))
    assert found.condemned_count == 3
    found.resolve(9)
    found.resolve(5)
    found.resolve(4)
    assert found.condemned_count == 1
    found.put(6, delivery(tier, 0))
    assert found.condemned_count == 1
    found.spare()
    assert (found.condemned, found.condemned_count) == (-1, 0)
    found.resolve(6)
    assert found.condemned_count == 0


def test_none_are_condemned_when_the_head_they_go_with_is_gone(tier: Assignment) -> None:
    """Its log has lost it, for example; with the next head that is held they go as well."""
    found = quarantine(3, 4, 6, at=tier)
    found.condemn()
    found.resolve(3)
    found.put(6, delivery(tier, 0))
    assert (found.condemned, found.condemned_count) == (-1, 0)
    assert found.take_condemned() == []
    found.condemn()
    assert found.condemned_count == 1
    assert len(found.take_condemned()) == 1
    found.resolve(6)
    assert found.condemned_count == 0


def test_what_has_to_be_read_for_it_to_go_on(world: QuarantineWorld, tier: Assignment) -> None:
    """The head's partition; where records are condemned, those of all of them."""
    longer = world.engine.assignments[LONG, 0]
    found = quarantine(3, at=tier)
    found.put(4, Unread(longer, None))
    assert found.unread() == {tier}
    found.condemn()
    assert found.unread() == {tier, longer}
    found.spare()
    found.put(3, delivery(tier, 0))
    assert found.unread() == set()
    found.put(3, writing(tier, 0))
    assert found.unread() == set()
    assert Quarantine((SOURCE, 0, b"b"), 0, Tally(), 0).unread() == set()


def test_nothing_is_left_of_a_partition_that_has_gone(
    world: QuarantineWorld, tier: Assignment
) -> None:
    """Whatever it was there: to be read, read, being written, a twin, or the current head."""
    longer = world.engine.assignments[LONG, 0]
    found = quarantine(3, 7, at=tier)
    found.put(4, delivery(tier, 1))
    found.put(5, writing(tier, 2))
    found.put(6, Unread(longer, None))
    here, there = delivery(longer, 0), delivery(tier, 3)
    found.twin(6, there)
    found.twin(6, here)
    found.current = delivery(tier, 0)
    found.forget(tier)
    assert (found.head, len(found)) == (6, 1)
    assert found.current is None
    assert found.take_twins(6) == [here]


def test_a_head_of_another_partition_stays(world: QuarantineWorld, tier: Assignment) -> None:
    """What has gone was not its partition."""
    longer = world.engine.assignments[LONG, 0]
    found = quarantine(3, at=longer)
    found.current = delivery(longer, 0)
    found.put(3, found.current)
    found.forget(tier)
    assert found.current is not None
    assert found.head == 3


def test_what_was_to_be_read_never_comes(world: QuarantineWorld, tier: Assignment) -> None:
    """Of a partition whose log is gone; what was read of it stays."""
    found = quarantine(3, 4, at=tier)
    found.put(4, delivery(tier, 1))
    assert found.forget_unread(tier)
    assert found.head == 4
    assert not found.forget_unread(tier)
    assert not found.forget_unread(world.engine.assignments[LONG, 0])


# Several with one offset.


def test_two_records_of_one_offset_are_both_in_it(tier: Assignment) -> None:
    """Q4: each leaves by itself, and takes its own copies along."""
    tally = Tally()
    found = Quarantine((SOURCE, 0, b"a"), 0, tally, 0)
    found.fill([(3, Unread(tier, 10)), (3, Unread(tier, 20)), (4, Unread(tier, 30))])
    assert (len(found), tally.count, found.behind) == (3, 3, 2)
    assert found.has_at(3, 10)
    old = origin(tier, 0, 3, 10)
    found.put(3, old)
    assert found.has_at(3, 20)
    new, copy = origin(tier, 1, 3, 20), origin(tier, 2, 3, 20)
    found.put(3, new)
    found.twin(3, copy)
    assert found.has(origin(tier, 9, 3, 10))
    assert found.at(3) is old
    assert found.resolve(3) == []
    assert found.at(3) is new
    assert not found.has_at(3, 10)
    assert found.resolve(3) == [copy]
    assert (found.head, len(found), tally.count) == (4, 1, 1)


def test_of_two_with_one_offset_that_which_was_read_goes_first(tier: Assignment) -> None:
    """The other may have to wait for the room that it takes."""
    found = quarantine(at=tier)
    found.put(3, Unread(tier, 10))
    read = origin(tier, 0, 3, 20)
    found.add(3, read)
    assert found.at(3) is read
    assert found.has_at(3, 10)
    found.put(3, Unread(tier, 10))
    assert found.at(3) is read


def test_all_with_one_offset_are_dead_lettered_behind_the_head(tier: Assignment) -> None:
    """One after the other."""
    found = quarantine(3, at=tier)
    first, second = origin(tier, 0, 4, 10), origin(tier, 1, 4, 20)
    found.add(4, first)
    found.add(4, second)
    found.condemn()
    assert found.take_condemned() == [first]
    assert found.take_condemned() == []
    found.resolve(4)
    assert found.condemned_count == 1
    assert found.take_condemned() == [second]


def test_a_copy_takes_the_place_of_one_whose_partition_has_gone(
    world: QuarantineWorld, tier: Assignment
) -> None:
    """It was read, and nothing else would end it."""
    longer = world.engine.assignments[LONG, 0]
    found = quarantine(at=tier)
    found.put(3, origin(tier, 0, 3, 10))
    found.add(3, origin(tier, 1, 3, 20))
    found.add(3, origin(longer, 0, 3, 30))
    copy = origin(longer, 1, 3, 10)
    found.twin(3, copy)
    found.forget(tier)
    assert len(found) == 2
    assert found.has_at(3, 10)
    assert found.at(3) is copy
    assert found.has_at(3, 30)
    assert not found.has_at(3, 20)
