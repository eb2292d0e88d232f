"""ExecutorContract: what every `ports.Executor` does, on the event loop as on threads.

The handlers of these tests stop at a gate of their delivery (named by its offset) where a test
closes one, so that a test decides what is running; the bench of a subclass makes that wait
fit its kind of handler.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle
from typing import Any

import pytest

from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.queues.lanes import Lane, Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import ACKED, RELEASED, Failed
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import Assignment
from ackfloor.errors import Retry
from ackfloor.ports import Executor
from ackfloor.runtime.calls.invoke import Invocation, current_delivery
from ackfloor.runtime.executors.inbox import Inbox, PauseRequest
from ackfloor.runtime.supervision.in_flight_memory import Area, InFlightMemory
from ackfloor.testing.memory.memory_log import MemoryRecord
from tests.contracts.sink_contract import assignment_of

BOUND_S = 60.0


#: What the tests give an executor; of one that takes batches they are made of it.
Given = TrackedDelivery | Work


class Own(BaseException):
    """An exception of the user's that no `except Exception` catches."""


#: What ends a process, a generator or a task elsewhere.
EXITS = [
    SystemExit(0),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    Own("away"),
    BaseExceptionGroup("several", [SystemExit(0), ValueError("bad")]),
]
#: Seconds between two looks at something that has to come about.
LOOK_S = 0.001
#: How long a test watches that something does not happen.
WATCH_S = 0.05


def eventually(done: Callable[[], object]) -> None:
    """Wait until something has come about.

    For so many looks: on a machine that stood still the clock went on, and nobody has worked.
    """
    for _ in range(round(BOUND_S / LOOK_S)):
        if done():
            return
        time.sleep(LOOK_S)
    pytest.fail("it did not come about in time")


