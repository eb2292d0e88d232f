"""How often each cause failed under each release, beside the release before it.

A release runs from its first failure to the first one of the next release of its group. Messages
are those that failed under it in their first lives: a redrive of thousands is no rate of a release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.analysis.cause_frames import BY, failed_deliveries
from ackfloor_monitoring.spark.analysis.described import described
from ackfloor_monitoring.spark.analysis.view_columns import RELEASE_RATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HOUR_MS: Final = 3_600_000


def release_rates(failures: DataFrame) -> DataFrame:
    """Rows of `RELEASE_RATE`, one for each cause and release in which it failed, or before which.

    Args:
        failures: rows of the table.
    """
    failed = failed_deliveries(failures).where(
        "at is not null and release is not null and replays = 0"
    )
    counted = failed.groupBy(*BY, "release").agg(
        F.count("*").alias("failures"), F.count_distinct("message").alias("messages")
    )
    causes = failed.groupBy(*BY).agg(F.max("error_type").alias("error_type"))
    every = causes.join(F.broadcast(_runs(failed)), F.col("group").eqNullSafe(F.col("_group")))
    same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in (*BY, "release")]
    counted = counted.withColumnsRenamed({name: f"_{name}" for name in (*BY, "release")})
    order = Window.partitionBy(*BY).orderBy("began", "release")
    rates = (
        every.drop("_group")
        .join(counted, same, "left")
        .withColumns({name: F.coalesce(name, F.lit(0)) for name in ("failures", "messages")})
        .withColumn("per_hour", F.col("messages") / F.nullif("hours", F.lit(0.0)))
        .withColumns(
            {
                "before": F.lag("release").over(order),
                "before_per_hour": F.lag("per_hour").over(order),
                "_before": F.lag("messages", 1, 0).over(order),
            }
        )
        .where("messages > 0 or _before > 0")
    )
    began = F.timestamp_millis("began")
    return described(rates.withColumn("began", began), RELEASE_RATE)


def _runs(failed: DataFrame) -> DataFrame:
    """By release of a group: `began` in milliseconds, and `hours` until the next one began."""
    first = failed.groupBy(F.col("group").alias("_group"), "release").agg(
        F.min("at").alias("began"), F.max("at").alias("last")
    )
    of_group = Window.partitionBy("_group")
    following = F.lead("began").over(of_group.orderBy("began", "release"))
    end = F.coalesce(following, F.max("last").over(of_group))
    return first.withColumn("hours", (end - F.col("began")) / _HOUR_MS).drop("last")
