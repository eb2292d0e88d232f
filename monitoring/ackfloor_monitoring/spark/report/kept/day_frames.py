"""What is counted of a day and kept, and the report's figures as sums of it.

Theory. A report is sums over rows, over messages' lives, and a few single records. A day is that of
the failure, and all records of one explicit wait share it, so deliveries never cross days. Of each
day is kept what can be added up later, whatever the commits and the period are then:

* `topics`: rows of each topic;
* `counts`: those of the report, by parts of a day: each stretch of a longer period is one or more;
* `calls`: how often a failed call took how many milliseconds;
* `samples`: the latest failure of each cause, with its message;
* `parts`: what a day adds to each life; a life of several days has a part in each;
* `open`: the retry records that no commit had settled when the day was counted;
* `dead_letters`: by whom and of what each died, for what replays healed.

Invariants.

I1. What is kept of a day depends on its rows, and on the commits that it was counted with, which
    are kept with it. Nothing depends on other days, on the period, on the group that is asked for.
I2. A record that was settled stays settled, as long as the commits of now contain those that the
    day was counted with (`commits_kept.contained`); where they do not, the day is counted anew. So
    only `open` has to be joined with the commits of now.
I3. A day is drawn as a whole or not at all, so a time that is kept with it says whether it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.report import counts, lives
from ackfloor_monitoring.spark.report.deliveries import deliveries, failure_columns
from ackfloor_monitoring.spark.report.overview import topic_days
from ackfloor_monitoring.spark.table.columns import IDENTITY
from ackfloor_monitoring.spark.table.settled_rows import with_settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The column of the day that a row belongs to: a day of one run of counting.
DAY = "kept_day"
# Parts are partitioned by `origin_offset`, so that the sums over lives need no shuffle.
BUCKETS = 16


def topics_of(failures: DataFrame) -> DataFrame:
    """The frame `topics`.

    Args:
        failures: rows of the table, with `DAY`.
    """
    return topic_days(failure_columns(failures, DAY), DAY)


def counted(failures: DataFrame, commits: DataFrame) -> Mapping[str, DataFrame]:
    """The frames `counts`, `calls`, `parts`, `open` and `dead_letters`.

    Args:
        failures: rows of the table, with `DAY`.
        commits: rows of `settled_rows.COMMIT`; none where the commits are not known.
    """
    rows = failure_columns(failures, DAY)
    delivered = deliveries(rows, shared=(DAY,))
    known = rows.where(F.col("origin_offset").isNotNull())
    of_lives = deliveries(known, shared=(DAY,)).repartition(BUCKETS, "origin_offset")
    waiting = known.where("stage = 'retry'").transform(still_open, commits)
    return {
        "counts": counts.counts(delivered, counts.part_of_day(), DAY),
        "calls": counts.calls(delivered, DAY),
        "parts": lives.parts(of_lives, {}, day=(DAY,)),
        "open": waiting.select(DAY, *lives.LIFE, *IDENTITY),
        "dead_letters": lives.dead_letters(rows, DAY),
    }


def still_open(records: DataFrame, commits: DataFrame) -> DataFrame:
    """The retry records that no commit settles, with `settled`: false, or null where none is known.

    Args:
        records: with `IDENTITY`.
        commits: rows of `settled_rows.COMMIT`.
    """
    return with_settled(records, commits).where("settled is null or not settled")


def open_lives(open_records: DataFrame, commits: DataFrame) -> DataFrame:
    """The lives of which records are open: how many are `open`, and of how many it is `unknown`.

    Args:
        open_records: the frame `open`.
        commits: those of now.
    """
    settled = F.col("settled")
    return (
        still_open(open_records, commits)
        .groupBy(*lives.LIFE)
        .agg(
            F.count_if(settled.isNotNull()).alias("open"),
            F.count_if(settled.isNull()).alias("unknown"),
        )
    )
