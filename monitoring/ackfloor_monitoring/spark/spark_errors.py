"""Errors of analytics jobs, beside those of `ackfloor.errors`.

AckfloorError
├── StartError
│   └── SparkNotStarted      no usable Java, or it did not come up: 3
├── SecuritySettingRefused   a setting that Spark's Kafka client cannot be given: 2
├── WhereRefused             a condition that Spark can't evaluate: 2
├── QueryRefused             no query, or one that Spark can't answer: 2
├── KafkaRefused             a broker refused the client: 1
├── NoTopics                 the group has nothing to read: 1
├── ReadFailed               Spark gave up half-way: 1
├── NothingToReport          the table has no failure in it: 1
├── UnknownRelease           no failure in the table names it: 2
├── TableRefused             a folder is no table of failures, or one of another version: 2
├── ClusterRefused           a name of a cluster does not fit the table's rows: 2
├── StoreFailed              the table could not be read or written: 1
├── AnotherIngest            another ingest has begun to write the table: 1
├── StreamBroken             a stream can't go on as it is: ingest starts it anew
└── PageNotWritten           a file of the report can't be written: 2
"""

from __future__ import annotations

from ackfloor import AckfloorError, StartError


class SparkNotStarted(StartError):
    """Spark is installed but its Java process did not come up."""


class SecuritySettingRefused(AckfloorError):
    """A security setting that cannot be handed to Spark."""

    exit_code = 2


class WhereRefused(AckfloorError):
    """A condition over the table that Spark can't evaluate."""

    exit_code = 2

    def __init__(self, where: str, why: str, fix: str) -> None:
        super().__init__(f"--where {where!r}: {why}; {fix}")


class QueryRefused(AckfloorError):
    """What is no query over the table, or one that Spark can't answer."""

    exit_code = 2

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(f"query: {why}; {fix}")


class KafkaRefused(AckfloorError):
    """A broker refused the client."""


class NoTopics(AckfloorError):
    """The group has neither a retry nor a dead-letter topic."""


class ReadFailed(AckfloorError):
    """Spark could not read the topics to their end."""


class NothingToReport(AckfloorError):
    """The table is there and has no failure to report on."""


class UnknownRelease(AckfloorError):
    """A release that no failure names."""

    exit_code = 2


class TableRefused(AckfloorError):
    """A path is no table of failures, or one of a version that is not this one's."""

    exit_code = 2


class ClusterRefused(AckfloorError):
    """A name of a cluster, or none, does not fit the rows that the table has."""

    exit_code = 2


class StoreFailed(AckfloorError):
    """The table could not be read or written."""


class AnotherIngest(AckfloorError):
    """Another ingest has begun to write the same table."""


class StreamBroken(AckfloorError):
    """A stream can't go on as it is: ingest starts it anew."""


class PageNotWritten(AckfloorError):
    """The file that was named for the report's page or its metrics cannot be written."""

    exit_code = 2
