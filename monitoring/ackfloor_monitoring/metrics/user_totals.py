"""UserTotals: in the supervisor, the user's metrics of all workers, also of those that have ended.

Texts are read when somebody asks for the page, and when a worker ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ackfloor_monitoring.metrics.user_families import (
    WORKER,
    FamiliesRefused,
    Family,
    Notes,
    bounded,
    from_text,
    merged,
    note,
)


@dataclass(frozen=True, slots=True)
class UserTotals:
    """The newest texts of the workers that run, and what others had counted.

    Attributes:
        texts: worker -> its own, as `UserMetrics.text` has it.
        ended: the sums of workers that have ended.
    """

    texts: Mapping[int, str]
    ended: Sequence[Family] = ()

    def families(self) -> tuple[list[Family], Notes]:
        """All metrics of the run, and what is left out of them."""
        notes: Notes = {}
        parts: list[Iterable[Family]] = []
        for worker, text in sorted(self.texts.items()):
            families, said = _read(text)
            parts.append([family.labelled(WORKER, str(worker)) for family in families])
            for name, why in said.items():
                note(notes, name, why)
        return merged([*parts, self.ended], notes), notes

    def counted(self, text: str) -> list[Family]:
        """What stays of a worker that has ended with this text, and of those before it."""
        families, _ = _read(text)
        return bounded(merged([[f for f in families if f.added], self.ended], {}), {})


def _read(text: str) -> tuple[Sequence[Family], Notes]:
    try:
        return from_text(text)
    except FamiliesRefused as exc:
        return (), {"report": str(exc)}


class UserCollector(Collector):
    """The user's metrics on the run's page, read anew for each scrape."""

    def __init__(self, totals: Callable[[], UserTotals]) -> None:
        self._totals = totals

    def describe(self) -> Iterable[Metric]:
        """Nothing: which there are is known only when a worker has reported."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The metrics that have series."""
        families, _ = self._totals().families()
        return [family.metric() for family in families if family.series]
