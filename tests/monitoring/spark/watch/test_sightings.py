"""Rows of the table, counted by cause and slice."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ackfloor_monitoring.spark.watch.detection import Rules
from ackfloor_monitoring.spark.watch.watch_frames import sightings
from tests.monitoring.spark.failure_rows import NOON, dead, frame

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

RULES = Rules(look_back_s=86_400.0, window_s=300.0)


def failed(offset: int, ago_s: float = 0.0, **more: Any) -> dict[str, Any]:
    """A failure so long before noon, stored at noon."""
    at = NOON - timedelta(seconds=ago_s)
    return dead(offset, **{"event_time": at, "kafka_time": at, "error_fingerprint": "f"} | more)


def counted(spark: SparkSession, *rows: dict[str, Any], slices_from_s: float = 0.0) -> list[Row]:
    """What the frame makes of them, the newest first."""
    return frame(spark, list(rows)).transform(sightings, RULES, slices_from_s).collect()


def test_failures_are_counted_by_cause_and_slice(spark: SparkSession) -> None:
    """Slices of a minute, and of an hour where less will do; the newest is the sample."""
    given = (
        failed(1, 10), failed(2, 50), failed(3, 70),
        failed(4, 7_300), failed(5, 10_700),
        failed(6, 20, error_fingerprint=None),
        failed(7, 30, error_fingerprint=None, error_type=None, reason=None, handler="x" * 500),
    )  # fmt: skip
    rows = counted(spark, *given, slices_from_s=NOON.timestamp() - 1_200)
    told = [(row["fingerprint"], row["stored"], row["failed"], row["sample"][-1]) for row in rows]
    assert told == [
        ("f", 2, 2, "1"),
        ("shop.Boom", 1, 1, "6"),
        ("unknown", 1, 1, "7"),
        ("f", 1, 1, "3"),
        ("f", 2, 2, "4"),
    ]
    in_slices = counted(spark, *given)
    assert [(row["stored"], row["sample"][-1]) for row in in_slices[4:]] == [(1, "4"), (1, "5")]
    assert rows[0]["at_s"] == NOON.timestamp() - 10
    assert rows[0]["sample"] == "orders--billing--dlq/0/1"
    assert (rows[2]["handler"], rows[2]["reason"]) == ("x" * 200, "unknown")


def test_replays_and_further_waits_are_stored_and_no_failures(spark: SparkSession) -> None:
    """They are rows, and nothing failed; the first of an explicit wait did."""
    wait = {"retry_at": NOON + timedelta(hours=1), "stage": "retry", "reason": "retry"}
    (retry, dlq) = sorted(
        counted(
            spark,
            failed(1, 40, **wait),
            failed(2, 40, **wait, kafka_time=NOON - timedelta(seconds=35)),
            failed(3, 40, replays=1, attempt=0),
            failed(4, 40, replays=1, attempt=1),
        ),
        key=lambda row: str(row["reason"] != "retry"),
    )
    assert (retry["stored"], retry["failed"]) == (2, 1)
    assert (dlq["stored"], dlq["failed"]) == (2, 1)


def test_what_waits_behind_another_record_is_stored_and_no_failure(spark: SparkSession) -> None:
    """Under a reason of its own, in a retry topic and in the dead-letter topic."""
    behind = {"error_fingerprint": None, "error_type": None, "attempt": 0}
    rows = counted(
        spark,
        failed(1, 40, **behind, reason="behind", stage="retry", retry_at=NOON),
        failed(2, 40, **behind, reason="behind"),
        failed(3, 40, **behind, reason="held", stage="retry", retry_at=NOON),
        failed(4, 40),
    )
    told = sorted((row["reason"], row["stage"], row["stored"], row["failed"]) for row in rows)
    assert told == [
        ("behind", "dlq", 1, 0),
        ("behind", "retry", 1, 0),
        ("exhausted", "dlq", 1, 1),
        ("held", "retry", 1, 0),
    ]


def test_a_clock_that_is_ahead_is_put_right(spark: SparkSession) -> None:
    """Nothing was stored before it failed."""
    (row,) = counted(spark, failed(1, event_time=NOON + timedelta(days=900)))
    assert row["at_s"] == NOON.timestamp()
