"""WorksContract: what every `ports.Executor` that takes works does with them.

A work's end is posted once, after all its answers, with what was not handled still in it and in
order. A slot whose record failed leaves the work without a word: the owner has taken the rest away.
Whoever gives a slot up posts the end of its work.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from random import Random
from typing import Any

import pytest

from ackfloor.core.queues.lanes import Lane, Lanes, Work
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import ACKED, Discarded, Failed, Rejected
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.errors import DeadLetter, Discard, Pause, Retry
from ackfloor.ports import Executor
from tests.contracts.executor_contract import WATCH_S, Bench, eventually, work_of

#: More records than a slot takes of a work in one visit.
LONG = 200
#: Lanes of an owner: offset modulo so many.
COUNT = 12


def offsets_in(work: Work) -> list[int]:
    """The offsets of what is left of a work."""
    return [delivery.offset for delivery in list(work)]


class _Ends(deque[Any]):
    """Ends of works, and what was so when each was posted.

    Attributes:
        answered: offsets that had been answered.
        left: offsets that were left in the work.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench
        self.answered: list[list[int]] = []
        self.left: list[list[int]] = []

    def append(self, item: tuple[str, Work]) -> None:
        """A slot has ended a work."""
        self.answered.append(self._bench.answered)
        self.left.append(offsets_in(item[1]))
        super().append(item)

    def works(self) -> list[int]:
        """Identities of the works: deques that have nothing in them are equal."""
        return [id(work) for _, work in list(self)]


def ends_of(bench: Bench) -> _Ends:
    """Watch the ends of works, from before an executor is made."""
    ends = bench.inbox.finished = _Ends(bench)
    return ends


class _Answers(deque[TrackedDelivery]):
    """Answers, each looked at in the moment before it is posted."""

    def __init__(self, look: Callable[[TrackedDelivery], object]) -> None:
        super().__init__()
        self._look = look

    def append(self, delivery: TrackedDelivery) -> None:
        """A delivery is answered."""
        self._look(delivery)
        super().append(delivery)


class _Watched(Work):
    """A work that notes who takes from it, or adds to it."""

    __slots__ = ("touched",)

    touched: list[str]

    def popleft(self) -> TrackedDelivery:
        """Take the next one."""
        self.touched.append("popleft")
        return super().popleft()

    def appendleft(self, delivery: TrackedDelivery) -> None:
        """Put one back."""
        self.touched.append("appendleft")
        super().appendleft(delivery)


def watched(work: Work) -> _Watched:
    """The same, watched."""
    found = _Watched(work)
    found.touched = []
    found.lane = work.lane
    work.lane.out = found
    return found


class Owner:
    """What the owner thread does with the lanes of an executor.

    Attributes:
        works: those that were handed out, in order.
        posted: identities of those that were posted as ended or given back.
        failed: identities of those that were taken away because a record of theirs failed.
        handled: the deliveries that were answered.
    """

    def __init__(self, bench: Bench, executor: Executor) -> None:
        self.lanes = Lanes(singly=bench.singly)
        self.works: list[Work] = []
        self.posted: list[int] = []
        self.failed: list[int] = []
        self.handled: set[TrackedDelivery] = set()
        self._bench = bench
        self._executor = executor

    def admit(self, name: int, deliveries: Sequence[TrackedDelivery]) -> None:
        """What was read of one lane."""
        key = ("orders", 0, name)
        lanes = [self.lanes.admit(key, delivery) for delivery in deliveries]
        self._submit(lanes)

    def turn(self) -> None:
        """Take what was posted, and submit again what is free by that."""
        returned = self._bench.inbox.take_returned().get("bill", [])
        free: list[Lane | TrackedDelivery | None] = [self._back(unit) for unit in returned]
        answers, ended = self._bench.inbox.take_answers()
        for delivery in answers:
            assert delivery not in self.handled
            self.handled.add(delivery)
            free += self._answered(delivery)
        free += [self._back(unit) for _, unit in ended]
        self._submit(free)

    def _answered(self, delivery: TrackedDelivery) -> Sequence[Lane | None]:
        if delivery.outcome is ACKED:
            return self.lanes.deliveries_ended([delivery])
        key, again = ("orders", 0, delivery.offset % COUNT), delivery.again(None)
        if isinstance(delivery.lane, Lane):
            self.failed.append(id(delivery.lane.out))
        self.lanes.block(key, again, again=True)
        return [self.lanes.go_on(key, again, settled=False)]

    def _back(self, unit: Any) -> Lane | TrackedDelivery | None:
        if isinstance(unit, Work):
            self.posted.append(id(unit))
            assert unit.lane.out is unit, "its end was posted before, or it was taken away"
            assert self.handled.isdisjoint(unit)
        return self.lanes.back(unit)

    def _submit(self, free: Sequence[Lane | TrackedDelivery | None]) -> None:
        units: list[TrackedDelivery | Work] = [
            self.lanes.hand_out(item) if isinstance(item, Lane) else item
            for item in free
            if item is not None
        ]
        self.works += [unit for unit in units if isinstance(unit, Work)]
        if units:
            self._bench.submit(self._executor, units)


