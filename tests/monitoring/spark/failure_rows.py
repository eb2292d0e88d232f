"""Rows of the table `failures` for tests: what is not said is as after an ordinary failure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ackfloor_monitoring.spark.table.columns import FAILURE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    """The rows as a DataFrame of the table's schema; columns that are not given are null."""
    names = FAILURE.fieldNames()
    assert all(set(row) <= set(names) for row in rows)
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], FAILURE)


def dead(offset: int, partition: int = 0, **more: Any) -> dict[str, Any]:
    """A dead letter of group `billing`, topic `orders`."""
    return {
        "topic_id": "id", "topic": "orders--billing--dlq", "partition": partition,
        "offset": offset, "group": "billing", "day": NOON.date(), "stage": "dlq",
        "event_time": NOON, "kafka_time": NOON, "ingested_at": NOON, "handler": "bill",
        "reason": "exhausted", "error_type": "shop.Boom", "attempt": 7, "unreadable": [],
        "foreign": [], **more,
    }  # fmt: skip
