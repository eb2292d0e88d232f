"""The table of metrics: names, units, buckets, and the page made from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ackfloor_monitoring.metrics.gauges import HANDLER_GAUGES, PARTITION_GAUGES, WORKER_GAUGES
from ackfloor_monitoring.metrics.metric_definitions import COUNTERS, HISTOGRAMS, METRICS
from ackfloor_monitoring.metrics.metric_spec import Kind, MetricSpec
from ackfloor_monitoring.metrics.metrics_reference import render
from ackfloor_monitoring.metrics.watch_definitions import WATCH_METRICS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
UNBOUNDED = {"fingerprint", "key", "offset", "message", "reason_text", "tenant", "token"}


@pytest.mark.parametrize("spec", [*METRICS, *WATCH_METRICS], ids=lambda spec: spec.name)
def test_a_metric_keeps_the_rules_of_names(spec: MetricSpec) -> None:
    """Prefix, base unit, `_total` for counters alone, no unit that isn't base, no suffix that
    belongs to histograms, bounded labels that start with the group, and a sentence of help."""
    assert re.fullmatch(r"ackfloor(_[a-z0-9]+)+", spec.name)
    assert spec.name.endswith("_total") == (spec.kind is Kind.COUNTER)
    assert not re.search(r"_(ms|milliseconds|minutes|kb|count|sum|bucket)$", spec.name)
    assert spec.name.removesuffix("_total").endswith(spec.unit)
    # A watch looks at many groups, and its own health is of none.
    assert "group" not in spec.labels[1:]
    assert spec in WATCH_METRICS or spec.labels[0] == "group"
    assert not UNBOUNDED & set(spec.labels)
    assert spec.help.endswith(".")
    assert (spec.kind is Kind.HISTOGRAM) == bool(spec.buckets)


@pytest.mark.parametrize("spec", METRICS, ids=lambda spec: spec.name)
def test_positions_and_offsets_never_mix(spec: MetricSpec) -> None:
    """What is a next offset is called a position, what is a record's own an offset."""
    if spec.name.endswith("_position"):
        assert "offset" not in spec.name
    if spec.name.endswith("_offset"):
        assert "position" not in spec.name


def test_names_are_unique_and_all_are_listed() -> None:
    """No metric is defined twice, and none stands outside the table."""
    names = [spec.name for spec in (*METRICS, *WATCH_METRICS)]
    assert len(names) == len(set(names))
    gauges = {entry.spec for entry in (*PARTITION_GAUGES, *HANDLER_GAUGES, *WORKER_GAUGES)}
    assert {*COUNTERS, *HISTOGRAMS, *gauges} <= set(METRICS)


@pytest.mark.parametrize("spec", HISTOGRAMS, ids=lambda spec: spec.name)
def test_buckets_ascend(spec: MetricSpec) -> None:
    """Edges are above zero, ascending, each once."""
    assert list(spec.buckets) == sorted(set(spec.buckets))
    assert spec.buckets[0] > 0


def test_promises_lie_on_bucket_edges() -> None:
    """100 ms for a timeout, 250 ms for a retry and the default consume timeout of 60 s can be
    read from the buckets without interpolation."""
    edges = {spec.name.removeprefix("ackfloor_"): set(spec.buckets) for spec in HISTOGRAMS}
    assert 0.1 in edges["timeout_lateness_seconds"]
    assert 0.1 in edges["park_delay_seconds"]
    assert 0.25 in edges["retry_lateness_seconds"]
    assert 60.0 in edges["handler_duration_seconds"]


def test_the_reference_is_up_to_date() -> None:
    """docs/reference/metrics.md is what the definitions give."""
    assert PAGE.read_text() == render(), (
        "run: python -m ackfloor_monitoring.metrics.metrics_reference > docs/reference/metrics.md"
    )