class WorksContract:
    """Subclass it together with `ExecutorContract`."""

    def test_a_works_end_is_posted_once_after_all_its_answers(self, bench: Bench) -> None:
        """Whatever its length, and with more works than slots."""
        ends = ends_of(bench)
        executor = bench.executor(lanes=True, concurrency=2)
        deliveries = bench.deliveries(LONG + 4)
        parts = [deliveries[:1], deliveries[1:4], deliveries[4:]]
        works = [work_of(f"lane {n}", part) for n, part in enumerate(parts)]
        bench.submit(executor, works)
        eventually(lambda: len(ends) == 3)
        time.sleep(WATCH_S)
        assert sorted(ends.works()) == sorted(map(id, works))
        of = {id(work): {d.offset for d in part} for work, part in zip(works, parts, strict=True)}
        for work, answered, left in zip(ends.works(), ends.answered, ends.left, strict=True):
            assert of[work] <= {*answered}
            assert left == []
        assert (bench.returned, executor.queued()) == ([], 0)

    def test_what_a_work_has_left_at_its_end_is_in_order(self, bench: Bench) -> None:
        """It was asked back while one of its records ran: that is answered before."""
        ends = ends_of(bench)
        bench.shut(1)
        executor = bench.executor(lanes=True, concurrency=1)
        work = work_of("ada", bench.deliveries(6))
        bench.submit(executor, [work])
        eventually(lambda: bench.started == [0, 1])
        bench.take_back(executor)
        time.sleep(WATCH_S)
        assert list(ends) == []
        bench.open()
        eventually(lambda: ends)
        time.sleep(WATCH_S)
        assert ends.works() == [id(work)]
        assert (ends.answered, ends.left) == ([[0, 1]], [[2, 3, 4, 5]])
        assert (bench.started, offsets_in(work), bench.returned) == ([0, 1], [2, 3, 4, 5], [])

    def test_a_work_that_nobody_has_begun_is_given_back_and_not_ended(self, bench: Bench) -> None:
        """Another one has the only slot."""
        ends = ends_of(bench)
        bench.shut(0)
        executor = bench.executor(lanes=True, concurrency=1)
        deliveries = bench.deliveries(4)
        ada, bob = work_of("ada", deliveries[:1]), work_of("bob", deliveries[1:])
        bench.submit(executor, [ada])
        eventually(lambda: bench.started)
        bench.submit(executor, [bob])
        bench.take_back(executor)
        eventually(lambda: bench.returned == [1, 2, 3])
        bench.open()
        eventually(lambda: ends)
        time.sleep(WATCH_S)
        assert (ends.works(), len(bench.inbox.returned)) == ([id(ada)], 1)

    def test_what_asks_for_a_pause_is_first_in_its_work_which_is_not_ended(
        self, bench: Bench
    ) -> None:
        """It is given back, as what nobody has begun."""
        ends = ends_of(bench)
        bench.raises = {1: [Pause("1s")]}
        executor = bench.executor(lanes=True, concurrency=1)
        work = work_of("ada", bench.deliveries(4))
        bench.submit(executor, [work])
        eventually(lambda: bench.inbox.pause_requests)
        time.sleep(WATCH_S)
        assert ([unit is work for _, unit in bench.inbox.returned], list(ends)) == ([True], [])
        assert (bench.answered, bench.returned) == ([0], [1, 2, 3])

    def test_what_may_not_start_is_passed_over_and_its_work_ended(self, bench: Bench) -> None:
        """Ended meanwhile, or of a partition that is about to leave; the others are handled."""
        ends = ends_of(bench)
        executor = bench.executor(lanes=True, concurrency=1)
        deliveries = bench.deliveries(6)
        for n in (0, 2, 3):
            deliveries[n].closed = True
        work = work_of("ada", deliveries[:4])
        bench.submit(executor, [work])
        eventually(lambda: ends)
        assert (ends.works(), ends.answered, ends.left) == ([id(work)], [[1]], [[]])
        deliveries[4].assignment.stopping = True
        leaving = work_of("bob", deliveries[4:])
        bench.submit(executor, [leaving])
        eventually(lambda: len(ends) == 2)
        time.sleep(WATCH_S)
        assert (ends.works()[1:], bench.started) == ([id(leaving)], [1])

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (ValueError("no"), Failed),
            (Retry(after="5s"), Failed),
            (DeadLetter("bad"), Rejected),
        ],
        ids=["error", "retry", "dead letter"],
    )
    def test_a_slot_whose_record_failed_leaves_its_work_without_a_word(
        self, bench: Bench, error: BaseException, kind: type
    ) -> None:
        """When the failure is posted, all that is behind is in the work; later nobody touches it.

        The owner takes it away and hands it out anew, while the slot may not have left yet.
        """
        taken: list[TrackedDelivery] = []

        def take_away(delivery: TrackedDelivery) -> None:
            if delivery.offset == 1:
                while work:
                    taken.append(work.popleft())
                work.touched.clear()
                bench.submit(executor, [anew := work_of("ada", taken)])
                news.append(id(anew))

        news: list[int] = []
        ends = ends_of(bench)
        bench.inbox.answered = _Answers(take_away)
        bench.raises = {1: [error]}
        executor = bench.executor(lanes=True, concurrency=2)
        deliveries = bench.deliveries(40)
        work = watched(work_of("ada", deliveries))
        bench.submit(executor, [work])
        eventually(lambda: ends)
        time.sleep(WATCH_S)
        assert isinstance(deliveries[1].outcome, kind)
        assert taken == deliveries[2:]
        assert (work.touched, ends.works()) == ([], news)
        assert bench.started == list(range(40))
        assert sorted(bench.answered) == list(range(40))

    def test_a_slot_goes_on_after_a_record_that_was_discarded(self, bench: Bench) -> None:
        """It is settled: nothing of its lane waits for it."""
        ends = ends_of(bench)
        bench.raises = {1: [Discard("useless")]}
        deliveries = bench.deliveries(4)
        bench.submit(
            bench.executor(lanes=True, concurrency=1), [work := work_of("ada", deliveries)]
        )
        eventually(lambda: ends)
        assert isinstance(deliveries[1].outcome, Discarded)
        assert (ends.works(), ends.answered, ends.left) == ([id(work)], [[0, 1, 2, 3]], [[]])

    @pytest.mark.parametrize("error", [None, ValueError("no"), Pause("1s")], ids=repr)
    def test_a_delivery_without_a_work_has_no_end(
        self, bench: Bench, error: BaseException | None
    ) -> None:
        """Its answer is its end, or it comes back by itself."""
        ends = ends_of(bench)
        bench.raises = {0: [error]} if error is not None else {}
        delivery, other = bench.deliveries(2)
        for n, single in enumerate((delivery, other)):
            lane = work_of(f"lane {n}", [single]).lane
            lane.out = single
        executor = bench.executor(lanes=True, concurrency=1)
        bench.submit(executor, [delivery])
        eventually(lambda: bench.answered == [0] or bench.returned == [0])
        bench.submit(executor, [other])
        eventually(lambda: 1 in bench.answered)
        time.sleep(WATCH_S)
        assert list(ends) == []
        assert [unit for _, unit in bench.inbox.returned] == (
            [delivery] if isinstance(error, Pause) else []
        )

    def test_works_are_handled_or_left_whatever_happens(self, bench: Bench) -> None:
        """With lanes as the owner has them: each work comes back once, or a record of it failed.

        Records fail, ask for pauses, everything is asked back, and the number of slots changes.
        """
        count, each, chance = COUNT, 40, Random(1)
        deliveries = bench.deliveries(count * each)
        bad = [n for n in range(count * each) if n % 29 == 0]
        pausing = [n for n in range(count * each) if n % 61 == 5 and n not in bad]
        bench.raises = {n: [ValueError("no")] for n in bad} | {n: [Pause("1s")] for n in pausing}
        executor = bench.executor(lanes=True, concurrency=4)
        owner, sizes = Owner(bench, executor), cycle((4, 1, 3, 2))
        for n in range(count):
            owner.admit(n, deliveries[n::count])

        def all_over() -> bool:
            if chance.random() < 0.2:
                bench.take_back(executor)
            if bench.resizes and chance.random() < 0.1:
                executor.resize(next(sizes))
            owner.turn()
            return not len(owner.lanes)

        eventually(all_over)
        time.sleep(WATCH_S)
        owner.turn()
        for n in range(count):
            twice = {*bad, *pausing}
            wanted = [o for o in range(n, count * each, count) for _ in range(1 + (o in twice))]
            assert [offset for offset in bench.started if offset % count == n] == wanted
        # Of a bare delivery that failed there is no work.
        works = [id(work) for work in owner.works]
        came = [work for work in (*owner.posted, *owner.failed) if work in works]
        assert sorted(came) == sorted(works)
        assert not any(owner.works)


