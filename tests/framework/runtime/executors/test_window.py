"""Window: what slots take, what is asked back, and lanes on their way between the two."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from random import Random
from threading import Event, Lock, Thread
from typing import Any, Self

import pytest

from ackfloor.core.queues.lanes import Lane, Work
from ackfloor.runtime.executors.inbox import Inbox
from ackfloor.runtime.executors.window import Window
from tests.contracts.executor_contract import BOUND_S, WATCH_S, Bench, eventually, work_of
from tests.contracts.test_executors_contract import AsyncBench, ThreadBench

SLOTS = 16
LANE_TURN = 4


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns far more often than they do by themselves."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before_s)


class Slots:
    """Threads that take from a window, as the slots of an executor do.

    Attributes:
        handled: what they have handled, in order.
        overlaps: lanes that two of them visited at once.
    """

    def __init__(
        self, window: Window, inbox: Inbox, *, pauses: float = 0.0, takes_s: float = 0.0
    ) -> None:
        self.handled: list[Any] = []
        self.overlaps: list[Work] = []
        self._window = window
        self._inbox = inbox
        #: The share of the records that ask for a pause instead of being handled.
        self._pauses = pauses
        self._takes_s = takes_s
        self._visited: dict[int, Lock] = {}
        self._busy = [False] * SLOTS
        self._done = Event()
        self._threads = [Thread(target=self._work, args=(n,)) for n in range(SLOTS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(BOUND_S)

    def await_rest(self) -> None:
        """Wait until each has ended what it had in hand."""
        for number in range(SLOTS):
            eventually(lambda n=number: not self._busy[n])

    def _work(self, number: int) -> None:
        window, chance = self._window, Random(number)
        while not self._done.is_set():
            self._busy[number] = True
            try:
                item = window.ready.popleft()
            except IndexError:
                self._busy[number] = False
                time.sleep(0)
                continue
            if isinstance(item, Work):
                self._handle_lane(item, chance)
            elif chance.random() < self._pauses:
                window.give_back((item,))
            else:
                self._handle(item)
            self._busy[number] = False

    def _handle(self, record: Any) -> None:
        self.handled.append(record)
        if self._takes_s:
            time.sleep(self._takes_s)

    def _handle_lane(self, work: Work, chance: Random) -> None:
        lock = self._visited.setdefault(id(work), Lock())
        if not lock.acquire(blocking=False):
            self.overlaps.append(work)
            return
        for _ in range(LANE_TURN):
            if self._window.recalls != work.recalls:
                break
            try:
                record: Any = work.popleft()
            except IndexError:
                lock.release()
                self._window.end(work)
                return
            if chance.random() < self._pauses:
                work.appendleft(record)
                lock.release()
                self._window.give_back((work,))
                return
            self._handle(record)
        lock.release()
        self._window.put_last(work)


def _back(inbox: Inbox) -> list[Any]:
    """Everything that was given back, and works that were left with something in them."""
    items = [inbox.returned.popleft()[1] for _ in range(len(inbox.returned))]
    ended = [inbox.finished.popleft()[1] for _ in range(len(inbox.finished))]
    return items + [work for work in ended if work]


def _give(window: Window, items: list[Any]) -> None:
    """What the owner gives: numbers stand for records that are in no lane."""
    if items and isinstance(items[0], Work):
        window.add(items)
    else:
        window.ready.extend(items)


def _work(records: Iterable[Any]) -> Work:
    work = Work(records)
    work.lane, work.recalls = Lane(), 0
    return work


def _items(lanes: bool) -> list[Any]:
    if not lanes:
        return list(range(20_000))
    # Of each lane the records n, n + 100, n + 200, ...
    return [_work(range(n, 20_000, 100)) for n in range(100)]


@pytest.mark.usefixtures("quick_switches")
@pytest.mark.parametrize("lanes", [False, True], ids=["unordered", "lanes"])
@pytest.mark.parametrize("pauses", [0.0, 0.01], ids=["owner", "pauses"])
def test_nothing_is_lost_however_often_it_is_asked_back(lanes: bool, pauses: float) -> None:
    """Everything comes out once and in the order of its lane, and no lane is in two hands."""
    inbox = Inbox()
    window, chance, end_s = Window("bill", inbox), Random(1), time.monotonic() + BOUND_S
    with Slots(window, inbox, pauses=pauses) as slots:
        _give(window, _items(lanes))
        while len(slots.handled) < 20_000:
            assert time.monotonic() < end_s, f"{len(slots.handled)} were handled"
            if chance.random() < 0.3:
                window.give_back()
            _give(window, _back(inbox))
    assert sorted(slots.handled) == list(range(20_000))
    assert slots.overlaps == []
    if lanes:
        for n in range(100):
            mine = [record for record in slots.handled if record % 100 == n]
            assert mine == sorted(mine)


@pytest.mark.usefixtures("quick_switches")
@pytest.mark.parametrize("lanes", [False, True], ids=["unordered", "lanes"])
def test_nothing_stays_in_the_window_once_it_was_asked_back(lanes: bool) -> None:
    """Nor do lanes come back into it that were visited in that moment: each is with the owner."""
    inbox = Inbox()
    window = Window("bill", inbox)
    items = _items(lanes)
    rounds = before = 0
    with Slots(window, inbox, takes_s=0.0001) as slots:
        while items:
            _give(window, items)
            rounds += 1
            while rounds % 3 and len(slots.handled) == before:
                time.sleep(0)
            window.give_back()
            slots.await_rest()
            # Once more: one may have taken a work that another had left in that moment.
            slots.await_rest()
            before = len(slots.handled)
            assert len(window) == 0
            time.sleep(0.0005)
            assert (len(window), len(slots.handled)) == (0, before)
            items = _back(inbox)
            rest = sum(len(item) if isinstance(item, Work) else 1 for item in items)
            assert before + rest == 20_000
    assert rounds > 3
    assert sorted(slots.handled) == list(range(20_000))
    assert slots.overlaps == []


def test_what_is_given_back_keeps_its_order() -> None:
    """What asks for a pause comes before what nobody has taken."""
    inbox = Inbox()
    window = Window("bill", inbox)
    items: list[Any] = [object() for _ in range(5)]
    window.ready.extend(items[1:])
    window.give_back((items[0],))
    assert list(inbox.returned) == [("bill", item) for item in items]
    assert len(window) == 0


def test_a_lane_that_is_left_goes_behind_the_others() -> None:
    """Where nothing was asked back meanwhile; else it goes to the owner."""
    inbox = Inbox()
    window = Window("bill", inbox)
    others, work = [_work(()), _work(())], _work(())
    work.last = False
    window.add(others)
    window.put_last(work)
    assert [id(item) for item in window.ready] == [*map(id, others), id(work)]
    window.give_back()
    assert [id(item) for _, item in inbox.returned] == [*map(id, others), id(work)]
    window.put_last(work)
    assert (len(window), [id(ended) for _, ended in inbox.finished]) == (0, [id(work)])
    window.add([work])
    window.put_last(work)
    assert len(window) == 2


class _Recalled(deque[Any]):
    """A window's items: each time that one is taken, everything is asked back."""

    def __init__(self, take_back: Callable[[], None]) -> None:
        super().__init__()
        self._take_back = take_back
        self._first = True

    def popleft(self) -> Any:
        """The owner thread comes between the slot's first item and its next step."""
        item = super().popleft()
        if self._first:
            self._first = False
            self._take_back()
        return item


@pytest.mark.parametrize("kind", [AsyncBench, ThreadBench])
def test_a_lane_that_was_just_taken_is_given_back_as_well(kind: Callable[[], Bench]) -> None:
    """It is asked back between the moment it was taken and its first record."""
    bench = kind()
    try:
        executor: Any = bench.executor(concurrency=1, lanes=True)
        eventually(lambda: executor._idle)
        executor._window.ready = _Recalled(executor.take_back)
        work = work_of("ada", bench.deliveries(3))
        bench.submit(executor, [work])
        eventually(lambda: bench.inbox.finished)
        time.sleep(WATCH_S)
        assert (bench.started, len(work), executor.queued()) == ([], 3, 0)
        assert bench.returned_items() == [work]
        bench.submit(executor, [work])
        eventually(lambda: bench.answered == [0, 1, 2])
    finally:
        bench.close()  # type: ignore[attr-defined]
