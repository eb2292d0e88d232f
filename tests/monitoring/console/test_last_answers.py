"""The last answers of runs that do not answer: kept for a while, never instead of a newer one."""

from __future__ import annotations

from ackfloor.cli.status.run_answers import RunAnswer
from ackfloor_monitoring.console.reads.runs.last_answers import KEPT_MS, LastAnswer, LastAnswers

THERE = RunAnswer("a:1", named=True, state={"group": "billing"})
NEWER = RunAnswer("a:1", named=True, state={"group": "billing", "workers_expected": 2})
AWAY = RunAnswer("a:1", named=True, error="a:1: timed out")
OTHER = RunAnswer("b:2", named=True, error="b:2: refused")


def test_the_newest_answer_stays_while_a_run_is_silent() -> None:
    """Until it is too old; one that never answered has none."""
    last = LastAnswers()
    assert last.of_silent([THERE, OTHER], 1_000) == []
    assert last.of_silent([NEWER, OTHER], 2_000) == []
    assert last.of_silent([AWAY, OTHER], 3_000) == [LastAnswer(NEWER, 2_000)]
    assert last.of_silent([AWAY, OTHER], 2_000 + KEPT_MS) == [LastAnswer(NEWER, 2_000)]
    assert last.of_silent([AWAY, OTHER], 2_001 + KEPT_MS) == []
    assert last.of_silent([THERE, OTHER], 90_000) == []
    assert last.of_silent([AWAY], 90_001) == [LastAnswer(THERE, 90_000)]


def test_a_run_that_is_asked_no_more_is_forgotten() -> None:
    """Its address was taken out of the settings."""
    last = LastAnswers()
    last.of_silent([THERE], 1_000)
    assert last.of_silent([OTHER], 1_001) == []
    assert last.of_silent([AWAY, OTHER], 1_002) == []
