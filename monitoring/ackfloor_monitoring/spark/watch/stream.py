"""The watch: an ingest whose batches are looked at as soon as they are stored.

What is looked at is read from the table, so it is what was stored, and each batch is told by the
time at its rows. A look that fails is done again; one that was cut short by a kill is not: what
its batch held counts as known, because after a start all that is in the table does.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor import AckfloorError
from ackfloor.core.values.durations import format_duration
from ackfloor_monitoring.metrics.watch_metrics import WatchMetrics
from ackfloor_monitoring.spark.table import store
from ackfloor_monitoring.spark.table.ingest import Ingest, IngestPlan, Stored
from ackfloor_monitoring.spark.table.ingest_observer import IngestObserver
from ackfloor_monitoring.spark.watch.detection import (
    Alert,
    Cause,
    Detection,
    NewCause,
    Rules,
    Sighting,
)
from ackfloor_monitoring.spark.watch.stream_listener import StreamListener
from ackfloor_monitoring.spark.watch.watch_frames import MOST_ROWS, sightings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_LOOK_AGAIN_AFTER_S = 10.0
#: Findings of one look that are told; all are counted.
MOST_LOGGED = 20


class Watch(IngestObserver):
    """One watch, from its start to its end.

    Args:
        plan: of its ingest.
        rules: what is new and what is a surge.
        metrics: where it counts.
        tell: takes one line for people.
        now_s: the wall's clock.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: IngestPlan,
        rules: Rules,
        metrics: WatchMetrics,
        tell: Callable[[str], None] = print,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._spark = spark
        self._table = plan.table
        self._rules = rules
        self._metrics = metrics
        self._tell = tell
        self._now_s = now_s
        self._detection = Detection(rules, now_s())
        self._unseen: deque[datetime] = deque()
        self._look_again_s = 0.0
        self.ingest = Ingest(spark, plan, tell, self)

    def stop(self) -> None:
        """End `run` soon."""
        self.ingest.stop()

    def run(self) -> Stored:
        """Store and look until `stop`. Raises as `Ingest.run` does."""
        store.open_table(self._spark, self._table)
        self._learn()
        listener = StreamListener(self._metrics, self.ingest.query_name)
        self._spark.streams.addListener(listener)
        try:
            return self.ingest.run()
        finally:
            self._spark.streams.removeListener(listener)
            self._look()

    def stored(self, at: datetime) -> None:
        """A batch is there to be looked at."""
        self._unseen.append(at)

    def turn(self) -> None:
        """Look at what was stored since the last turn."""
        self._metrics.gone(self.ingest.stored.gone)
        if self._now_s() >= self._look_again_s:
            self._look()
        self._metrics.surging(self._detection.surging(self._now_s()))

    def failed(self, error: AckfloorError) -> None:
        """Count it; ingest tells it."""
        self._metrics.failed(error)

    def _learn(self) -> None:
        """What is in the table is known."""
        now_s = self._now_s()
        since = datetime.fromtimestamp(now_s - self._rules.look_back_s, UTC)
        failures = store.read_failures(self._spark, self._table)
        recent = failures.where((F.col("day") >= since.date()) & (F.col("event_time") >= since))
        rows = self._collect(recent, now_s - self._rules.kept_s)
        born_s = store.created_at(self._spark, self._table).timestamp()
        self._detection = Detection(self._rules, born_s)
        self._detection.learn(_sightings(rows), now_s)
        for row in rows:
            self._metrics.stored(row["group"], row["handler"], row["stage"], row["reason"], 0)

    def _look(self) -> None:
        """Look at the batches that nobody has looked at."""
        batches = [self._unseen.popleft() for _ in range(len(self._unseen))]
        if not batches:
            return
        now_s = self._now_s()
        try:
            failures = store.read_failures(self._spark, self._table)
            rows = self._collect(failures.where(F.col("ingested_at").isin(batches)))
        except AckfloorError as error:
            self._metrics.failed(error)
            self._tell(f"what was stored last is looked at again: {error}")
            self._look_again_s = now_s + _LOOK_AGAIN_AFTER_S
            self._unseen.extendleft(reversed(batches))
            return
        for row in rows:
            self._metrics.stored(
                row["group"], row["handler"], row["stage"], row["reason"], row["stored"]
            )
        self._send_alerts(self._detection.take(_sightings(rows), now_s))

    def _collect(self, failures: DataFrame, slices_from_s: float = 0.0) -> Sequence[Row]:
        with store.readable_store_errors(self._table):
            rows = failures.transform(sightings, self._rules, slices_from_s).collect()
        if len(rows) == MOST_ROWS:
            self._tell(f"too many kinds of failures: only the newest {MOST_ROWS:,} are looked at")
        return rows

    def _send_alerts(self, alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            seen = alert.first if isinstance(alert, NewCause) else alert.last
            if isinstance(alert, NewCause):
                self._metrics.found_new(seen.cause.group, seen.cause.handler)
            else:
                self._metrics.found_surge(seen.cause.group, seen.cause.handler)
        for alert in alerts[:MOST_LOGGED]:
            self._tell(alert_text(alert, self._rules))
        if len(alerts) > MOST_LOGGED:
            self._tell(f"and {len(alerts) - MOST_LOGGED:,} more new fingerprints and surges")


def alert_text(alert: Alert, rules: Rules) -> str:
    """An alert as one line. Names come from headers: what isn't plain is quoted."""
    if isinstance(alert, NewCause):
        seen = alert.first
        what = f"NEW FINGERPRINT, none in {format_duration(rules.look_back_s)}:"
    else:
        seen = alert.last
        what = (
            f"SURGE, {alert.count:,} failures in {format_duration(rules.window_s)}, "
            f"{alert.usual:.1f} are usual:"
        )
    cause = seen.cause
    names = {
        "group": cause.group,
        "handler": cause.handler,
        "fingerprint": cause.fingerprint,
        "error": seen.error_type,
        "sample": seen.sample,
    }
    return " ".join([what, *(f"{name}={_plain(text)}" for name, text in names.items())])


def _plain(text: str) -> str:
    return text if text.isprintable() and not {" ", '"', "="} & set(text) else json.dumps(text)


def _sightings(rows: Iterable[Row]) -> list[Sighting]:
    return [
        Sighting(
            Cause(row["group"], row["handler"], row["fingerprint"]),
            row["at_s"],
            row["failed"],
            row["error_type"],
            row["sample"],
        )
        for row in rows
        if row["failed"]
    ]
