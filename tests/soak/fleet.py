"""The fleet: `ackfloor run` processes, each on a leash that ends it when the soak is gone."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from ackfloor.testing.local_kafka.node import HOST, free_ports
from ackfloor_handlers.demo import lifeline as leash
from tests.soak.plan import GROUP, SESSION_TIMEOUT_S, Plan

ROOT = Path(__file__).parents[2]
_START_S = 60.0
_STOP_S = 60.0
_LOOK_EVERY_S = 0.05

SETTINGS = """
[kafka.consumer]
{assignment}
[app]
shutdown_timeout = "15s"
parking = "{parking}"
[handlers.loose]
{loose}
"""


def settings(plan: Plan, loose: str = "") -> str:
    """The text of ackfloor.toml; `loose` is what changes while a soak runs."""
    if plan.assignment == "consumer":
        assignment = '"group.protocol" = "consumer"\n'
    else:
        assignment = (
            f'"partition.assignment.strategy" = "{plan.assignment}"\n'
            f'"session.timeout.ms" = {SESSION_TIMEOUT_S * 1000:.0f}\n'
            '"heartbeat.interval.ms" = 1000\n'
        )
    return SETTINGS.format(assignment=assignment, parking=plan.parks, loose=loose)


class Run:
    """One `ackfloor run`: started, and started again under the same name and address."""

    def __init__(self, plan: Plan, name: str, workers: int, servers: str) -> None:
        self.name = name
        self.workers = workers
        self.port = free_ports(1)[0]
        #: It was asked to end: from now on its end is to be in order.
        self.leaving = False
        self._plan = plan
        self._servers = servers
        self._leash: subprocess.Popen[bytes] | None = None
        self.supervisor: psutil.Process | None = None

    def start(self) -> None:
        """Start it; returns when its supervisor is there."""
        command = [sys.executable, "-P", leash.__file__, "0", sys.executable, "-m"]
        command += ["ackfloor.cli.main", "run", "tests.soak.app:app"]
        command += ["--workers", str(self.workers), "--listen", f"{HOST}:{self.port}"]
        with (self._plan.logs / f"{self.name}.log").open("ab") as log:
            self._leash = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._plan.folder,
                env=self._environment(),
                start_new_session=True,
            )
        until_s = time.monotonic() + _START_S
        leashed = psutil.Process(self._leash.pid)
        while not (children := leashed.children()):
            if time.monotonic() > until_s or self._leash.poll() is not None:
                raise RuntimeError(f"{self.name} did not start")
            time.sleep(_LOOK_EVERY_S)
        self.supervisor = children[0]

    def _environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ACKFLOOR_")}
        path = os.pathsep.join(filter(None, (str(ROOT), inherited.get("PYTHONPATH", ""))))
        return {
            **inherited,
            "ACKFLOOR_BOOTSTRAP_SERVERS": self._servers,
            # Stable for each run, and of no two runs the same.
            "ACKFLOOR_APP__TRANSACTIONAL_ID_PREFIX": f"{GROUP}-{self.name}",
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "SOAK_FOLDER": str(self._plan.folder),
        }

    @property
    def alive(self) -> bool:
        """Whether the supervisor runs."""
        return self._leash is not None and self._leash.poll() is None

    def worker_pids(self) -> list[int]:
        """The workers that run now."""
        if self.supervisor is None or not self.alive:
            return []
        with suppress(psutil.Error):
            return [child.pid for child in self.supervisor.children() if _is_worker(child)]
        return []

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor."""
        if self.supervisor is not None:
            with suppress(psutil.Error):
                self.supervisor.send_signal(number)

    def ended(self, within_s: float = _STOP_S) -> int | None:
        """The exit code of the run once it has ended; None where it does not."""
        assert self._leash is not None
        try:
            return self._leash.wait(within_s)
        except subprocess.TimeoutExpired:
            return None

    def let_go(self) -> None:
        """Gone when this returns, whatever it takes."""
        if self._leash is None:
            return
        assert self._leash.stdin is not None
        with suppress(OSError):
            self._leash.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._leash.wait(leash.GRACE_S + 15)

    def page(self, name: str) -> tuple[int, Any]:
        """Status and JSON of a page; (0, None) while it does not answer."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2)
        try:
            connection.request("GET", name)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()


class Fleet:
    """All runs. `alpha` is never killed, so that its memory tells something."""

    def __init__(self, plan: Plan, servers: str) -> None:
        self._plan = plan
        self._servers = servers
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._added = 0
        #: Names of runs that ended in another way than they should have, and how.
        self.troubles: list[str] = []

    def open(self) -> None:
        """The runs that every soak has."""
        self.write_settings("")
        for name, workers in (("alpha", 1), ("beta", 2)):
            self._start(name, workers)

    def runs(self) -> list[Run]:
        """The runs that are to be there now."""
        with self._lock:
            return list(self._runs.values())

    def named(self, name: str) -> Run:
        """One run."""
        return self._runs[name]

    def added(self) -> list[str]:
        """The runs that were added to the first two."""
        with self._lock:
            return [name for name in self._runs if name not in ("alpha", "beta")]

    def victims(self) -> list[int]:
        """The workers that may be killed."""
        runs = [run for run in self.runs() if run.name != "alpha" and not run.leaving]
        return [pid for run in runs for pid in run.worker_pids()]

    def worker_pids(self) -> dict[int, str]:
        """All workers that are to stay, with the name of their run."""
        runs = [run for run in self.runs() if not run.leaving]
        return {pid: run.name for run in runs for pid in run.worker_pids()}

    def add(self) -> str:
        """One more run, of one worker."""
        self._added += 1
        return self._start(f"extra-{self._added}", 1)

    def remove(self, name: str) -> int | None:
        """End a run in order; returns its exit code."""
        run = self._runs[name]
        run.leaving = True
        # One that is still starting has nothing open, and ends as any program does.
        fine = {0} if run.page("/livez") != (0, None) else {0, 128 + signal.SIGTERM}
        run.signal(signal.SIGTERM)
        code = run.ended()
        if code not in fine:
            self.troubles.append(f"{name} ended with {code} after SIGTERM")
        run.let_go()
        with self._lock:
            del self._runs[name]
        return code

    def write_settings(self, loose: str) -> None:
        """Replace ackfloor.toml in one step."""
        draft = self._plan.folder / "ackfloor.toml.new"
        draft.write_text(settings(self._plan, loose), "utf-8")
        draft.rename(self._plan.folder / "ackfloor.toml")

    def reasons(self) -> list[str]:
        """Why the fleet is not ready; nothing where it is."""
        reasons = []
        for run in self.runs():
            status, told = run.page("/readyz")
            if status != http.client.OK:
                said = told["reasons"] if told else "no answer"
                reasons.append(f"{run.name}: {status} {said}")
        return reasons

    def close(self) -> None:
        """End every run in order, all at once; a second time there is nobody left."""
        runs = self.runs()
        with self._lock:
            self._runs.clear()
        for run in runs:
            run.signal(signal.SIGTERM)
        for run in runs:
            code = run.ended()
            if code != 0:
                self.troubles.append(f"{run.name} ended with {code} at the end")
            run.let_go()

    def _start(self, name: str, workers: int) -> str:
        run = Run(self._plan, name, workers, self._servers)
        run.start()
        with self._lock:
            self._runs[name] = run
        return name


def _is_worker(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "ackfloor.worker" in process.cmdline()
    return False
