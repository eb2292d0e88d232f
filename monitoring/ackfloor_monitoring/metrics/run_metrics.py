"""RunMetrics: in the supervisor, keeps the newest report of each worker and serves them.

The supervisor's loop calls `update` and `worker_gone`; the server's threads handle requests. They
share two small dictionaries under one lock: reports are immutable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from prometheus_client import CollectorRegistry

from ackfloor import __version__
from ackfloor.observe import Control, PageAnswer, PageRequest, Progress, SettingsState, Snapshot
from ackfloor_monitoring.metrics.exposition import metrics_page
from ackfloor_monitoring.metrics.merging import Look, RunCollector
from ackfloor_monitoring.metrics.user_families import Family
from ackfloor_monitoring.metrics.user_totals import UserCollector, UserTotals
from ackfloor_monitoring.metrics.worker_report import Report, ReportRefused, as_tree
from ackfloor_monitoring.serving.health import BLOCKED, Health, HealthRules, WorkerFacts, judge
from ackfloor_monitoring.serving.http_server import (
    Page,
    PageServer,
    Request,
    Response,
    answer,
    not_allowed,
)
from ackfloor_monitoring.serving.notes import (
    lane_notes,
    metric_notes,
    pause_notes,
    settings_notes,
    slot_notes,
)

log = logging.getLogger("ackfloor.monitoring")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class RunMetrics:
    """One address for all workers of a run.

    Args:
        workers: how many there should be.
        registry: where the metrics are collected from; a private one by default.
        now_ms: the wall clock.
        monotonic: the clock of ages, in seconds.
    """

    def __init__(
        self,
        group: str,
        workers: int,
        *,
        rules: HealthRules | None = None,
        registry: CollectorRegistry | None = None,
        now_ms: Callable[[], int] = _wall_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        #: Tells it from every other run, at whichever of its addresses it is asked.
        self._id = uuid4().hex
        self._workers = workers
        self._rules = rules or HealthRules()
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._lock = Lock()
        self._reports: dict[int, Report] = {}
        #: When each of them arrived: a worker reports within a turn, and its own wall clock gives
        #: no age.
        self._turned_s: dict[int, float] = {}
        #: Since when each of them has reported, without a break, that its event loop is blocked.
        self._blocked_s: dict[int, float] = {}
        self._gone_s: dict[int, float] = {}
        #: How many processes of each worker have ended, and when the last one did.
        self._ends: dict[int, tuple[int, float]] = {}
        #: A worker, or None for the run itself -> why it can't start yet.
        self._waits: dict[int | None, str] = {}
        self._worker_exits = 0
        #: What workers that have ended had counted for the user.
        self._user_ended: list[Family] = []
        self._refused: set[int] = set()
        self._registry = registry or CollectorRegistry(auto_describe=False)
        self._settings = SettingsState()
        self._look: Look | None = None
        self._collect()
        self._controls: dict[str, Control] = {}
        self._pages = self._all_pages()
        self._server = PageServer(self._pages, self._controls)

    def _collect(self) -> None:
        """Register what counts for the whole run."""
        run = RunCollector(
            self._group,
            self._workers,
            self.reports,
            lambda: self._worker_exits,
            lambda: self._settings,
            lambda: self._look,
            self.turn_ages_s,
        )
        self._registry.register(run)
        self._registry.register(UserCollector(self.user_totals))

    def start(self, listen: str, certificate: Path | None = None, key: Path | None = None) -> str:
        """Serve on `host:port` and return the address served; over TLS with a certificate."""
        return self._server.start(listen, certificate, key)

    def stop(self) -> None:
        """Stop serving."""
        self._server.stop()

    def page(self, request: PageRequest) -> PageAnswer:
        """A page for whoever serves it elsewhere."""
        if request.method in {"GET", "HEAD"}:
            asked = Request(request.headers, parse_qs(request.query))
            response = answer(self._pages, request.path, asked)
        else:
            response = not_allowed(request.method)
        return PageAnswer(response.status, response.all_headers(), response.body)

    def waits(self, worker: int | None, why: str) -> None:
        """Why a worker, or the run itself (None), can't start yet; empty when it can."""
        with self._lock:
            self._waits[worker] = why

    def update(self, worker: int, report: bytes) -> None:
        """Take a worker's newest report; one that can't be read is logged once and ignored."""
        try:
            read = Report.from_bytes(report)
        except ReportRefused as exc:
            if worker not in self._refused:
                self._refused.add(worker)
                log.warning("worker %d sends reports that can't be read: %s", worker, exc)
            return
        now_s = self._monotonic()
        with self._lock:
            self._reports[worker] = read
            self._turned_s[worker] = now_s
            if read.snapshot and any(fault.kind == BLOCKED for fault in read.snapshot.faults):
                self._blocked_s.setdefault(worker, now_s)
            else:
                self._blocked_s.pop(worker, None)
            self._gone_s.pop(worker, None)

    def worker_gone(self, worker: int) -> None:
        """A worker process ended: its series end with it."""
        # No other thread changes them: they are read and added up before others have to wait.
        last = self._reports.get(worker)
        ended = self._user_ended if last is None else self.user_totals().counted(last.user)
        now_s = self._monotonic()
        with self._lock:
            self._reports.pop(worker, None)
            self._user_ended = ended
            self._blocked_s.pop(worker, None)
            self._gone_s.setdefault(worker, now_s)
            self._ends[worker] = (self._ends.get(worker, (0, 0.0))[0] + 1, now_s)
            self._refused.discard(worker)
            self._worker_exits += 1

    def settings(self, state: SettingsState) -> None:
        """Which settings are in force now; immutable, swapped in one assignment."""
        self._settings = state

    def progress(self, seen: Sequence[Progress] | None) -> None:
        """The group's progress as read from Kafka; immutable and swapped, like the settings."""
        self._look = None if seen is None else Look(self._now_ms(), seen)

    def control(self, path: str, answer: Control) -> None:
        """Answer POST and GET requests to this path."""
        self._controls[path] = answer

    def reports(self) -> dict[int, Report]:
        """The newest report of each worker that runs."""
        with self._lock:
            return dict(self._reports)

    def user_totals(self) -> UserTotals:
        """The user's own metrics: each worker is among those that run or those that have ended."""
        with self._lock:
            texts = {worker: report.user for worker, report in self._reports.items()}
            return UserTotals(texts, self._user_ended)

    def turn_ages_s(self) -> dict[int, float]:
        """How long ago each running worker made its last known turn, in seconds.

        An idle one reports every three seconds.
        """
        now_s = self._monotonic()
        with self._lock:
            return {worker: now_s - self._turned_s[worker] for worker in self._reports}

    def health(self) -> Health:
        """The run's health now."""
        now_s = self._monotonic()
        with self._lock:
            facts = {
                worker: WorkerFacts(gone_s=now_s - gone_s)
                for worker, gone_s in self._gone_s.items()
            }
            if self._waits.get(None):
                facts = {n: WorkerFacts(waits=self._waits[None]) for n in range(self._workers)}
            for worker, report in self._reports.items():
                ends, last_s = self._ends.get(worker, (0, now_s))
                facts[worker] = WorkerFacts(
                    report.snapshot,
                    report.joined,
                    ends=ends,
                    ended_s=now_s - last_s,
                    waits=self._waits.get(worker, ""),
                    turn_age_s=now_s - self._turned_s[worker],
                    blocked_s=now_s - self._blocked_s.get(worker, now_s),
                )
        return judge(facts, self._now_ms(), self._workers, self._rules)

    # The pages.

    def _all_pages(self) -> dict[str, Page]:
        return {
            "/metrics": metrics_page(self._registry),
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/state": self._state,
        }

    def _livez(self, _request: Request) -> Response:
        health = self.health()
        reasons = [reason for reason in health.reasons if reason.fails_live]
        tree = {"live": health.live, "reasons": [asdict(reason) for reason in reasons]}
        return Response.of_json(tree, 200 if health.live else 503)

    def _readyz(self, _request: Request) -> Response:
        health = self.health()
        tree = {
            "ready": health.ready,
            "reasons": [asdict(reason) for reason in health.reasons],
            "notes": [
                *settings_notes(self._settings),
                *pause_notes(self._snapshots()),
                *slot_notes(self._snapshots()),
                *lane_notes(self._snapshots(), self._now_ms()),
                *metric_notes(self.user_totals().families()[1]),
            ],
        }
        return Response.of_json(tree, 200 if health.ready else 503)

    def _snapshots(self) -> list[Snapshot]:
        """The newest snapshot of each worker that has one."""
        reports = self.reports().values()
        return [report.snapshot for report in reports if report.snapshot is not None]

    def _state(self, _request: Request) -> Response:
        health = self.health()
        return Response.of_json(
            {
                "group": self._group,
                "run": self._id,
                "version": __version__,
                "now_ms": self._now_ms(),
                "live": health.live,
                "ready": health.ready,
                "settings": asdict(self._settings),
                "workers_expected": self._workers,
                "workers": {
                    str(worker): _tree(report) for worker, report in sorted(self.reports().items())
                },
            }
        )


def _tree(report: Report) -> dict[str, Any] | None:
    """What `/state` shows of one worker; None before its first snapshot."""
    if report.snapshot is None:
        return None
    return {"pid": report.pid, "version": report.version, **as_tree(report.snapshot)}
