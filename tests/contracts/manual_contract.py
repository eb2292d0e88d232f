"""ManualContract: answers by hand, for the executors whose handlers may give them."""

from __future__ import annotations

import time

import pytest

from ackfloor.core.records.outcomes import ACKED, Failed
from tests.contracts.executor_contract import WATCH_S, Bench, eventually, offsets_of, work_of


class ManualContract:
    """Subclass it together with `ExecutorContract`."""

    def test_a_manual_answer_frees_the_slot(self, bench: Bench) -> None:
        """The slot is taken until the answer, which comes from another thread, not until return."""
        executor = bench.executor(concurrency=1, manual=True)
        first, second = bench.deliveries(2, manual=True)
        bench.submit(executor, [first, second])
        eventually(lambda: bench.started)
        time.sleep(WATCH_S)
        assert bench.started == [0]
        assert list(executor.running()) == [first]
        assert first.ack()
        assert not first.ack()
        eventually(lambda: bench.started == [0, 1])
        assert second.retry(reason="again")
        eventually(lambda: bench.answered == [0, 1])
        assert first.outcome is ACKED
        assert isinstance(second.outcome, Failed)

    def test_an_error_before_the_manual_answer_is_the_answer(self, bench: Bench) -> None:
        """After it, it is an error of nobody's record."""
        bench.raises = {0: [ValueError("before")], 1: [ValueError("after")]}
        bench.acts = lambda delivery: delivery.offset == 1 and delivery.ack()
        first, second = bench.deliveries(2, manual=True)
        bench.submit(bench.executor(concurrency=1, manual=True), [first, second])
        eventually(lambda: bench.answered == [0, 1] and bench.inbox.errors)
        assert isinstance(first.outcome, Failed)
        assert second.outcome is ACKED
        delivery, error = bench.inbox.errors[0]
        assert (delivery, str(error)) == (second, "after")

    def test_a_work_ends_after_its_last_answer_by_hand(self, bench: Bench) -> None:
        """However long ago its handler has returned."""
        executor = bench.executor(concurrency=1, lanes=True, manual=True)
        first, second = bench.deliveries(2, manual=True)
        bench.submit(executor, [work := work_of("ada", [first, second])])
        eventually(lambda: bench.started == [0])
        assert first.ack()
        eventually(lambda: bench.started == [0, 1])
        time.sleep(WATCH_S)
        assert list(bench.inbox.finished) == []
        assert second.discard("useless")
        eventually(lambda: bench.inbox.finished)
        time.sleep(WATCH_S)
        assert [unit is work for _, unit in bench.inbox.finished] == [True]
        assert (bench.answered, len(work)) == ([0, 1], 0)

    @pytest.mark.parametrize("how", ["retry", "dead_letter"])
    def test_a_work_is_left_without_a_word_after_a_failure_by_hand(
        self, bench: Bench, how: str
    ) -> None:
        """What is behind that record stays where the owner takes it."""
        executor = bench.executor(concurrency=1, lanes=True, manual=True)
        deliveries = bench.deliveries(5, manual=True)
        bench.acts = lambda delivery: delivery.offset == 4 and delivery.ack()
        work = work_of("ada", deliveries[:4])
        bench.submit(executor, [work])
        eventually(lambda: bench.started == [0])
        assert getattr(deliveries[0], how)(reason="no")
        bench.submit(executor, [other := work_of("bob", deliveries[4:])])
        eventually(lambda: bench.inbox.finished)
        time.sleep(WATCH_S)
        assert [unit is other for _, unit in bench.inbox.finished] == [True]
        assert (bench.started, offsets_of([work]), bench.returned) == ([0, 4], [1, 2, 3], [])
