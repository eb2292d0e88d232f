"""The funnel: every attempt has its step, whatever number a header says."""

from __future__ import annotations

from ackfloor_monitoring.spark.report.funnel import funnel_steps

BILL = ("billing", "bill")


def test_an_attempt_at_which_no_message_ended_has_a_step() -> None:
    """All that failed the first time and came to the last one failed in between."""
    steps = funnel_steps({(BILL, 1, "recovered"): 5, (BILL, 3, "dead"): 2}, {(BILL, 1): ("1s",)})
    assert [(s.attempt, s.failed, s.recovered, s.dead) for s in steps] == [
        (1, 7, 5, 0), (2, 2, 0, 0), (3, 2, 0, 2)
    ]  # fmt: skip


def test_a_number_that_no_policy_has_makes_one_step() -> None:
    """Not one for each attempt before it."""
    steps = funnel_steps({(BILL, 1, "recovered"): 5, (BILL, 10**17, "dead"): 1}, {})
    assert len(steps) == 101
    assert (steps[-1].attempt, steps[-1].failed, steps[-2].failed) == (10**17, 1, 1)
