"""The columns of the views: name, type, and what each means, with its unit.

`DESCRIBE` shows the meaning in SQL, and docs/reference/table.md is written from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ackfloor_monitoring.spark.table.columns import DERIVED

_TEXT, _COUNT, _SECONDS, _TIME = StringType(), LongType(), DoubleType(), TimestampType()
_SAMPLE = StructType(
    [
        StructField("topic", _TEXT),
        StructField("partition", IntegerType()),
        StructField("offset", _COUNT),
        StructField("error_message", _TEXT),
    ]
)


def _column(name: str, of_type: DataType, meaning: str) -> StructField:
    return StructField(name, of_type, metadata={"comment": meaning})


_GROUP = _column("group", _TEXT, "The consumer group.")
_HANDLER = _column("handler", _TEXT, "The handler that failed.")
# A row for each delivery that failed.
DELIVERY = StructType(
    [
        _column("message", DERIVED["message"].dataType, "The message, as in `failures`."),
        _column("cluster", _TEXT, "The cluster, where the table holds several."),
        _GROUP,
        _HANDLER,
        _column("origin_topic", _TEXT, "The source topic."),
        _column("origin_partition", _COUNT, "The record's partition there."),
        _column("origin_offset", _COUNT, "The record's offset there."),
        _column("key", BinaryType(), "The record's key, as the redaction rules leave it."),
        _column("replays", _COUNT, "0 in the first life; how often it was redriven before."),
        _column("attempt", _COUNT, "Failed deliveries so far, this one included."),
        _column("stage", _TEXT, "What came of it: `retry` or `dlq`."),
        _column("reason", _TEXT, "Why, in a word, as in `failures`."),
        _column("cause", _TEXT, "What groups failures: `error_fingerprint`, else the error, else "
                "why."),
        _column("error_type", _TEXT, "The error's class, with its module."),
        _column("error_fingerprint", _TEXT, "The hash of the error's type and place."),
        _column("release", _TEXT, "The release of the worker."),
        _column("duration_ms", _COUNT, "How long the failed call took, in milliseconds."),
        _column("event_time", _TIME, "When it failed, in UTC."),
        _column("day", DateType(), "The day of that."),
        _column("records", _COUNT, "Rows of `failures` that it has: several of one long wait."),
    ]
)  # fmt: skip
# A row for each cause.
FINGERPRINT = StructType(
    [
        _GROUP,
        _HANDLER,
        _column("cause", _TEXT, "What groups failures: `fingerprint`, else the error, else why."),
        _column("fingerprint", _TEXT, "The hash of the error's type and place; null without one."),
        _column("error_type", _TEXT, "The error's class, with its module."),
        _column("failures", _COUNT, "Deliveries that failed with it."),
        _column("messages", _COUNT, "Messages that failed with it, of known origin."),
        _column("dead", _COUNT, "Failures after which the message became a dead letter; one "
                "that died twice counts twice, and in `lives` once in a life."),
        _column(
            "first", _TIME, "The first of them, in UTC. Without times before 2011 or after tomorrow"
            ": there a clock was wrong."
        ),
        _column("last", _TIME, "The last of them, in UTC; likewise."),
        _column("releases", ArrayType(_TEXT, False), "The releases that failed so, sorted."),
        _column("sample", _SAMPLE, "The latest record: its place, and what the error said."),
    ]
)  # fmt: skip
# A row for each cause: what its failures cost.
COST = StructType(
    [
        _GROUP,
        _HANDLER,
        *(FINGERPRINT[name] for name in ("cause", "error_type", "failures")),
        _column("handler_s", _SECONDS, "Seconds that the handler ran in deliveries that failed."),
        _column("untimed", _COUNT, "Failures of which no record says how long they ran."),
        _column(
            "delay_s", _SECONDS, "Seconds from failures to the next delivery that they waited for; "
            "messages wait at the same time, so it may be more than has passed."
        ),
    ]
)  # fmt: skip
# A row for each cause and release.
RELEASE_RATE = StructType(
    [
        _GROUP,
        _HANDLER,
        *(FINGERPRINT[name] for name in ("cause", "error_type")),
        _column("release", _TEXT, "The release of the workers."),
        _column("began", _TIME, "When it failed first, of anything, in UTC."),
        _column(
            "hours", DoubleType(), "From then to the first failure of the next release of the "
            "group, or to the last failure."
        ),
        _column("failures", _COUNT, "Deliveries that failed so under it, of first lives."),
        _column("messages", _COUNT, "Messages that did, of known origin."),
        _column("per_hour", DoubleType(), "`messages` by `hours`; null where these are 0."),
        _column("before", _TEXT, "The release before; null of the first one."),
        _column("before_per_hour", DoubleType(), "`per_hour` of the same cause under it."),
    ]
)  # fmt: skip
# A row for each cause that a release brought, from a function and no view.
NEW_CAUSE = StructType(
    [
        *(FINGERPRINT[name] for name in ("group", "handler", "cause", "fingerprint", "error_type")),
        *(FINGERPRINT[name] for name in ("failures", "messages", "dead", "first")),
        _column("last", _TIME, "The last of them, in UTC, without those of redriven messages."),
        FINGERPRINT["releases"],
        _column(
            "hours", _COUNT, "Hours of the release in which it was seen; of two that follow each "
            "other one."
        ),
        _column("before_s", _SECONDS, "Of its group's history before the release, in whole hours."),
        _column(
            "since_s", _SECONDS, "Seconds from the release's first failure to that of the next "
            "release, or to the last failure, in whole hours."
        ),
        _column("until", _TIME, "When the next release of the group failed first; null of none."),
        _column(
            "chance", DoubleType(), "How likely a cause as old as the history would, up to the "
            "next release, be seen only with this one: `since_s` / (`since_s` + `before_s`), to "
            "the power of `hours`; of the cause that the release failed with first, of an hour "
            "less."
        ),
        FINGERPRINT["sample"],
    ]
)  # fmt: skip
# A row for each run of a message through its retries.
LIFE = StructType(
    [
        _column("message", DERIVED["message"].dataType, "The message, as in `failures`."),
        _GROUP,
        _column("handler", _TEXT, "The handler of the source topic, by its latest name."),
        _column("replays", _COUNT, "0 in the first life; each replay begins another one."),
        _column(
            "outcome", _TEXT, "`dead`, `waiting`, `recovered` (a bound from above), or `unknown` "
            "where the group's commits are not."
        ),
        _column(
            "cause", _TEXT, "Why it failed last, as in `fingerprints`; null of a replay that did "
            "not fail."
        ),
        _column("error_type", _TEXT, "The class of that error, with its module."),
        _column("attempts", _COUNT, "Deliveries that failed, as the last attempt counts them."),
        _column("failures", _COUNT, "Deliveries that failed, duplicates included."),
        _column("duplicates", _COUNT, "Of them, those of an attempt that had failed before."),
        _column("tier_records", _COUNT, "Records in retry topics."),
        _column(
            "to_recovery_s", _SECONDS, "Seconds from the first failure to the end of the last "
            "wait, a bound from below; null unless recovered."
        ),
        _column(
            "to_death_s", _SECONDS, "Seconds from the first failure to the last, of dead letters; "
            "null otherwise, and where a clock was wrong."
        ),
    ]
)  # fmt: skip
# A row for each step of a handler's retries.
STEP = StructType(
    [
        _GROUP,
        _HANDLER,
        _column("attempt", _COUNT, "Failed deliveries so far."),
        _column("failed", _COUNT, "Messages that failed this often, in their first lives."),
        _column("recovered", _COUNT, "Of them, saved by the next delivery; a bound from above."),
        _column("dead", _COUNT, "Of them, dead letters now."),
        _column("waiting", _COUNT, "Of them, those that wait for the next delivery."),
        _column("unknown", _COUNT, "Of them, those of which no commit is known."),
    ]
)
# The same for each cause: a message counts to that of its last failure.
CAUSE_STEP = StructType(
    [*STEP.fields[:2], *(LIFE[name] for name in ("cause", "error_type")), *STEP.fields[2:]]
)
# The views that are computed, and what a row of each is.
COMPUTED: Final[Mapping[str, StructType]] = {
    "deliveries": DELIVERY,
    "fingerprints": FINGERPRINT,
    "costs": COST,
    "release_rates": RELEASE_RATE,
    "lives": LIFE,
    "funnel": STEP,
    "funnel_by_cause": CAUSE_STEP,
}
ABOUT: Final[Mapping[str, str]] = {
    "deliveries": "A row for each delivery that failed, as the report counts failures: the further "
    "retry topics of one long wait are one row, and there is none of redriven records and of those "
    "that wait behind another one.",
    "fingerprints": "A row for each group, handler and cause of failures.",
    "costs": "A row for each group, handler and cause: what its failures cost.",
    "release_rates": "A row for each cause and release: how many messages failed so in an hour, "
    "beside the release before. A cause that a release ended has a row with 0.",
    "lives": "A row for each run of a message through its retries: its first life, and one for "
    "each replay. Messages whose origin can't be read are not there.",
    "funnel": "A row for each handler and attempt, of first lives: how many messages failed this "
    "often, and what became of those that did not fail once more.",
    "funnel_by_cause": "The same for each cause. A message counts with the cause of its last "
    "failure, in all of its attempts.",
}
