"""ackfloor_monitoring: metrics, health and state of a run, on one address.

`ackfloor run` finds `plugin.PLUGIN` through the entry point group
`ackfloor.monitoring`. In a worker process events become counters and histograms
(`metrics.worker_metrics`); a report of them and the newest snapshot goes to the supervisor about
once a second (`metrics.worker_report`); there the reports of all workers are one exposition
(`metrics.merging`), one verdict (`serving.health`) and one address (`serving.http_server`,
`metrics.run_metrics`). Every metric is defined once (`metrics.metric_definitions`,
`metrics.gauges`), and `metrics.metrics_reference` writes docs/reference/metrics.md from that.

The user's own metrics go the same way as text (`metrics.user_metrics`) and are summed over all
processes of the run (`metrics.user_totals`).

`spark` is separate: analytics of the retry and dead-letter topics.
"""

from __future__ import annotations
