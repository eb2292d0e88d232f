"""Outcomes: what the policy makes of a failed delivery."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import PROCESS_CRASH, Bury, Failed, Park, Rejected, judge
from ackfloor.core.records.record import Failure
from ackfloor.core.records.retry_policy import RetryPolicy

BOOM = Failure("Boom", "x")
THREE = RetryPolicy("1s", 5, "10m", 3)


@pytest.mark.parametrize("reason", [Reason.ERROR, Reason.TIMEOUT, Reason.RETRY])
def test_each_failure_takes_the_next_delay_of_the_policy(reason: Reason) -> None:
    """Errors, timeouts and explicit retries spend the same budget."""
    verdicts = [judge(Failed(BOOM, reason), THREE, attempt) for attempt in (1, 2, 3)]
    assert verdicts == [Park(delay_s, False, reason, BOOM) for delay_s in (1.0, 5.0, 25.0)]


def test_a_spent_budget_buries_and_keeps_the_last_cause() -> None:
    """The reason is that it ran out; the failure says what happened last."""
    assert judge(Failed(BOOM, Reason.TIMEOUT), THREE, 4) == Bury(Reason.EXHAUSTED, BOOM)
    assert judge(Failed(BOOM, Reason.RETRY, 5.0), THREE, 9) == Bury(Reason.EXHAUSTED, BOOM)


def test_without_redeliveries_the_first_failure_buries() -> None:
    """A budget of 0 is one delivery."""
    assert judge(Failed(BOOM), RetryPolicy(max_redeliveries=0), 1) == Bury(Reason.EXHAUSTED, BOOM)


def test_an_explicit_wait_replaces_the_delay_and_not_the_budget() -> None:
    """Also one of no length at all."""
    for after_s in (0.0, 90.0):
        outcome = Failed(BOOM, Reason.RETRY, after_s)
        assert judge(outcome, THREE, 3) == Park(after_s, True, Reason.RETRY, BOOM)


@pytest.mark.parametrize("reason", [Reason.DEAD_LETTER, Reason.DECODE, Reason.CRASH])
def test_a_rejected_record_is_buried_whatever_the_budget(reason: Reason) -> None:
    """No redelivery would help it."""
    assert judge(Rejected(BOOM, reason), THREE, 1) == Bury(reason, BOOM)


@given(st.integers(1, 10**17))
def test_an_unlimited_policy_never_buries_a_failure(attempt: int) -> None:
    """However often it was delivered."""
    policy = RetryPolicy("1s", 2, "1m", None)
    verdict = judge(Failed(BOOM), policy, attempt)
    assert isinstance(verdict, Park)
    assert verdict.delay_s <= 60


@pytest.mark.parametrize(
    ("attempt", "last_error", "buried"),
    [
        (1, None, False),
        (2, PROCESS_CRASH, False),
        (3, "ValueError", False),
        (3, PROCESS_CRASH, True),
        (4, PROCESS_CRASH, True),
    ],
)
def test_crashes_in_a_row_are_given_up_at_the_third_attempt(
    attempt: int, last_error: str | None, buried: bool
) -> None:
    """Before that they spend the budget like any error."""
    crash = Failure(PROCESS_CRASH, "was killed by signal 11")
    verdict = judge(Failed(crash, Reason.CRASH), RetryPolicy.fixed("1s", 9), attempt, last_error)
    assert isinstance(verdict, Bury) == buried
    assert verdict.reason is Reason.CRASH
