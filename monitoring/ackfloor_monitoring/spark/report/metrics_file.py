"""The report's figures as a file for Prometheus: what a scheduled run leaves for it.

A run of minutes can't be scraped. The node exporter reads such a file, and a Pushgateway takes its
text as it is. Both keep the figures until the next run, and the run needs neither a port nor a
client of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ackfloor_monitoring.metrics import watch_definitions as d
from ackfloor_monitoring.metrics.exposition import gauges_text
from ackfloor_monitoring.metrics.metric_spec import MetricSpec
from ackfloor_monitoring.spark.report.answer import Report

#: Groups and handlers that keep their names as labels, those of most failures; the rest is `other`.
MOST_HANDLERS = 200

Values = dict[tuple[str, ...], float]


def metrics_text(report: Report) -> str:
    """The figures in Prometheus's text format."""
    return gauges_text(_values(report))


def _values(report: Report) -> dict[MetricSpec, Values]:
    totals = report.totals
    return {
        d.REPORT_MADE: {(): report.made_at.timestamp()},
        d.REPORT_LAST_FAILURE: {(): report.last.timestamp()},
        d.REPORT_RECORDS: {(): totals.records},
        d.REPORT_MESSAGES: {
            ("recovered",): totals.recovered,
            ("dead",): totals.dead,
            ("waiting",): totals.waiting,
            ("unknown",): totals.unknown,
        },
        d.REPORT_FAILURES: _bounded(
            ((each.group, each.handler), each.timeouts + each.errors) for each in report.handlers
        ),
        # With 0 where there is none: Prometheus tells that from a run that did not look.
        d.REPORT_NEW_CAUSES: _bounded(
            [
                *(((each.group, each.handler), 0) for each in report.handlers),
                *(((each.group, each.handler), 1) for each in report.new),
            ]
        ),
    }


def _bounded(counts: Iterable[tuple[tuple[str | None, str | None], int]]) -> Values:
    """The sums by group and handler; of those beyond the bound as `other`."""
    sums: Counter[tuple[str, str]] = Counter()
    for (group, handler), count in counts:
        sums[group or "unknown", handler or "unknown"] += count
    kept = sums.most_common(MOST_HANDLERS)
    rest = sums.total() - sum(count for _, count in kept)
    values: Values = {labels: float(count) for labels, count in kept}
    if len(sums) > len(kept):
        values["other", "other"] = values.get(("other", "other"), 0) + rest
    return values
