"""Pure frames: each message's history, and its history under other waits.

Times are milliseconds. `whatif_model` explains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from ackfloor.core.records.retry_policy import GOLDEN
from ackfloor_monitoring.spark.table.columns import MESSAGE, ORIGIN
from ackfloor_monitoring.spark.table.settled_rows import with_settled
from ackfloor_monitoring.spark.table.table_frames import did_not_fail, replayed
from ackfloor_monitoring.spark.whatif.recovery_quantiles import BUCKETS
from ackfloor_monitoring.spark.whatif.whatif_model import CLEARLY_LATER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ackfloor import RetryPolicy

OWNER = ("group", "handler")
#: The share of a wait by which a jitter in whole percent may miss it.
ROUNDED = 0.01
_NEVER = float("inf")


def with_tiers(attempts: DataFrame, tiers_s: Mapping[str, float]) -> DataFrame:
    """The same, with `tier_s`: the nominal delay of its tier in seconds, null where not known."""
    chain = F.lit(None).cast("double")
    for name, delay_s in tiers_s.items():
        chain = F.when(F.col("tier") == name, float(delay_s)).otherwise(chain)
    return attempts.withColumn("tier_s", chain)


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
        "topic_id", "partition", "offset", *MESSAGE, "key", "handler", "stage", "tier",
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


def histories(attempts: DataFrame, presumed_ms: int, policies: DataFrame) -> DataFrame:
    """One row per message whose origin is known: its first life.

    Columns: `MESSAGE`, `handler`, `cause` (of the last failure), `fate` ("recovered", "exhausted",
    "ended" by what no policy decides over, or "waiting"), `own_wait`, `failures` (attempts that
    failed), `first_failed_at`, `call_ms` (mean of the failed calls), `failing_until` (begin of the
    last call that failed), `succeeds_at` (the end of the last wait; null if it did not recover),
    and of the failures from the first on: `shares` (of the jitter, of each wait), `extras` (ms
    that passed beside the wait until the next call) and `calls` (ms of the calls after the first).
    Where a failure is missing, or their times go back, these three are null. `waits_s` and `jitter`
    are those of its handler's other policy, null where it has none of its own.

    Args:
        attempts: from `attempts`.
        presumed_ms: where no commit shows whether a record is settled, it counts as settled if its
            wait was over before this time.
        policies: from `Asked.frame`; `base_jitter` is that of the policy in force.
    """
    retried = F.col("stage") == "retry"
    settled = F.coalesce("settled", F.col("not_before") < presumed_ms, F.lit(True))
    fate = (
        F.when(F.count_if(~retried & ~F.col("exhausted")) > 0, "ended")
        .when(F.count_if(~retried) > 0, "exhausted")
        .when(F.count_if(retried & ~settled) > 0, "waiting")
        .otherwise("recovered")
    )
    share = F.when(retried, ((F.col("partition") + 1) * F.lit(GOLDEN)) % 1.0)
    tried = F.struct("attempt", "failed_at", "began", "call_ms", "not_before", "tier_s", "share")
    lives = (
        attempts.where("first_life and origin_offset is not null")
        .withColumn("share", share)
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
            F.avg("share").alias("share"),
            F.array_sort(F.collect_list(F.when(~F.col("behind"), tried))).alias("_tried"),
        )
        .where("_failed > 0")
        .drop("_failed")
    )
    # Where its header can't be read, it was due at the earliest when its call began.
    success = F.when(F.col("fate") == "recovered", F.greatest("due", "failing_until"))
    return (
        of_owners(lives.withColumn("succeeds_at", success), policies)
        .withColumns(_remembered())
        .drop("due", "_tried", "base_jitter")
    )


def of_owners(messages: DataFrame, about: DataFrame) -> DataFrame:
    """The same, with what is known of their group and handler, which may be null."""
    renamed = about.withColumnsRenamed({name: f"_{name}" for name in OWNER})
    same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in OWNER]
    joined = messages.join(F.broadcast(renamed), same[0] & same[1], "left")
    return joined.drop(*(f"_{name}" for name in OWNER))


def _remembered() -> dict[str, Column]:
    """What a message's own failures say about the waits and calls of another policy."""
    tried = F.when(F.size("_tried") == F.col("failures"), F.col("_tried"))
    ordered = F.zip_with(
        F.slice("_tried", 1, F.size("_tried") - 1),
        F.slice("_tried", 2, F.size("_tried")),
        lambda one, following: following["began"] >= one["failed_at"],
    )
    known = F.when(F.forall(ordered, lambda each: F.coalesce(each, F.lit(False))), tried)
    begun_again = F.transform(
        known, lambda each, at: F.coalesce(F.get(known, at + 1)["began"], each["not_before"])
    )
    return {
        "shares": F.transform(known, lambda each: each["share"]),
        "extras": F.zip_with(known, begun_again, _extra_ms),
        "calls": F.transform(F.slice(known, 2, F.size("_tried")), lambda each: each["call_ms"]),
    }


