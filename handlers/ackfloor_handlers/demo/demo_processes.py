"""The programs that the demo starts, each on a leash: `ackfloor run`, and Spark's report.

They get the environment without the user's settings: the demo sets everything for its run here,
whatever `ackfloor.toml` lies in the current folder.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from ackfloor_handlers.demo import lifeline as leash
from ackfloor_handlers.demo.account.facts import SparkReport
from ackfloor_handlers.demo.demo_errors import DemoFailed
from ackfloor_handlers.demo.demo_topics import GROUP

APP = "ackfloor_handlers.orders:app"
#: So that a killed worker's partitions come back within seconds.
SESSION_TIMEOUT_MS = 6_000
_STOP_S = 40.0
_SPARK_S = 480.0
#: As `nice` counts: a third of the share that the run's processes get where both want a processor.
_SPARK_LOWER_BY = 5
#: Longer than any demo: Spark reports when it starts, and when it is asked to end.
_SELDOM = "12h"
_LOOK_EVERY_S = 0.2


class Program:
    """A program on a leash, with its output in files; ended at the end of the block."""

    def __init__(
        self,
        name: str,
        argv: list[str],
        folder: Path,
        settings: Mapping[str, str],
        lower_by: int = 0,
    ) -> None:
        self.name = name
        self.output = folder / f"{name}.out"
        self.log = folder / f"{name}.log"
        command = [sys.executable, "-m", *argv]
        with self.output.open("wb") as output, self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", leash.__file__, str(lower_by), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=log,
                cwd=folder,
                env={**_without_settings(os.environ), **settings},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def returncode(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._process.poll()

    def stop(self, within_s: float = _STOP_S) -> int:
        """Ask it to end, and return its exit code.

        Raises:
            DemoFailed: it does not end.
        """
        self.ask_to_end()
        return self.wait(within_s)

    def ask_to_end(self) -> None:
        """Send SIGTERM, where it has not ended by itself."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, within_s: float) -> int:
        """Its exit code once it has ended; raises DemoFailed when that takes too long."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"{self.name} did not end within {within_s:g} s") from None

    def end(self) -> None:
        """Close the leash: the program is gone when this returns."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(leash.GRACE_S + 10)

    def log_tail(self, lines: int = 25) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])


class Service(Program):
    """`ackfloor run` of the demo's app."""

    def __init__(self, bootstrap_servers: str, workers: int, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        argv = ["ackfloor.cli.main", "run", APP]
        argv += ["--workers", str(workers), "--listen", self.address]
        settings = {
            "ACKFLOOR_BOOTSTRAP_SERVERS": bootstrap_servers,
            "ACKFLOOR_KAFKA__CONSUMER__SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
            "ACKFLOOR_KAFKA__CONSUMER__HEARTBEAT_INTERVAL_MS": str(SESSION_TIMEOUT_MS // 4),
        }
        super().__init__("run", argv, folder, settings)

    def check(self) -> None:
        """Raise DemoFailed where it has ended by itself."""
        code = self.returncode()
        if code is not None:
            raise DemoFailed(f"`ackfloor run` ended with code {code}:\n{self.log_tail()}")


class Pipeline(Program):
    """`ackfloor spark report --ingest --every`: the topics into a table, and the report on it.

    It starts while the run goes on, and makes one report at once: Java then has started and
    compiled when the last report is asked for. Meanwhile it takes what the run and the broker leave
    of the processors.
    """

    def __init__(self, bootstrap_servers: str, folder: Path, page: Path | None) -> None:
        argv = ["ackfloor.cli.main", "spark", "report", "--ingest", "--group", GROUP]
        argv += ["--table", str(folder / "failures"), "-o", "json"]
        argv += ["--every", _SELDOM, "--html", str(page or folder / "failures.html")]
        settings = {"ACKFLOOR_BOOTSTRAP_SERVERS": bootstrap_servers}
        self._asked_s = time.monotonic()
        super().__init__("spark", argv, folder, settings, lower_by=_SPARK_LOWER_BY)

    def ask(self) -> None:
        """Ask for the report on all that the topics hold by now; it takes some seconds."""
        self._asked_s = time.monotonic()
        # Before it has written a line, a signal would end it without a report.
        while self.returncode() is None and not self.log.stat().st_size:
            time.sleep(_LOOK_EVERY_S)
        self.ask_to_end()

    def report(self, tell: Callable[[str], None]) -> SparkReport:
        """The report that was asked for; raises DemoFailed where it failed.

        Args:
            tell: is called again and again with how long the report has taken.
        """
        code = self._ended(tell)
        if code != 0:
            raise DemoFailed(f"Spark's report ended with code {code}:\n{self.log_tail()}")
        report = json.loads(self.output.read_text("utf-8"))
        totals = report["totals"]
        return SparkReport(
            totals["records"],
            totals["recovered"],
            totals["dead"],
            totals["waiting"] + totals["unknown"],
            report["failure_groups"],
        )

    def _ended(self, tell: Callable[[str], None]) -> int:
        """Its exit code once it has ended, with progress until then."""
        while self.returncode() is None and time.monotonic() < self._asked_s + _SPARK_S:
            time.sleep(_LOOK_EVERY_S)
            tell(f"Spark has worked on its report for {time.monotonic() - self._asked_s:.0f} s")
        return self.wait(0.0)


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("ACKFLOOR_")}


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def signals_raise() -> Iterator[None]:
    """SIGTERM and SIGHUP end what is in the block in order, as Ctrl-C does."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [(number, signal.signal(number, end)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
