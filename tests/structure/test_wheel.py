"""The wheel as a user gets it: complete, installed into an empty environment, out of their way.

The environment is made with pip from `requirements/runtime.txt`, so it holds what the core
dependencies bring and nothing of the development group or of an extra.

`make release` runs this once for each interpreter that it finds: `WHEEL` is then the wheel that is
to be uploaded, `WHEEL_PYTHON` the interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.structure.sources import PACKAGES, REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("wheel")]

# A user's project whose packages bear the names of this repository's folders.
PROGRAM = """
import handlers
import monitoring
from handlers.echo import app, seen
from ackfloor.testing import Harness

print(handlers.__file__)
print(monitoring.__file__)
with Harness(app) as harness:
    harness.send("greetings", b"hello")
print(seen)
"""
# What lies beside the modules, and what other packages find by entry points.
PROBE = """
import sysconfig
import urllib.request
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

import ackfloor
from ackfloor_monitoring.files import shipped

assert Path(ackfloor.__file__).is_relative_to(sysconfig.get_path("purelib")), ackfloor.__file__
for package in ("ackfloor", "ackfloor_handlers", "ackfloor_monitoring"):
    assert files(package).joinpath("py.typed").is_file(), package
checksums = [f for f in files("ackfloor.testing").iterdir() if f.name.endswith(".sha256")]
assert checksums
assert all(f.read_text() for f in checksums)
assert {path.partition("/")[0] for path, _ in shipped()} == {"alerts", "dashboards"}

(point,) = entry_points(group="ackfloor.monitoring")
plugin = point.load()
run = plugin.run_monitor("shop", 1)
address = run.start("127.0.0.1:0")
run.update(0, plugin.worker_monitor(0, "shop").report())
with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as page:
    told = page.read().decode()
run.stop()
assert 'ackfloor_workers_reporting{group="shop"} 1.0' in told, told
assert {point.name for point in entry_points(group="ackfloor.commands")} == {"console", "spark"}
print("all is there")
"""
FIXTURE = """
from ackfloor import App


def test_the_fixture(ackfloor_harness):
    app = App(group="user-of-the-wheel")

    @app.handler("greetings")
    async def echo(value: bytes) -> None: ...

    harness = ackfloor_harness(app)
    harness.send("greetings", b"hello")
    assert len(harness.handled("greetings")) == 1
"""
HANDLERS = """
from ackfloor import App

app = App(group="user-of-the-wheel")
seen = []


@app.handler("greetings")
async def echo(value: bytes) -> None:
    seen.append(value)
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """The wheel, and an environment that holds it and the core dependencies only."""

    wheel: Path
    bin: Path

    def run(self, *command: str | Path, cwd: Path) -> str:
        """What a program of the environment prints; its failure fails the test."""
        return run(self.bin / command[0], *command[1:], cwd=cwd)


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command outside this project's own environment and give what it printed."""
    foreign = ("PYTHON", "VIRTUAL_ENV", "COVERAGE_", "ACKFLOOR_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    env |= variables
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is to be released, or one that is built from the sources as they are."""
    if given := os.environ.get("WHEEL"):
        return Path(given).resolve()
    folder = tmp_path_factory.mktemp("dist")
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
    run(sys.executable, *build, REPOSITORY, cwd=folder)
    (built,) = folder.glob("ackfloor-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment of its own with the pinned core dependencies and the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    run(os.environ.get("WHEEL_PYTHON", sys.executable), "-m", "venv", folder, cwd=folder)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet")
    pins = REPOSITORY / "requirements" / "runtime.txt"
    run(*pip, "--require-hashes", "-r", pins, cwd=folder)
    run(*pip, "--no-deps", wheel, cwd=folder)
    return Installed(wheel, folder / "bin")


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    """Modules, `py.typed` and the jars' checksums are in it; tests and tools are not."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {
        file.relative_to(root).as_posix()
        for package, root in PACKAGES.items()
        for file in (root / package).rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    assert held == sources
    assert {f"{package}/py.typed" for package in PACKAGES} <= held
    assert any(name.endswith(".sha256") for name in held)


def test_core_dependencies_are_enough(installed: Installed, tmp_path: Path) -> None:
    """The installer finds nothing missing, and no extra came along."""
    installed.run("python", "-m", "pip", "check", cwd=tmp_path)
    names = installed.run("python", "-m", "pip", "list", "--format=freeze", cwd=tmp_path)
    assert "ackfloor==" in names
    assert not {"pyspark", "jgo", "testcontainers", "pytest"} & {
        line.split("==")[0] for line in names.splitlines()
    }


def test_the_command_answers(installed: Installed, tmp_path: Path) -> None:
    """`ackfloor --version` names the version that the wheel's file name names."""
    answer = installed.run("ackfloor", "--version", cwd=tmp_path)
    assert answer.split() == ["ackfloor", installed.wheel.name.split("-")[1]]


def test_a_user_s_own_handlers_and_monitoring_packages_win(
    installed: Installed, tmp_path: Path
) -> None:
    """In a folder with packages of the same names, theirs are imported and a handler runs."""
    for package in ("handlers", "monitoring"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "handlers" / "echo.py").write_text(HANDLERS)
    (tmp_path / "program.py").write_text(PROGRAM)

    printed = installed.run("python", "program.py", cwd=tmp_path).splitlines()

    assert [Path(line) for line in printed[:2]] == [
        tmp_path / "handlers" / "__init__.py",
        tmp_path / "monitoring" / "__init__.py",
    ]
    assert printed[2] == "[b'hello']"


def test_the_reference_handlers_are_importable_beside_them(
    installed: Installed, tmp_path: Path
) -> None:
    """The demo's app comes with the wheel, whatever the folder it is started from holds."""
    (tmp_path / "handlers").mkdir()
    (tmp_path / "handlers" / "__init__.py").touch()
    probe = "import ackfloor_handlers.orders as orders; print(orders.app.group)"
    assert installed.run("python", "-c", probe, cwd=tmp_path).strip()


def test_its_files_and_entry_points_are_found(installed: Installed, tmp_path: Path) -> None:
    """In a folder without sources: types, checksums, alerts and dashboards, and the run's page."""
    (tmp_path / "probe.py").write_text(PROBE)
    assert installed.run("python", "probe.py", cwd=tmp_path) == "all is there\n"


def test_pytest_finds_the_fixtures(wheel: Path, tmp_path: Path) -> None:
    """By the wheel's entry point alone: nothing in the user's project names the plugin."""
    place = tmp_path / "place"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps")
    run(*pip, "--target", place, wheel, cwd=tmp_path)
    (tmp_path / "test_fixture.py").write_text(FIXTURE)
    pytest_run = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    told = run(*pytest_run, "test_fixture.py", cwd=tmp_path, PYTHONPATH=str(place))
    assert "1 passed" in told