def _extra_ms(failure: Column, begun_again: Column) -> Column:
    """What passed between a failure and the next call, or its due time, beside the wait."""
    wait = F.coalesce(
        wait_ms(failure["tier_s"], F.col("base_jitter"), failure["share"]),
        failure["not_before"] - failure["failed_at"],
    )
    # No call begins before its wait is over; a little less is how the jitter is rounded.
    return F.greatest(begun_again - failure["failed_at"] - wait, -ROUNDED * wait)


def wait_ms(delay_s: Column, jitter: Column, share: Column) -> Column:
    """A wait with its share of jitter, as `retry_policy.tier_wait_s` has it."""
    return F.ceil(delay_s * (1 + jitter * share) * 1000 - 1e-6)


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


def replayed_under(narrowed: DataFrame, otherwise: RetryPolicy) -> DataFrame:
    """The same, with what would have been: `likely`, `early`, `late`, `begins` and `left_out`.

    Of what would have been there is a struct each: `likely`, `early` (every message had recovered
    right after its last failure) and `late` (not before it did). `begins` are the ms from the first
    failure to each redelivery. `left_out` is null, or why the message is not to be counted:
    "waiting" or "own_waits".

    Args:
        otherwise: the policy where the message has none of its handler's own.
    """
    failing_until, never = F.col("failing_until"), F.lit(_NEVER)
    clearly_later = failing_until + CLEARLY_LATER * (failing_until - F.col("first_failed_at"))
    # The call that ended it was not followed by another.
    ended = F.when(F.col("fate") == "ended", failing_until - 0.5)
    soonest = F.when(F.col("fate") == "exhausted", clearly_later).otherwise(failing_until)
    at_once, at_last = F.coalesce(ended, soonest), F.coalesce(ended, "succeeds_at", never)
    stretches = {
        "likely": tuple(
            F.coalesce(ended, name, never) for name in ("recovers_after", "recovers_by")
        ),
        "early": (at_once, at_once),
        "late": (at_last, at_last),
    }
    left_out = F.when(F.col("own_wait"), "own_waits").when(F.col("fate") == "waiting", "waiting")
    # As separate columns they are computed once for all that uses them.
    return (
        narrowed.withColumns(
            {
                "waits_s": F.coalesce("waits_s", waits_s(otherwise)),
                "jitter": F.coalesce("jitter", F.lit(otherwise.jitter)),
            }
        )
        .withColumn("begins", _begins())
        .withColumns({f"{name}_failing": _failing(*each) for name, each in stretches.items()})
        .withColumns({name: _fate(F.col(f"{name}_failing")) for name in stretches})
        .withColumn("left_out", left_out)
    )


def outcomes(replayed: DataFrame) -> DataFrame:
    """One row per group, handler and `left_out`: sums of what was, and of what would have been.

    With the place of one message of each, and of one that `tried_later` counts.
    """
    place = F.concat_ws("/", *ORIGIN)
    later = F.when(_tried_later(), place)
    return replayed.groupBy(*OWNER, "left_out").agg(
        F.count("*").alias("messages"),
        *_was(),
        *_then(),
        F.min(place).alias("example"),
        F.min(later).alias("example_later"),
    )


