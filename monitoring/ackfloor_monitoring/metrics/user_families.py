"""User families: the user's own metrics as they travel from process to process, and their sum.

Each process of a run counts for itself. Counters, histograms and summaries of all of them are
added up; everything else says something of one process and is told apart by a label. What a process
that has ended had counted stays in the sum, or Prometheus would take each end for a restart of the
whole run.

A run's page is the run's: what begins with `ackfloor_`, has a label that the run sets, or is one
thing here and another there is left out, with a note. `MOST_SERIES` bounds what one process can
bring; of more the oldest series stay, so that what is watched stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prometheus_client.metrics_core import Metric

from ackfloor_monitoring.metrics.metric_spec import PREFIX

#: Series of a process, as Prometheus counts them: each bucket of a histogram is one.
MOST_SERIES = 2_000
#: Notes beyond these say nothing new.
MOST_NOTES = 20
#: Labels that tell the processes of a run apart: a worker, and a handler's process of its own.
WORKER, PROCESS = "worker", "process"
_ADDED = frozenset({"counter", "histogram", "summary"})

Labels = tuple[tuple[str, str], ...]
#: What a series consists of: (suffix of the name, upper edge of a bucket) -> value.
Values = Mapping[tuple[str, str], float]
#: Name of a metric -> why it, or a part of it, is not on the page.
Notes = dict[str, str]


class FamiliesRefused(Exception):
    """These texts are no families of this version."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric of the user's with its series.

    Attributes:
        kind: its type as Prometheus names it, such as `counter`.
    """

    name: str
    kind: str
    help: str
    unit: str
    series: Mapping[Labels, Values]

    @property
    def added(self) -> bool:
        """Whether the values of several processes make a sum."""
        return self.kind in _ADDED

    def labelled(self, label: str, value: str) -> Family:
        """The same with one label more on each series; where values add up, unchanged."""
        if self.added:
            return self
        extra = (label, value)
        return replace(self, series={(extra, *each): v for each, v in self.series.items()})

    def metric(self) -> Metric:
        """As the exposition takes it.

        Raises:
            ValueError: its type is none.
        """
        metric = Metric(self.name, self.help, self.kind, self.unit)
        for labels, values in self.series.items():
            for (suffix, edge), value in values.items():
                every = {**dict(labels), "le": edge} if edge else dict(labels)
                metric.add_sample(self.name + suffix, every, value)
        return metric


def family_of(metric: Metric) -> Family:
    """A metric as the user's registry gives it.

    Raises:
        ValueError: it can't be on the run's page; the text says why.
    """
    if metric.name.startswith(PREFIX):
        raise ValueError(f"names that begin with {PREFIX} are the run's own")
    series: dict[Labels, dict[tuple[str, str], float]] = {}
    for sample in metric.samples:
        if sample.name == f"{metric.name}_created":
            continue
        if not sample.name.startswith(metric.name):
            raise ValueError(f"its sample {sample.name} bears another name")
        labels = dict(sample.labels)
        edge = labels.pop("le", "") if metric.type.endswith("histogram") else ""
        values = series.setdefault(tuple(sorted(labels.items())), {})
        values[sample.name.removeprefix(metric.name), edge] = float(sample.value)
    family = Family(metric.name, metric.type, metric.documentation, metric.unit, series)
    names = {name for labels in series for name, _ in labels}
    if family.added and "quantile" in names:
        raise ValueError("quantiles of several processes make no sum; use a histogram")
    if not family.added and names & {WORKER, PROCESS}:
        raise ValueError(f"a {metric.type} gets the labels {WORKER} and {PROCESS} from the run")
    return family


def merged(parts: Iterable[Iterable[Family]], notes: Notes) -> list[Family]:
    """The families of several processes as one; where two don't fit together the first stays."""
    found: dict[str, Family] = {}
    for part in parts:
        for family in part:
            known = found.get(family.name)
            found[family.name] = family if known is None else _sum(known, family, notes)
    return list(found.values())


def _sum(known: Family, other: Family, notes: Notes) -> Family:
    if known.kind != other.kind:
        note(notes, known.name, f"it is a {known.kind} and, elsewhere in the run, a {other.kind}")
        return known
    series = dict(known.series)
    for labels, values in other.series.items():
        before = series.get(labels)
        if before is None:
            series[labels] = values
        elif before.keys() != values.keys():
            note(notes, known.name, "its buckets are not the same in all processes of the run")
        else:
            series[labels] = {key: value + values[key] for key, value in before.items()}
    return replace(known, series=series)


def bounded(families: Iterable[Family], notes: Notes, most: int = MOST_SERIES) -> list[Family]:
    """The families with at most so many series in all, the first ones."""
    kept: list[Family] = []
    for family in families:
        fitting: dict[Labels, Values] = {}
        for labels, values in family.series.items():
            if len(values) > most:
                note(notes, family.name, f"series beyond {MOST_SERIES:,} of a worker are left out")
                break
            most -= len(values)
            fitting[labels] = values
        kept.append(replace(family, series=fitting))
    return kept


def note(notes: Notes, name: str, why: str) -> None:
    """Say of a metric why it is left out, once and not without end."""
    if len(notes) < MOST_NOTES:
        notes.setdefault(name, why)


def to_text(families: Iterable[Family], notes: Notes) -> str:
    """Serialise."""
    rows = [(f.name, f.kind, f.help, f.unit, _rows(f.series)) for f in families]
    return json.dumps([rows, notes], separators=(",", ":"))


def _rows(series: Mapping[Labels, Values]) -> list[Any]:
    return [(labels, [(*at, v) for at, v in values.items()]) for labels, values in series.items()]


def from_text(text: str) -> tuple[Sequence[Family], Notes]:
    """Read what `to_text` wrote; nothing where the text is empty.

    Raises:
        FamiliesRefused: it is something else.
    """
    if not text:
        return (), {}
    try:
        rows, notes = json.loads(text)
        families = [_family(*row) for row in rows]
        for family in families:
            # A type that is none is found here, not by whoever asks for the page.
            family.metric()
        return families, {str(name): str(why) for name, why in notes.items()}
    except (ValueError, TypeError, AttributeError) as exc:
        raise FamiliesRefused(f"no metrics: {exc!r}") from exc


def _family(name: str, kind: str, text: str, unit: str, rows: Iterable[Any]) -> Family:
    series: dict[Labels, Values] = {}
    for labels, values in rows:
        key = tuple((str(label), str(value)) for label, value in labels)
        series[key] = {(str(suffix), str(edge)): float(v) for suffix, edge, v in values}
    return Family(str(name), str(kind), str(text), str(unit), series)
