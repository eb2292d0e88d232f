"""MetricSpec: what one metric is, in one place, for the exposition and for the reference.

Names follow Prometheus's rules: the prefix `ackfloor_`, base units as suffix, `_total` for
counters. A *position* is the next offset, an *offset* is a record's own, and the two never mix in
one metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "ackfloor_"

#: Labels of what is counted for a handler; `topic` is the source topic, also for redeliveries.
HANDLER = ("group", "topic", "handler")
#: Labels of an assigned partition; `topic` is its own topic: a source topic or a retry tier.
PARTITION = ("group", "topic", "partition")


class Kind(StrEnum):
    """The Prometheus types in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class MetricSpec:
    """One metric; there is one object of each, so that it is a quick key.

    Attributes:
        group: the heading it stands under in the reference.
        labels: without `worker`, which every metric of a worker carries as well.
        unit: base unit, and the suffix of the name; empty where there is none.
        buckets: upper edges of a histogram, ascending, without infinity.
    """

    group: str
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    unit: str = ""
    buckets: tuple[float, ...] = ()


def counter(group: str, name: str, labels: tuple[str, ...], text: str) -> MetricSpec:
    """A counter; `name` comes without prefix and `_total`."""
    return MetricSpec(group, f"{PREFIX}{name}_total", Kind.COUNTER, labels, text, _unit(name))


def gauge(group: str, name: str, labels: tuple[str, ...], text: str) -> MetricSpec:
    """A gauge; `name` comes without prefix."""
    return MetricSpec(group, PREFIX + name, Kind.GAUGE, labels, text, _unit(name))


def histogram(
    group: str, name: str, labels: tuple[str, ...], text: str, buckets: tuple[float, ...]
) -> MetricSpec:
    """A histogram of seconds; `name` comes without prefix."""
    return MetricSpec(group, PREFIX + name, Kind.HISTOGRAM, labels, text, "seconds", buckets)


def _unit(name: str) -> str:
    return next((unit for unit in ("seconds", "bytes") if name.endswith("_" + unit)), "")
