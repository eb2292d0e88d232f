"""The listener: turns Spark's progress events of the stream into metrics.

Spark calls it on a thread of its own, some time after the fact, and for every query of the
session; those of other names are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from ackfloor_monitoring.metrics.watch_metrics import Progress, WatchMetrics

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
    )


class StreamListener(StreamingQueryListener):
    """Passes the progress of the queries of one name to the metrics.

    Args:
        query: their name.
    """

    def __init__(self, metrics: WatchMetrics, query: str) -> None:
        self._metrics = metrics
        self._query = query
        self._runs: set[object] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """An idle event has the run's id alone, so remember which runs are ours."""
        if event.name == self._query:
            self._runs.add(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch was stored."""
        progress = event.progress
        if progress.name == self._query:
            self._metrics.progressed(
                Progress(
                    progress.numInputRows,
                    progress.batchDuration / 1000,
                    progress.inputRowsPerSecond,
                    lag_by_topic(progress.sources),
                )
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """The stream has read and found no records."""
        if event.runId in self._runs:
            self._metrics.idle()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: ingest reports why it ended."""
        self._runs.discard(event.runId)


def lag_by_topic(sources: Iterable[SourceProgress]) -> dict[str, int]:
    """Offsets between the end of a batch and the ends of its topics."""
    lag: dict[str, int] = {}
    for source in sources:
        end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        for topic, partitions in latest.items():
            stored = end.get(topic, {})
            behind = (at - stored.get(part, 0) for part, at in partitions.items())
            lag[topic] = lag.get(topic, 0) + sum(max(0, each) for each in behind)
    return lag


def _offsets(text: str | None) -> Mapping[str, Mapping[str, int]]:
    """Offsets by topic and partition, as the Kafka source writes them; none before the first."""
    read = json.loads(text or "{}")
    return read if isinstance(read, dict) else {}
