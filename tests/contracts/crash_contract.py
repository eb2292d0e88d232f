"""CrashContract: what every `ports.Executor` does for the search for records that kill a process.

It notes what runs where the supervisor finds it, in `runtime/supervision/in_flight_memory.py`, and
it can be emptied, so that one record runs with nothing beside it.
"""

from __future__ import annotations

import time

from ackfloor.core.records.outcomes import ACKED
from ackfloor.errors import Pause
from ackfloor.ports import Executor
from tests.contracts.executor_contract import BOUND_S, WATCH_S, Bench, eventually, work_of


def in_flight(bench: Bench) -> list[int]:
    """Offsets that the supervisor would find if the process died now."""
    return [record.offset for record in bench.area.in_flight()]


class _Unwritable:
    """Where no mark can be written: what a slot does outside of its handler fails."""

    def __setitem__(self, _slot: int, _mark: int) -> None:
        raise SystemExit(0)


class CrashContract:
    """Subclass it together with `ExecutorContract`."""

    def test_a_slot_that_breaks_is_posted_and_counts_as_running_no_more(self, bench: Bench) -> None:
        """Nobody waits for it: the worker is to be replaced, and what it had in hand is open."""
        executor = bench.executor(concurrency=1)
        first, second = bench.deliveries(2)
        bench.submit(executor, [first])
        eventually(lambda: bench.answered == [0])
        executor._cells = _Unwritable()  # type: ignore[attr-defined]
        bench.submit(executor, [second])
        eventually(lambda: bench.inbox.broken)
        assert [type(broken) for broken in bench.inbox.broken] == [SystemExit]
        eventually(lambda: not any(executor.running()))
        assert executor.stop(BOUND_S) == 0

    def test_what_runs_is_marked_until_its_slot_does_something_else(self, bench: Bench) -> None:
        """By topic, partition and offset; nothing is left when all slots are idle."""
        bench.shut(0, 1)
        bench.submit(bench.executor(concurrency=2), bench.deliveries(3))
        eventually(lambda: in_flight(bench) == [0, 1])
        assert bench.area.in_flight()[0] == ("orders", 0, 0)
        bench.open(0)
        eventually(lambda: 2 in bench.answered)
        eventually(lambda: in_flight(bench) == [1])
        bench.open(1)
        eventually(lambda: in_flight(bench) == [])

    def test_an_abandoned_handler_stays_marked_as_long_as_it_runs(self, bench: Bench) -> None:
        """It may yet kill the process, and then nobody else is to be blamed alone."""
        bench.shut(0, 1)
        first, second = bench.deliveries(2)
        if bench.cancels:
            bench.acts = lambda d: d.offset == 0 and time.sleep(0.2)
        executor = bench.executor(concurrency=1)
        bench.submit(executor, [first])
        eventually(lambda: in_flight(bench) == [0])
        first.closed = True
        executor.cancel(first)
        bench.submit(executor, [second])
        eventually(lambda: 1 in in_flight(bench))
        if not bench.cancels:
            assert in_flight(bench) == [0, 1]
        bench.open()
        eventually(lambda: in_flight(bench) == [])

    def test_taken_back_it_runs_nothing_beside_what_is_to_run_alone(self, bench: Bench) -> None:
        """What ran before may end first; what was given back waits with the owner, in its order."""
        bench.shut(0, 1, 4)
        zero, one, two, three, four = bench.deliveries(5)
        executor = bench.executor(concurrency=2)
        bench.submit(executor, [zero, one, two, three])
        eventually(lambda: sorted(bench.started) == [0, 1])
        bench.take_back(executor)
        eventually(lambda: bench.returned == [2, 3])
        bench.open(0, 1)
        eventually(lambda: not any(executor.running()))
        bench.submit(executor, [four])
        eventually(lambda: 4 in bench.started)
        time.sleep(WATCH_S)
        assert list(executor.running()) == [four]
        assert sorted(bench.started) == [0, 1, 4]
        bench.open(4)
        eventually(lambda: 4 in bench.answered)
        bench.until(executor, lambda: sorted(bench.answered) == [0, 1, 2, 3, 4])

    @staticmethod
    def _came(bench: Bench, executor: Executor, offsets: list[int]) -> bool:
        """Whether these have come; a slot that was about to look gives a lane back once more."""
        bench.submit_again(executor)
        return bench.answered == offsets

    def test_taken_back_it_runs_one_record_of_a_lane(self, bench: Bench) -> None:
        """A lane whose first record was lent: the rest waits with the owner until that is over."""
        first, *rest = bench.deliveries(3)
        executor = bench.executor(concurrency=2, lanes=True)
        bench.take_back(executor)
        lent = work_of("a", [first])
        bench.submit(executor, [lent])
        eventually(lambda: self._came(bench, executor, [0]))
        time.sleep(WATCH_S)
        assert (bench.started, len(lent)) == ([0], 0)
        bench.submit(executor, [work_of("a", rest)])
        eventually(lambda: bench.answered == [0, 1, 2])

    def test_a_lane_that_runs_stops_at_its_next_record_for_what_is_alone(
        self, bench: Bench
    ) -> None:
        """What runs may end, then one record runs alone, then the lane goes on."""
        bench.shut(0)
        deliveries = bench.deliveries(11)
        executor = bench.executor(concurrency=2, lanes=True)
        run = work_of("a", deliveries[:2])
        bench.submit(executor, [run])
        eventually(lambda: bench.started == [0])
        bench.take_back(executor)
        bench.open(0)
        eventually(lambda: list(bench.inbox.finished) == [("bill", run)])
        bench.inbox.finished.clear()
        eventually(lambda: not any(executor.running()))
        bench.submit(executor, [work_of("b", deliveries[10:])])
        eventually(lambda: self._came(bench, executor, [0, 10]))
        time.sleep(WATCH_S)
        assert bench.started == [0, 10]
        bench.submit(executor, [run])
        eventually(lambda: bench.answered == [0, 10, 1])

    def test_what_runs_alone_may_ask_for_a_pause(self, bench: Bench) -> None:
        """It comes back like any other, and runs when it is submitted again."""
        bench.raises[0] = [Pause("1s")]
        (delivery,) = bench.deliveries(1)
        executor = bench.executor()
        bench.take_back(executor)
        bench.submit(executor, [delivery])
        eventually(lambda: bench.returned == [0])
        eventually(lambda: bench.inbox.pause_requests)
        time.sleep(WATCH_S)
        assert bench.started == [0]
        bench.submit_again(executor)
        eventually(lambda: delivery.outcome is ACKED)
        assert bench.started == [0, 0]
