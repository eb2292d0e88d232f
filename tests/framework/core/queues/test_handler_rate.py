"""HandlerRate: what may start, of a rate for the whole group (H1 to H3)."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import cast

import pytest

from ackfloor.core.queues.handler_rate import BURST_S, FEW, LOOK_AGAIN_S, HandlerRate
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.tracked_delivery import TAKES_ROOM, TrackedDelivery
from ackfloor.core.state.assignment import Assignment
from tests.framework.core.worlds import MemoryRecord


def assignment() -> Assignment:
    """A partition that is here."""
    return cast("Assignment", SimpleNamespace(closed=False, stopping=False))


HERE = assignment()


def delivery(of: Assignment = HERE) -> TrackedDelivery:
    """A delivery that nobody has started."""
    return TrackedDelivery(of, MemoryRecord("orders", 0, 0), 0, 2, 0.0)


def full(per_s: float = 10.0, largest: int = 1) -> HandlerRate:
    """A bucket that had all the time it needs, as of second 100."""
    rate = HandlerRate()
    rate.look(per_s, largest, 0.0)
    rate.look(per_s, largest, 100.0)
    return rate


def give(rate: HandlerRate, count: int) -> list[TrackedDelivery]:
    """The executor gets so many."""
    given = [delivery() for _ in range(count)]
    rate.gave(given)
    return given


def test_a_worker_begins_without_tokens_and_gets_its_part() -> None:
    """H1: nothing was saved up before it came."""
    rate = HandlerRate()
    assert rate.look(10.0, 1, 50.0) == 0
    assert rate.look(10.0, 1, 50.09) == 0
    assert rate.look(10.0, 1, 50.1) == 1
    assert rate.per_s == 10.0


def test_the_bucket_holds_a_burst_and_one_call() -> None:
    """H1: however long nothing is read."""
    assert full(10.0).tokens == 1 + BURST_S * 10
    assert full(10.0, largest=20).tokens == 20 + BURST_S * 10
    slow = full(0.01)
    assert slow.tokens == 1
    assert slow.look(0.01, 1, 1_000.0) == 1


def test_a_clock_that_stands_still_or_steps_back_makes_nothing() -> None:
    """Monotonic clocks do not; and a bucket would not notice."""
    rate = full()
    give(rate, 4)
    assert rate.look(10.0, 1, 99.0) == 0
    assert rate.look(10.0, 1, 99.0) == 0


def test_each_record_takes_a_token() -> None:
    """H3: a batch one for each, a work too."""
    rate = full(10.0, largest=20)
    batch = Batch()
    batch.items.extend(delivery() for _ in range(5))
    rate.gave([delivery(), batch, Work([delivery(), delivery()])])
    assert rate.tokens == 23 - 8


def test_what_has_not_started_takes_the_place_of_tokens() -> None:
    """H1: a slot that comes free late adds nothing to what has gathered meanwhile."""
    rate = full(10.0)
    given = give(rate, 4)
    assert rate.look(10.0, 1, 200.0) == 0
    given[2].started_s = 201.0
    assert rate.look(10.0, 1, 201.0) == 0, "no token is made of the time before it started"
    assert rate.look(10.0, 1, 202.0) == 1
    for each in given:
        each.started_s = 203.0
    assert rate.look(10.0, 1, 203.0) == 1
    assert rate.look(10.0, 1, 204.0) == 4


def test_what_comes_back_unstarted_gives_its_tokens_back() -> None:
    """Once, and not what has started meanwhile."""
    rate = full(10.0)
    given = give(rate, 4)
    given[0].started_s = 100.0
    rate.returned(given)
    assert rate.tokens == 3
    rate.returned(given)
    assert rate.tokens == 3


def test_what_never_starts_gives_its_token_back() -> None:
    """Its partition has left, or the delivery has ended."""
    rate, there = full(10.0), assignment()
    of_another, ended = delivery(there), delivery()
    rate.gave([of_another, ended])
    there.closed = ended.closed = True
    assert rate.look(10.0, 1, 100.0) == 4


def test_what_is_kept_from_starting_holds_up_no_other() -> None:
    """H2: a partition that is about to leave may take long to drain, and others go on meanwhile.

    A slot that looked a moment before starts it after all: so its token is not given back (H1).
    """
    rate, leaving = full(10.0), assignment()
    rate.gave([delivery(leaving) for _ in range(4)])
    leaving.stopping = True
    assert rate.look(10.0, 1, 100.0) == 0
    assert rate.look(10.0, 1, 200.0) == 4
    leaving.closed = True
    rate.changes()
    assert rate.tokens == 1


def test_what_came_back_as_if_unstarted_has_taken_its_token() -> None:
    """A handler that asks for a pause has run."""
    rate = full(10.0)
    rate.returned(give(rate, 1))
    rate.started_unseen()
    assert rate.tokens == 3


def test_when_the_part_changes_a_call_is_left_of_what_has_gathered() -> None:
    """H1: no burst, neither here nor where the partition is now; and nothing for the time since."""
    rate = full(10.0)
    rate.changes()
    assert rate.tokens == 1
    give(rate, 1)
    assert rate.look(20.0, 1, 150.0) == 0
    assert rate.look(20.0, 1, 150.05) == 1


def test_a_part_that_changes_all_the_time_has_its_tokens() -> None:
    """H2: a slow rate takes longer for a token than partitions stay."""
    rate = HandlerRate()
    per_s, now_s, started = 10 / 3600, 0.0, 0
    for turn in range(288):
        rate.changes()
        for _ in range(30):
            now_s += 10.0
            if rate.look(per_s * (0.25 + 0.25 * (turn % 2)), 1, now_s):
                give(rate, 1)[0].started_s = now_s
                started += 1
    # Of each five minutes ten seconds are lost, and part of a token may be left in the end.
    assert 0 <= per_s * 0.375 * 288 * 290 - started < 1.001


def test_who_has_lost_its_partitions_keeps_nothing() -> None:
    """H1: another worker has them."""
    rate = full(10.0)
    rate.changes()
    assert rate.look(0.0, 1, 100.0) == 0
    rate.changes()
    assert rate.look(10.0, 1, 200.0) == 0


def test_what_is_owed_is_not_forgiven_by_a_change() -> None:
    """More was given than the smaller bucket holds: as much is not made."""
    rate = full(100.0)
    give(rate, 31)
    rate.changes()
    assert rate.look(1.0, 1, 100.0) == 0
    assert rate.ready_s() > 100.0 + 29


def test_without_a_partition_nothing_starts() -> None:
    """And nothing says when it will."""
    rate = full()
    rate.changes()
    rate.look(0.0, 1, 100.0)
    assert rate.look(0.0, 1, 200.0) == 0
    rate.note(waits=True)
    assert rate.lacking
    assert rate.next_s() == inf


def test_it_says_when_to_look_again() -> None:
    """H2: as soon as there is a token, but not for each of a fast rate."""
    rate = full(10.0)
    give(rate, 4)[0].started_s = 100.0
    for each in rate._given:
        each.started_s = 100.0
    rate.look(10.0, 1, 100.0)
    rate.note(waits=True)
    assert rate.next_s() == pytest.approx(100.1)
    rate.note(waits=True, needed=3)
    assert rate.next_s() == pytest.approx(100.3)
    rate.note(waits=False)
    assert rate.next_s() == inf
    fast = HandlerRate()
    fast.look(10_000.0, 1, 5.0)
    fast.note(waits=True)
    assert fast.next_s() == 5.0 + LOOK_AGAIN_S


def test_it_says_at_once_what_is_ready() -> None:
    """Tokens are there, or it is to be looked at."""
    assert full().ready_s() == 0.0
    assert HandlerRate().ready_s() == 0.0


def test_a_slot_is_waited_for_and_not_the_rate() -> None:
    """Where the executor has not started what it has, more tokens would change nothing."""
    rate = full(10.0)
    give(rate, 4)
    rate.look(10.0, 1, 100.5)
    rate.note(waits=True)
    assert not rate.lacking


def test_the_seconds_in_which_something_waited_are_counted() -> None:
    """Those in which nothing did are not."""
    rate = HandlerRate()
    rate.look(1.0, 1, 0.0)
    rate.note(waits=True)
    rate.look(1.0, 1, 0.25)
    assert rate.lacking_s == 0.25
    rate.note(waits=False)
    rate.look(1.0, 1, 0.5)
    assert rate.lacking_s == 0.25


def test_redeliveries_get_half_of_the_tokens_while_others_wait() -> None:
    """A record that can be handled waits for those that fail no longer than they for it."""
    rate = full(10.0)
    assert rate.retry_room(others_wait=True) == 1
    rate.redelivered(1)
    assert rate.retry_room(others_wait=True) == 0
    assert rate.retry_room(others_wait=False) == 4
    give(rate, 2)
    assert rate.retry_room(others_wait=True) == 2
    again = delivery()
    again.retrying = TAKES_ROOM
    rate.gave([again])
    assert rate.retry_room(others_wait=True) == 2
    give(rate, 30)
    assert rate.retry_room(others_wait=True) == 4
    rate.redelivered(30)
    assert rate.retry_room(others_wait=True) == 0
    assert HandlerRate().retry_room(others_wait=False) == 1


def test_many_that_have_not_started_are_not_looked_at_each_time() -> None:
    """They are some milliseconds later."""
    rate = full(10_000.0)
    given = give(rate, 2 * FEW)
    rate.look(10_000.0, 1, 100.001)
    for each in given[1:]:
        each.started_s = 100.0
    rate.look(10_000.0, 1, 100.002)
    assert rate.tokens == 3001 - 2 * FEW
    rate.look(10_000.0, 1, 100.001 + LOOK_AGAIN_S)
    assert rate.look(10_000.0, 1, 101.0) == 3000
