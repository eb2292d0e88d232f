"""LagWatch reports what it sees, never an old value, and stops when asked."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Queue

import psutil
import pytest

from ackfloor.core.acks.progress import Progress
from ackfloor.runtime.reporting.lag_watch import LagWatch
from tests.framework.runtime.live import within
from tests.framework.runtime.lookouts import SEEN, script
from tests.structure.sources import REPOSITORY

PATIENCE_S = 120.0
Reported = Queue[Sequence[Progress] | None]


@contextmanager
def looked(folder: Path, answers: str, every_s: float = 0.01) -> Iterator[Reported]:
    """What is told meanwhile; afterwards none of its processes is left."""
    reported: Reported = Queue()
    lag_watch = LagWatch(partial(script, folder, answers), reported.put, every_s)
    lag_watch.start()
    try:
        yield reported
    finally:
        lag_watch.stop()
    within(lambda: not any(map(psutil.pid_exists, pids(folder))))


def pids(folder: Path) -> list[int]:
    """The processes that looked."""
    return [int(file.stem) for file in folder.glob("*.pid")]


def seen(reported: Reported, count: int) -> list[Sequence[Progress] | None]:
    """The next few that are told."""
    return [reported.get(timeout=PATIENCE_S) for _ in range(count)]


def test_it_looks_again_and_again_in_one_process(tmp_path: Path) -> None:
    """Each look is told."""
    with looked(tmp_path, "") as reported:
        assert seen(reported, 3) == [SEEN] * 3
    assert len(pids(tmp_path)) == 1


def test_a_run_that_ends_before_the_first_look_starts_nothing(tmp_path: Path) -> None:
    """The first look comes after one wait."""
    with looked(tmp_path, "", every_s=3600.0) as reported:
        pass
    assert reported.empty()
    assert pids(tmp_path) == []


@pytest.mark.parametrize(("fails", "why"), [("f", "no broker answers"), ("b", "KeyError('bug')")])
def test_what_fails_is_not_known_and_said_once(
    fails: str, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is; the next look that succeeds is told, and a failure after it said anew."""
    with (
        caplog.at_level(logging.WARNING, "ackfloor.run"),
        looked(tmp_path, 3 * fails + "s" + fails) as reported,
    ):
        assert seen(reported, 6) == [None, None, None, SEEN, None, SEEN]
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    known = "lag and dead letters are not known, and not among the metrics"
    assert said == [f"{known}: {why}"] * 2
    traces = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(traces) == (2 if fails == "b" else 0)
    assert all("Traceback" in trace for trace in traces)


def test_a_client_that_ends_its_process_ends_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it knew is not told any more, and the next process looks again."""
    with caplog.at_level(logging.INFO, "ackfloor.run"), looked(tmp_path, "sk") as reported:
        assert seen(reported, 3) == [SEEN, None, SEEN]
    assert len(pids(tmp_path)) == 2
    said, over = [record.getMessage() for record in caplog.records]
    assert over == "lag and dead letters are known again"
    assert said == (
        "lag and dead letters are not known, and not among the metrics: the process that asks "
        "Kafka for them was killed by signal 9 (SIGKILL)"
    )


def test_a_sigterm_to_all_processes_of_a_run_is_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A service manager that ends a run sends it to each; nothing is known from then on."""
    with caplog.at_level(logging.INFO, "ackfloor.run"), looked(tmp_path, "st") as reported:
        assert seen(reported, 3) == [SEEN, None, SEEN]
    assert len(pids(tmp_path)) == 2
    assert [record.getMessage() for record in caplog.records] == []


def test_a_look_that_does_not_come_back_does_not_hold_the_end(tmp_path: Path) -> None:
    """Its process is killed: a broker that is silent must not keep a run alive."""
    with looked(tmp_path, "h") as reported:
        within((tmp_path / "count").exists)
    assert reported.empty()


PROGRAM = """
import sys
from functools import partial
from pathlib import Path
from queue import Queue
folder = Path(sys.argv[1])
with (folder / "starts").open("a") as starts:
    starts.write("x")
from ackfloor.runtime.reporting.lag_watch import LagWatch
from tests.framework.runtime.lookouts import script
reported = Queue()
watch = LagWatch(partial(script, folder, ""), reported.put, 0.01)
watch.start()
assert reported.get(timeout=120)
watch.stop()
"""


def test_the_program_is_not_imported_by_the_process_that_looks(tmp_path: Path) -> None:
    """One that does something as soon as it is imported would do it twice."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run(command, env=environment, check=True, timeout=PATIENCE_S)
    assert (tmp_path / "starts").read_text() == "x"


def test_what_can_not_be_sent_to_a_process_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A token function that is no module's own, for one."""
    reported: Reported = Queue()
    lag_watch = LagWatch(lambda: script(tmp_path, ""), reported.put, 0.01)
    lag_watch.start()
    assert seen(reported, 2) == [None, None]
    lag_watch.stop()
    assert "are not known, " in caplog.text
    assert pids(tmp_path) == []
