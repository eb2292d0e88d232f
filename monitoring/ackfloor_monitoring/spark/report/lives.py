"""What became of each message: its lives, one per run through the retry policy.

A message's first life begins with its first failure; each replay begins another. A life ends

* dead: one of its records is in the dead-letter topic;
* waiting: one of its tier records is not settled;
* unknown: of one of its tier records no commit tells whether it is settled;
* recovered: every tier record is settled and nothing later was written. That is how success looks
  from the topics: a handler that returned leaves no record. A message that was discarded on
  purpose, or that retention removed unread, looks the same, so the count is a bound from above.

When it recovered is not written either. It was not before its last wait was over, so
`recovery_ms` is a bound from below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.report.events import MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OUTCOMES = ("recovered", "dead", "waiting", "unknown")


def lives(events: DataFrame) -> DataFrame:
    """One row per message and replay, of the messages whose origin is known.

    Columns: `MESSAGE`, `replays`, `handler`, `key`, `outcome`, `attempts` (deliveries that failed),
    `failures` and `duplicates` (of them: of an attempt that had failed before), `tier_records`,
    `recovery_ms`, `death_ms` (from the first failure).
    """
    retried = F.col("stage") == "retry"
    failed = F.col("kind") == "failed"
    # Partitioned by message once, both steps and what groups by message again need no shuffle.
    by_attempt = (
        events.where(F.col("origin_offset").isNotNull())
        .repartition(*MESSAGE)
        .groupBy(*MESSAGE, "replays", "attempt")
        .agg(
            F.max("handler").alias("handler"),
            F.max("key").alias("key"),
            F.count_if(failed).alias("failures"),
            F.count_if(retried).alias("tier_records"),
            F.count_if(retried & ~F.col("settled")).alias("open"),
            F.count_if(retried & F.col("settled").isNull()).alias("untold"),
            F.min(F.when(~retried, F.col("event_time"))).alias("died_at"),
            F.max(F.when(retried, F.col("not_before"))).alias("due"),
            F.min("first_failed_at").alias("first_failed_at"),
        )
    )
    repeats = F.greatest(F.col("failures") - 1, F.lit(0))
    return by_attempt.groupBy(*MESSAGE, "replays").agg(
        F.max("handler").alias("handler"),
        F.max("key").alias("key"),
        _outcome().alias("outcome"),
        F.max("attempt").alias("attempts"),
        F.sum("failures").alias("failures"),
        F.sum(F.when(F.col("attempt") > 0, repeats).otherwise(0)).alias("duplicates"),
        F.sum("tier_records").alias("tier_records"),
        (F.max("due") - F.min("first_failed_at")).alias("recovery_ms"),
        (F.min("died_at") - F.min("first_failed_at")).alias("death_ms"),
    )


def _outcome() -> Column:
    return (
        F.when(F.min("died_at").isNotNull(), "dead")
        .when(F.sum("open") > 0, "waiting")
        .when(F.sum("untold") > 0, "unknown")
        .otherwise("recovered")
    )


def messages(lives: DataFrame) -> DataFrame:
    """One row per message: what its last life came to, and all its lives together."""
    return lives.groupBy(*MESSAGE).agg(
        F.max_by("outcome", "replays").alias("outcome"),
        F.max("handler").alias("handler"),
        F.max("key").alias("key"),
        F.sum("failures").alias("failures"),
        F.sum("tier_records").alias("tier_records"),
    )


def endings(lives: DataFrame) -> DataFrame:
    """Lives by handler, whether they are replays, number of failed deliveries, and outcome."""
    return lives.groupBy(
        "group", "handler", (F.col("replays") > 0).alias("replayed"), "attempts", "outcome"
    ).agg(F.count("*").alias("lives"), F.sum("duplicates").alias("duplicates"))


def tiers(events: DataFrame) -> DataFrame:
    """In which tiers the records of each attempt waited, of first lives; hops left out."""
    return (
        events.where("kind = 'failed' and stage = 'retry' and replays = 0")
        .groupBy("group", "handler", "attempt")
        .agg(F.sort_array(F.collect_set("tier")).alias("tiers"))
    )


def times(lives: DataFrame) -> DataFrame:
    """Percentiles 50, 95 and 99 of recovery (a bound from below) and death, in milliseconds."""
    chosen = F.array(*(F.lit(share) for share in (0.5, 0.95, 0.99)))
    told = {
        "recovered": F.when(F.col("outcome") == "recovered", F.col("recovery_ms")),
        "dead": F.when(F.col("outcome") == "dead", F.col("death_ms")),
    }
    return (
        lives.where("replays = 0")
        .groupBy("group", "handler")
        .agg(
            *(F.percentile(column, chosen).alias(name) for name, column in told.items()),
            *(F.count(column).alias(f"{name}_messages") for name, column in told.items()),
        )
    )


def hot_keys(messages: DataFrame, most: int) -> DataFrame:
    """The keys with the most failures of each source topic and group, at most `most` in all."""
    return (
        messages.where(F.col("key").isNotNull())
        .groupBy("group", "origin_topic", "key")
        .agg(
            F.sum("failures").alias("failures"),
            F.count("*").alias("messages"),
            F.count_if(F.col("outcome") == "dead").alias("dead"),
        )
        .orderBy(F.desc("failures"), "group", "origin_topic", "key")
        .limit(most)
    )


def partitions(messages: DataFrame) -> DataFrame:
    """Failures, tier records and outcomes by source partition.

    `span` is how many records the partition took from its first failing one to its last: the part
    of the input that is seen from here.
    """
    return messages.groupBy("group", "origin_topic", "origin_partition").agg(
        F.sum("failures").alias("failures"),
        F.count("*").alias("messages"),
        F.sum("tier_records").alias("tier_records"),
        (F.max("origin_offset") - F.min("origin_offset") + 1).alias("span"),
        *(F.count_if(F.col("outcome") == name).alias(name) for name in OUTCOMES),
    )
