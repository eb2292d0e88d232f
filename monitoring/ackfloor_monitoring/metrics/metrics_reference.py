"""Reference: docs/reference/metrics.md, written from the definitions.

    python -m ackfloor_monitoring.metrics.metrics_reference > docs/reference/metrics.md

A test compares the file with what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby

from ackfloor_monitoring.metrics.metric_definitions import METRICS, RUN_WIDE
from ackfloor_monitoring.metrics.metric_spec import MetricSpec
from ackfloor_monitoring.metrics.watch_definitions import REPORT_METRICS, WATCH_METRICS

_HEAD = """\
# Metrics

<!-- Written by `python -m ackfloor_monitoring.metrics.metrics_reference`; don't edit. -->

`ackfloor run` serves the metrics of all its workers at `/metrics` of one address (`--listen`,
by default `127.0.0.1:9600`), as Prometheus text or OpenMetrics, whichever is asked for.

- Every metric also has the label `worker`, the worker's number from 0, but those of the run as a
  whole: {run_wide}.
- `topic` is the source topic on what is counted for a handler, redeliveries included. On the
  gauges of a partition it is the partition's own topic: a source topic or a retry tier.
- A *position* is the next offset, an *offset* is a record's own. So the floor, the commit and
  the end of the log are `_position`, and what was settled last is an `_offset`.
- Series of a revoked partition, and all series of a worker that ended, vanish at once. The
  worker that takes its number counts from 0, which `rate()` and `increase()` understand.
- Around a rebalance two workers may both show a partition for about a second: write alerts on
  partitions as `max without (worker) (...)`.
- [Rules for alerts](../guide/runbooks.md) are in the package; `ackfloor_topic_info` joins what is
  known of a topic's partitions with what is known of its handler.
- Counters are for rates and alerts. What a worker counted in its last second before a crash is
  not in them; the topics and the committed positions are the truth.
- Every consume timeout in force is a bucket edge of `ackfloor_handler_duration_seconds`. Other
  edges: `ackfloor_monitoring.plugin.PrometheusPlugin(buckets=...)`.
- Where OpenMetrics is asked for, as Prometheus does, the newest failure of each series of
  `ackfloor_messages_failed_total` and `ackfloor_handler_duration_seconds` has the trace of its
  record as exemplar (label `trace_id`), if the record's `traceparent` says that it is kept.
- Never a label: key, offset, text of an error or a reason given by the user.
- [The app's own metrics](../guide/running.md#your-own-metrics) are on the same page.

Also at the address: `/livez` (fails only for what a restart cures), `/readyz` (says what isn't
well), `/state` (partitions, handlers and faults of every worker) and, for who has the run's token,
`/config` (each setting with its source), all JSON. Live and ready are 200, the contrary 503.
"""
_WATCH = """\
## `ackfloor spark watch`

It serves its own `/metrics` (`--listen`, by default `127.0.0.1:9610`), without the label `worker`.
Counters start at 0 when it does. [Spark](../spark.md#watch) says what is new and what is a surge;
rules for alerts are in [`spark.yml`](../guide/runbooks.md).
"""
_REPORT = """\
## `ackfloor spark report`

With `--metrics-file` it writes these to a file, for the textfile collector of the node exporter or
a Pushgateway ([a scheduled run](../guide/deployment.md#the-failure-history-every-night)). They are
of the whole table, or of the group that was asked for.
"""


def render() -> str:
    """The whole page."""
    run_wide = ", ".join(f"`{spec.name}`" for spec in RUN_WIDE)
    parts = [_HEAD.format(run_wide=run_wide), *_tables(METRICS), _WATCH, *_tables(WATCH_METRICS)]
    parts += [_REPORT, *_tables(REPORT_METRICS)]
    return "\n".join(parts)


def _tables(metrics: Iterable[MetricSpec]) -> Iterator[str]:
    for group, specs in groupby(metrics, key=lambda spec: spec.group):
        yield _table(group, list(specs))


def _table(group: str, specs: list[MetricSpec]) -> str:
    lines = [f"## {group}", "", "| metric | type | labels | what it says |", "|---|---|---|---|"]
    for spec in specs:
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        lines.append(f"| `{spec.name}` | {spec.kind} | {labels} | {_text(spec)} |")
    return "\n".join(lines) + "\n"


def _text(spec: MetricSpec) -> str:
    if not spec.buckets:
        return spec.help
    return f"{spec.help} Buckets: {' '.join(f'{edge:g}' for edge in spec.buckets)}."


if __name__ == "__main__":
    sys.stdout.write(render())
