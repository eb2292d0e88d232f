"""Settled: which of the table's records the groups' commits cover.

A record of a retry topic is settled where it lies below the group's committed position, or in the
gap set above it. Not known (null) where its partition has no known commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ackfloor.commits import Settled
    from ackfloor.redrive import KafkaOptions

# What a group has committed: all below `position` is settled, and the runs above it.
COMMIT = StructType(
    [
        StructField("topic_id", StringType()),
        StructField("partition", IntegerType()),
        StructField("position", LongType()),
        StructField(
            "runs",
            ArrayType(
                StructType([StructField("start", LongType()), StructField("end", LongType())])
            ),
        ),
    ]
)


def committed(failures: DataFrame, clients: KafkaOptions) -> list[Settled]:
    """What the groups in the table have committed for the retry topics in it.

    Raises:
        KafkaUnreachable: no broker answered.
    """
    tiers = failures.where("stage = 'retry' and `group` is not null")
    by_group = tiers.groupBy("group").agg(F.collect_set("topic").alias("topics")).collect()
    return committed_for(clients, {row["group"]: row["topics"] for row in by_group})


def committed_for(clients: KafkaOptions, tiers: Mapping[str, Sequence[str]]) -> list[Settled]:
    """What groups have committed for their retry topics.

    Raises:
        KafkaUnreachable: there is no answer.
    """
    from ackfloor.commits import settled

    return [each for group, topics in tiers.items() for each in settled(clients, group, topics)]


def commit_frame(spark: SparkSession, commits: Iterable[Settled]) -> DataFrame:
    """Rows of `COMMIT`."""
    rows = [
        {
            "topic_id": each.topic_id,
            "partition": each.partition,
            "position": each.position,
            "runs": [{"start": start, "end": end} for start, end in each.runs],
        }
        for each in commits
    ]
    # From Arrow they are part of the plan; from Python they would be a separate job each time.
    return spark.createDataFrame(pa.Table.from_pylist(rows, to_arrow_schema(COMMIT)))


def with_settled(rows: DataFrame, commits: DataFrame) -> DataFrame:
    """Add `settled`, from `topic_id`, `partition` and `offset` and the rows of `COMMIT`."""
    offset, position = F.col("offset"), F.col("position")
    # A lambda over the runs would not be compiled, nor would anything that reads the rows.
    # Only records above the position are joined with the runs: null equals nothing.
    above = F.when(offset >= position, F.col("partition"))
    runs = commits.select(
        F.col("topic_id").alias("_topic_id"),
        F.col("partition").alias("_partition"),
        F.explode("runs").alias("_run"),
    )
    within = (F.col("_run.start") <= offset) & (offset < F.col("_run.end"))
    return (
        rows.join(F.broadcast(commits.drop("runs")), ["topic_id", "partition"], "left")
        .withColumn("_above", above)
        .join(
            F.broadcast(runs),
            (F.col("topic_id") == F.col("_topic_id"))
            & (F.col("_above") == F.col("_partition"))
            & within,
            "left",
        )
        .withColumn(
            "settled",
            F.when(position.isNotNull(), (offset < position) | F.col("_run").isNotNull()),
        )
        .drop("position", "_above", "_topic_id", "_partition", "_run")
    )
