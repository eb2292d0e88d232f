"""WatchMetrics: the metrics of `ackfloor spark watch`, from all threads, as one exposition.

Threads: the listener's, the one of `Ingest.run`, and the server's. They share a few dictionaries
under one lock, and never wait while they hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ackfloor.core.records.envelope import Reason
from ackfloor_monitoring.metrics import watch_definitions as d
from ackfloor_monitoring.metrics.exposition import buckets_of, family_of, metrics_page
from ackfloor_monitoring.metrics.metric_spec import Kind, MetricSpec
from ackfloor_monitoring.metrics.tallies import Distribution, Names
from ackfloor_monitoring.serving.http_server import Page

#: Pairs of group and handler that keep their names as labels.
MOST_HANDLERS = 200
#: Topics that do.
MOST_TOPICS = 1_000
OTHER = "other"
_REASONS = {*Reason, "unknown"}

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a stream has done with one batch.

    Attributes:
        records: how many it stored; 0 where there was nothing new.
        rate: records a second.
        lag: offsets that were there and are not stored, by topic.
    """

    records: int
    duration_s: float
    rate: float
    lag: Mapping[str, int]


class WatchMetrics(Collector):
    """Counters and gauges of a watch; collected at each scrape.

    Args:
        now_s: the wall clock.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._lock = Lock()
        self._values: dict[MetricSpec, dict[Labels, float]] = {
            spec: {} for spec in d.WATCH_METRICS if spec.kind is not Kind.HISTOGRAM
        }
        self._durations = Distribution(d.BATCH_DURATION.buckets)
        self._handlers = Names(MOST_HANDLERS)
        self._topics = Names(MOST_TOPICS)
        # Counters that alerts watch start at 0: Prometheus does not see an increase from nothing.
        for spec in (d.RECORDS, d.BATCHES, d.GONE):
            self._add(spec, (), 0)
        self._values[d.LAST_PROGRESS][()] = now_s()

    def page(self) -> Page:
        """The page `/metrics`."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return metrics_page(registry)

    def progressed(self, progress: Progress) -> None:
        """A batch was stored, or there was none to store."""
        now_s = self._now_s()
        with self._lock:
            self._values[d.LAST_PROGRESS][()] = now_s
            self._values[d.INPUT_RATE][()] = progress.rate
            self._values[d.LAG] = {}
            for topic, offsets in progress.lag.items():
                self._add(d.LAG, (self._topics.of(topic),), offsets)
            if progress.records:
                self._values[d.LAST_BATCH][()] = now_s
                self._add(d.RECORDS, (), progress.records)
                self._add(d.BATCHES, (), 1)
                self._durations.add((), progress.duration_s)

    def idle(self) -> None:
        """The stream has read, and there is nothing new."""
        with self._lock:
            self._values[d.LAST_PROGRESS][()] = self._now_s()
            self._values[d.INPUT_RATE][()] = 0
            self._values[d.LAG] = dict.fromkeys(self._values[d.LAG], 0)

    def failed(self, error: Exception) -> None:
        """Something failed and is retried."""
        kind = (type(error).__name__,)
        with self._lock:
            self._add(d.ERRORS, kind, 1)
            self._values[d.LAST_ERROR][kind] = self._now_s()

    def gone(self, offsets: int) -> None:
        """How many offsets were gone so far."""
        with self._lock:
            self._values[d.GONE][()] = offsets

    def stored(self, group: str, handler: str, stage: str, reason: str, rows: int) -> None:
        """Rows were stored; with 0 the series exists."""
        with self._lock:
            labels = self._handler(group, handler)
            for spec in (d.NEW, d.SURGES):
                self._add(spec, labels, 0)
            reason = reason if reason in _REASONS else OTHER
            self._add(d.STORED, (*labels, stage, reason), rows)

    def found_new(self, group: str, handler: str) -> None:
        """A new fingerprint."""
        with self._lock:
            labels = self._handler(group, handler)
            self._add(d.NEW, labels, 1)
            self._values[d.LAST_NEW][labels] = self._now_s()

    def found_surge(self, group: str, handler: str) -> None:
        """A surge has begun."""
        with self._lock:
            self._add(d.SURGES, self._handler(group, handler), 1)

    def surging(self, causes: Mapping[tuple[str, str], int]) -> None:
        """How many causes are in a surge now, by group and handler."""
        with self._lock:
            self._values[d.SURGING] = dict.fromkeys(self._values[d.SURGES], 0)
            for (group, handler), count in causes.items():
                self._add(d.SURGING, self._handler(group, handler), count)

    def describe(self) -> Iterable[Metric]:
        """The families without samples, for the registry's names."""
        return [family_of(spec, spec.labels) for spec in d.WATCH_METRICS]

    def collect(self) -> Iterable[Metric]:
        """The families that have samples."""
        with self._lock:
            families = [family_of(spec, spec.labels) for spec in d.WATCH_METRICS]
            for spec, family in zip(d.WATCH_METRICS, families, strict=True):
                if isinstance(family, HistogramMetricFamily):
                    self._add_durations(family)
                    continue
                assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
                for labels, value in self._values[spec].items():
                    family.add_metric(labels, value)
        return [family for family in families if family.samples]

    def _add(self, spec: MetricSpec, labels: Labels, more: float) -> None:
        values = self._values[spec]
        values[labels] = values.get(labels, 0) + more

    def _handler(self, group: str, handler: str) -> Labels:
        known = self._handlers.of(f"{group}\0{handler}") != OTHER
        return (group, handler) if known else (OTHER, OTHER)

    def _add_durations(self, family: HistogramMetricFamily) -> None:
        for labels, series in self._durations.series.items():
            buckets = buckets_of(self._durations.edges, series.counts)
            family.add_metric(labels, buckets, series.sum)
