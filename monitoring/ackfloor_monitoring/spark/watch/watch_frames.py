"""Pure frames: rows of the table, counted by cause and slice of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.table.table_frames import did_not_fail

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ackfloor_monitoring.spark.watch.detection import Rules

#: Of more rows only the newest are checked.
MOST_ROWS = 50_000
# Names come from headers, which may hold anything.
_LONGEST_NAME = 200
# A record that waits on in its next tier was written at least a tier's delay after the failure.
_HOP_AFTER_S = 1.0


def sightings(failures: DataFrame, rules: Rules, slices_from_s: float = 0.0) -> DataFrame:
    """One row for each cause, stage and reason in each slice of time.

    Columns: `group`, `handler`, `stage`, `reason`, `fingerprint`, `error_type`, `stored` (rows),
    `failed` (those of them that are failed deliveries: no replays, no further waits, and nothing
    that waits behind another record), `at_s`
    (the newest) and `sample` (its coordinates).

    A further wait looks like the record before it, and was written later. So a failure with an
    explicit wait counts as one if its first record took over a second to be written.

    Args:
        failures: rows of the table.
        rules: the widths of slices and steps.
        slices_from_s: earlier failures are counted by steps, which are fewer.
    """
    recent = F.col("at_s") >= slices_from_s
    width = F.when(recent, F.lit(rules.slice_s)).otherwise(F.lit(rules.step_s))
    return (
        failures.select(
            "group",
            _name("handler"),
            "stage",
            _name("reason"),
            _name("error_fingerprint", "error_type", "reason").alias("fingerprint"),
            _name("error_type"),
            # A worker's clock may be ahead; nothing was stored before it failed.
            F.least(_seconds("event_time"), _seconds("ingested_at")).alias("at_s"),
            F.concat_ws("/", "topic", "partition", "offset").alias("sample"),
            _is_failed_delivery().alias("_failed"),
        )
        .withColumn("_slice", F.struct(recent, F.floor(F.col("at_s") / width)))
        .groupBy("group", "handler", "stage", "reason", "fingerprint", "error_type", "_slice")
        .agg(
            F.count("*").alias("stored"),
            F.count_if("_failed").alias("failed"),
            F.max("at_s").alias("at_s"),
            F.max_by("sample", "at_s").alias("sample"),
        )
        .drop("_slice")
        .orderBy(F.desc("at_s"))
        .limit(MOST_ROWS)
    )


def _name(*columns: str) -> Column:
    """The first of the columns that is not null, as a name of bounded length."""
    known = F.coalesce(*columns, F.lit("unknown"))
    return F.substring(known, 1, _LONGEST_NAME).alias(columns[0])


def _seconds(column: str) -> Column:
    return F.unix_micros(column) / 1_000_000


def _is_failed_delivery() -> Column:
    replay = (F.col("replays") > 0) & (F.coalesce("attempt", F.lit(0)) == 0)
    later_s = _seconds("kafka_time") - _seconds("event_time")
    hop = F.col("retry_at").isNotNull() & (later_s >= _HOP_AFTER_S)
    return ~F.coalesce(replay, F.lit(False)) & ~F.coalesce(hop, F.lit(False)) & ~did_not_fail()
