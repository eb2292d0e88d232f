"""Selects dead letters by an SQL condition over the table of failures.

Only coordinates leave Spark: one row per partition, its offsets in order, each once. A redrive
reads the records from Kafka again, because the table may hold a redacted payload; their
dispositions there decide whether they may be sent.
"""

from __future__ import annotations

from array import array
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.spark_errors import WhereRefused
from ackfloor_monitoring.spark.sql_errors import readable_sql_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class Chosen:
    """The chosen dead letters of one topic.

    Attributes:
        offsets: topic id -> partition -> offsets, ascending. More than one id where the topic was
            deleted and created anew.
    """

    topic: str
    offsets: dict[str, dict[int, array[int]]] = field(default_factory=dict)

    def of(self, topic_id: str) -> dict[int, array[int]]:
        """Those of the topic as it is now; all of them where its id is not known ("")."""
        if topic_id:
            return self.offsets.get(topic_id, {})
        found: dict[int, array[int]] = {}
        for partitions in self.offsets.values():
            for partition, offsets in partitions.items():
                both = {*found.get(partition, ()), *offsets}
                found[partition] = array("q", sorted(both))
        return found

    def __len__(self) -> int:
        return sum(len(o) for partitions in self.offsets.values() for o in partitions.values())


def dead_letters(failures: DataFrame, where: str) -> DataFrame:
    """The offsets of the dead letters that meet a condition, by topic and partition.

    Args:
        failures: rows of the table.
        where: SQL over its columns.

    Raises:
        WhereRefused: Spark can't parse it.
    """
    with readable_where_errors(where, failures):
        return (
            failures.where(where)
            .where("stage = 'dlq'")
            .groupBy("topic", "topic_id", "partition")
            .agg(F.sort_array(F.collect_set("offset")).alias("offsets"))
        )


def choose(failures: DataFrame, where: str) -> list[Chosen]:
    """The same in plain Python, by topic.

    Raises:
        WhereRefused: Spark can't parse the condition, or it fails on a row.
    """
    rows = dead_letters(failures, where)
    chosen: dict[str, Chosen] = {}
    with readable_where_errors(where, failures):
        for row in rows.toLocalIterator():
            of_topic = chosen.setdefault(row.topic, Chosen(row.topic)).offsets
            of_topic.setdefault(row.topic_id or "", {})[row.partition] = array("q", row.offsets)
    return [chosen[topic] for topic in sorted(chosen)]


def readable_where_errors(where: str, failures: DataFrame) -> AbstractContextManager[None]:
    """Around the evaluation of a condition: turns Spark's errors into one sentence."""
    columns = ", ".join(failures.columns)
    return readable_sql_errors(
        partial(WhereRefused, where),
        parsed="write what may follow WHERE in SQL",
        resolved=f"the columns are {columns}",
    )
