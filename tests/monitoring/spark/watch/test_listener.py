"""What is read from the progress of a stream."""

from __future__ import annotations

from pyspark.sql.streaming.listener import SourceProgress

from ackfloor_monitoring.spark.watch.stream_listener import lag_by_topic


def source(end: str | None, latest: str | None) -> SourceProgress:
    """A progress of the Kafka source."""
    return SourceProgress("KafkaV2", "{}", end or "", latest or "", 1, 1.0, 1.0, {})


def test_the_lag_is_what_lies_behind_the_end_of_the_batch() -> None:
    """By topic, over its partitions; a partition that is not read yet is all behind."""
    end = '{"a": {"0": 5, "1": 9}, "b": {"0": 3}}'
    latest = '{"a": {"0": 7, "1": 9, "2": 4}, "b": {"0": 3}, "c": {"0": 1}}'
    assert lag_by_topic([source(end, latest)]) == {"a": 6, "b": 0, "c": 1}
    assert lag_by_topic([source(None, None)]) == {}
    assert lag_by_topic([source(end, "null")]) == {}
