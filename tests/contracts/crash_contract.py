"""CrashContract: what every `ports.Executor` does for the search for records that kill a process.

It notes what runs where the supervisor finds it (`runtime/marks.py`), and it can be secluded, so
that one record runs with nothing beside it.
"""

from __future__ import annotations

import time

from ackfloor.core.outcomes import ACKED
from ackfloor.errors import Pause
from tests.contracts.executor_contract import BOUND_S, WATCH_S, Bench, eventually, run_of


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
        executor.dispatch([first])
        eventually(lambda: bench.answered == [0])
        executor._words = _Unwritable()  # type: ignore[attr-defined]
        executor.dispatch([second])
        eventually(lambda: bench.inbox.broken)
        assert [type(broken) for broken in bench.inbox.broken] == [SystemExit]
        eventually(lambda: not any(executor.running()))
        assert executor.stop(BOUND_S) == 0

    def test_what_runs_is_marked_until_its_slot_does_something_else(self, bench: Bench) -> None:
        """By topic, partition and offset; nothing is left when all slots are idle."""
        bench.shut(0, 1)
        bench.executor(concurrency=2).dispatch(bench.deliveries(3))
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
        executor.dispatch([first])
        eventually(lambda: in_flight(bench) == [0])
        first.closed = True
        executor.abandon(first)
        executor.dispatch([second])
        eventually(lambda: 1 in in_flight(bench))
        if not bench.cancels:
            assert in_flight(bench) == [0, 1]
        bench.open()
        eventually(lambda: in_flight(bench) == [])

    def test_secluded_it_starts_nothing_but_what_is_to_run_alone(self, bench: Bench) -> None:
        """Whatever was queued before and is queued meanwhile waits, in its order."""
        bench.shut(0)
        zero, one, two, three = bench.deliveries(4)
        executor = bench.executor(concurrency=1)
        executor.dispatch([zero, one])
        eventually(lambda: bench.started == [0])
        executor.seclude(True)
        executor.dispatch([two])
        bench.open(0)
        eventually(lambda: not any(executor.running()))
        executor.dispatch([three], ahead=True, alone=True)
        eventually(lambda: bench.answered == [0, 3])
        time.sleep(WATCH_S)
        assert bench.started == [0, 3]
        assert executor.queued() == 2
        executor.seclude(False)
        eventually(lambda: bench.answered == [0, 3, 1, 2])

    def test_secluded_it_takes_one_record_of_a_lane(self, bench: Bench) -> None:
        """The lane goes on when the seclusion is over."""
        executor = bench.executor(concurrency=2, lanes=True)
        run = run_of("a", bench.deliveries(3))
        executor.seclude(True)
        executor.dispatch([run], alone=True)
        eventually(lambda: bench.answered == [0])
        time.sleep(WATCH_S)
        assert bench.answered == [0]
        executor.seclude(False)
        eventually(lambda: bench.answered == [0, 1, 2])

    def test_a_lane_that_runs_stops_at_its_next_record_when_secluded(self, bench: Bench) -> None:
        """What runs may end, and nothing else starts."""
        bench.shut(0)
        executor = bench.executor(concurrency=2, lanes=True)
        executor.dispatch([run_of("a", bench.deliveries(2))])
        eventually(lambda: bench.started == [0])
        executor.seclude(True)
        bench.open(0)
        eventually(lambda: bench.answered == [0])
        time.sleep(WATCH_S)
        assert bench.started == [0]
        executor.seclude(False)
        eventually(lambda: bench.answered == [0, 1])

    def test_a_pause_and_a_seclusion_are_lifted_one_by_one(self, bench: Bench) -> None:
        """The end of either does not end the other."""
        (delivery,) = bench.deliveries(1)
        executor = bench.executor()
        executor.hold()
        executor.seclude(True)
        executor.dispatch([delivery])
        executor.unhold()
        time.sleep(WATCH_S)
        assert bench.started == []
        executor.hold()
        executor.seclude(False)
        time.sleep(WATCH_S)
        assert bench.started == []
        executor.unhold()
        eventually(lambda: delivery.outcome is ACKED)

    def test_what_runs_alone_may_ask_for_a_pause(self, bench: Bench) -> None:
        """It waits like the others then, and runs when both are over."""
        bench.raises[0] = [Pause("1s")]
        (delivery,) = bench.deliveries(1)
        executor = bench.executor()
        executor.seclude(True)
        executor.dispatch([delivery], alone=True)
        eventually(lambda: bench.inbox.held)
        executor.seclude(False)
        executor.unhold()
        eventually(lambda: delivery.outcome is ACKED)
        assert bench.started == [0, 0]
