"""Merge: the reports of all workers as one exposition, with the label `worker`.

Each scrape reads the newest reports alone: a dead worker's series vanish, and its successor starts
its counters at 0, which Prometheus reads as a reset. What a worker counted after its last report
is lost with it: counters are for rates, the topics are the truth. For a moment around a rebalance
two workers may both show a partition; alerts on partitions should therefore ignore `worker`.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from ackfloor.observe import Progress, SettingsState, Snapshot
from ackfloor_monitoring.metrics import gauges as g
from ackfloor_monitoring.metrics import metric_definitions as d
from ackfloor_monitoring.metrics.exposition import buckets_of, family_of
from ackfloor_monitoring.metrics.metric_spec import MetricSpec
from ackfloor_monitoring.metrics.worker_report import Report, Trace


@dataclass(frozen=True, slots=True)
class Look:
    """The group's progress at a moment, as read from Kafka."""

    at_ms: int
    seen: Sequence[Progress]


class RunCollector(Collector):
    """All metrics of a run, made anew for each scrape.

    Args:
        reports: the newest report of each worker that runs.
        worker_exits: how many worker processes have ended.
        settings: whether settings are in force, refused or waiting for a restart.
        look: the group's progress as last read from Kafka.
        turn_ages_s: how long ago each worker's loop made its last turn.
    """

    def __init__(
        self,
        group: str,
        workers: int,
        reports: Callable[[], Mapping[int, Report]],
        worker_exits: Callable[[], int],
        settings: Callable[[], SettingsState] = SettingsState,
        look: Callable[[], Look | None] = lambda: None,
        turn_ages_s: Callable[[], Mapping[int, float]] = dict,
    ) -> None:
        self._group = group
        self._workers = workers
        self._reports = reports
        self._worker_exits = worker_exits
        self._settings = settings
        self._look = look
        self._turn_ages_s = turn_ages_s

    def describe(self) -> Iterable[Metric]:
        """The families without samples, for the registry's names."""
        return _families().values()

    def collect(self) -> Iterable[Metric]:
        """The families that have samples."""
        reports = self._reports()
        scrape = _Scrape(self._group)
        for worker, report in sorted(reports.items()):
            scrape.add_report(str(worker), report)
        for worker, age_s in sorted(self._turn_ages_s().items()):
            scrape.add(g.TURN_AGE, (str(worker),), age_s)
        scrape.add(d.WORKERS_EXPECTED, (), self._workers)
        scrape.add(d.WORKERS_REPORTING, (), len(reports))
        scrape.add(d.WORKERS_ENDED, (), self._worker_exits())
        scrape.add_settings(self._settings())
        if (look := self._look()) is not None:
            scrape.add_look(look)
        return [family for family in scrape.families.values() if family.samples]


def _families() -> dict[str, Metric]:
    return {spec.name: _family(spec) for spec in d.METRICS}


def _family(spec: MetricSpec) -> Metric:
    labels = spec.labels if spec in d.RUN_WIDE else (spec.labels[0], "worker", *spec.labels[1:])
    return family_of(spec, labels)


def _exemplar(trace: Trace, value: float) -> Exemplar:
    """The way from a series to a trace; only OpenMetrics has it."""
    return Exemplar({"trace_id": trace.trace_id}, value, trace.at_s)


