"""PLUGIN: `ackfloor run` finds it through the entry point group `ackfloor.monitoring`.

For other bucket edges or health limits make your own plugin:

    PLUGIN = PrometheusPlugin(buckets={"ackfloor_handler_duration_seconds": (0.1, 1, 30)})

and name it in your package's entry points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from ackfloor import ConfigError
from ackfloor.observe import MonitoringPlugin, RunMonitor, WorkerMonitor
from ackfloor_monitoring.metrics.metric_definitions import HISTOGRAMS
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.user_metrics import UserMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from ackfloor_monitoring.serving.health import HealthRules


class PrometheusPlugin:
    """Metrics for Prometheus, and health.

    Args:
        buckets: other edges for a histogram, by its full name.
        rules: other limits for health.
    """

    def __init__(
        self,
        buckets: Mapping[str, Iterable[float]] | None = None,
        rules: HealthRules | None = None,
    ) -> None:
        self._buckets = {name: _edges(name, edges) for name, edges in (buckets or {}).items()}
        self._rules = rules or HealthRules()

    def worker_monitor(self, worker: int, group: str) -> WorkerMonitor:  # noqa: ARG002
        """Made once in each worker process; the supervisor adds the worker label."""
        user = UserMetrics()
        user.start()
        return WorkerMetrics(self._buckets, user=user)

    def run_monitor(self, group: str, workers: int) -> RunMonitor:
        """Made once in the supervisor."""
        return RunMetrics(group, workers, rules=self._rules)


def _edges(name: str, edges: Iterable[float]) -> tuple[float, ...]:
    field, known = f"buckets[{name!r}]", sorted(spec.name for spec in HISTOGRAMS)
    if name not in known:
        raise ConfigError(field, edges, "no such histogram", f"one of {', '.join(known)}")
    ascending = tuple(edges)
    if not ascending or list(ascending) != sorted({*ascending}) or ascending[0] < 0:
        raise ConfigError(
            field, ascending, "edges must ascend from above 0", "sort them, in seconds"
        )
    if ascending[-1] == inf:
        raise ConfigError(field, ascending, "infinity is always there", "leave it out")
    return ascending


PLUGIN: MonitoringPlugin = PrometheusPlugin()
