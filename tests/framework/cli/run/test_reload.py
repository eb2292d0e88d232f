"""`ackfloor run --reload`: what counts as a change, and the life of a run that follows it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.cli.run import run as run_command
from ackfloor.cli.run.reload import arguments
from ackfloor.cli.run.reload_watch import changed, is_watched, looks, named
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.framework.cli.command import PATIENCE_S, Running, ackfloor
from tests.written import whole_lines

E2E = pytest.mark.e2e
NOWHERE = "127.0.0.1:1"
APP = """
from ackfloor import App

app = App("billing")


@app.handler("orders")
async def bill(order: bytes) -> None: ...
"""


def test_files_that_are_new_gone_or_different_have_changed() -> None:
    """Each of them, and nothing else."""
    before = {"a.py": (1, 10, 1), "b.py": (1, 10, 2), "c.py": (1, 10, 3), "d.py": (1, 10, 4)}
    after = {"a.py": (1, 10, 1), "b.py": (2, 10, 2), "d.py": (1, 10, 9), "e.py": (5, 10, 5)}
    assert changed(before, after) == ["b.py", "c.py", "d.py", "e.py"]
    assert changed(before, dict(before)) == []


def test_many_changes_are_told_in_a_few_words() -> None:
    """A change of branch may be a hundred files."""
    assert named(["a.py"]) == "a.py"
    assert named(["a.py", "b.py", "c.py", "d.py", "e.py"]) == "a.py, b.py, c.py and 2 more"


def test_the_run_gets_every_option_but_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever options `run` has; `--reload` would start runs without end."""
    got: list[Mapping[str, object]] = []

    def noted(_app: str, options: Mapping[str, object], _config: Path | None) -> int:
        got.append(options)
        return Exit.OK

    monkeypatch.setattr(run_command, "run_reloading", noted)
    write(tmp_path, "shop.pem", "ackfloor.toml")
    given = {
        "--workers": "2", "--listen": "127.0.0.1:0", "--tls-key": f"{tmp_path / 'shop.pem'}",
        "--tls-certificate": f"{tmp_path / 'shop.pem'}", "--connect-timeout": "3s",
        "--config": f"{tmp_path / 'ackfloor.toml'}", "--bootstrap-servers": NOWHERE,
        "--log-level": "debug", "--log-format": "json",
    }  # fmt: skip
    flat = [each for pair in given.items() for each in pair]
    words = ["run", "shop:app", *flat, "--only", "bill", "--only", "ship", "--factory", "--reload"]
    assert CliRunner().invoke(cli, words).exit_code == Exit.OK
    [options] = got
    assert set(options) == {*given, "--only", "--factory", "--reload"}, "an option is not tried"
    passed_on = list(arguments(options))
    assert sorted(passed_on) == sorted([*flat, "--only", "bill", "--only", "ship", "--factory"])
    assert passed_on[passed_on.index("--workers") + 1] == "2"


def write(folder: Path, *names: str) -> None:
    """Make files, and the folders they lie in."""
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_python_files_below_the_folder_are_watched_and_other_peoples_are_not(
    tmp_path: Path,
) -> None:
    """Hidden folders, caches, packages and virtual environments of any name are passed over."""
    write(tmp_path, "shop.py", "billing/tax.py", "notes.txt", "ackfloor.toml", "other.toml")
    write(tmp_path, ".venv/a.py", ".git/b.py", "__pycache__/c.py", "node_modules/d.py")
    write(tmp_path, "env/pyvenv.cfg", "env/lib/e.py", "lib/site-packages/f.py")
    found = looks(tmp_path, tmp_path / "ackfloor.toml")
    assert set(found) == {"shop.py", "billing/tax.py", "ackfloor.toml"}


def test_a_settings_file_elsewhere_is_watched_and_may_be_missing(tmp_path: Path) -> None:
    """It is what `--config` names."""
    app, settings = tmp_path / "app", tmp_path / "etc" / "billing.toml"
    write(app, "shop.py")
    before = looks(app, settings)
    assert set(before) == {"shop.py"}
    write(tmp_path, "etc/billing.toml")
    assert changed(before, looks(app, settings)) == [str(settings)]


