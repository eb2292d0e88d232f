"""Supervisor: real processes that die, hang, refuse to start, and are told to stop."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ackfloor.runtime.supervision.exit_codes import Exit
from tests.framework.runtime import supervised
from tests.processes import gone_within, kill
from tests.written import whole_lines

pytestmark = pytest.mark.e2e

PATIENCE_S = 120.0
Fact = dict[str, Any]


class Run:
    """A running supervisor, what it has told so far, and every worker it ever had."""

    def __init__(self, state: Path, plan: Fact) -> None:
        self.state = state
        plan = {"state": str(state), **plan}
        self.errors = (state / "stderr").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, supervised.__file__, "run", json.dumps(plan)],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.facts: list[Fact] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def until(self, found: Callable[[Fact], object]) -> Fact:
        """Read what it tells until a fact fits, counting those read before."""
        for fact in self.facts:
            if found(fact):
                return fact
        return self.next(found)

    def next(self, found: Callable[[Fact], object]) -> Fact:
        """Read on until a fact fits."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until_s - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"not told: {self.facts[-5:]}, log: {self.log()}")
            self.facts.append(json.loads(line))
            if found(self.facts[-1]):
                return self.facts[-1]

    def running(self, workers: int = 1) -> dict[int, int]:
        """Wait until so many different workers have said that they run; number -> pid."""
        pids: dict[int, int] = {}
        while len(pids) < workers:
            fact = self.until(lambda f: f.get("status") == "running" and f["worker"] not in pids)
            pids[fact["worker"]] = fact["pid"]
        return pids

    def lives(self, number: int = 0) -> list[tuple[int, float]]:
        """(pid, when) of each process that worker has been."""
        lines = whole_lines(self.state / f"lives-{number}")
        return [(int(pid), float(at_s)) for pid, at_s in map(str.split, lines)]

    def log(self) -> str:
        """What the supervisor has logged."""
        return (self.state / "stderr").read_text()

    def wait(self) -> int:
        """Wait for its end; returns its exit code."""
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        pids = [pid for number in range(4) for pid, _ in self.lives(number)]
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in pids:
            if "supervised.py" in " ".join(_command(pid)):
                kill(pid)
        self._reader.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()


