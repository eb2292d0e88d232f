"""Exposition: the page `/metrics` of a registry, in the format that the client asks for.

It makes the page's metric families from their definitions.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ackfloor_monitoring.metrics.metric_spec import Kind, MetricSpec
from ackfloor_monitoring.serving.http_server import Page, Request, Response

_FAMILY: dict[Kind, Callable[..., Metric]] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


def family_of(spec: MetricSpec, labels: Sequence[str]) -> Metric:
    """A metric without samples."""
    return _FAMILY[spec.kind](spec.name, spec.help, labels=labels, unit=spec.unit)


def buckets_of(edges: Iterable[float], counts: Iterable[int]) -> list[Any]:
    """Buckets as the library takes them: upper bounds, and how many lie below each."""
    bounds = [*map(floatToGoString, edges), "+Inf"]
    return list(zip(bounds, map(float, accumulate(counts)), strict=True))


class _Chosen:
    """What of a registry bears certain names, as the encoders take it."""

    def __init__(self, registry: CollectorRegistry, names: frozenset[str]) -> None:
        self._registry = registry
        self._names = names

    def collect(self) -> Iterator[Metric]:
        """The metrics with the samples of these names; those that have none are left out."""
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if sample.name in self._names]
            if metric.samples:
                yield metric


@dataclass(frozen=True, slots=True, eq=False)  # a registry has its collectors as keys
class _Gauges(Collector):
    """Gauges whose values are known."""

    values: Mapping[MetricSpec, Mapping[tuple[str, ...], float]]

    def collect(self) -> Iterator[Metric]:
        """Each with its samples."""
        for spec, samples in self.values.items():
            family = family_of(spec, spec.labels)
            assert isinstance(family, GaugeMetricFamily)
            for labels, value in samples.items():
                family.add_metric(labels, value)
            yield family


def gauges_text(values: Mapping[MetricSpec, Mapping[tuple[str, ...], float]]) -> str:
    """Gauges as Prometheus text.

    Args:
        values: of each gauge its samples, by the values of its labels.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Gauges(values))
    return generate_latest(registry).decode()


def metrics_page(registry: CollectorRegistry) -> Page:
    """Prometheus text or OpenMetrics, packed where the client takes that; `name[]` chooses."""

    def page(request: Request) -> Response:
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (ValueError, TypeError, IndexError):
            # An Accept header with an invalid version: the library does not check it.
            encode, content_type = choose_encoder("")
        names = request.query.get("name[]")
        # Its own `restricted_registry` knows only collectors that name their metrics beforehand.
        chosen: Any = registry if names is None else _Chosen(registry, frozenset(names))
        body = encode(chosen)
        if gzip_accepted(request.headers.get("accept-encoding", "")):
            packed = gzip.compress(body, compresslevel=1)
            return Response(200, content_type, packed, (("Content-Encoding", "gzip"),))
        return Response(200, content_type, body)

    return page