def recovery_times(replayed: DataFrame) -> DataFrame:
    """How many messages recovered after how long: group, handler, `then`, `bucket`, `messages`.

    `then` is false for what was. A bucket is the logarithm of the milliseconds, see `BUCKETS`; a
    message may count with shares in several.
    """
    recovered = F.col("fate") == "recovered"
    was = F.struct(
        F.lit(False).alias("then"),
        (F.col("succeeds_at") - F.col("first_failed_at")).cast("double").alias("ms"),
        F.lit(1.0).alias("weight"),
    )
    failing = F.col("likely_failing")
    then = F.transform(
        F.col("begins"),
        lambda ms, at: F.struct(
            F.lit(True).alias("then"),
            ms.alias("ms"),
            (F.get(failing, at) - F.get(failing, at + 1)).alias("weight"),
        ),
    )
    times = replayed.where(recovered & F.col("left_out").isNull()).select(
        *OWNER, F.inline(F.concat(F.array(was), then))
    )
    bucket = F.round(F.log(F.greatest("ms", F.lit(1.0))) * BUCKETS)
    return (
        times.where("weight > 0")
        .groupBy(*OWNER, "then", bucket.cast("int").alias("bucket"))
        .agg(F.sum("weight").alias("messages"))
    )


def waits_s(policy: RetryPolicy) -> Column:
    """The nominal waits in seconds, as an array."""
    return F.array(*(F.lit(float(each)) for each in policy.schedule())).cast("array<double>")


def _begins() -> Column:
    """Milliseconds from the first failure to the begin of each redelivery."""

    def step(wait_s: Column, at: Column) -> Column:
        share = F.coalesce(F.get("shares", at), "share", F.lit(0.5))
        extra_ms = F.coalesce(F.get("extras", at), F.lit(0))
        return F.struct(
            (wait_ms(wait_s, F.col("jitter"), share) + extra_ms).cast("double").alias("wait"),
            F.coalesce(F.get("calls", at), "call_ms").cast("double").alias("call"),
        )

    start = F.struct(F.lit(0.0).alias("failed"), F.array().cast("array<double>").alias("begins"))
    end = F.aggregate(
        F.transform("waits_s", step),
        start,
        lambda so_far, each: F.struct(
            (so_far["failed"] + each["wait"] + each["call"]).alias("failed"),
            F.concat(so_far["begins"], F.array(so_far["failed"] + each["wait"])).alias("begins"),
        ),
    )
    return end["begins"]


def _failing(after: Column, by: Column) -> Column:
    """The probabilities that the first delivery and each redelivery fail and come again."""
    first = F.when((F.col("fate") == "ended") & (F.col("failures") == 1), 0.0).otherwise(1.0)

    def fails(begin_ms: Column) -> Column:
        at = F.col("first_failed_at") + begin_ms
        return F.when(at <= after, 1.0).when(at >= by, 0.0).otherwise((by - at) / (by - after))

    return F.concat(F.array(first), F.transform("begins", fails))


def _fate(failing: Column) -> Column:
    """What follows from them: is it dead, how many redeliveries, how long until the last."""
    tried = F.slice(failing, 1, F.size("begins"))
    lasting = F.transform(
        F.col("begins"),
        lambda ms, at: ms - F.when(at == 0, 0.0).otherwise(F.get("begins", at - 1)),
    )
    dead = F.element_at(failing, -1)
    return F.struct(
        dead.alias("dead"),
        _sum(tried).alias("redeliveries"),
        _sum(F.zip_with(tried, lasting, lambda share, ms: share * ms)).alias("ms"),
        (dead * F.coalesce(F.get("begins", F.size("begins") - 1), F.lit(0.0))).alias("dead_ms"),
    )


def _sum(numbers: Column) -> Column:
    return F.aggregate(numbers, F.lit(0.0), lambda so_far, number: so_far + number)


def _tried_later() -> Column:
    return (F.col("fate") == "exhausted") & (F.col("early.dead") < 1)


def _was() -> list[Column]:
    fate = F.col("fate")
    recovered, exhausted = fate == "recovered", fate == "exhausted"
    lasted = F.col("succeeds_at") - F.col("first_failed_at")
    died = F.greatest(F.col("failing_until") - F.col("first_failed_at"), F.lit(0))
    return [
        F.count_if(recovered).alias("recovered"),
        F.count_if(fate == "ended").alias("ended"),
        F.count_if(exhausted).alias("exhausted"),
        F.sum(F.col("failures") - F.when(recovered, 0).otherwise(1)).alias("redeliveries"),
        F.sum(F.when(recovered, lasted)).alias("recovered_ms"),
        F.sum(F.when(exhausted, died)).alias("exhausted_ms"),
        F.sum(F.when(recovered, lasted * (1 - F.col("likely.dead")))).alias("in_both_ms"),
        F.count_if(_tried_later()).alias("tried_later"),
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
