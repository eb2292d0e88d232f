"""TakeBackContract: what every `ports.Executor` gives back of what it was given.

It gives back what has not started, in order, when it is asked to; and by itself when a handler asks
for a pause. From then on nothing of it starts until it is submitted again.
"""

from __future__ import annotations

import time

import pytest

from ackfloor.core.records.outcomes import ACKED
from ackfloor.errors import Pause
from ackfloor.ports import Executor
from ackfloor.runtime.executors.process.process_dispatch import STUCK_S
from tests.contracts.executor_contract import WATCH_S, Bench, eventually, work_of


def three_given_back(bench: Bench) -> Executor:
    """An executor that has one of four records in its only slot and has given the others back."""
    bench.shut(0)
    executor = bench.executor(concurrency=1)
    bench.submit(executor, bench.deliveries(4))
    eventually(lambda: bench.started)
    bench.take_back(executor)
    eventually(lambda: bench.returned == [1, 2, 3])
    return executor


class TakeBackContract:
    """Subclass it together with `ExecutorContract`."""

    def test_what_has_not_started_comes_back_in_order(self, bench: Bench) -> None:
        """What runs goes on; the rest starts when it is submitted again, and not before."""
        executor = three_given_back(bench)
        assert executor.queued() == 0
        bench.open()
        eventually(lambda: bench.answered == [0])
        time.sleep(WATCH_S)
        assert bench.started == [0]
        bench.until(executor, lambda: bench.answered == [0, 1, 2, 3])
        assert bench.started == [0, 1, 2, 3]

    def test_an_executor_that_has_nothing_gives_nothing_back(self, bench: Bench) -> None:
        """And takes what comes next as before."""
        executor = bench.executor()
        for _ in range(3):
            bench.take_back(executor)
        (delivery,) = bench.deliveries(1)
        bench.submit(executor, [delivery])
        eventually(lambda: delivery.outcome is ACKED)
        bench.take_back(executor)
        time.sleep(WATCH_S)
        assert bench.returned == []

    def test_what_was_given_back_may_start_in_another_order(self, bench: Bench) -> None:
        """What comes back is nobody's but the owner's."""
        executor = three_given_back(bench)
        bench.submit(executor, bench.returned_items()[::-1])
        bench.open()
        eventually(lambda: bench.answered == [0, 3, 2, 1])

    def test_a_lane_comes_back_after_the_record_at_hand(self, bench: Bench) -> None:
        """Who visits it leaves it in its middle; a lane that nobody visits comes back at once."""
        bench.shut(1)
        executor = bench.executor(concurrency=1, lanes=True)
        deliveries = bench.deliveries(13)
        ada, bob = work_of("ada", deliveries[:4]), work_of("bob", deliveries[10:])
        bench.submit(executor, [ada])
        eventually(lambda: bench.started == [0, 1])
        bench.submit(executor, [bob])
        bench.take_back(executor)
        eventually(lambda: bench.returned == [10, 11, 12])
        time.sleep(WATCH_S)
        assert list(bench.inbox.finished) == []
        bench.open()
        eventually(lambda: list(bench.inbox.finished) == [("bill", ada)])
        time.sleep(WATCH_S)
        assert bench.started == bench.answered == [0, 1]
        assert [delivery.offset for delivery in ada] == [2, 3]
        bench.until(executor, lambda: len(bench.answered) == 7)
        assert [n for n in bench.started if n < 10] == [0, 1, 2, 3]
        assert [n for n in bench.started if n >= 10] == [10, 11, 12]

    def test_a_lane_is_taken_up_whole_after_it_was_given_back(self, bench: Bench) -> None:
        """Who visits it next does not leave it again for a call that is over."""
        bench.shut(0)
        executor = bench.executor(concurrency=1, lanes=True)
        run = work_of("ada", bench.deliveries(4))
        bench.submit(executor, [run])
        eventually(lambda: bench.started == [0])
        bench.take_back(executor)
        bench.open()
        eventually(lambda: list(bench.inbox.finished) == [("bill", run)])
        assert bench.returned_items() == [run]
        bench.submit(executor, [run])
        eventually(lambda: bench.answered == [0, 1, 2, 3])
        eventually(lambda: list(bench.inbox.finished) == [("bill", run)])
        assert not run

    def test_a_pause_gives_back_the_record_and_then_the_others(self, bench: Bench) -> None:
        """It is not answered, nothing starts any more, and the request is posted before any of it
        is back: else its owner could start it again at once."""
        bench.raises = {0: [Pause("30s", "away")]}
        bench.shut(0)
        executor = bench.executor(concurrency=1)
        bench.submit(executor, bench.deliveries(4))
        eventually(lambda: bench.started)
        bench.open()
        eventually(lambda: bench.inbox.pause_requests)
        assert list(bench.inbox.pause_requests) == [("bill", 30.0, "away")]
        assert bench.pauses.given_back == [[]]
        eventually(lambda: bench.returned == [0, 1, 2, 3])
        time.sleep(WATCH_S)
        assert (bench.started, bench.answered, executor.queued()) == ([0], [], 0)
        bench.until(executor, lambda: bench.answered == [0, 1, 2, 3])
        assert bench.started == [0, 0, 1, 2, 3]

    def test_a_pause_keeps_the_order_of_its_lane(self, bench: Bench) -> None:
        """The record is first in its lane again; other lanes come back as well."""
        bench.raises = {1: [Pause("1s")]}
        bench.shut(1)
        executor = bench.executor(concurrency=1, lanes=True)
        deliveries = bench.deliveries(12)
        bench.submit(executor, [work_of("ada", deliveries[:3])])
        eventually(lambda: bench.started == [0, 1])
        # What is on its way to a process when it asks for a pause may start; one that is at a
        # record for so long is sent nothing.
        time.sleep(2 * STUCK_S)
        bench.submit(executor, [work_of("bob", deliveries[10:])])
        bench.open()
        eventually(lambda: bench.returned == [1, 2, 10, 11])
        eventually(lambda: len(bench.inbox.pause_requests) == 1)
        time.sleep(WATCH_S)
        assert (bench.started, bench.answered) == ([0, 1], [0])
        bench.until(executor, lambda: len(bench.answered) == 5)
        assert [n for n in bench.answered if n < 10] == [0, 1, 2]
        assert [n for n in bench.answered if n >= 10] == [10, 11]

    def test_a_pause_makes_others_leave_their_lanes(self, bench: Bench) -> None:
        """Each after its record at hand: the handler rests."""
        bench.raises = {0: [Pause("1s")]}
        bench.shut(0, 10)
        executor = bench.executor(concurrency=2, lanes=True)
        deliveries = bench.deliveries(13)
        ada, bob = work_of("ada", deliveries[:2]), work_of("bob", deliveries[10:])
        bench.submit(executor, [ada, bob])
        eventually(lambda: sorted(bench.started) == [0, 10])
        bench.open(0)
        eventually(lambda: bench.inbox.pause_requests)
        bench.open(10)
        eventually(lambda: bench.answered == [10])
        eventually(lambda: list(bench.inbox.finished) == [("bill", bob)])
        eventually(lambda: bench.returned == [0, 1])
        time.sleep(WATCH_S)
        assert sorted(bench.started) == [0, 10]
        assert [delivery.offset for delivery in bob] == [11, 12]

    def test_a_pause_that_is_asked_for_too_late_gives_nothing_else_back(self, bench: Bench) -> None:
        """Somebody else has ended the delivery: the handler does not rest, and the others start."""
        bench.raises = {0: [Pause("30s")]}
        bench.shut(0)
        executor = bench.executor(concurrency=1)
        late, *others = bench.deliveries(3)
        bench.submit(executor, [late, *others])
        eventually(lambda: bench.started)
        late.closed = True
        bench.open()
        eventually(lambda: bench.answered == [1, 2])
        assert set(bench.returned) <= {0}
        assert list(bench.inbox.pause_requests) == []
        # It must not start again, wherever it is put.
        bench.submit_again(executor)
        time.sleep(WATCH_S)
        assert bench.started == [0, 1, 2]

    @pytest.mark.parametrize("lanes", [False, True], ids=["unordered", "lanes"])
    def test_nothing_is_lost_or_started_twice(self, bench: Bench, lanes: bool) -> None:
        """However often everything is asked back and submitted again while slots work."""
        executor = bench.executor(concurrency=4, lanes=lanes)
        deliveries = bench.deliveries(400)
        count = 8
        if lanes:
            runs = [work_of(f"lane {n}", deliveries[n::count]) for n in range(count)]
            bench.submit(executor, runs)
        else:
            bench.submit(executor, deliveries)

        def all_came() -> bool:
            bench.take_back(executor)
            bench.submit_again(executor)
            return len(bench.answered) >= 400

        eventually(all_came)
        time.sleep(WATCH_S)
        assert sorted(bench.started) == sorted(bench.answered) == list(range(400))
        for n in range(count if lanes else 0):
            assert [offset for offset in bench.started if offset % count == n] == list(
                range(n, 400, count)
            )

    def test_what_was_taken_back_does_not_start_in_slots_that_come_anew(self, bench: Bench) -> None:
        """A resize finds nothing; what is submitted then has all the slots."""
        bench.shut(*range(6))
        executor = bench.executor(concurrency=1)
        bench.submit(executor, bench.deliveries(6))
        eventually(lambda: bench.started == [0])
        bench.take_back(executor)
        eventually(lambda: bench.returned == [1, 2, 3, 4, 5])
        executor.resize(4)
        time.sleep(WATCH_S)
        assert bench.started == [0]
        bench.submit_again(executor)
        eventually(lambda: len(bench.started) == 4)
        assert executor.queued() == 2
        bench.open()
        eventually(lambda: len(bench.answered) == 6)
