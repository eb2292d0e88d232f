"""Choosing dead letters by SQL: their coordinates, each once, and a sentence for what is wrong."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from ackfloor_monitoring.spark.redrive_selection import Chosen, choose
from ackfloor_monitoring.spark.spark_errors import WhereRefused
from tests.monitoring.spark.failure_rows import dead, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def failures(spark: SparkSession) -> DataFrame:
    """A few dead letters, one twice, and a retry of each kind."""
    rows = [
        dead(9), dead(3), dead(3), dead(4, error_type="shop.Other"), dead(7, partition=1),
        dead(3, topic_id="older"), dead(5, topic="legacy.DLT", group=None, error_type=None),
        {**dead(1), "stage": "retry", "topic": "orders--billing--retry-1s", "tier": "1s"},
    ]  # fmt: skip
    return frame(spark, rows)


def test_only_dead_letters_each_once_and_in_order(failures: DataFrame) -> None:
    """Whatever the condition says of the stage."""
    legacy, ours = choose(failures, "true or stage = 'retry'")
    assert ours.topic == "orders--billing--dlq"
    assert ours.of("id") == {0: array("q", [3, 4, 9]), 1: array("q", [7])}
    assert ours.of("older") == {0: array("q", [3])}
    assert ours.of("another") == {}
    assert ours.of("") == ours.of("id")
    assert len(ours) == 5
    assert (legacy.topic, len(legacy)) == ("legacy.DLT", 1)


def test_the_condition_is_sql_over_the_columns(failures: DataFrame) -> None:
    """Functions and all; rows for which it is null are not meant."""
    assert [len(c) for c in choose(failures, "error_type like 'shop.B%' and offset < 9")] == [3]
    assert choose(failures, "error_type = 'nobody'") == []


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("reason ==", "Syntax error"),
        ("true) or (true", "Syntax error"),
        ("", "Syntax error"),
        ("reson = 'timeout'", r"`reson`.*columns are topic_id, topic,"),
        ("offset", "(?i)boolean"),
        ("cast(reason as int) = 1", "try_cast"),
    ],
)
def test_a_condition_that_can_not_be_evaluated_gets_a_sentence(
    failures: DataFrame, where: str, says: str
) -> None:
    """Of one line, with what was written and what to do; exit code 2."""
    with pytest.raises(WhereRefused, match=says) as caught:
        choose(failures, where)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_what_is_chosen_counts_every_id() -> None:
    """Rows of an earlier topic of that name are counted, not forgotten."""
    chosen = Chosen("t", {"a": {0: array("q", [1, 2])}, "b": {0: array("q", [2, 3])}})
    assert len(chosen) == 4
    assert chosen.of("") == {0: array("q", [1, 2, 3])}
