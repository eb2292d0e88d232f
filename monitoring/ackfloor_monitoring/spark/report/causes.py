"""What failed, when and why: counts over failed deliveries, whatever became of the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def totals(events: DataFrame) -> DataFrame:
    """One row: records of each kind, the first and last failure, and what could not be read."""
    return events.agg(
        F.count("*").alias("records"),
        *(
            F.count_if(F.col("kind") == kind).alias(name)
            for kind, name in (("failed", "failures"), ("hop", "hops"), ("replay", "replays"))
        ),
        F.count_if(F.col("origin_offset").isNull()).alias("without_origin"),
        F.count_if("unreadable").alias("unreadable"),
        F.min("event_time").alias("first"),
        F.max("event_time").alias("last"),
        F.sort_array(F.collect_set("group")).alias("groups"),
    )


def over_time(events: DataFrame, bucket_ms: int) -> DataFrame:
    """Failures by stretch of time, handler and reason."""
    return (
        _failed(events)
        .groupBy(_bucket(bucket_ms).alias("start"), "group", "handler", "reason")
        .agg(F.count("*").alias("failures"))
    )


def failure_groups(events: DataFrame, bucket_ms: int) -> DataFrame:
    """Failures by cause: how many, since and until when, in which releases, and their trend.

    `trend` maps the start of a stretch of time to its failures. `sample` is the latest one.
    """
    sample = F.struct("topic", "partition", "offset", "error_message")
    newest = F.struct("event_time", "topic", "partition", "offset")
    by_bucket = (
        _failed(events)
        .groupBy("group", "handler", "cause", _bucket(bucket_ms).alias("start"))
        .agg(
            F.count("*").alias("failures"),
            F.count_if(F.col("stage") == "dlq").alias("dead"),
            F.min("event_time").alias("first"),
            F.max("event_time").alias("last"),
            F.max("error_type").alias("error_type"),
            F.max("error_fingerprint").alias("fingerprint"),
            F.max(newest).alias("newest"),
            F.max_by(sample, newest).alias("sample"),
            F.collect_set("release").alias("releases"),
        )
    )
    return by_bucket.groupBy("group", "handler", "cause").agg(
        F.sum("failures").alias("failures"),
        F.sum("dead").alias("dead"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.max("error_type").alias("error_type"),
        F.max("fingerprint").alias("fingerprint"),
        F.max_by("sample", "newest").alias("sample"),
        F.sort_array(F.array_distinct(F.flatten(F.collect_list("releases")))).alias("releases"),
        F.map_from_entries(F.collect_list(F.struct("start", "failures"))).alias("trend"),
    )


def releases(events: DataFrame) -> DataFrame:
    """When each release failed first."""
    return (
        _failed(events)
        .where(F.col("release").isNotNull())
        .groupBy("release")
        .agg(F.min("event_time").alias("first"))
    )


def handlers(events: DataFrame) -> DataFrame:
    """By handler: timeouts, other failures, and how long the failed calls took (ms)."""
    chosen = F.array(*(F.lit(share) for share in (0.5, 0.95, 0.99, 1.0)))
    return (
        _failed(events)
        .groupBy("group", "handler")
        .agg(
            F.count_if("timed_out").alias("timeouts"),
            F.count_if(~F.col("timed_out")).alias("errors"),
            F.percentile("duration_ms", chosen).alias("duration_ms"),
        )
    )


def _failed(events: DataFrame) -> DataFrame:
    return events.where("kind = 'failed'")


def _bucket(bucket_ms: int) -> Column:
    at = F.col("event_time")
    return at - F.pmod(at, F.lit(bucket_ms))
