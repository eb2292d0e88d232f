"""Watching the run from outside: its `/state` and `/metrics`, as any operator would.

What a worker counted ends with it, so counters are summed up as Prometheus does: a value that
went down began anew.
"""

from __future__ import annotations

import http.client
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ackfloor_handlers.demo.account.facts import Place

#: Counter -> the label that the demo tells apart.
COUNTERS = {
    "ackfloor_messages_acked_total": "",
    "ackfloor_messages_parked_total": "reason",
    "ackfloor_messages_dead_lettered_total": "reason",
    "ackfloor_workers_ended_total": "",
}
ACKED, PARKED, DEAD_LETTERED, WORKER_EXITS = COUNTERS
_ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as its worker last saw it."""

    place: Place
    worker: int
    floor: int
    position: int
    gaps: int
    open: int
    left: int
    tier: bool
    overdue: bool


@dataclass(frozen=True, slots=True)
class RunView:
    """The whole run as `/state` shows it.

    Attributes:
        pids: worker -> process id.
        taken_ms: worker -> when its snapshot was taken.
    """

    pids: Mapping[int, int]
    taken_ms: Mapping[int, int]
    partitions: tuple[PartitionView, ...]
    faults: tuple[str, ...]

    def owned(self, worker: int) -> list[Place]:
        """The partitions of one worker."""
        return [p.place for p in self.partitions if p.worker == worker]

    def owners(self, topic: str) -> set[int]:
        """The workers that have partitions of a topic."""
        return {p.worker for p in self.partitions if p.place[0] == topic}

    def has_recovered(self, places: Iterable[Place], since_ms: int) -> bool:
        """Whether all went on after `since_ms`: every partition owned, no fault, none overdue."""
        fresh = all(taken_ms > since_ms for taken_ms in self.taken_ms.values())
        owned = {p.place for p in self.partitions}
        overdue = any(p.overdue for p in self.partitions)
        return fresh and owned >= set(places) and not self.faults and not overdue


NOTHING = RunView({}, {}, (), ())
#: A waiting record that is due for so long is overdue.
OVERDUE_MS = 500


def read_state(tree: Mapping[str, Any]) -> RunView:
    """What `/state` says."""
    workers = {int(name): worker for name, worker in tree["workers"].items() if worker}
    return RunView(
        pids={number: worker["pid"] for number, worker in workers.items()},
        taken_ms={number: worker["taken_ms"] for number, worker in workers.items()},
        partitions=tuple(
            sorted(
                (
                    _partition(number, part, worker["taken_ms"])
                    for number, worker in workers.items()
                    for part in worker["partitions"]
                ),
                key=lambda p: p.place,
            )
        ),
        faults=tuple(
            f"{fault['kind']}: {fault['subject']}: {fault['message']}"
            for worker in workers.values()
            for fault in worker["faults"]
        ),
    )


def _partition(worker: int, part: Mapping[str, Any], taken_ms: int) -> PartitionView:
    end, position, open_count = part["high_watermark"], part["position"], part["open_count"]
    due_ms = part["next_due_ms"]
    return PartitionView(
        place=(part["topic"], part["partition"]),
        worker=worker,
        floor=part["floor"],
        position=position,
        gaps=part["gap_count"],
        open=open_count,
        left=open_count + (0 if end is None else max(0, end - position)),
        tier=part["tier_s"] is not None,
        overdue=due_ms is not None and due_ms < taken_ms - OVERDUE_MS,
    )


class Counts:
    """Counters of the whole run, across workers that die and start again."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._sums: defaultdict[str, defaultdict[str, float]] = defaultdict(
            lambda: defaultdict(float)
        )

    def read(self, exposition: str) -> None:
        """Take in what `/metrics` says."""
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                if sample.name in COUNTERS:
                    self._take(sample.name, sample.labels, sample.value)

    def _take(self, name: str, labels: Mapping[str, str], value: float) -> None:
        series = (name, tuple(sorted(labels.items())))
        before = self._seen.get(series, 0.0)
        self._seen[series] = value
        self._sums[name][labels.get(COUNTERS[name], "")] += value - before * (value >= before)

    def by_label(self, name: str) -> dict[str, int]:
        """A counter by the label that the demo tells apart, the largest first."""
        sums = {label: int(total) for label, total in self._sums[name].items() if total}
        return dict(sorted(sums.items(), key=lambda entry: -entry[1]))

    def total(self, name: str) -> int:
        """A counter as a whole."""
        return int(sum(self._sums[name].values()))


def fetch(address: str, page: str) -> str | None:
    """A page of the run; None while it does not answer."""
    connection = http.client.HTTPConnection(address, timeout=_ANSWER_S)
    try:
        connection.request("GET", page)
        response = connection.getresponse()
        body = response.read().decode()
        return body if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def fetch_state(address: str) -> RunView | None:
    """`/state`, None while it does not answer."""
    body = fetch(address, "/state")
    return None if body is None else read_state(json.loads(body))
