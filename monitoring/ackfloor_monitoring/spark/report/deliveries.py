"""Failed deliveries: what the report counts, a row each.

The topics hold four kinds of records:

* a failed delivery: the handler failed and the record was parked or dead-lettered;
* a hop: an explicit wait longer than a tier goes on in the next one. Its headers are those of the
  record before, only the tier and the time differ;
* a replay: a dead letter that was redriven, with its attempts at 0;
* a record that did not fail, and waits or was given up behind one of its key.

The records of one explicit wait become one row, by grouping, so that no record needs its
neighbours. A replay is a row that counts as no failure, and so is what waits behind another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.table.columns import IDENTITY, MESSAGE
from ackfloor_monitoring.spark.table.table_frames import did_not_fail, replayed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TIMES = ("event_time", "first_failed_at", "not_before")
# What the records of one explicit wait share.
_SHARED = (
    *MESSAGE, "key", "replays", "attempt", "stage", "handler", "reason", "error_type",
    "error_fingerprint", "release", "duration_ms", "event_time", "first_failed_at", "replayed",
    "behind",
)  # fmt: skip


def failure_columns(failures: DataFrame, *more: str) -> DataFrame:
    """The columns of the failures table that the report reads, all but the messages.

    Times are milliseconds. Adds `replayed` (it is a replay, no failure), `behind` (it is behind
    another record of its key, and no failure) and `waits` (it belongs to an explicit wait, which
    may go on in further tiers). `unreadable` is 1 where a header can't be read.

    Args:
        more: further columns that are taken as they are.
    """
    changed = {
        **{name: F.unix_millis(name) for name in _TIMES},
        "attempt": _count("attempt"),
        "replays": _count("replays"),
        "replayed": replayed(),
        "behind": did_not_fail(),
        "waits": (
            F.col("retry_at").isNotNull() & F.col("origin_offset").isNotNull() & ~did_not_fail()
        ),
        "unreadable": (F.size("unreadable") > 0).cast("long"),
    }
    names = dict.fromkeys((*IDENTITY, "topic", "tier", *_SHARED, *changed, *more))
    return failures.select(
        *(changed[name].alias(name) if name in changed else F.col(name) for name in names)
    )


def cause() -> Column:
    """What groups a failure with its like: its fingerprint, else its class, else its reason."""
    return F.coalesce("error_fingerprint", "error_type", "reason", F.lit("unknown"))


def _count(name: str) -> Column:
    return F.coalesce(name, F.lit(0))


def deliveries(
    rows: DataFrame, summed: Sequence[str] = (), shared: Sequence[str] = ()
) -> DataFrame:
    """One row for each delivery that failed, and for each other record.

    Columns: those of `failure_columns` that its records share;
    the last `not_before`; `tier`, null in an
    explicit wait; how many `records` there are, and the sums of `unreadable` and of `summed`.

    Args:
        rows: from `failure_columns`.
        summed: further columns of numbers.
        shared: further columns that the records of a delivery share.
    """
    shared = (*_SHARED, *shared)
    numbers = ("records", "unreadable", *summed)
    counted = rows.withColumn("records", F.lit(1).cast("long"))
    single = counted.where("not waits").select(*shared, "not_before", "tier", *numbers)
    # Where no record waits so, the files' statistics say it and nothing is read.
    together = (
        counted.where("waits")
        .groupBy(*shared)
        .agg(
            F.max("not_before").alias("not_before"),
            *(F.sum(name).alias(name) for name in numbers),
        )
    )
    return single.unionByName(together, allowMissingColumns=True)
