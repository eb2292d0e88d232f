"""ackfloor_monitoring: metrics, health and state of a run, on one address.

`plugin.PLUGIN` is what `ackfloor run` finds through the entry point group
`ackfloor.monitoring`. In a worker process events become counters and histograms (`worker`); a
report of them and the newest snapshot goes to the supervisor about once a second (`report`);
there the reports of all workers are one exposition (`merge`), one verdict (`health`) and one
address (`server`, `run`). Every metric is defined once (`definitions`, `gauges`), and
`reference` writes docs/reference/metrics.md from that.

`spark` is apart from all this: analytics of the retry and dead-letter topics.
"""

from __future__ import annotations
