"""The model against a real re-run: the same messages through the same outages, by the worker."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING

import pytest

from ackfloor import RetryPolicy
from ackfloor_monitoring.spark.whatif.answer import Estimate, Outcome, Policy
from ackfloor_monitoring.spark.whatif.build import what_if
from ackfloor_monitoring.spark.whatif.whatif_model import PolicyOptions
from tests.monitoring.spark.failure_rows import frame
from tests.monitoring.spark.whatif.rerun import Rerun, messages, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

WAS = RetryPolicy("1s", 3, "1m", 6)
SENT = messages(5, 300)


@pytest.fixture(scope="module")
def history() -> Rerun:
    """What the table is made of."""
    return run(WAS, SENT)


@pytest.fixture(scope="module")
def failures(spark: SparkSession, history: Rerun) -> Iterator[DataFrame]:
    """The table."""
    rows = frame(spark, history.rows).persist()
    yield rows
    rows.unpersist()


def near(number: float, truth: float) -> bool:
    """Within two percent."""
    return abs(number - truth) <= 0.02 * truth


def quantile(took_s: list[float], share: float) -> float:
    """The time within which this share of the messages recovered."""
    return took_s[ceil(share * len(took_s)) - 1]


def within(bounds: Estimate, truth: int) -> bool:
    """Between the bounds."""
    return bounds.least <= truth <= bounds.most


def test_the_same_policy_gives_what_was(failures: DataFrame, history: Rerun) -> None:
    """What was is counted exactly, and the model gives it again."""
    total = what_if(failures, history.commits, WAS, table="t").total
    assert (total.recovered, total.dead) == (history.recovered, history.dead)
    assert total.redeliveries == history.redeliveries
    assert total.to_recovery_s == pytest.approx(history.to_recovery_s, abs=0.01)
    assert total.tried_later == 0
    for bounds, was in (
        (total.recovered_then, total.recovered),
        (total.dead_then, total.dead),
        (total.redeliveries_then, total.redeliveries),
    ):
        assert bounds.likely == pytest.approx(was)
        assert bounds.least <= was <= bounds.most
    assert total.to_recovery_then_s == total.to_recovery_s
    assert total.to_death_then_s == total.to_death_s
    assert total.to_recovery_p50_then_s == total.to_recovery_p50_s
    assert total.to_recovery_p99_then_s == total.to_recovery_p99_s
    for share, told_s in ((0.5, total.to_recovery_p50_s), (0.99, total.to_recovery_p99_s)):
        assert told_s == pytest.approx(quantile(history.took_s, share), rel=0.001)


def test_the_policy_in_force_is_read_off_the_records(failures: DataFrame, history: Rerun) -> None:
    """So without any option the answer is what was; fewer redeliveries keep the waits."""
    answer = what_if(failures, history.commits, PolicyOptions(), table="t")
    explicit = what_if(failures, history.commits, WAS, table="t")
    assert answer.total == explicit.total
    assert answer.policy == Policy(6, WAS.schedule(), WAS.jitter)
    assert [each.in_force for each in answer.handlers] == [answer.policy]
    fewer = what_if(failures, history.commits, PolicyOptions(max_redeliveries=3), table="t")
    assert fewer.policy == Policy(3, WAS.schedule()[:3], WAS.jitter)


@pytest.mark.parametrize(
    "policy",
    [RetryPolicy("1s", 3, "1m", 3), RetryPolicy("5s", 2, "40s", 4)],
    ids=["fewer", "other"],
)
def test_a_shorter_policy_is_told_within_two_percent(
    failures: DataFrame, history: Rerun, policy: RetryPolicy
) -> None:
    """No message is tried later than it was, so all is known but when each recovered."""
    total = what_if(failures, history.commits, policy, table="t").total
    then = run(policy, SENT)
    assert then.dead > 1.5 * history.dead
    told(total, then)
    assert near(total.to_recovery_then_s or 0, then.to_recovery_s)
    assert near(total.to_recovery_p50_then_s or 0, quantile(then.took_s, 0.5))
    assert near(total.to_recovery_p99_then_s or 0, quantile(then.took_s, 0.99))


def told(total: Outcome, then: Rerun) -> None:
    """The re-run is where the model says."""
    assert abs(total.recovered_then.likely - then.recovered) <= 0.02 * len(SENT)
    assert near(total.dead_then.likely, then.dead)
    assert near(total.redeliveries_then.likely, then.redeliveries)
    assert within(total.recovered_then, then.recovered)
    assert within(total.redeliveries_then, then.redeliveries)


def test_a_longer_policy_is_within_its_bounds(failures: DataFrame, history: Rerun) -> None:
    """What died is tried later than it was: how many more recover is bounded, not known."""
    policy = RetryPolicy("5s", 3, "2m", 6)
    total = what_if(failures, history.commits, policy, table="t").total
    then = run(policy, SENT)
    assert then.recovered > history.recovered
    assert within(total.recovered_then, then.recovered)
    assert within(total.dead_then, then.dead)
    assert within(total.redeliveries_then, then.redeliveries)
    assert total.tried_later > 0
    assert total.dead_then.likely == history.dead
