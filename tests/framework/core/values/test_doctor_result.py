"""Findings: which of them keep a worker from working."""

from __future__ import annotations

from ackfloor.core.values.doctor_result import CheckResult, passes


def test_only_a_failed_check_fails_unless_one_is_strict() -> None:
    """What could not be tried is no verdict."""
    fine = [CheckResult("a", "ok", ""), CheckResult("b", "not tried", "")]
    warned = [*fine, CheckResult("c", "warn", "", "do")]
    failed = [*fine, CheckResult("d", "fail", "", "do")]
    assert [passes(each, strict=False) for each in (fine, warned, failed)] == [True, True, False]
    assert [passes(each, strict=True) for each in (fine, warned, failed)] == [True, False, False]
