"""The plugin as the framework finds it, and what an observer may import."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from math import inf

import pytest

import ackfloor.observe
from ackfloor import ConfigError
from ackfloor.observe import MonitoringPlugin, RecordsAcked
from ackfloor_monitoring.metrics.metrics_reference import render
from ackfloor_monitoring.metrics.worker_report import Report
from ackfloor_monitoring.plugin import PLUGIN, PrometheusPlugin
from ackfloor_monitoring.serving.health import HealthRules
from tests.monitoring.samples import SNAPSHOT

DURATION = "ackfloor_handler_duration_seconds"


def test_the_entry_point_leads_to_the_plugin() -> None:
    """`ackfloor run` finds this plugin by its group."""
    found = [point.load() for point in entry_points(group="ackfloor.monitoring", name="prometheus")]
    assert found == [PLUGIN]


def test_a_worker_and_its_run_speak_the_same_report() -> None:
    """What a worker's monitor reports, the run's monitor takes and serves until it is gone."""
    plugin: MonitoringPlugin = PLUGIN
    worker, run = plugin.worker_monitor(0, "billing"), plugin.run_monitor("billing", 1)
    worker.observe([RecordsAcked("orders", "bill", [0.1], [0.1], [0.1])])
    worker.snapshot(SNAPSHOT)
    address = run.start("127.0.0.1:0")
    try:
        run.update(0, worker.report())
        run.worker_gone(0)
    finally:
        run.stop()
    assert address.startswith("127.0.0.1:")


def test_bucket_edges_can_be_chosen() -> None:
    """A plugin of one's own has its own edges; the consume timeout is added to them."""
    worker = PrometheusPlugin(buckets={DURATION: (1, 2)}).worker_monitor(0, "billing")
    worker.snapshot(SNAPSHOT)
    assert Report.from_bytes(worker.report()).edges[DURATION] == [1, 2, 45.0]


def test_health_limits_can_be_chosen() -> None:
    """A plugin of one's own has its own idea of too long."""
    rules = HealthRules(turn_limit_s=-1.0)  # a turn that has just been made is too long ago
    run = PrometheusPlugin(rules=rules).run_monitor("billing", 1)
    worker = PLUGIN.worker_monitor(0, "billing")
    worker.snapshot(SNAPSHOT)
    run.update(0, worker.report())
    assert not run.health().live  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "edges"),
    [
        ("ackfloor_no_such_seconds", (1.0,)),
        ("ackfloor_messages_acked_total", (1.0,)),
        (DURATION, ()),
        (DURATION, (2.0, 1.0)),
        (DURATION, (1.0, 1.0)),
        (DURATION, (-1.0, 1.0)),
        (DURATION, (1.0, inf)),
    ],
)
def test_bucket_edges_that_make_no_sense_are_refused(name: str, edges: tuple[float, ...]) -> None:
    """Unknown histograms and edges that don't ascend are refused by name, with the fix."""
    with pytest.raises(ConfigError, match="buckets"):
        PrometheusPlugin(buckets={name: edges})


def test_the_reference_is_printed_by_its_module() -> None:
    """The command that the page names writes the page."""
    done = subprocess.run(
        [sys.executable, "-m", "ackfloor_monitoring.metrics.metrics_reference"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout == render()


def test_observe_exports_what_an_observer_needs() -> None:
    """Every event of the catalogue is exported, the list is sorted, and each name exists."""
    names = ackfloor.observe.__all__
    # Constants first, as the linter has it.
    assert names == sorted(names, key=lambda name: (not name.isupper(), name))
    assert all(hasattr(ackfloor.observe, name) for name in names)
    events = {kind.__name__ for kind in ackfloor.observe.Event.__args__}
    assert events <= set(names)


def test_observing_loads_no_kafka_client() -> None:
    """A plugin can be imported where neither Kafka nor Spark is."""
    code = (
        "import sys, ackfloor_monitoring.plugin; "
        "print([m for m in ('confluent_kafka', 'pyspark', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "[]"
