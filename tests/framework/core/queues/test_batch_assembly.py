"""Forming: what one call of a batch handler takes."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.queues.batch_assembly import (
    form,
    form_single,
    full_first,
    is_full,
    may_fill,
    unform,
)
from ackfloor.core.queues.lanes import Lane
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.envelope import Envelope
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from tests.examples import examples
from tests.framework.core.worlds import BATCH, batch_deliveries, lanes_of, offsets_of

Items = deque[TrackedDelivery | Lane]


def deliveries(
    count: int, ordering: str = "unordered", redelivered: int = -1
) -> list[TrackedDelivery]:
    """Deliveries of a handler that takes three at once; one of them comes again, if so named."""
    found = batch_deliveries(count, ordering)
    if redelivered >= 0:
        found[redelivered].envelope = Envelope()
    return found


def made_lanes(lengths: list[int], ordering: str = "key", redelivered: int = -1) -> list[Lane]:
    """Lanes of so many records each."""
    return lanes_of(deliveries(sum(lengths), ordering, redelivered), lengths)


def formed(items: Items) -> Batch:
    """The first batch of a queue."""
    batch = form(items)
    assert all(delivery.batch is batch for delivery in batch.items)
    return batch


def test_of_an_unordered_handler_it_takes_whatever_comes_first() -> None:
    """As much as fits."""
    items: Items = deque(deliveries(5))
    batch = formed(items)
    assert (offsets_of([batch]), offsets_of(items)) == ([0, 1, 2], [3, 4])
    assert is_full(batch)
    batch = formed(items)
    assert offsets_of([batch]) == [3, 4]
    assert not is_full(batch)


@pytest.mark.parametrize("which", [0, 1])
def test_a_redelivery_has_nothing_beside_it(which: int) -> None:
    """Neither what comes before it nor what comes after."""
    items: Items = deque(deliveries(3, redelivered=which))
    batches = []
    while items:
        batches.append(formed(items))
    assert [offsets_of([b]) for b in batches] == ([[0], [1, 2]], [[0], [1], [2]])[which]
    assert is_full(batches[which])


def test_by_key_it_takes_one_lane_after_the_other() -> None:
    """The last of them perhaps in part: who has the batch has that lane as well."""
    items: Items = deque(made_lanes([1, 1, 3, 1]))
    batch = formed(items)
    assert offsets_of([batch]) == [0, 1, 2]
    assert [len(lane) for lane in batch.lanes] == [0, 0, 2]
    assert offsets_of(items) == [5]


def test_by_key_an_incomplete_one_has_all_there_is() -> None:
    """Nothing is left that could join it."""
    items: Items = deque(made_lanes([1, 1]))
    batch = formed(items)
    assert (offsets_of([batch]), is_full(batch), len(items)) == ([0, 1], False, 0)


def test_by_partition_it_takes_one_lane() -> None:
    """However few records that has."""
    items: Items = deque(made_lanes([2, 2], "partition"))
    batch = formed(items)
    assert (offsets_of([batch]), is_full(batch)) == ([0, 1], False)
    assert offsets_of(items) == [2, 3]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_redelivery_in_a_lane_has_nothing_beside_it(which: int) -> None:
    """At the head of its lane, and behind others of its own or of another lane."""
    items: Items = deque(made_lanes([2, 1], redelivered=which))
    batch = formed(items)
    assert offsets_of([batch]) == ([0], [0, 2], [0, 1])[which]
    assert [len(lane) for lane in items] == ([1], [], [1])[which]  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [1, 3])
def test_nothing_behind_what_is_on_its_way_to_the_dead_letters_is_taken(length: int) -> None:
    """It may not start before; the lane is the batch's to give back."""
    items: Items = deque(made_lanes([length]))
    (lane,) = lanes = list(items)
    lane[0].closed = True  # type: ignore[index]
    batch = formed(items)
    assert (batch.items, batch.lanes) == ([], lanes)
    assert is_full(batch), "nothing could join it"


def test_an_empty_lane_is_the_batchs_to_give_back() -> None:
    """Together with the next one that has something, if there is one."""
    items: Items = deque(made_lanes([1, 2]))
    items[0].popleft()  # type: ignore[union-attr]
    batch = formed(items)
    assert (offsets_of([batch]), len(batch.lanes)) == ([1, 2], 2)
    batch.lanes[1].clear()
    items.append(batch.lanes[1])
    assert formed(items).items == []


def test_alone_it_takes_one_record() -> None:
    """Of a lane the first one, whose end the others wait for."""
    (loose, _) = deliveries(2)
    assert form_single(loose).items == [loose]
    (lane,) = made_lanes([3])
    batch = form_single(lane)
    assert (offsets_of([batch]), batch.lanes, offsets_of([lane])) == ([0], [lane], [1, 2])
    assert batch.items[0].batch is batch


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "closed"])
def test_alone_a_lane_may_have_nothing_to_start(empty: bool) -> None:
    """It is empty, or its head is on its way to the dead letters."""
    (lane,) = made_lanes([1])
    if empty:
        lane.clear()
    else:
        lane[0].closed = True
    batch = form_single(lane)
    assert (batch.items, batch.lanes) == ([], [lane])


@pytest.mark.parametrize("lengths", [[5], [1, 1, 4], [2, 2], [1, 1]])
def test_undone_everything_is_where_it_was(lengths: list[int]) -> None:
    """First in the queue, and in its lane."""
    items: Items = deque(made_lanes(lengths))
    before = list(items)
    unform(formed(items), items)
    assert list(items) == before
    assert [len(lane) for lane in before] == lengths  # type: ignore[arg-type]
    assert offsets_of(items) == list(range(sum(lengths)))


def test_undone_loose_records_are_first() -> None:
    """In their order."""
    items: Items = deque(deliveries(5))
    unform(formed(items), items)
    assert offsets_of(items) == [0, 1, 2, 3, 4]


def test_undone_a_lane_of_a_partition_that_has_left_is_not_queued_again() -> None:
    """Nobody hands it out any more."""
    items: Items = deque(made_lanes([1, 1]))
    batch = formed(items)
    batch.lanes[0].out = None
    unform(batch, items)
    assert offsets_of(items) == [1]


@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    ordering=st.sampled_from(["key", "partition", "unordered"]),
    redelivered=st.integers(-1, 20),
)
@examples(200)
def test_whether_one_may_be_full_is_never_denied_wrongly(
    lengths: list[int], ordering: str, redelivered: int
) -> None:
    """Where one that is full could be formed; by partition the full lane is the first then."""
    count = sum(lengths)
    which = redelivered if redelivered < count else -1
    if ordering == "unordered":
        items: Items = deque(deliveries(count, redelivered=which))
    else:
        items = deque(made_lanes(lengths, ordering, which))
    could = may_fill(items, BATCH) if ordering != "partition" else full_first(items, BATCH)
    assert offsets_of(sorted(items, key=lambda item: offsets_of([item]))) == list(range(count))
    assert could or not is_full(formed(items))