class _Pauses(deque[PauseRequest]):
    """What handlers asked for, and what had been given back when each was posted."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench
        self.given_back: list[list[int]] = []

    def append(self, held: PauseRequest) -> None:
        """A handler asks for a pause."""
        self.given_back.append(self._bench.returned)
        super().append(held)


class Ends(deque[tuple[str, Work | Batch]]):
    """Ends, and what is to happen when one is posted."""

    def __init__(self, seen: Callable[[], None]) -> None:
        super().__init__()
        self._seen = seen

    def append(self, ended: tuple[str, Work | Batch]) -> None:
        """A slot has ended something."""
        self._seen()
        super().append(ended)


class Bench(ABC):
    """Executors and what their handlers do."""

    #: Whether a handler that is abandoned or stopped can be cut short.
    cancels: bool
    #: What a stop is given where a handler does not end by itself: on the event loop it is cut
    #: short at once, on threads never, and in a process after this time.
    stop_s = 0.05
    #: Whether a handler takes one delivery; otherwise a batch, whose deliveries are answered by
    #: hand without `ack="manual"`.
    single = True
    #: Whether what an executor is given are batches.
    batches = False
    #: Whether a lane of one record is handed out without a work around it.
    singly = True
    #: Whether its slots may come and go in a moment.
    resizes = True

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.pauses = self.inbox.pause_requests = _Pauses(self)
        self.started: list[int] = []
        self.gates: dict[int, threading.Event] = {}
        self.raises: dict[int, list[BaseException]] = {}
        self.acts: Callable[[TrackedDelivery], object] = lambda _: None
        self._assignments: dict[bool, Assignment] = {}
        self.area = Area()
        self.in_flight = InFlightMemory(os.dup(self.area.descriptor))

    @abstractmethod
    def executor(
        self, *, concurrency: int = 2, lanes: bool = False, manual: bool = False
    ) -> Executor:
        """A started executor, of an ordered handler or not; stopped at the end of the test."""

    def invocation(self, call: Callable[[TrackedDelivery], Any], *, manual: bool) -> Invocation:
        """How the executor calls the handler."""
        return Invocation("bill", call, self.cancels, manual)

    def enter(self, delivery: TrackedDelivery) -> threading.Event | None:
        """A handler begins; returns the gate at which it must wait."""
        assert current_delivery() is (delivery if self.single else None)
        self.started.append(delivery.offset)
        self.acts(delivery)
        return self.gates.get(delivery.offset)

    def leave(self, delivery: TrackedDelivery) -> None:
        """A handler ends."""
        waiting = self.raises.get(delivery.offset)
        if waiting:
            raise waiting.pop(0)

    def shut(self, *offsets: int) -> None:
        """Close the gates of these deliveries."""
        self.gates.update({offset: threading.Event() for offset in offsets})

    def open(self, *offsets: int) -> None:
        """Open gates; of all deliveries where none is named."""
        for offset in offsets or self.gates:
            self.gates[offset].set()

    def deliveries(self, count: int, *, manual: bool = False) -> list[TrackedDelivery]:
        """Deliveries of offsets 0, 1, ... in one assignment."""
        assignment = self._assignments.setdefault(manual, assignment_of(manual=manual))
        assignment.inbox = self.inbox.answered
        assignment.mark = self.in_flight.of("orders", 0)
        return [
            TrackedDelivery(assignment, MemoryRecord("orders", 0, n, None, b"", (), 0), n, 0, 0.0)
            for n in range(count)
        ]

    def submit(self, executor: Executor, items: Sequence[Given], *, last: bool = False) -> None:
        """Give an executor items, as the owner thread does."""
        executor.submit(items, last=last)

    def busy(self, count: int) -> tuple[Executor, list[TrackedDelivery]]:
        """An executor whose one slot runs the first of these deliveries, until its gate opens."""
        self.shut(0)
        executor, deliveries = self.executor(concurrency=1), self.deliveries(count)
        self.submit(executor, deliveries[:1])
        eventually(lambda: self.started)
        return executor, deliveries

    def submit_again(self, executor: Executor) -> None:
        """Give an executor again what it gave back, by itself or not."""
        if items := self.returned_items():
            self.submit(executor, items)

    def until(self, executor: Executor, done: Callable[[], object]) -> None:
        """Wait until something has come about, and submit again what is given back meanwhile, as
        the engine does: processes give back what waits behind a record that takes long."""

        def submitted_and_done() -> object:
            self.submit_again(executor)
            return done()

        eventually(submitted_and_done)

    def take_back(self, executor: Executor) -> None:
        """Have an executor give back what has not started."""
        executor.take_back()

    @property
    def returned(self) -> list[int]:
        """Offsets of what was given back unstarted, in order."""
        units: deque[Given] = deque()
        for _, unit in reversed(list(self.inbox.returned)):
            self.put_first(units, unit, whole=False)
        return offsets_of(units)

    def returned_items(self) -> list[Given]:
        """Take what was given back, to submit it again: works that slots left come last."""
        units: deque[Given] = deque()
        found = [self.inbox.returned.popleft()[1] for _ in range(len(self.inbox.returned))]
        for unit in reversed(found):
            self.put_first(units, unit, whole=True)
        ended = [self.inbox.finished.popleft() for _ in range(len(self.inbox.finished))]
        self.inbox.finished.extend((name, work) for name, work in ended if not _left(work))
        units.extend(work for _, work in ended if isinstance(work, Work) and work)
        return list(units)

    def put_first(self, units: deque[Given], unit: Unit, *, whole: bool) -> None:
        """Put what was given back before the others; of a batch also what is behind it."""
        assert not isinstance(unit, Batch), "it is given none"
        units.appendleft(unit)

    def on_ended(self, seen: Callable[[], None]) -> None:
        """Do something whenever the end of a work is posted."""
        self.inbox.finished = Ends(seen)

    def behind(self, work: Work) -> list[int]:
        """Offsets of what is left of a work."""
        return offsets_of([work])

    @property
    def answered(self) -> list[int]:
        """Offsets of the deliveries that came back, in order."""
        return [delivery.offset for delivery in list(self.inbox.answered)]


def _left(unit: Work | Batch) -> bool:
    return isinstance(unit, Work) and bool(unit)


def offsets_of(units: Iterable[Given]) -> list[int]:
    """Offsets of deliveries, and of those in works."""
    each = (list(unit) if isinstance(unit, Work) else [unit] for unit in units)
    return [delivery.offset for deliveries in each for delivery in deliveries]


def work_of(name: str, deliveries: Sequence[TrackedDelivery]) -> Work:
    """What is handed out of a lane."""
    lane, work = Lane(), Work(deliveries)
    lane.key = ("orders", 0, name.encode())
    lane.out, lane.holder, lane.held = work, None, None
    work.lane = lane
    for delivery in deliveries:
        delivery.lane = lane
    return work


class ExecutorContract:
    """Subclass it with a `bench` fixture."""

    @pytest.fixture
    def bench(self) -> Iterator[Bench]:
        """Executors of one kind."""
        raise NotImplementedError

    def test_a_delivery_comes_back_stamped(self, bench: Bench) -> None:
        """With its outcome, and with the times between which its handler ran."""
        before_s = time.monotonic()
        (delivery,) = bench.deliveries(1)
        bench.submit(bench.executor(), [delivery])
        eventually(lambda: bench.inbox.answered)
        assert delivery.outcome is ACKED
        assert before_s <= delivery.started_s <= delivery.finished_s <= time.monotonic()

    def test_no_more_run_than_the_concurrency(self, bench: Bench) -> None:
        """The others are queued; each end lets the next one start."""
        bench.shut(0, 1, 2)
        executor = bench.executor(concurrency=2)
        deliveries = bench.deliveries(5)
        bench.submit(executor, deliveries)
        eventually(lambda: len(bench.started) == 2)
        assert (sorted(bench.started), executor.queued()) == ([0, 1], 3)
        assert set(executor.running()) == set(deliveries[:2])
        bench.open(0)
        eventually(lambda: len(bench.started) == 3)
        assert executor.queued() == 2
        bench.open()
        eventually(lambda: len(bench.answered) == 5)
        assert executor.queued() == 0
        # What is posted still runs for the moment until its slot looks for the next.
        eventually(lambda: list(executor.running()) == [])

    def test_many_deliveries_all_come_back(self, bench: Bench) -> None:
        """However they are submitted, each is handled once."""
        executor = bench.executor(concurrency=8)
        deliveries = bench.deliveries(2000)
        for n in range(0, 1000, 10):
            bench.submit(executor, deliveries[n : n + 10])
        bench.submit(executor, deliveries[1000:])

        def all_came() -> bool:
            # What would wait behind one that takes long comes back by itself.
            bench.submit_again(executor)
            return len(bench.answered) == 2000

        eventually(all_came)
        assert sorted(bench.answered) == sorted(bench.started) == list(range(2000))

    def test_exceptions_come_back_as_outcomes(self, bench: Bench) -> None:
        """An error and an explicit retry are failures with their reason; work goes on."""
        bench.raises = {0: [ValueError("no")], 1: [Retry(after="5s", reason="later")]}
        deliveries = bench.deliveries(3)
        bench.submit(bench.executor(concurrency=1), deliveries)
        eventually(lambda: len(bench.answered) == 3)
        first, second, third = (delivery.outcome for delivery in deliveries)
        assert isinstance(first, Failed)
        assert (first.failure.error_type, first.failure.message) == ("ValueError", "no")
        assert isinstance(second, Failed)
        assert second.after_s == 5.0
        assert third is ACKED

    def test_what_is_submitted_later_starts_later(self, bench: Bench) -> None:
        """Behind everything that was given before, in its own order."""
        bench.shut(0)
        executor = bench.executor(concurrency=1)
        deliveries = bench.deliveries(5)
        bench.submit(executor, deliveries[:3])
        eventually(lambda: bench.started)
        bench.submit(executor, deliveries[3:])
        bench.open()
        eventually(lambda: len(bench.answered) == 5)
        assert bench.started == [0, 1, 2, 3, 4]

    def test_what_is_last_starts_when_nothing_else_is_queued(self, bench: Bench) -> None:
        """Whatever is submitted later; and no slot is free for it."""
        executor, deliveries = bench.busy(7)
        bench.submit(executor, deliveries[1:3], last=True)
        bench.submit(executor, deliveries[3:5])
        assert executor.queued() == 4
        bench.open()
        eventually(lambda: len(bench.answered) == 5)
        assert bench.started == [0, 3, 4, 1, 2]
        bench.submit(executor, deliveries[5:], last=True)
        eventually(lambda: len(bench.answered) == 7)

    def test_what_is_last_is_given_back_behind_the_others(self, bench: Bench) -> None:
        """Once each."""
        executor, deliveries = bench.busy(5)
        bench.submit(executor, deliveries[1:3], last=True)
        bench.submit(executor, deliveries[3:])
        bench.take_back(executor)
        eventually(lambda: len(bench.returned) == 4)
        assert (bench.returned, executor.queued()) == ([3, 4, 1, 2], 0)

    def test_a_closed_delivery_does_not_start(self, bench: Bench) -> None:
        """Nor does one whose partition is about to leave; neither comes back."""
        executor = bench.executor(concurrency=1)
        closed, good = bench.deliveries(2)
        closed.closed = True
        bench.submit(executor, [closed, good])
        eventually(lambda: bench.answered == [1])
        good.assignment.stopping = True
        bench.submit(executor, bench.deliveries(3)[2:])
        eventually(lambda: executor.queued() == 0)
        time.sleep(WATCH_S)
        assert bench.started == [1]

    def test_an_abandoned_delivery_gives_its_slot_up(self, bench: Bench) -> None:
        """The next one starts although the first never returned."""
        bench.shut(0)
        executor = bench.executor(concurrency=1)
        stuck, good = bench.deliveries(2)
        bench.submit(executor, [stuck, good])
        eventually(lambda: bench.started == [0])
        stuck.closed = True
        executor.cancel(stuck)
        eventually(lambda: bench.answered == [1])
        assert executor.abandoned() == (0 if bench.cancels else 1)
        eventually(lambda: list(executor.running()) == [])
        bench.open()
        eventually(lambda: executor.abandoned() == 0)

    def test_abandoning_what_has_ended_changes_nothing(self, bench: Bench) -> None:
        """The slot's next delivery is not the one that is cut short."""
        executor = bench.executor(concurrency=1)
        first, second = bench.deliveries(2)
        bench.submit(executor, [first])
        eventually(lambda: bench.answered == [0])
        bench.shut(1)
        bench.submit(executor, [second])
        eventually(lambda: bench.started == [0, 1])
        executor.cancel(first)
        time.sleep(WATCH_S)
        assert list(executor.running()) == [second]
        bench.open()
        eventually(lambda: bench.answered == [0, 1])
        assert second.outcome is ACKED

    def test_a_lane_runs_one_at_a_time_in_order(self, bench: Bench) -> None:
        """Two lanes run side by side; the end of each work is posted."""
        bench.shut(0, 10)
        executor = bench.executor(concurrency=4, lanes=True)
        deliveries = bench.deliveries(13)
        ada, bob = work_of("ada", deliveries[:3]), work_of("bob", deliveries[10:])
        bench.submit(executor, [ada, bob])
        eventually(lambda: len(bench.started) == 2)
        time.sleep(WATCH_S)
        assert sorted(bench.started) == [0, 10]
        bench.open()
        eventually(lambda: len(bench.inbox.finished) == 2)
        assert [n for n in bench.started if n < 10] == [0, 1, 2]
        assert [n for n in bench.started if n >= 10] == [10, 11, 12]
        assert {id(work) for _, work in bench.inbox.finished} == {id(ada), id(bob)}

    def test_the_end_of_a_work_is_posted_after_its_answers(self, bench: Bench) -> None:
        """Once; a delivery by itself has no other end than its answer."""
        executor = bench.executor(concurrency=1, lanes=True)
        *found, single = bench.deliveries(201)
        seen: list[int] = []
        bench.on_ended(lambda: seen.append(len(bench.answered)))
        bench.submit(executor, [work_of("a", found[:100]), work_of("b", found[100:])])
        bench.until(executor, lambda: len(bench.inbox.finished) == 2)
        bench.submit(executor, [single])
        bench.until(executor, lambda: len(bench.answered) == 201)
        time.sleep(WATCH_S)
        assert len(bench.inbox.finished) == 2
        assert [not work for _, work in bench.inbox.finished] == [True, True]
        assert seen[-1] == 200
        assert min(seen) >= 100

    def test_a_slot_leaves_the_work_whose_record_failed(self, bench: Bench) -> None:
        """What is behind it is the owner's to take; nothing of it starts."""
        bench.raises = {1: [ValueError("no")]}
        executor = bench.executor(concurrency=2, lanes=True)
        work = work_of("a", bench.deliveries(4))
        bench.submit(executor, [work])
        eventually(lambda: bench.answered == [0, 1])
        time.sleep(WATCH_S)
        assert bench.started == [0, 1]
        assert bench.behind(work) == [2, 3]

    def test_a_long_lane_lets_others_have_their_turn(self, bench: Bench) -> None:
        """With one slot, a short lane does not wait for the end of a long one."""
        executor = bench.executor(concurrency=1, lanes=True)
        bench.shut(0)
        deliveries = bench.deliveries(1000)
        bench.submit(executor, [work_of("long", deliveries[:999])])
        eventually(lambda: bench.started == [0])
        bench.submit(executor, [work_of("short", deliveries[999:])])
        bench.open()
        eventually(lambda: len(bench.inbox.finished) == 2)
        assert bench.started.index(999) < 998
        assert [n for n in bench.started if n < 999] == list(range(999))

    @pytest.mark.parametrize("lanes", [False, True], ids=["unordered", "lanes"])
    @pytest.mark.parametrize("error", EXITS, ids=repr)
    def test_an_exit_is_the_failure_of_its_record(
        self, bench: Bench, error: BaseException, lanes: bool
    ) -> None:
        """Whatever a handler raises: the slot lives on, and handles the next record."""
        bench.raises = {0: [error]}
        first, second = bench.deliveries(2)
        executor = bench.executor(concurrency=1, lanes=lanes)
        # In lanes of their own: what failed holds its lane.
        bench.submit(
            executor, [work_of("a", [first]), work_of("b", [second])] if lanes else [first, second]
        )
        eventually(lambda: bench.answered == [0, 1])
        assert isinstance(first.outcome, Failed)
        assert first.outcome.failure.error_type.endswith(type(error).__name__)
        assert second.outcome is ACKED
        assert (len(bench.inbox.broken), len(bench.inbox.strays)) == (0, 0)

    def test_stopping_an_idle_executor_leaves_nothing(self, bench: Bench) -> None:
        """Nobody is running afterwards, and nothing starts any more."""
        executor = bench.executor(concurrency=3)
        bench.submit(executor, bench.deliveries(1))
        eventually(lambda: bench.answered == [0])
        assert executor.stop(BOUND_S) == 0
        assert list(executor.running()) == []

    def test_stopping_counts_who_does_not_end(self, bench: Bench) -> None:
        """An async handler is cancelled and its record released; a thread can only be counted."""
        bench.shut(0)
        executor = bench.executor(concurrency=1)
        running, queued = bench.deliveries(2)
        bench.submit(executor, [running, queued])
        eventually(lambda: bench.started == [0])
        left = executor.stop(bench.stop_s)
        bench.open()
        if bench.cancels:
            assert (left, running.outcome) == (0, RELEASED)
        else:
            assert left == 1
            eventually(lambda: running.outcome is ACKED)
        assert bench.started == [0]
        assert queued.outcome is None

    # Concurrency changes while handlers run.

    def test_more_start_at_once(self, bench: Bench) -> None:
        """What was queued is taken by the new slots while the old ones still run."""
        bench.shut(*range(6))
        executor = bench.executor(concurrency=1)
        bench.submit(executor, bench.deliveries(6))
        eventually(lambda: len(bench.started) == 1)
        executor.resize(4)
        eventually(lambda: len(bench.started) == 4)
        assert executor.queued() == 2
        bench.open()
        eventually(lambda: len(bench.answered) == 6)

    def test_fewer_let_those_that_run_end(self, bench: Bench) -> None:
        """They stay in sight, and take nothing else; who is left goes on with the rest."""
        bench.shut(*range(8))
        executor = bench.executor(concurrency=4)
        bench.submit(executor, bench.deliveries(8))
        eventually(lambda: len(bench.started) == 4)
        executor.resize(1)
        assert len(list(executor.running())) == 4
        for number, offset in enumerate(sorted(bench.started)):
            bench.open(offset)
            eventually(lambda count=number + 1: len(bench.answered) == count)
        bench.until(executor, lambda: len(bench.started) == 5)
        time.sleep(WATCH_S)
        assert (len(bench.started), sum(d.started_s > 0 for d in executor.running())) == (5, 1)
        bench.open()
        bench.until(executor, lambda: len(bench.answered) == 8)
        assert sorted(bench.started) == list(range(8))

    def test_up_and_down_and_up_never_runs_more_than_was_asked_for(self, bench: Bench) -> None:
        """Slots that were too many and still run are taken back: none is started beside them."""
        bench.shut(*range(20))
        executor = bench.executor(concurrency=4)
        bench.submit(executor, bench.deliveries(20))
        eventually(lambda: len(bench.started) == 4)
        for concurrency in (1, 4, 2, 3, 1, 4):
            executor.resize(concurrency)
        time.sleep(WATCH_S)
        assert (len(bench.started), executor.queued()) == (4, 16)
        bench.open()
        eventually(lambda: len(bench.answered) == 20)

    def test_idle_slots_leave_and_work_goes_on(self, bench: Bench) -> None:
        """A wake-up that reaches one that leaves is passed on; resized again and again."""
        executor = bench.executor(concurrency=8)
        deliveries = bench.deliveries(2000)
        for n in range(0, 2000, 20):
            executor.resize(1 + n // 20 % 8)
            bench.submit(executor, deliveries[n : n + 20])
            if n % 200 == 0:
                eventually(lambda count=n + 20: len(bench.answered) == count)
        eventually(lambda: len(bench.answered) == 2000)
        assert sorted(bench.started) == list(range(2000))
        assert executor.queued() == 0

    def test_a_single_record_after_a_shrink_is_handled(self, bench: Bench) -> None:
        """Its wake-up reaches one that stays, or one that leaves and somebody else takes it."""
        executor = bench.executor(concurrency=4)
        for n, delivery in enumerate(bench.deliveries(100)):
            executor.resize(4 if n % 2 else 1)
            bench.submit(executor, [delivery])
            eventually(lambda count=n + 1: len(bench.answered) == count)
        assert bench.started == list(range(100))

    def test_lanes_keep_their_order_through_a_resize(self, bench: Bench) -> None:
        """A run that its slot leaves goes to another whole."""
        executor = bench.executor(concurrency=4, lanes=True)
        deliveries = bench.deliveries(900)
        runs = [work_of(f"lane {n}", deliveries[n::9]) for n in range(9)]
        bench.submit(executor, runs)
        sizes = cycle((5, 1, 3, 2, 4))

        def all_came() -> bool:
            executor.resize(next(sizes))
            return len(bench.answered) == 900

        eventually(all_came)
        for n in range(9):
            assert [offset for offset in bench.started if offset % 9 == n] == list(range(n, 900, 9))
        assert not any(runs)

    def test_one_too_many_that_is_abandoned_is_not_replaced(self, bench: Bench) -> None:
        """The slot that is left goes on; the abandoned one ends when its handler does."""
        bench.shut(0, 1, 2, 3)
        executor = bench.executor(concurrency=2)
        deliveries = bench.deliveries(4)
        bench.submit(executor, deliveries)
        eventually(lambda: len(bench.started) == 2)
        executor.resize(1)
        for delivery in deliveries[:2]:
            delivery.closed = True
            executor.cancel(delivery)
        eventually(lambda: len(bench.started) == 3)
        time.sleep(WATCH_S)
        assert len(bench.started) == 3
        bench.open()
        eventually(lambda: {2, 3} <= {*bench.answered})
        eventually(lambda: executor.abandoned() == 0)