class _Scrape:
    """The families of one scrape while they fill."""

    def __init__(self, group: str) -> None:
        self._group = group
        self.families = _families()

    def add(self, spec: MetricSpec, labels: Sequence[str], value: float | None) -> None:
        """One sample of a counter or gauge; `labels` without the group."""
        if value is not None:
            family = self.families[spec.name]
            assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
            family.add_metric((self._group, *labels), value)

    def add_settings(self, state: SettingsState) -> None:
        """Whether settings are in force."""
        self.add(d.RELOADS, (), state.reloads)
        self.add(d.RELOAD_FAILURES, (), state.failures)
        good = not state.error and not state.refused_by
        self.add(d.LAST_RELOAD_SUCCESSFUL, (), float(good))
        reloaded_s = state.reloaded_ms / 1000 if state.reloaded_ms else None
        self.add(d.LAST_RELOAD, (), reloaded_s)
        self.add(d.RESTART_NEEDED, (), len(state.needs_restart))

    def add_look(self, look: Look) -> None:
        """What the run read from Kafka."""
        self.add(g.KAFKA_LOOK, (), look.at_ms / 1000)
        for seen in look.seen:
            labels = (seen.topic, str(seen.partition), seen.kind)
            self.add(g.KAFKA_LAG, labels, seen.lag)
            self.add(g.KAFKA_OPEN, labels, seen.open)
            if seen.oldest_ms is not None:
                self.add(g.KAFKA_OLDEST, labels[:2], seen.oldest_ms / 1000)

    def add_report(self, worker: str, report: Report) -> None:
        """Everything in a worker's report."""
        for spec in d.COUNTERS:
            traces = dict(report.traces.get(spec.name, ()))
            for labels, count in report.counters.get(spec.name, ()):
                self._add_count(spec, (worker, *labels), count, traces.get(labels))
        for spec in d.HISTOGRAMS:
            self._add_histogram(spec, worker, report)
        self.add(d.BUILD_INFO, (worker, report.version, platform.python_version()), 1)
        self.add(d.STARTED, (worker,), report.started_s)
        if report.snapshot is not None:
            self._add_snapshot(worker, report.snapshot)

    def _add_count(
        self, spec: MetricSpec, labels: Sequence[str], count: float, trace: Trace | None
    ) -> None:
        family = self.families[spec.name]
        assert isinstance(family, CounterMetricFamily)
        exemplar = None if trace is None else _exemplar(trace, 1.0)
        family.add_metric((self._group, *labels), count, exemplar=exemplar)

    def _add_histogram(self, spec: MetricSpec, worker: str, report: Report) -> None:
        family = self.families[spec.name]
        assert isinstance(family, HistogramMetricFamily)
        edges = report.edges.get(spec.name, ())
        traces = dict(report.traces.get(spec.name, ()))
        for labels, counts, total in report.histograms.get(spec.name, ()):
            buckets = buckets_of(edges, counts)
            if (trace := traces.get(labels)) is not None:
                at = bisect_left(edges, trace.value_s)
                buckets[at] = (*buckets[at], _exemplar(trace, trace.value_s))
            family.add_metric((self._group, worker, *labels), buckets, total)

    def _add_snapshot(self, worker: str, snapshot: Snapshot) -> None:
        for partition in snapshot.partitions:
            labels = (worker, partition.topic, str(partition.partition))
            for of_partition in g.PARTITION_GAUGES:
                self.add(of_partition.spec, labels, of_partition.read(partition))
        for of_topic in g.topics(snapshot):
            self.add(g.TOPIC_INFO, (worker, *of_topic), 1)
        for handler in snapshot.handlers:
            for of_handler in g.HANDLER_GAUGES:
                self.add(of_handler.spec, (worker, handler.name), of_handler.read(handler))
            self.add(g.RATE_WAITED_SECONDS, (worker, handler.name), handler.rate.waited_s)
            self.add(g.POLICY_INFO, (worker, *g.policy_labels(handler)), 1)
        for of_worker in g.WORKER_GAUGES:
            self.add(of_worker.spec, (worker,), of_worker.read(snapshot))
        for fault in snapshot.faults:
            what = (worker, fault.kind, fault.subject, fault.cause)
            self.add(g.FAULT_MESSAGES, what, fault.records)
            self.add(g.FAULT_SINCE, what, fault.since_ms / 1000)
        for reason, count in g.paused(snapshot).items():
            self.add(g.PAUSED, (worker, reason), count)
        self.add(g.LOOP_SECONDS, (worker, "poll"), snapshot.polled_s)
        self.add(g.LOOP_SECONDS, (worker, "work"), snapshot.worked_s)
