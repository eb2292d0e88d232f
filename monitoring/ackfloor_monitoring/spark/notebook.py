"""For notebooks: the history of failures and the figures of the report, as DataFrames.

    from ackfloor_monitoring.spark import notebook

    spark = notebook.session()
    failures = notebook.failures(spark, "/data/failures")
    notebook.fingerprints(failures).orderBy("failures", ascending=False).show()

Each function takes or returns a DataFrame; nothing is counted before you ask for rows. Times are in
UTC. The columns are in docs/reference/table.md as well. Importing this loads no PySpark.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ackfloor_monitoring.spark.spark_errors import TableRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ackfloor import RetryPolicy
    from ackfloor.commits import Settled
    from ackfloor_monitoring.spark.whatif.answer import WhatIf

__all__ = [
    "commits",
    "costs",
    "deliveries",
    "dispositions",
    "failures",
    "fingerprints",
    "funnel",
    "funnel_by_cause",
    "lives",
    "new_causes",
    "register_views",
    "release_rates",
    "session",
    "what_if",
]


def session(app_name: str = "notebook") -> SparkSession:
    """The session of this notebook; where it has none, a local one with Kafka and Delta.

    It ends with the program. One that you make yourself needs the jars and settings of
    docs/spark.md.

    Args:
        app_name: the application's name in Spark, where the session is made here.

    Raises:
        MissingExtra, SparkNotStarted, JarRefused, JarsUnavailable: each says what is missing
            and what to do.
    """
    from ackfloor_monitoring.spark.setup.session import notebook_session

    return notebook_session(app_name)


def failures(spark: SparkSession, table: str | None = None) -> DataFrame:
    """The table of failures: a row for each record of a retry or dead-letter topic.

    Columns that questions begin with; docs/reference/table.md has all of them:

    - group string, handler string: whose failure it is.
    - kind string: `failure`, `replay` (a dead letter was redriven) or `behind` (it waits behind
      another record of its key). A long wait by `Retry(after=)` has several rows of kind
      `failure`: count failures in `deliveries`.
    - cluster string: where the table holds several, the name that its ingest was given.
    - message struct: the record of the source topic; count messages with
      count(DISTINCT message). Null where its origin can't be read.
    - stage string: `retry` or `dlq`, where the record is.
    - topic string, partition int, offset bigint, topic_id string: the record's place.
    - event_time timestamp: when the handler failed. day date: its day.
    - attempt bigint: the failed deliveries so far. replays bigint: how often it was redriven.
    - error_type string, error_message string, error_fingerprint string, reason string: why.
    - duration_ms bigint: how long the failed call took, in milliseconds.
    - release string: the release of the worker.
    - key binary, payload binary: as the redaction rules leave them.

    Args:
        spark: from `session`.
        table: its folder, or any path that Spark can read; None for what the environment variable
            ACKFLOOR_SPARK_TABLE names.

    Raises:
        TableRefused: there is none, or it is not ours, or of another version.
    """
    from ackfloor_monitoring.spark.table.store import read_failures
    from ackfloor_monitoring.spark.table.table_path import absolute_path

    named = os.environ.get("ACKFLOOR_SPARK_TABLE", "") if table is None else table
    try:
        return read_failures(spark, absolute_path(named))
    except ValueError as refused:
        raise TableRefused(f"table {refused}") from None


def deliveries(failures: DataFrame) -> DataFrame:
    """What to count: a row for each delivery that failed, as the report counts failures.

    The further retry topics of one long wait are one row, and there is none of redriven records and
    of those that wait behind another one.

    - message struct: as in `failures`. Null where its origin can't be read.
    - cluster string, group string, handler string: whose failure it is.
    - origin_topic string, origin_partition bigint, origin_offset bigint, key binary: the record.
    - replays bigint: 0 in the first life. attempt bigint: the failed deliveries so far.
    - stage string: what came of it, `retry` or `dlq`. release string: the release of the worker.
    - reason string, cause string, error_type string, error_fingerprint string: why.
    - event_time timestamp, day date: when. duration_ms bigint: how long the call took, in
      milliseconds.
    - records bigint: rows of `failures` that it has.

    Args:
        failures: from `failures`, also a part of it.
    """
    from ackfloor_monitoring.spark.analysis import cause_frames

    return cause_frames.delivery_rows(failures)


def fingerprints(failures: DataFrame) -> DataFrame:
    """What failed: a row for each group, handler and cause, as the report counts them.

    - group string, handler string, cause string: whose, and what groups failures.
    - fingerprint string, error_type string: the error; null where records have none.
    - failures bigint: deliveries that failed. messages bigint: messages that did. dead bigint:
      failures after which the message became a dead letter.
    - first timestamp, last timestamp: of these failures, without times of a wrong clock (before
      2011, after tomorrow).
    - releases array<string>: that failed so.
    - sample struct: the latest record, topic, partition, offset and error_message.

    Args:
        failures: from `failures`, also a part of it.
    """
    from ackfloor_monitoring.spark.analysis import cause_frames

    return cause_frames.fingerprints(failures)


def costs(failures: DataFrame) -> DataFrame:
    """What failures cost: a row for each group, handler and cause.

    - group string, handler string, cause string, error_type string: as in `fingerprints`.
    - failures bigint: deliveries that failed.
    - handler_s double: seconds that the handler ran in them. untimed bigint: failures of which no
      record says how long they ran.
    - delay_s double: seconds from failures to the delivery that they waited for. Messages wait at
      the same time, so it may be more than has passed.

    Args:
        failures: from `failures`, also a part of it.
    """
    from ackfloor_monitoring.spark.analysis import cause_frames

    return cause_frames.costs(failures)


def release_rates(failures: DataFrame) -> DataFrame:
    """What a release made more frequent, or less: a row for each cause and release.

    - group string, handler string, cause string, error_type string: as in `fingerprints`.
    - release string, began timestamp: of the workers, and when it failed first, of anything.
    - hours double: from then to the first failure of the next release of the group, or to the last
      failure.
    - failures bigint, messages bigint: that failed so under it, in their first lives.
    - per_hour double: messages by hours.
    - before string, before_per_hour double: the release before, and the same of it; null of the
      first one. A cause that a release ended has a row with 0.

    Args:
        failures: from `failures`, with whole releases.
    """
    from ackfloor_monitoring.spark.analysis import release_rates as of_releases

    return of_releases.release_rates(failures)


def new_causes(failures: DataFrame, release: str) -> DataFrame:
    """What a release broke: causes that came with it, the surest first, of any release.

    Shown is a cause that was never there before, that was seen before the next release of its group
    failed first, that no worker of an earlier release (or of none) has failed with since, and that
    is seen too often for it to be an old one whose turn it was: of those that are shown at most one
    in twenty is old, on average. Where the history before the release is short, a cause has to be
    seen in several hours.

    - group string, handler string, cause string, fingerprint string, error_type string.
    - failures bigint, messages bigint, dead bigint, first timestamp, releases array<string>,
      sample struct: as in `fingerprints`, also of what came after the next release.
    - last timestamp: the last failure with it, without those of redriven messages.
    - hours bigint: in how many hours of the release it was seen; of two that follow each other one
      counts.
    - before_s double, since_s double: seconds of the group's history before the release, and of the
      release, in whole hours.
    - until timestamp: when the next release of the group failed first, which ends that; null of
      the newest.
    - chance double: how likely a cause as old as the history would, up to the next release, be seen
      only with this one: (since_s / (since_s + before_s)) ** hours, an hour less for the one that
      failed first.

    Args:
        failures: from `failures`, with the history from before the release.
        release: as workers name it.

    Raises:
        UnknownRelease: no failure names it.
    """
    from ackfloor_monitoring.spark.analysis import new_causes as of_release

    return of_release.new_causes(failures, release)


def lives(failures: DataFrame, commits: Iterable[Settled] = ()) -> DataFrame:
    """What became of messages: a row for each run of one through its retries.

    - message struct: as in `failures`, to join with. group string, handler string.
    - replays bigint: 0 in the first life; each replay begins another one.
    - outcome string: `dead`, `waiting`, `recovered` (a bound from above), or `unknown` where no
      commit is known.
    - cause string, error_type string: why it failed last.
    - attempts bigint: deliveries that failed. failures bigint: with duplicates. duplicates bigint.
    - tier_records bigint: records in retry topics.
    - to_recovery_s double: seconds from the first failure to the end of the last wait.
    - to_death_s double: seconds from the first failure to the last one.

    Args:
        failures: from `failures`. Of a message all rows, or none: filter by group, not by cause.
        commits: from `commits`.
    """
    from ackfloor_monitoring.spark.analysis.life_frames import message_lives

    return message_lives(failures, commits)


def funnel(failures: DataFrame, commits: Iterable[Settled] = ()) -> DataFrame:
    """What retries achieve: a row for each group, handler and attempt, in order.

    failed = recovered + dead + waiting + unknown + failed of the next attempt. First lives count,
    replays do not.

    - group string, handler string.
    - attempt bigint: failed deliveries so far.
    - failed bigint: messages that failed this often.
    - recovered bigint: of them, saved by the next delivery. dead bigint, waiting bigint,
      unknown bigint: of them, the others that did not fail once more.

    Args:
        failures: as in `lives`.
        commits: from `commits`; without them nothing is `recovered` or `waiting`.
    """
    from ackfloor_monitoring.spark.analysis import life_frames

    return life_frames.funnel(life_frames.message_lives(failures, commits))


def funnel_by_cause(failures: DataFrame, commits: Iterable[Settled] = ()) -> DataFrame:
    """What retries achieve for each cause: which errors heal, at which attempt, and which never do.

    A message counts with the cause of its last failure, in all of its attempts. So the rows of a
    handler add up to those of `funnel`.

    - group string, handler string.
    - cause string, error_type string: as in `fingerprints`.
    - attempt bigint, failed bigint, recovered bigint, dead bigint, waiting bigint, unknown bigint:
      as in `funnel`.

    Args:
        failures: as in `lives`.
        commits: as in `funnel`.
    """
    from ackfloor_monitoring.spark.analysis import life_frames

    return life_frames.funnel_by_cause(life_frames.message_lives(failures, commits))


def what_if(
    failures: DataFrame,
    policy: RetryPolicy,
    commits: Iterable[Settled] | None = None,
    *,
    handler: str | None = None,
) -> WhatIf:
    """What another retry policy would have made of these failures, in plain Python.

    Its `total` and each of its `handlers` have counts of messages and redeliveries, and times in
    seconds, beside those that were; `assumptions` are sentences to show with them.

    Args:
        failures: as in `lives`.
        policy: such as `RetryPolicy("10s", max_redeliveries=3)`.
        commits: from `commits`; None where they are not known.
        handler: only this one.

    Raises:
        NothingToReport: there is no failure, or no message among them whose end is known.
        SettingError: no failure names the handler.
    """
    from ackfloor_monitoring.spark.whatif import build

    return build.what_if(failures, commits, policy, table="failures", handler=handler)


def dispositions(
    spark: SparkSession,
    bootstrap_servers: str | None = None,
    *,
    group: str | None = None,
    config: Path | str | None = None,
) -> DataFrame:
    """What was done with which dead letter: rows to join by topic, topic_id, partition, offset.

    - topic string, topic_id string, partition int, offset bigint: the dead letter's place.
    - disposition string: `replayed`, `discarded` or `archived`.
    - target string: the topic it was replayed to, or where it was archived.
    - at_ms bigint: when, in milliseconds since the epoch.
    - by string: who asked for it. job string: the job that did it.

    Args:
        spark: from `session`.
        bootstrap_servers: `host:port`, comma-separated; None for those of the settings.
        group: of this consumer group only; None for all.
        config: the settings file, whose `[kafka]` has logins and certificates; None for
            ackfloor.toml, if it exists.

    Raises:
        ConfigError: a setting is refused.
        KafkaUnreachable, KafkaRefused: as they say.
    """
    from ackfloor.settings import Settings
    from ackfloor_monitoring.spark.setup.kafka_options import connection_options
    from ackfloor_monitoring.spark.table.disposition_rows import read_dispositions

    settings = Settings.load(flags={"kafka.bootstrap_servers": bootstrap_servers}, config=config)
    return read_dispositions(spark, connection_options(settings.kafka), group)


def commits(
    failures: DataFrame,
    bootstrap_servers: str | None = None,
    *,
    config: Path | str | None = None,
) -> list[Settled]:
    """What the groups in the table have committed for its retry topics, now.

    They tell a message that recovered from one that waits. Let an ingest run before.

    Args:
        failures: from `failures`.
        bootstrap_servers: `host:port`, comma-separated; None for those of the settings.
        config: as in `dispositions`.

    Raises:
        ConfigError: a setting is refused.
        KafkaUnreachable: no broker answered.
    """
    from ackfloor.redrive import kafka_options
    from ackfloor_monitoring.spark.table.settled_rows import committed

    flags = {"kafka.bootstrap_servers": bootstrap_servers}
    return committed(failures, kafka_options(flags=flags, config=config))


def register_views(
    failures: DataFrame,
    commits: Iterable[Settled] = (),
    dispositions: DataFrame | None = None,
) -> None:
    """Name the views for SQL: `failures`, `deliveries`, `fingerprints`, `costs`, `release_rates`,
    `lives`, `funnel`, `funnel_by_cause` and `dispositions`.

    They are those of `ackfloor spark sql`; `spark.sql("DESCRIBE funnel")` shows columns, types and
    meanings. They last as long as the session.

    Args:
        failures: from `failures`.
        commits: from `commits`.
        dispositions: from `dispositions`; without it there is no view of that name.
    """
    from ackfloor_monitoring.spark.analysis.views import register, views

    register(failures.sparkSession, views(failures, commits, dispositions))
