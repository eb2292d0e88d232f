"""The numbers of a watch: bounded, what Prometheus reads, and what the alert rules ask for."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ackfloor_monitoring.metrics.watch_definitions import WATCH_METRICS
from ackfloor_monitoring.metrics.watch_metrics import MOST_HANDLERS, Progress, WatchMetrics
from ackfloor_monitoring.spark.spark_errors import StreamBroken

RULES = (files("ackfloor_monitoring") / "alerts" / "spark.yml").read_text("utf-8")
# What Prometheus adds to each sample that it scrapes.
OF_THE_TARGET = {"instance", "job"}

Exposed = dict[tuple[str, frozenset[tuple[str, str]]], float]


def exposed(metrics: WatchMetrics) -> Exposed:
    """Every sample that is served, by name and labels."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(metrics: WatchMetrics, name: str, **labels: str) -> float | None:
    """One of them."""
    return exposed(metrics).get((f"ackfloor_spark_{name}", frozenset(labels.items())))


@pytest.fixture
def metrics() -> WatchMetrics:
    """Of a watch that starts at 1,000."""
    return WatchMetrics(lambda: 1_000.0)


def full(metrics: WatchMetrics) -> WatchMetrics:
    """The same when everything has happened."""
    metrics.progressed(Progress(5, 1.5, 0.5, {"orders--billing--dlq": 7}))
    metrics.failed(StreamBroken("gone"))
    metrics.stored("billing", "bill", "dlq", "exhausted", 5)
    metrics.found_new("billing", "bill")
    metrics.found_surge("billing", "bill")
    metrics.surging({("billing", "bill"): 1})
    return metrics


def test_every_metric_of_the_table_is_served_with_its_labels(metrics: WatchMetrics) -> None:
    """No more and no fewer."""
    served = {
        (re.sub("_(bucket|count|sum)$", "", name), tuple(sorted(dict(labels).keys() - {"le"})))
        for name, labels in exposed(full(metrics))
    }
    assert served == {(spec.name, tuple(sorted(spec.labels))) for spec in WATCH_METRICS}


def test_an_idle_stream_is_one_that_lives(metrics: WatchMetrics) -> None:
    """Its lag is none; batches of no record are not counted."""
    metrics.progressed(Progress(5, 1.5, 0.5, {"t": 7}))
    metrics.progressed(Progress(0, 0.1, 0.0, {"t": 3}))
    assert value(metrics, "lag_offsets", topic="t") == 3
    metrics.idle()
    assert value(metrics, "lag_offsets", topic="t") == 0
    assert value(metrics, "batches_total") == 1
    assert value(metrics, "batch_duration_seconds_sum") == 1.5
    assert value(metrics, "last_progress_timestamp_seconds") == 1_000


def test_what_alerts_watch_begins_at_0(metrics: WatchMetrics) -> None:
    """An increase from nothing is not seen."""
    metrics.stored("billing", "bill", "dlq", "exhausted", 0)
    metrics.surging({})
    named = {"group": "billing", "handler": "bill"}
    assert value(metrics, "failures_total", **named, stage="dlq", reason="exhausted") == 0
    for name in ("new_fingerprints_total", "surges_total", "surging_fingerprints"):
        assert value(metrics, name, **named) == 0


def test_labels_are_bounded_whatever_headers_say(metrics: WatchMetrics) -> None:
    """Handlers beyond the first, and reasons that are none of ours, are `other`; none is lost."""
    for number in range(1_000):
        metrics.stored("billing", f"h{number}", "dlq", f"because {number}", 1)
        metrics.found_new("billing", f"h{number}")
    metrics.surging({("billing", f"h{number}"): 1 for number in range(1_000)})
    of_failures = {
        labels: count
        for (name, labels), count in exposed(metrics).items()
        if name == "ackfloor_spark_failures_total"
    }
    assert len(of_failures) == MOST_HANDLERS + 1
    assert sum(of_failures.values()) == 1_000
    other = {"group": "other", "handler": "other"}
    assert value(metrics, "new_fingerprints_total", **other) == 1_000 - MOST_HANDLERS
    assert value(metrics, "surging_fingerprints", **other) == 1_000 - MOST_HANDLERS


def expressions() -> dict[str, str]:
    """The expression of each alert, as it stands in the file."""
    found = {}
    for rule in RULES.split("- alert: ")[1:]:
        text = re.search(r"expr: (?:>-\n)?(.*?)\n +(?:for|labels):", rule, re.DOTALL)
        assert text is not None
        found[rule.partition("\n")[0]] = text[1]
    return found


@pytest.mark.parametrize("alert", expressions())
def test_an_alert_asks_for_what_is_served(alert: str, metrics: WatchMetrics) -> None:
    """Each name is that of a sample, and each label one that it has."""
    expression = expressions()[alert]
    names = set(re.findall(r"\b[a-z_]*ackfloor\w*", expression))
    served = {name: {key for key, _ in labels} for name, labels in exposed(full(metrics))}
    assert names
    assert names <= served.keys()
    labels = set.union(*(served[name] for name in names)) | OF_THE_TARGET
    matchers = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)
    kept = [
        name.strip()
        for listed in re.findall(r"(?:by|without|on)\s*\(([^)]*)\)", expression)
        for name in listed.split(",")
    ]
    assert {*matchers, *kept} <= labels
    rule = RULES.partition(f"- alert: {alert}\n")[2].partition("- alert:")[0]
    told = set(re.findall(r"\$labels\.(\w+)", rule))
    # An aggregation leaves only what it names.
    assert told <= (set(kept) or labels)


def test_the_alerts_are_these() -> None:
    """What the file is for; and each says how bad it is and what to make of it."""
    assert set(expressions()) == {
        "AckfloorSparkLag", "AckfloorSparkStalled", "AckfloorSparkAbsent",
        "AckfloorNewFingerprint", "AckfloorFailureSurge", "AckfloorDeadLetters",
    }  # fmt: skip
    for part in ("severity:", "summary:", "description:"):
        assert RULES.count(part) == len(expressions())
