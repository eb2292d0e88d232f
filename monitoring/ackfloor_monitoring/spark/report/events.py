"""Rows of the table `failures`, told apart: failed deliveries, further waits, replays.

Three kinds of records lie in the topics, and only the first is a failure:

* a failed delivery: the handler failed and the record was parked or dead-lettered;
* a hop: an explicit wait longer than a tier goes on in the next one. Its headers are those of the
  record before, only the tier and the time differ;
* a replay: a dead letter that was put back to work, with its attempts at 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.schema import MESSAGE
from ackfloor_monitoring.spark.settled import with_settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READ = (
    "topic_id", "topic", "partition", "offset", "stage", "tier", *MESSAGE, "handler", "key",
    "reason", "error_type", "error_message", "error_fingerprint", "duration_ms", "release",
)  # fmt: skip
_TIMES = ("event_time", "kafka_time", "first_failed_at", "not_before")


def events(failures: DataFrame, commits: DataFrame) -> DataFrame:
    """The columns that judge single records, times in milliseconds, and what each record is.

    Adds `timed_out`, `cause` (what groups a failure with its like), `settled`, and `kind`:
    "failed", "hop" or "replay".

    Args:
        failures: rows of the table.
        commits: rows of `settled.COMMIT`; none where the commits are not known.
    """
    attempt = F.coalesce("attempt", F.lit(0))
    rows = failures.select(
        *_READ,
        *(F.unix_millis(name).alias(name) for name in _TIMES),
        attempt.alias("attempt"),
        F.coalesce("replays", F.lit(0)).alias("replays"),
        F.col("retry_at").isNotNull().alias("_hops"),
        F.coalesce((F.col("replays") > 0) & (attempt == 0), F.lit(False)).alias("_replayed"),
        (F.size("unreadable") > 0).alias("unreadable"),
    )
    rows = rows.withColumns(
        {
            # The last cause stays in `error_type` where the budget ran out.
            "timed_out": F.coalesce(
                (F.col("reason") == "timeout") | (F.col("error_type") == "ConsumeTimeout"),
                F.lit(False),
            ),
            "cause": F.coalesce("error_fingerprint", "error_type", "reason", F.lit("unknown")),
        }
    )
    return rows.transform(_with_kind).transform(with_settled, commits).drop("_hops", "_replayed")


def _with_kind(rows: DataFrame) -> DataFrame:
    # Few records wait in hops, so only these are sorted.
    same_wait = Window.partitionBy(*MESSAGE, "replays", "attempt", "first_failed_at", "event_time")
    first = F.min("kafka_time").over(same_wait)
    kind = F.when(F.col("_replayed"), "replay").otherwise("failed")
    waits = rows.where("_hops").withColumn(
        "kind", F.when(F.col("kafka_time") > first, "hop").otherwise(kind)
    )
    return rows.where("not _hops").withColumn("kind", kind).unionByName(waits)