def test_only_a_module_whose_files_are_watched_can_be_followed(tmp_path: Path) -> None:
    """In the folder, also in a package there; one that is not there yet may be written."""
    write(tmp_path, "shop.py", "billing/app.py", ".tools/pyvenv.cfg")
    assert is_watched("shop", tmp_path)
    assert is_watched("billing.app", tmp_path)
    assert is_watched("not_yet", tmp_path)
    assert not is_watched("json", tmp_path)
    assert not is_watched("ackfloor_handlers.orders", tmp_path)


def test_an_app_that_lies_elsewhere_is_refused(tmp_path: Path) -> None:
    """No change of it would be noticed, and that would look as if nothing had changed."""
    done = ackfloor("run", "ackfloor_handlers.orders:app", "--reload", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert f"the module is not below {tmp_path}" in done.stderr


#: A reloader of the file that it is given.
FOLLOW = """
import logging, sys
from pathlib import Path
from ackfloor.cli.run.reload import Reloader
from ackfloor.cli.run.reload_watch import looks

logging.basicConfig(level=logging.INFO, format="%(message)s")
file = Path(sys.argv[1])
command = lambda lifeline: [sys.executable, str(file), str(lifeline)]
sys.exit(Reloader(command, lambda: looks(file.parent, None)).run())
"""
#: What every run begins with.
HEAD = """
import os, signal, sys, time
from pathlib import Path

def begun():
    with Path(__file__).with_name("begun").open("a") as file:
        file.write(f"{os.getpid()}\\n")

"""
#: Drains for a while at SIGTERM; its code says whether it was told twice.
SERVES = """
stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
begun()
while not stops:
    time.sleep(0.01)
until_s = time.monotonic() + 1.5
while time.monotonic() < until_s and len(stops) < 2:
    time.sleep(0.01)
sys.exit(6 if len(stops) > 1 else 0)
"""

#: Drains until the test has said that it may end.
DRAINS = SERVES.replace("+ 1.5", "+ 60").replace(
    "len(stops) < 2:", "len(stops) < 2 and not Path(__file__).with_name('may-end').exists():"
)


class Following:
    """A reloader in a process of its own, whose runs are a script."""

    def __init__(self, folder: Path, script: str) -> None:
        self._folder = folder
        self.save(script)
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", FOLLOW, str(folder / "life.py")],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    def save(self, script: str) -> None:
        """Change what is run: a new file takes the old one's place, so half of it is never run."""
        fresh = self._folder / "life.fresh"
        fresh.write_text(HEAD + script)
        fresh.replace(self._folder / "life.py")

    def end_drain(self) -> None:
        """Let a run end that drains until it may."""
        (self._folder / "may-end").touch()

    def pids(self) -> list[int]:
        """Of all runs that have begun."""
        return [int(line) for line in whole_lines(self._folder / "begun")]

    def log(self) -> str:
        """What has been logged."""
        return (self._folder / "log").read_text()

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for something."""
        until_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until_s, self.log()
            time.sleep(0.01)

    def close(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
        for pid in self.pids():
            # Most have ended, and somebody else may have got their pids.
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                if str(self._folder / "life.py") in process.cmdline():
                    process.kill()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[str], Following]]:
    """Begins to follow a script."""
    begun: list[Following] = []

    def begin(script: str) -> Following:
        begun.append(Following(tmp_path, script))
        return begun[-1]

    yield begin
    for each in begun:
        each.close()


@E2E
def test_a_changed_file_ends_the_run_in_order_and_starts_the_new_one(
    begin: Callable[[str], Following],
) -> None:
    """The old one is gone before, and the end of the whole is that of the newest."""
    following = begin(SERVES)
    following.until(following.pids)
    following.save(SERVES + "# anew")
    following.until(lambda: len(following.pids()) == 2)
    assert not psutil.pid_exists(following.pids()[0])
    assert "changed: life.py; the workers drain\nstarting again: life.py" in following.log()
    following.process.terminate()
    assert following.process.wait(PATIENCE_S) == Exit.OK


@E2E
@pytest.mark.parametrize("broken", ["sys.exit(3)", "sys.exit(1)", "this is no Python"])
def test_a_run_that_fails_is_started_again_at_the_next_change_and_not_before(
    begin: Callable[[str], Following], broken: str
) -> None:
    """Mended, it goes on; told to stop while it waits, it ends with 0."""
    following = begin("begun()\nsys.exit(3)")
    following.until(lambda: "the run ended with code 3: waiting for the" in following.log())
    following.save(SERVES)
    following.until(lambda: len(following.pids()) == 2)
    following.save(broken)
    following.until(lambda: following.log().count("waiting for the next change") == 2)
    following.process.terminate()
    assert following.process.wait(PATIENCE_S) == Exit.OK
    assert len(following.pids()) == 2


@E2E
@pytest.mark.parametrize("code", [Exit.OK, Exit.USAGE, Exit.KAFKA_UNREACHABLE])
def test_a_run_that_is_over_ends_the_whole(begin: Callable[[str], Following], code: Exit) -> None:
    """Stopped by somebody, called wrongly, or no broker in time: no change of a file helps."""
    following = begin(f"sys.exit({int(code)})")
    assert following.process.wait(PATIENCE_S) == code


@E2E
def test_two_signals_reach_the_run_as_two(begin: Callable[[str], Following]) -> None:
    """So the second one stops now; Ctrl-C counts like SIGTERM."""
    following = begin(SERVES.replace("1.5", "60"))
    following.until(following.pids)
    following.process.send_signal(signal.SIGINT)
    following.process.terminate()
    assert following.process.wait(PATIENCE_S) == Exit.FORCED


@E2E
def test_a_first_signal_in_a_drain_for_a_change_forces_nothing(
    begin: Callable[[str], Following],
) -> None:
    """The run drains already, and is not started again."""
    following = begin(DRAINS)
    following.until(following.pids)
    following.save(DRAINS + "# anew")
    following.until(lambda: "changed: life.py" in following.log())
    following.process.terminate()
    # For a signal too many to arrive.
    time.sleep(0.5)
    following.end_drain()
    assert following.process.wait(PATIENCE_S) == Exit.OK
    assert len(following.pids()) == 1


@E2E
def test_a_killed_reloader_takes_its_run_along(tmp_path: Path) -> None:
    """The run drains, as it does when its own supervisor is killed."""
    (tmp_path / "shop.py").write_text(APP)
    given = {"ACKFLOOR_BOOTSTRAP_SERVERS": NOWHERE, "ACKFLOOR_RUN_LISTEN": "127.0.0.1:0"}
    run = Running("shop:app", "--reload", cwd=tmp_path, **given)
    try:
        run.logged(f"waiting for Kafka at {NOWHERE}")
        children = psutil.Process(run.process.pid).children(recursive=True)
        assert children
        run.signal(signal.SIGKILL)
        run.wait()
        _, alive = psutil.wait_procs(children, PATIENCE_S)
        assert alive == []
    finally:
        run.close()


@E2E
def test_an_app_that_does_not_import_is_told_and_waited_for(tmp_path: Path) -> None:
    """From the start on: which file, which line; the settings file is followed, too."""
    (tmp_path / "shop.py").write_text(APP + "def broken(:\n")
    given = {"ACKFLOOR_BOOTSTRAP_SERVERS": NOWHERE, "ACKFLOOR_RUN_LISTEN": "127.0.0.1:0"}
    run = Running("shop:app", cwd=tmp_path, ACKFLOOR_RUN_RELOAD="1", **given)
    try:
        assert "shop.py:9: SyntaxError" in run.logged("error: importing shop failed")
        run.logged("the run ended with code 3: waiting for the next change")
        (tmp_path / "shop.py").write_text(APP)
        run.logged("starting again: shop.py")
        run.logged("waiting for Kafka at")
        before = len(run.lines)
        (tmp_path / "ackfloor.toml").write_text("[handlers.bill]\nconcurrency = 'many'\n")
        run.logged("changed: ackfloor.toml; the workers drain")
        run.logged("error: handlers.bill.concurrency='many'")
        run.logged("the run ended with code 3: waiting for the next change", after=before)
        run.signal(signal.SIGTERM)
        assert run.wait() == Exit.OK
    finally:
        run.close()
