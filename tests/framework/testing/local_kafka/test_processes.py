"""A process is told apart from a later one with its pid, and the guard outlives no owner."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ackfloor.testing.local_kafka import guard
from ackfloor.testing.local_kafka import processes as processes_module
from ackfloor.testing.local_kafka.processes import GuardedProcesses, GuardLost, ProcessIdentity

SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]


def test_recycled_pid_is_never_signalled() -> None:
    """A process that only has the pid of the remembered one is neither alive nor killed."""
    with subprocess.Popen(SLEEP) as sleeper:
        identity = ProcessIdentity.of(sleeper.pid)
        assert identity is not None
        former = replace(identity, started="another time")
        assert not former.alive
        assert former.end(signal.SIGKILL, wait_s=0)
        assert sleeper.poll() is None
        assert identity.alive
        assert not identity.end(signal.SIGCONT, wait_s=0)
        sleeper.kill()
        assert identity.gone_within(60)


def test_zombie_counts_as_gone() -> None:
    """A process that has ended and waits only to be reaped is gone."""
    with subprocess.Popen(SLEEP) as sleeper:
        identity = ProcessIdentity.of(sleeper.pid)
        assert identity is not None
        assert identity.end(signal.SIGKILL, wait_s=60)
        assert ProcessIdentity.of(sleeper.pid) is None


def test_ps_tells_a_process_like_proc_does() -> None:
    """Where there is no /proc, `ps` tells the same: a start time while it runs, then nothing."""
    with subprocess.Popen(SLEEP) as sleeper:
        first = processes_module._started_by_ps(sleeper.pid)
        assert first
        assert processes_module._started_by_ps(sleeper.pid) == first
        sleeper.kill()
    assert processes_module._started_by_ps(sleeper.pid) is None


def test_close_ends_children_and_folder() -> None:
    """close() returns when every process and the folder are gone, and may be called again."""
    processes = GuardedProcesses()
    log = processes.data_dir / "sleep.log"
    child = ProcessIdentity.of(processes.spawn("sleep", SLEEP, log))
    owner = ProcessIdentity.of(processes.pid)
    assert child is not None
    assert owner is not None
    assert processes.returncode("sleep") is None
    processes.close()
    assert not child.alive
    assert not owner.alive
    assert not log.parent.exists()
    processes.close()


def test_what_cannot_be_started_is_told() -> None:
    """A command that does not exist is an error of the owner, and the guard goes on."""
    processes = GuardedProcesses()
    with pytest.raises(GuardLost, match="FileNotFoundError"):
        processes.spawn("none", ["/nonexistent"], processes.data_dir / "log")
    child = ProcessIdentity.of(processes.spawn("sleep", SLEEP, processes.data_dir / "log"))
    assert child is not None
    processes.send_signal("sleep", signal.SIGTERM)
    assert child.gone_within(60)
    assert processes.returncode("sleep") == -signal.SIGTERM
    processes.close()


def test_detached_guard_ends_with_its_last_child() -> None:
    """After detach the guard outlives the owner's pipe, and ends when its children have."""
    processes = GuardedProcesses()
    child = ProcessIdentity.of(processes.spawn("sleep", SLEEP, processes.data_dir / "log"))
    own_guard = ProcessIdentity.of(processes.pid)
    assert child is not None
    assert own_guard is not None
    processes.detach()
    assert not own_guard.gone_within(0.5)
    child.end(signal.SIGKILL, wait_s=60)
    assert own_guard.gone_within(60)
    assert not processes.data_dir.exists()
    processes.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, None], ids=["SIGTERM", "end of the pipe"])
def test_guard_script_cleans_up(number: signal.Signals | None) -> None:
    """The guard as a bare script removes its folder at SIGTERM and at the end of its pipe."""
    script = [sys.executable, "-I", "-S", guard.__file__]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        hello = json.loads(process.stdout.readline())
        assert Path(hello["data_dir"]).is_dir()
        if number is None:
            process.stdin.close()
        else:
            process.send_signal(number)
        assert process.wait(60) == 0
        assert not Path(hello["data_dir"]).exists()
