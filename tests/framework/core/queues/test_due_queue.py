"""The queue of what waits for its time: D1 and D2, whatever is put in and taken out."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.queues.due_queue import DueQueue
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from tests.examples import examples
from tests.framework.core.worlds import World

TIMES = st.sampled_from([1.0, 2.0, 2.5, 7.0])


def deliveries(count: int) -> list[TrackedDelivery]:
    """Deliveries of one partition."""
    world = World()
    world.assign()
    world.read(range(count))
    return [world.start() for _ in range(count)]


def offsets(queue: DueQueue) -> list[int]:
    """Everything, in the order in which it comes out."""
    return [queue.pop().record_offset for _ in range(len(queue))]


def test_an_empty_queue_is_never_due() -> None:
    """Nobody has to look."""
    queue = DueQueue()
    assert (queue.next_s, len(queue), queue.size, list(queue)) == (inf, 0, 0, [])


@given(times=st.lists(TIMES, max_size=12), order=st.randoms())
@examples(100)
def test_what_is_due_first_comes_first(times: list[float], order: object) -> None:
    """Of one time the lower offset."""
    queue, made = DueQueue(), deliveries(len(times))
    pairs = list(zip(times, made, strict=True))
    order.shuffle(pairs)  # type: ignore[attr-defined]
    for due_s, delivery in pairs:
        queue.put(due_s, delivery)
    expected = sorted((due_s, d.record_offset) for due_s, d in pairs)
    assert queue.size == sum(d.size for d in made)
    assert queue.next_s == (expected[0][0] if expected else inf)
    assert not expected or queue.first.record_offset == expected[0][1]
    assert offsets(queue) == [offset for _, offset in expected]
    assert queue.size == 0


@given(times=st.lists(TIMES, min_size=1, max_size=12), chosen=st.sets(st.integers(0, 14)))
@examples(100)
def test_what_is_taken_out_is_no_longer_in_it(times: list[float], chosen: set[int]) -> None:
    """Wherever it stands; it comes with its time, and can be put in again with another."""
    queue, made = DueQueue(), deliveries(len(times))
    for due_s, delivery in zip(times, made, strict=True):
        queue.put(due_s, delivery)
    taken = queue.take(chosen)
    assert taken == sorted(
        ((times[o], made[o]) for o in chosen if o < len(times)),
        key=lambda entry: (entry[0], entry[1].record_offset),
    )
    left = {d.record_offset for d in queue}
    assert left == set(range(len(times))) - chosen
    assert queue.size == sum(made[o].size for o in left)
    for _, delivery in taken:
        queue.put(0.5, delivery)
    again = sorted(d.record_offset for _, d in taken)
    assert offsets(queue)[: len(again)] == again


@given(times=st.lists(TIMES, max_size=12), most=st.integers(0, 6))
@examples(100)
def test_only_what_is_due_is_popped_as_such(times: list[float], most: int) -> None:
    """In order, and no more than was asked for."""
    queue, made = DueQueue(), deliveries(len(times))
    queue.put_all(times, made, sum(d.size for d in made))
    due = sorted((at_s, n) for n, at_s in enumerate(times) if at_s <= 2.5)[:most]
    assert [d.record_offset for d in queue.pop_due(2.5, most)] == [n for _, n in due]
    assert len(queue) == len(times) - len(due)
    assert queue.size == sum(d.size for d in queue)


def test_what_is_hastened_is_due() -> None:
    """What was due before keeps its time, and so its place."""
    queue, made = DueQueue(), deliveries(3)
    for due_s, delivery in zip((9.0, 2.0, 5.0), made, strict=True):
        queue.put(due_s, delivery)
    queue.hasten(4.0)
    assert queue.next_s == 2.0
    assert queue.pop() is made[1]
    assert queue.next_s == 4.0
    assert offsets(queue) == [0, 2]


def test_what_is_forgotten_waits_no_longer() -> None:
    """Its partition has left."""
    queue = DueQueue()
    for delivery in deliveries(3):
        queue.put(1.0, delivery)
    queue.clear()
    assert (queue.next_s, len(queue), queue.size) == (inf, 0, 0)
