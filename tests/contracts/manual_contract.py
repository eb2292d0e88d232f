"""ManualContract: answers by hand, for the executors whose handlers may give them."""

from __future__ import annotations

import time

from ackfloor.core.outcomes import ACKED, Failed
from tests.contracts.executor_contract import WATCH_S, Bench, eventually


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
