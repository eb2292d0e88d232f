"""UserMetrics: in a worker, reads the user's registry and what the handlers' processes report.

What is read is `prometheus_client.REGISTRY`, where every metric is that is declared without a
registry of its own. A thread reads it about once a second: a collector of the user's may be slow,
and the owner thread waits for nobody. It alone has the state; pools leave their processes' reports
and ends in its mailbox.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import cache
from weakref import ref

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, REGISTRY
from prometheus_client.registry import Collector, CollectorRegistry

from ackfloor_monitoring.metrics.user_families import (
    PROCESS,
    FamiliesRefused,
    Family,
    Notes,
    bounded,
    family_of,
    from_text,
    merged,
    note,
    to_text,
)

log = logging.getLogger("ackfloor.monitoring")

#: Seconds between two looks at the registry.
EVERY_S = 1.0


@cache
def _of_every_process() -> frozenset[str]:
    """The names of what the library itself registers: memory and collections of one process."""
    collectors: tuple[Collector, ...] = (GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR)
    return frozenset(metric.name for each in collectors for metric in each.collect())


def read_registry(registry: CollectorRegistry, notes: Notes) -> list[Family]:
    """The metrics that users have declared in a registry."""
    found: list[Family] = []
    try:
        for metric in registry.collect():
            if metric.name in _of_every_process() or not metric.samples:
                continue
            try:
                found.append(family_of(metric))
            except ValueError as exc:
                note(notes, metric.name, str(exc))
    except Exception as exc:  # noqa: BLE001 -- a collector of the user's may raise anything
        note(notes, "collector", f"one of the registry has failed: {type(exc).__name__}: {exc}")
    return found


def registry_text(registry: CollectorRegistry = REGISTRY) -> str:
    """The metrics of a handler's process as its worker takes them."""
    notes: Notes = {}
    families = bounded(read_registry(registry, notes), notes)
    return to_text(families, notes) if families or notes else ""


class _HandlerProcess:
    """What a handler's process last reported.

    Attributes:
        number: tells it apart from the worker's others; of one that has ended it is given again.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.families: list[Family] = []
        self.notes: Notes = {}


class UserMetrics:
    """The user's metrics in one worker and its handlers' processes.

    Attributes:
        text: them, as the run's monitor reads them; empty while there are none.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.text = ""
        self._registry = registry
        self._mailbox: deque[Callable[[], None]] = deque()
        self._processes: dict[int, _HandlerProcess] = {}
        #: What processes that have ended had counted.
        self._ended: list[Family] = []
        self._logged: set[str] = set()

    def start(self) -> None:
        """Read the registry from now on, until the calling thread ends, which is the worker's.

        A worker inside a program has a thread of its own, and ends before the program does. Of a
        worker that was replaced on the same thread, nobody has the metrics any more.
        """
        of = (ref(self), threading.current_thread())
        threading.Thread(
            target=_read_while_wanted, args=of, name="ackfloor:user-metrics", daemon=True
        ).start()

    def process_reported(self, pid: int, report: str) -> None:
        """Take the newest report of a handler's process; any thread may call."""
        self._mailbox.append(lambda: self._take(pid, report))

    def process_ended(self, pid: int) -> None:
        """A handler's process is gone; any thread may call."""
        self._mailbox.append(lambda: self._end(pid))

    def collect(self) -> None:
        """Make `text` anew."""
        while self._mailbox:
            self._mailbox.popleft()()
        notes: Notes = {}
        own = read_registry(self._registry, notes)
        processes = list(self._processes.values())
        parts = [[f.labelled(PROCESS, str(p.number)) for f in p.families] for p in processes]
        families = bounded(merged([own, *parts, self._ended], notes), notes)
        for process in processes:
            for name, why in process.notes.items():
                note(notes, name, why)
        for name in notes.keys() - self._logged:
            self._logged.add(name)
            log.warning("metric %s is not, or not all, on /metrics: %s", name, notes[name])
        self.text = to_text(families, notes) if families or notes else ""

    def _take(self, pid: int, report: str) -> None:
        try:
            families, notes = from_text(report)
        except FamiliesRefused as exc:
            families, notes = (), {"process": f"its report can't be read: {exc}"}
        if pid not in self._processes:
            taken = {process.number for process in self._processes.values()}
            free = next(n for n in range(len(taken) + 1) if n not in taken)
            self._processes[pid] = _HandlerProcess(free)
        # It limits itself, but it is the user's own process.
        self._processes[pid].families = bounded(families, notes)
        self._processes[pid].notes = notes

    def _end(self, pid: int) -> None:
        process = self._processes.pop(pid, None)
        if process is not None:
            counted = [family for family in process.families if family.added]
            self._ended = bounded(merged([counted, self._ended], {}), {})


def _read_while_wanted(wanted: ref[UserMetrics], worker: threading.Thread) -> None:
    """What the thread does; it must not be what keeps them."""
    while (metrics := wanted()) is not None:
        try:
            metrics.collect()
        except Exception:
            log.exception("the app's own metrics can't be read; they stay as they were")
            return
        del metrics
        # Not until the objects of the worker are collected, which are in cycles.
        worker.join(EVERY_S)
        if not worker.is_alive():
            return