class GivenUpContract:
    """Subclass it as well where an abandoned handler may still run."""

    def test_the_work_of_a_slot_that_is_given_up_is_ended_once(self, bench: Bench) -> None:
        """With what is left of it; its handler returns much later, and nobody takes the rest."""
        ends = ends_of(bench)
        bench.shut(1)
        executor = bench.executor(lanes=True, concurrency=1)
        deliveries = bench.deliveries(6)
        work = work_of("ada", deliveries[:5])
        bench.submit(executor, [work])
        eventually(lambda: bench.started == [0, 1])
        deliveries[1].closed = True
        executor.cancel(deliveries[1])
        eventually(lambda: ends)
        assert (ends.works(), ends.left) == ([id(work)], [[2, 3, 4]])
        bench.submit(executor, [work_of("bob", deliveries[5:])])
        eventually(lambda: len(ends) == 2)
        bench.open()
        eventually(lambda: executor.abandoned() == 0)
        time.sleep(WATCH_S)
        assert (len(ends), offsets_in(work), bench.started) == (2, [2, 3, 4], [0, 1, 5])

    def test_the_work_of_a_slot_that_is_given_up_after_it_was_taken_away(
        self, bench: Bench
    ) -> None:
        """The owner has handed the rest out anew at the deadline: it is handled once."""
        ends = ends_of(bench)
        bench.shut(1)
        executor = bench.executor(lanes=True, concurrency=1)
        deliveries = bench.deliveries(5)
        old = work_of("ada", deliveries)
        bench.submit(executor, [old])
        eventually(lambda: bench.started == [0, 1])
        deliveries[1].closed = True
        rest = [old.popleft() for _ in range(3)]
        new = work_of("ada", rest)
        executor.cancel(deliveries[1])
        bench.submit(executor, [new])
        eventually(lambda: len(ends) == 2)
        bench.open()
        eventually(lambda: executor.abandoned() == 0)
        time.sleep(WATCH_S)
        assert (sorted(ends.works()), ends.left) == (sorted([id(old), id(new)]), [[], []])
        assert bench.started == [0, 1, 2, 3, 4]


