"""Causes that a release brought, with the evidence for it.

A release counts from its first failure to the first one of the next release of its group: what
comes behind that says nothing more of it, as a repaired cause is not seen again. A cause that was
never seen before may be new, or so rare that it was not its turn yet. If it were as old as the
history, each hour in which it was seen would lie behind the release's first failure with the chance
of that part of the history up to the next release. So all of them do with `chance`: that part to
the power of the hours. An hour counts once, however many fail in it, and of two that follow each
other only the first: what fails together mostly has one reason. The failure that dates the release
is no evidence for its own cause.

Of many causes some have a small chance by accident. Those that are shown are chosen as Benjamini
and Hochberg do: on average at most one in twenty of them is old, however many there are.

What releases of before still fail of, once the new one is there, is not the new one's doing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.analysis.cause_frames import BY, failed_deliveries, joined, samples
from ackfloor_monitoring.spark.analysis.described import described
from ackfloor_monitoring.spark.analysis.view_columns import NEW_CAUSE
from ackfloor_monitoring.spark.spark_errors import UnknownRelease

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HOUR_MS: Final = 3_600_000
#: The part of those that are shown that may be old, on average.
WRONG: Final = 0.05


def new_causes(failures: DataFrame, release: str) -> DataFrame:
    """Rows of `NEW_CAUSE`, the surest first.

    Args:
        failures: rows of the table, with the history from before the release.
        release: as workers name it.

    Raises:
        UnknownRelease: no failure names it.
    """
    failed = failed_deliveries(failures).where("at is not null")
    periods = _periods(failed, release)
    since = failed.join(F.broadcast(periods), F.col("group").eqNullSafe(F.col("_group")))
    at = F.col("at")
    placed = since.withColumns(
        {"_since": at >= F.col("_began"), "_within": (at >= F.col("_began")) & (at < F.col("_end"))}
    )
    # What was first seen later is none of those that it is to be chosen from.
    counted = _counted(placed).where("_before + _within_n > 0")
    sure = _sure(counted.withColumn("chance", _chance()))
    found = joined(sure, samples(failures)).withColumns(
        {
            "before_s": F.col("_before_h") * 3600,
            "since_s": F.col("_since_h") * 3600,
            "until": F.timestamp_millis("_next"),
        }
    )
    return described(found.orderBy("chance", F.desc("failures"), *BY), NEW_CAUSE)


def _chance() -> Column:
    """Of a cause of `_counted`; 1 where something says that the release did not bring it."""
    part = F.col("_since_h") / (F.col("_since_h") + F.col("_before_h"))
    independent = F.col("hours") - F.when(F.col("_first") == F.col("_began"), 1).otherwise(0)
    elsewhere = F.col("_before") + F.col("_on_older")
    return F.when(elsewhere == 0, F.pow(part, independent)).otherwise(1.0)


def _sure(counted: DataFrame) -> DataFrame:
    """Those of which, with all that have no larger chance, few enough are old."""
    everything = Window.partitionBy()
    up_to = F.count("*").over(Window.orderBy("chance"))
    wrong = counted.withColumn("_wrong", F.col("chance") * F.count("*").over(everything) / up_to)
    least = F.min("_wrong").over(Window.orderBy(F.desc("chance")))
    return wrong.withColumn("_least", least).where(F.col("_least") <= WRONG)


def _periods(failed: DataFrame, release: str) -> DataFrame:
    """By group: when the release failed first, and how long the history is before it and of it.

    Columns: `_group`, `_began`, `_next` (when the next release failed first; null of the newest),
    `_end` (the same, or a moment behind the history), `_before_h` and `_since_h`: hours by the
    clock, `_old`: the releases of before.
    """
    rows = (
        failed.groupBy("group", "release")
        .agg(F.min("at").alias("first"), F.max("at").alias("last"))
        .collect()
    )
    of = {row["group"]: row["first"] for row in rows if row["release"] == release}
    if not of:
        named = sorted({row["release"] for row in rows if row["release"] is not None})
        raise UnknownRelease(
            f"release {release!r}: no failure names it; the table knows "
            f"{', '.join(named[-20:]) or 'none at all'}"
        )
    found = []
    for group, start in of.items():
        mine = [row for row in rows if row["group"] == group]
        first, last = min(row["first"] for row in mine), max(row["last"] for row in mine)
        # Of a worker without a name nobody knows whether it is new.
        old = [row["release"] or "" for row in mine if row["first"] < start or not row["release"]]
        later = [row["first"] for row in mine if row["first"] > start and row["release"]]
        following = min(later, default=None)
        end = last + 1 if following is None else following
        hour = start // _HOUR_MS
        before, within = hour - first // _HOUR_MS, (end - 1) // _HOUR_MS - hour + 1
        found.append((group, start, following, end, before, within, old))
    columns = (
        "_group string, _began bigint, _next bigint, _end bigint, _before_h bigint, "
        "_since_h bigint, _old array<string>"
    )
    return failed.sparkSession.createDataFrame(found, columns)


def _counted(placed: DataFrame) -> DataFrame:
    """By cause: what was before, what is since then, in how many hours, of which releases."""
    new, within, at = F.col("_since"), F.col("_within"), F.col("at")
    old = F.array_contains("_old", F.coalesce("release", F.lit("")))
    last = F.coalesce(F.max(F.when(F.coalesce("replays", F.lit(0)) == 0, at)), F.max(at))
    return placed.groupBy(*BY, "_began", "_next", "_before_h", "_since_h").agg(
        F.count_if(~new).alias("_before"),
        F.count_if(within).alias("_within_n"),
        F.count_if(new & old).alias("_on_older"),
        F.max("error_fingerprint").alias("fingerprint"),
        F.max("error_type").alias("error_type"),
        F.min(at).alias("_first"),
        F.timestamp_millis(F.min(at)).alias("first"),
        F.timestamp_millis(last).alias("last"),
        F.count("*").alias("failures"),
        F.count_distinct("message").alias("messages"),
        F.count_if(F.col("stage") == "dlq").alias("dead"),
        _apart(F.when(within, F.floor(at / _HOUR_MS))).alias("hours"),
        F.sort_array(F.collect_set("release")).alias("releases"),
    )


def _apart(hour: Column) -> Column:
    """How many hours there are, none of which follows another one that counts."""
    none = F.struct(F.lit(-2).cast("bigint").alias("last"), F.lit(0).alias("n"))

    def counted(seen: Column, hour: Column) -> Column:
        more = F.struct(hour.alias("last"), (seen["n"] + 1).alias("n"))
        return F.when(hour - seen["last"] > 1, more).otherwise(seen)

    return F.aggregate(F.sort_array(F.collect_set(hour)), none, counted, lambda seen: seen["n"])
