"""`app.run()` and `python -m ackfloor`: the run of an app whose file is started as a program."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ackfloor
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.framework.cli.command import PATIENCE_S, environment
from tests.framework.kafka.wire import fresh, make_topic
from tests.processes import runs

APP = """
import os
from pathlib import Path

from ackfloor import App

app = App("GROUP", kafka={"bootstrap_servers": "SERVERS"}, listen="127.0.0.1:0")


@app.handler("TOPIC")
def bill(value: bytes) -> None:
    pass
"""
GUARDED = 'if __name__ == "__main__":\n    app.run("--workers", "2")\n'


def program(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """A Python program in the background."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment({"XDG_RUNTIME_DIR": str(cwd), "PYTHONUNBUFFERED": "1"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Its exit code, and what it wrote."""
    with program(*arguments, cwd=cwd) as process:
        said, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said


@pytest.fixture
def text() -> str:
    """An app that needs no broker before it is imported."""
    return APP.replace("GROUP", "shop").replace("TOPIC", "orders").replace("SERVERS", "x:1")


def test_the_package_is_the_command(tmp_path: Path) -> None:
    """Where its script is not on the path."""
    code, said = ended("-m", "ackfloor", "--version", cwd=tmp_path)
    assert (code, said) == (Exit.OK, f"ackfloor {ackfloor.__version__}\n")


@pytest.mark.kafka
@pytest.mark.parametrize("start", [["jobs/orders.py"], ["-m", "jobs.orders"], ["jobs/start-it"]])
def test_a_program_runs_workers_until_it_is_asked_to_stop(
    start: list[str], tmp_path: Path, bootstrap_servers: str
) -> None:
    """By its file, as a module, or by a program that only imports the app."""
    topic, folder = make_topic(bootstrap_servers), tmp_path / "jobs"
    folder.mkdir()
    text = APP.replace("GROUP", fresh("g")).replace("TOPIC", topic)
    text = text.replace("SERVERS", bootstrap_servers)
    (folder / "orders.py").write_text(text + GUARDED)
    (folder / "start-it").write_text('from orders import app\napp.run("--workers", "2")\n')
    (tmp_path / "orders.py").symlink_to(folder / "orders.py")
    with program(*start, cwd=tmp_path) as process:
        assert process.stdout is not None
        lines: list[str] = []
        until_s = time.monotonic() + PATIENCE_S
        # The topic has one partition: one of them gets it, and the other one joins without any.
        while sum("assigned " in line or "joined the group" in line for line in lines) < 2:
            assert time.monotonic() < until_s, lines
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == Exit.OK, rest
    pids = [int(line.rpartition("pid ")[2]) for line in lines if " started, pid " in line]
    assert len(pids) == 2
    assert not any(map(runs, pids))


def test_a_call_at_import_is_refused_with_what_to_write(tmp_path: Path, text: str) -> None:
    """Each worker would start a run of its own."""
    (tmp_path / "orders.py").write_text(text + "app.run()\n")
    code, said = ended("-m", "ackfloor", "run", "orders:app", cwd=tmp_path)
    assert code == Exit.START
    assert "put it under `if __name__ == '__main__':`" in said
    assert "Traceback" not in said


def test_an_app_that_workers_could_not_find_is_refused(tmp_path: Path, text: str) -> None:
    """It is no variable of any module."""
    (tmp_path / "orders.py").write_text(text)
    lines = "from orders import app as found\nimport orders\norders.app = None\n"
    (tmp_path / "start-it").write_text(lines + "apps = [found]\ndel found\napps[0].run()\n")
    code, said = ended("start-it", cwd=tmp_path)
    assert code == Exit.START
    assert "make it a variable of a module" in said


def test_a_wrong_option_is_the_commands_own_error(tmp_path: Path, text: str) -> None:
    """With its exit code."""
    (tmp_path / "orders.py").write_text(text + 'if __name__ == "__main__":\n    app.run("--x")\n')
    code, said = ended("orders.py", cwd=tmp_path)
    assert code == Exit.USAGE
    assert "--x" in said