def _command(pid: int) -> list[str]:
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def gone(pid: int) -> bool:
    """Whether a process has ended within the time allowed."""
    return gone_within(pid, PATIENCE_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts a supervisor; its processes are gone when the test is over."""
    runs: list[Run] = []

    def start(behave: str, **plan: object) -> Run:
        state = tmp_path / str(len(runs))
        state.mkdir()
        runs.append(Run(state, {"behave": behave, **plan}))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def test_sigterm_drains_every_worker_and_exits_0(start: Callable[..., Run]) -> None:
    """Each says that it drains, and none is left."""
    run = start("serve", workers=2)
    pids = run.running(2)
    run.process.terminate()
    assert run.wait() == Exit.OK
    assert run.until(lambda f: f.get("status") == "draining" and f["worker"] == 0)
    assert run.until(lambda f: f.get("status") == "draining" and f["worker"] == 1)
    assert all(gone(pid) for pid in pids.values())


def test_a_killed_worker_is_replaced_after_a_growing_wait(start: Callable[..., Run]) -> None:
    """The monitor learns of it, the other worker is left alone, and no zombie stays."""
    run = start("serve", workers=2, FIRST_BACKOFF_S=0.2)
    pids = run.running(2)
    for life, wait_s in ((2, 0.2), (3, 0.4)):
        victim = run.lives(1)[-1][0]
        killed_s = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        run.next(lambda f: f.get("gone") == 1)
        run.next(lambda f, life=life: f.get("life") == life and f["status"] == "running")
        assert run.lives(1)[-1][1] - killed_s >= wait_s
    children = psutil.Process(run.process.pid).children()
    assert len(children) == 2
    assert all(child.status() != psutil.STATUS_ZOMBIE for child in children)
    assert run.lives(0) == [(pids[0], run.lives(0)[0][1])]
    assert "was killed by signal 9 (SIGKILL); restarting it in 0.2 s" in run.log()
    assert "restarting it in 0.4 s" in run.log()
    run.process.terminate()
    assert run.wait() == Exit.OK


def test_a_worn_out_worker_is_replaced_at_once(start: Callable[..., Run]) -> None:
    """It asked for it: no wait, however long one would be after a crash."""
    run = start(f"once:{int(Exit.WORN_OUT)}", FIRST_BACKOFF_S=60.0)
    run.until(lambda f: f.get("life") == 2 and f["status"] == "running")
    assert "asked to be replaced" in run.log()
    run.process.terminate()
    assert run.wait() == Exit.OK


def test_a_worker_that_lost_its_name_stops_the_run(start: Callable[..., Run]) -> None:
    """Started again, it would expel whoever has the name now, and be expelled in turn."""
    run = start(f"once:{int(Exit.FENCED)}", workers=2)
    assert run.wait() == Exit.FAILURE
    assert "lost its name to another run; stopping this run" in run.log()
    # The other one may not have come so far.
    assert {len(run.lives(number)) for number in range(2)} <= {0, 1}


def test_a_worker_whose_name_is_not_free_asks_again_at_a_steady_pace(
    start: Callable[..., Run],
) -> None:
    """It has not crashed: no growing wait, and no wait as after a crash."""
    run = start(f"once:{int(Exit.HELD_UP)}", FIRST_BACKOFF_S=60.0, HELD_UP_S=0.1)
    run.until(lambda f: f.get("life") == 2 and f["status"] == "running")
    assert "its name is not free; retry in 0.1 s" in run.log()
    run.process.terminate()
    assert run.wait() == Exit.OK


def test_a_worker_is_reaped_before_its_successor_starts(start: Callable[..., Run]) -> None:
    """Two processes with one name in the group would expel each other."""
    run = start("serve", FIRST_BACKOFF_S=0.0)
    for life in (2, 3):
        run.until(lambda f, life=life: f.get("life") == life - 1 and f["status"] == "running")
        victim = run.lives()[-1][0]
        os.kill(victim, signal.SIGKILL)
        run.until(lambda f, life=life: f.get("life") == life and f["status"] == "running")
        assert not psutil.pid_exists(victim)
    run.process.terminate()
    assert run.wait() == Exit.OK


@pytest.mark.parametrize("code", [Exit.OK, Exit.FAILURE, Exit.FORCED])
def test_a_worker_that_ends_unasked_is_restarted_whatever_its_code(
    start: Callable[..., Run], code: Exit
) -> None:
    """After a wait and as a crash, also with code 0: only a run that was asked to stop ends so."""
    run = start(f"once:{code}", workers=2)
    for number in range(2):
        run.until(lambda f, n=number: f.get("worker") == n and f.get("life") == 2)
    assert run.log().count(f"ended with code {code}; restarting it in 0.5 s") == 2
    run.process.terminate()
    assert run.wait() == Exit.OK


def test_each_end_that_nobody_asked_for_counts(start: Callable[..., Run]) -> None:
    """The wait grows, also where each life ends with code 0."""
    run = start("report:1", FIRST_BACKOFF_S=0.1)
    run.until(lambda f: f.get("life") == 4)
    run.process.terminate()
    assert run.wait() == Exit.OK
    waits = re.findall(r"ended with code 0; restarting it in ([\d.]+) s", run.log())
    assert waits[:3] == ["0.1", "0.2", "0.4"]


@pytest.mark.parametrize("behave", ["no-start", "imports-but-0"])
def test_a_worker_that_can_not_start_stops_the_run_with_3(
    start: Callable[..., Run], behave: str
) -> None:
    """Also when another one is still importing, and dies of the signal that should drain it."""
    run = start(behave, workers=2)
    assert run.wait() == Exit.START
    assert "could not start" in run.log()
    assert all(gone(pid) for number in range(2) for pid, _ in run.lives(number))


def test_a_run_whose_start_may_work_later_ends_with_7(start: Callable[..., Run]) -> None:
    """What watches the run starts it again on this code, and not on 3."""
    run = start("not-ready", workers=2)
    assert run.wait() == Exit.NOT_READY
    assert "could not start" in run.log()


def test_a_run_whose_settings_the_group_refuses_ends_with_3(start: Callable[..., Run]) -> None:
    """Its workers began to run, but none has ever had a partition: a restart would not help."""
    run = start("refused:now", workers=2)
    assert run.wait() == Exit.START
    assert "could not start" in run.log()
    # The other may be told to stop before it lives.
    assert {len(run.lives(number)) for number in range(2)} <= {0, 1}


@pytest.mark.parametrize("when", ["later", "other"])
def test_a_run_that_has_worked_outlives_a_refused_setting(
    start: Callable[..., Run], when: str
) -> None:
    """The broker's limits have changed: whoever is refused is tried again until they are mended."""
    run = start(f"refused:{when}", workers=2, FIRST_BACKOFF_S=0.1)
    run.until(lambda fact: fact.get("life") == 2 and fact.get("status") == "running")
    assert re.search(r"worker 0 ended with code 3; restarting it in 0\.1 s", run.log())
    run.process.terminate()
    assert run.wait() == Exit.OK


def test_a_worker_that_is_still_importing_may_be_stopped(start: Callable[..., Run]) -> None:
    """It dies of SIGTERM with nothing open: that is no forced shutdown."""
    run = start("imports", workers=2)
    _await(lambda: run.lives(0) and run.lives(1))
    run.process.terminate()
    assert run.wait() == Exit.OK


@pytest.mark.parametrize(
    ("code", "whole"),
    [(Exit.WORN_OUT, Exit.OK), (Exit.HELD_UP, Exit.OK), (Exit.FAILURE, Exit.FAILURE)],
)
def test_a_worker_that_just_wanted_a_fresh_start_ends_a_stopped_run_in_order(
    start: Callable[..., Run], code: Exit, whole: Exit
) -> None:
    """It drained and left nothing open; a failure is still told."""
    run = start(f"serve:{int(code)}")
    run.running()
    run.process.terminate()
    assert run.wait() == whole


def test_a_second_signal_stops_now(start: Callable[..., Run]) -> None:
    """Workers that would drain for long hear both, also where both came in one moment."""
    run = start("slow", workers=2, shutdown_s=200.0, FORCED_S=100.0)
    run.running(2)
    started_s = time.monotonic()
    run.process.terminate()
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == Exit.FORCED
    assert time.monotonic() - started_s < 100
    # They ended by themselves: nobody had to kill them.
    assert run.log().count("ended with code 6") == 2


def test_a_worker_that_does_not_end_is_killed(start: Callable[..., Run]) -> None:
    """After its own bound and a grace; the exit code says that something was left open."""
    run = start("stubborn", workers=2, shutdown_s=0.2, GRACE_S=0.3)
    pids = run.running(2)
    run.process.terminate()
    assert run.wait() == Exit.FORCED
    assert all(gone(pid) for pid in pids.values())
    # Both have said what they were doing.
    assert run.log().count("in work\n") == 2


def test_a_killed_supervisor_takes_its_workers_along(start: Callable[..., Run]) -> None:
    """They find their channel closed, drain and are gone."""
    run = start("serve", workers=3)
    pids = run.running(3)
    run.process.kill()
    run.process.wait()
    assert all(gone(pid) for pid in pids.values())


def test_signals_are_passed_on_to_workers_that_catch_them(start: Callable[..., Run]) -> None:
    """SIGHUP and SIGUSR1; one that is still importing would die of them and is spared."""
    run = start("serve", workers=2)
    run.running(2)
    for number in (signal.SIGUSR1, signal.SIGHUP):
        run.process.send_signal(number)
        for worker in range(2):
            run.until(
                lambda f, name=number.name, worker=worker: (
                    f.get("status") == name and f["worker"] == worker
                )
            )
    run.process.terminate()
    assert run.wait() == Exit.OK

    importing = start("imports")
    _await(importing.lives)
    importing.process.send_signal(signal.SIGUSR1)
    importing.process.terminate()
    assert importing.wait() == Exit.OK
    assert len(importing.lives()) == 1


@pytest.mark.parametrize("size", [10, 100_000])
def test_reports_reach_the_monitor_also_the_last(start: Callable[..., Run], size: int) -> None:
    """A worker that ends right after its last report has been heard."""
    run = start(f"report:{size}")
    run.until(lambda f: "gone" in f)
    run.process.terminate()
    assert run.wait() == Exit.OK
    told = [f for f in run.facts if "report" in f or "gone" in f]
    assert [f.get("size", "gone") for f in told][:3] == [size + 8, 8, "gone"]
    assert told[1]["tail"] == "the last"


def test_a_monitor_that_fails_does_not_end_the_workers(start: Callable[..., Run]) -> None:
    """It is logged; the worker beside goes on."""
    run = start("report:10", workers=2, broken_monitor=True)
    for number in range(2):
        run.until(lambda f, n=number: f.get("gone") == n)
    run.process.terminate()
    assert run.wait() == Exit.OK
    assert "the monitor failed" in run.log()
    assert "LookupError: broken monitor" in run.log()


def _await(condition: Callable[[], object]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_a_worker_whose_clock_was_set_back_is_replaced_and_no_record_blamed(
    start: Callable[..., Run],
) -> None:
    """At once, however long a wait would be after a crash; what it was doing is in the log."""
    run = start("still:set-back", SET_BACK_S=0.3, FIRST_BACKOFF_S=60.0)
    run.until(lambda f: f.get("life") == 2 and f["status"] == "running")
    assert re.search(r"has made no turn for \d+ s: the clock was set back; it is killed", run.log())
    assert "_stand_still" in run.log()
    assert "died while it handled" not in run.log()
    run.process.terminate()
    assert run.wait() == Exit.OK


def test_a_worker_that_stands_still_for_another_reason_is_replaced_as_after_a_crash(
    start: Callable[..., Run],
) -> None:
    """What it handles may be the reason."""
    run = start("still:", STILL_S=0.3, FIRST_BACKOFF_S=0.1)
    run.until(lambda f: f.get("life") == 2 and f["status"] == "running")
    assert "died while it handled orders/0/7" in run.log()
    assert "was killed by signal 9 (SIGKILL); restarting it in 0.1 s" in run.log()
    run.process.terminate()
    assert run.wait() == Exit.OK


def test_a_worker_that_drains_by_itself_and_does_not_end_is_replaced(
    start: Callable[..., Run],
) -> None:
    """Nobody has asked it to, so no other bound would end it."""
    run = start("still:draining", STILL_S=100.0, GRACE_S=0.3, shutdown_s=0.1, FIRST_BACKOFF_S=0.1)
    run.until(lambda f: f.get("life") == 2 and f["status"] == "running")
    assert "has made no turn" in run.log()
    run.process.terminate()
    run.wait()


def test_a_run_that_is_to_stop_does_not_wait_for_a_worker_that_stands_still(
    start: Callable[..., Run],
) -> None:
    """Its shutdown timeout is for what still moves."""
    run = start("still:set-back", SET_BACK_S=1.0, shutdown_s=1_000.0)
    run.until(lambda f: f.get("status") == "stands still")
    run.process.terminate()
    assert run.wait() == Exit.FORCED
    assert len(run.lives()) == 1