class KilledContract:
    """Subclass it as well where a handler is killed at its deadline."""

    def test_what_is_killed_leaves_its_work_without_a_word(self, bench: Bench) -> None:
        """Its timeout is posted when all that is behind is in the work."""
        left: list[list[int]] = []
        ends = ends_of(bench)
        bench.inbox.answered = _Answers(lambda d: d.offset == 1 and left.append(offsets_in(work)))
        bench.shut(1)
        executor = bench.executor(lanes=True, concurrency=1)
        deliveries = bench.deliveries(5)
        work = work_of("ada", deliveries)
        bench.submit(executor, [work])
        eventually(lambda: bench.started == [0, 1])
        handler = deliveries[1].assignment.handler
        handler.rules = replace(handler.rules, consume_timeout_s=0.0)
        executor.cancel(deliveries[1])
        eventually(lambda: bench.answered == [0, 1])
        time.sleep(WATCH_S)
        assert isinstance(deliveries[1].outcome, Failed)
        assert deliveries[1].outcome.reason is Reason.TIMEOUT
        assert (left, list(ends), offsets_in(work)) == ([[2, 3, 4]], [], [2, 3, 4])
        assert bench.started == [0, 1]

    def test_what_is_killed_after_its_partition_has_left_starts_nothing(self, bench: Bench) -> None:
        """Nobody waits for its answer, nor for more than one end of its work."""
        ends = ends_of(bench)
        bench.shut(0)
        executor = bench.executor(lanes=True, concurrency=1)
        deliveries = bench.deliveries(4)
        bench.submit(executor, [work := work_of("ada", deliveries)])
        eventually(lambda: bench.started == [0])
        for delivery in deliveries:
            delivery.closed = True
        executor.cancel(deliveries[0])
        eventually(lambda: not any(executor.running()) and executor.abandoned() == 0)
        time.sleep(WATCH_S)
        assert {*ends.works()} <= {id(work)}
        assert len(ends) <= 1
        assert (bench.started, bench.answered) == ([0], [])
