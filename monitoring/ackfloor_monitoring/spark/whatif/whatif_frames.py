"""Pure frames: each message's history, and its history under other waits.

Times are milliseconds. `whatif_model` explains them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.table.columns import MESSAGE
from ackfloor_monitoring.spark.table.settled_rows import with_settled
from ackfloor_monitoring.spark.table.table_frames import did_not_fail, replayed
from ackfloor_monitoring.spark.whatif.whatif_model import CLEARLY_LATER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OWNER = ("group", "handler")
_NEVER = float("inf")


def attempts(failures: DataFrame, commits: DataFrame) -> DataFrame:
    """The model's input: times in milliseconds, and `began`, the start of the call.

    Adds `first_life` (its message was not replayed), `replayed` (it is a replay, no failure),
    `behind` (it is behind another record of its key, and no failure: it has no times of a call and
    no cause), `own_wait` (its handler set the wait), `cause` as in the report, and `settled`.

    Args:
        failures: rows of the table.
        commits: rows of `settled.COMMIT`; none where the commits are not known.
    """
    number, replays = (F.coalesce(name, F.lit(0)) for name in ("attempt", "replays"))
    behind = did_not_fail()
    failed_at, call_ms, cause = (
        F.when(~behind, each)
        for each in (
            F.unix_millis("event_time"),
            F.coalesce("duration_ms", F.lit(0)),
            F.coalesce("error_fingerprint", "error_type", "reason", F.lit("unknown")),
        )
    )
    rows = failures.select(
        "topic_id", "partition", "offset", *MESSAGE, "key", "handler", "stage",
        number.alias("attempt"),
        (replays == 0).alias("first_life"),
        replayed().alias("replayed"),
        behind.alias("behind"),
        (F.col("retry_at").isNotNull() & ~behind).alias("own_wait"),
        F.coalesce(F.col("reason") == "exhausted", F.lit(False)).alias("exhausted"),
        cause.alias("cause"),
        failed_at.alias("failed_at"),
        call_ms.alias("call_ms"),
        (failed_at - call_ms).alias("began"),
        F.coalesce(F.unix_millis("first_failed_at"), failed_at).alias("first_failed_at"),
        F.unix_millis("not_before").alias("not_before"),
        F.unix_millis("kafka_time").alias("kafka_time"),
    )  # fmt: skip
    return with_settled(rows, commits)


def histories(attempts: DataFrame, presumed_ms: int) -> DataFrame:
    """One row per message whose origin is known: its first life.

    Columns: `MESSAGE`, `handler`, `cause` (of the last failure), `fate` ("recovered", "exhausted",
    "ended" by what no policy decides over, or "waiting"), `own_wait`, `failures` (attempts that
    failed), `first_failed_at`, `call_ms` (mean of the failed calls), `failing_until` (begin of the
    last call that failed), `succeeds_at` (the end of the last wait; null if it did not recover).

    Args:
        attempts: from `attempts`.
        presumed_ms: where no commit shows whether a record is settled, it counts as settled if its
            wait was over before this time.
    """
    retried = F.col("stage") == "retry"
    settled = F.coalesce("settled", F.col("not_before") < presumed_ms, F.lit(True))
    fate = (
        F.when(F.count_if(~retried & ~F.col("exhausted")) > 0, "ended")
        .when(F.count_if(~retried) > 0, "exhausted")
        .when(F.count_if(retried & ~settled) > 0, "waiting")
        .otherwise("recovered")
    )
    lives = (
        attempts.where("first_life and origin_offset is not null")
        .groupBy(*MESSAGE, "key")
        .agg(
            F.count_if(~F.col("behind")).alias("_failed"),
            F.max_by("handler", "failed_at").alias("handler"),
            F.max_by("cause", "failed_at").alias("cause"),
            fate.alias("fate"),
            F.bool_or("own_wait").alias("own_wait"),
            F.greatest(F.max("attempt"), F.lit(1)).alias("failures"),
            F.min("first_failed_at").alias("first_failed_at"),
            F.avg("call_ms").alias("call_ms"),
            F.max("began").alias("failing_until"),
            F.max("not_before").alias("due"),
        )
        .where("_failed > 0")
        .drop("_failed")
    )
    # Where its header can't be read, it was due at the earliest when its call began.
    success = F.when(F.col("fate") == "recovered", F.greatest("due", "failing_until"))
    return lives.withColumn("succeeds_at", success).drop("due")


def narrowed(histories: DataFrame, attempts: DataFrame) -> DataFrame:
    """The same, with the stretch in which each recovered: `recovers_after`, `recovers_by`.

    Both are null where the message did not recover.
    """
    recovered = F.col("succeeds_at").isNotNull()
    failures = attempts.where("not replayed and not behind").select(*OWNER, "cause", "began")
    events = histories.unionByName(failures, allowMissingColumns=True)
    of_cause = Window.partitionBy(*OWNER, "cause")
    # A failure of the same moment comes first.
    before = of_cause.orderBy(
        F.coalesce("succeeds_at", "began", "failing_until"), recovered
    ).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    after = F.greatest(F.last("began", ignorenulls=True).over(before), "failing_until")
    by = F.min("succeeds_at").over(Window.partitionBy(*OWNER, "cause", "recovers_after"))
    return (
        events.withColumn("recovers_after", F.when(recovered, after))
        .where("fate is not null")
        .withColumn("recovers_by", F.when(recovered, by))
        .drop("began")
    )


def outcomes(narrowed: DataFrame, waits_ms: Sequence[float]) -> DataFrame:
    """One row per group, handler and `left_out`: sums of what was, and of what would have been.

    `left_out` is null, or why the messages of the row are not to be counted: "waiting" or
    "own_waits". Of what would have been there are three columns each: `likely`, `early` (every
    message had recovered right after its last failure) and `late` (not before it did).
    """
    failing_until, never = F.col("failing_until"), F.lit(_NEVER)
    clearly_later = failing_until + CLEARLY_LATER * (failing_until - F.col("first_failed_at"))
    dead_anyway = F.when(F.col("fate") == "ended", failing_until)
    soonest = F.when(F.col("fate") == "exhausted", clearly_later).otherwise(failing_until)
    late = F.coalesce(dead_anyway, "succeeds_at", never)
    stretches = {
        "likely": (
            F.coalesce(dead_anyway, "recovers_after", never),
            F.coalesce(dead_anyway, "recovers_by", never),
        ),
        "early": (soonest, soonest),
        "late": (late, late),
    }
    # As separate columns they are computed once for all that uses them.
    shares = {f"{name}_failing": _failing(waits_ms, *each) for name, each in stretches.items()}
    fates = {name: _fate(F.col(f"{name}_failing"), waits_ms) for name in stretches}
    left_out = F.when(F.col("own_wait"), "own_waits").when(F.col("fate") == "waiting", "waiting")
    rows = narrowed.withColumns(shares).withColumns({**fates, "left_out": left_out})
    return rows.groupBy(*OWNER, "left_out").agg(F.count("*").alias("messages"), *_was(), *_then())


def _failing(waits_ms: Sequence[float], after: Column, by: Column) -> Column:
    """The probabilities that the first delivery and each redelivery fail."""
    begins = [F.lit(float(wait_ms)) for wait_ms in accumulate(waits_ms)]
    certain = F.array(F.lit(1.0))
    if not begins:
        return certain

    def fails(since_ms: Column, calls: Column) -> Column:
        at = F.col("first_failed_at") + since_ms + calls * F.col("call_ms")
        return F.when(at <= after, 1.0).when(at >= by, 0.0).otherwise((by - at) / (by - after))

    return F.concat(certain, F.transform(F.array(*begins), fails))


def _fate(failing: Column, waits_ms: Sequence[float]) -> Column:
    """What follows from them: is it dead, how many redeliveries, how long until the last."""
    tried = F.slice(failing, 1, len(waits_ms))
    waits = F.array(*(F.lit(float(wait_ms)) for wait_ms in waits_ms))
    # Each redelivery waits for its own delay and, from the second one on, for the call before it.
    waited_ms = _sum(F.zip_with(tried, waits, lambda share, wait_ms: share * wait_ms))
    redeliveries = _sum(tried)
    calls_ms = F.greatest(redeliveries - 1, F.lit(0.0)) * F.col("call_ms")
    to_the_end_ms = sum(waits_ms) + max(len(waits_ms) - 1, 0) * F.col("call_ms")
    dead = F.element_at(failing, -1)
    return F.struct(
        dead.alias("dead"),
        redeliveries.alias("redeliveries"),
        (waited_ms + calls_ms).alias("ms"),
        (dead * to_the_end_ms).alias("dead_ms"),
    )


def _sum(numbers: Column) -> Column:
    return F.aggregate(numbers, F.lit(0.0), lambda so_far, number: so_far + number)


def _was() -> list[Column]:
    fate = F.col("fate")
    recovered, exhausted = fate == "recovered", fate == "exhausted"
    lasted = F.col("succeeds_at") - F.col("first_failed_at")
    died = F.greatest(F.col("failing_until") - F.col("first_failed_at"), F.lit(0))
    tried_later = exhausted & (F.col("early.dead") < 1)
    return [
        F.count_if(recovered).alias("recovered"),
        F.count_if(fate == "ended").alias("ended"),
        F.count_if(exhausted).alias("exhausted"),
        F.sum(F.col("failures") - F.when(recovered, 0).otherwise(1)).alias("redeliveries"),
        F.sum(F.when(recovered, lasted)).alias("recovered_ms"),
        F.sum(F.when(exhausted, died)).alias("exhausted_ms"),
        F.sum(F.when(recovered, lasted * (1 - F.col("likely.dead")))).alias("in_both_ms"),
        F.count_if(tried_later).alias("tried_later"),
    ]


def _then() -> list[Column]:
    dead_anyway, recovered = F.col("fate") == "ended", F.col("fate") == "recovered"
    sums = []
    for name in ("likely", "early", "late"):
        dead = F.when(dead_anyway, 1.0).otherwise(F.col(f"{name}.dead"))
        sums += [
            F.sum(dead).alias(f"{name}_dead"),
            F.sum(f"{name}.redeliveries").alias(f"{name}_redeliveries"),
        ]
    lived_ms = F.col("likely.ms") - F.col("likely.dead_ms")
    return [
        *sums,
        F.sum(F.when(recovered, lived_ms)).alias("likely_recovered_ms"),
        F.sum(F.when(dead_anyway, 0.0).otherwise(F.col("likely.dead"))).alias("likely_exhausted"),
        F.sum(F.when(dead_anyway, 0.0).otherwise(F.col("likely.dead_ms"))).alias(
            "likely_exhausted_ms"
        ),
    ]
