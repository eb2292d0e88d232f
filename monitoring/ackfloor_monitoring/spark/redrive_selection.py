"""Which dead letters a condition over the table of failures means.

Only coordinates leave Spark: one row per partition, its offsets in order, each once. What is sent
is read from Kafka again, because the table may hold a redacted payload; and whether it may be sent
is decided there, by its dispositions.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.spark_errors import WhereRefused
from ackfloor_monitoring.spark.table import kafka_reads as io

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CORRECT = "correct it, or try_cast what it reads"


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
        WhereRefused: it can't be understood.
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
        WhereRefused: the condition can't be understood, or fails on a row.
    """
    rows = dead_letters(failures, where)
    chosen: dict[str, Chosen] = {}
    with readable_where_errors(where, failures):
        for row in rows.toLocalIterator():
            of_topic = chosen.setdefault(row.topic, Chosen(row.topic)).offsets
            of_topic.setdefault(row.topic_id or "", {})[row.partition] = array("q", row.offsets)
    return [chosen[topic] for topic in sorted(chosen)]


@contextmanager
def readable_where_errors(where: str, failures: DataFrame) -> Iterator[None]:
    """Around what evaluates a condition: Spark's pages about it become one sentence."""
    try:
        yield
    except ParseException as error:
        raise WhereRefused(
            where, _first_sentence(str(error)), "write what may follow WHERE in SQL"
        ) from error
    except AnalysisException as error:
        columns = ", ".join(name for name in failures.columns)
        raise WhereRefused(
            where, _first_sentence(str(error)), f"the columns are {columns}"
        ) from error
    except PySparkException as error:
        raise WhereRefused(where, _first_sentence(str(error)), _CORRECT) from error
    except Py4JJavaError as error:
        # Where rows are fetched one by one, it comes as a failed wait around what Spark says.
        _, message = io.root_cause(error)
        if not message.startswith("["):
            raise
        raise WhereRefused(where, _first_sentence(message), _CORRECT) from error


def _first_sentence(text: str) -> str:
    """The first sentence of what Spark says, without its class and its SQLSTATE."""
    text = text.strip().partition("\n")[0]
    if text.startswith("["):
        text = text.partition("] ")[2]
    return text.partition(" SQLSTATE:")[0].rstrip(". ")
