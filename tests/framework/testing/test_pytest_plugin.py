"""The fixtures as a user's project has them: pytest, started in a folder outside, finds them."""

from __future__ import annotations

import inspect
import socket
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from ackfloor.testing import Harness
from ackfloor.testing.kit.harness import HarnessOptions
from tests.plugin_arguments import PLUGIN, plugin_arguments
from tests.structure.sources import REPOSITORY

pytest_plugins = ["pytester"]

APP = """
from ackfloor import App, RetryPolicy

app = App(group="shop")
seen = []

@app.handler("orders", retry=RetryPolicy("30s", max_redeliveries=1))
async def take(order: str) -> None:
    seen.append(order)
    if order == "bad":
        raise ValueError(order)
"""
BODY = """
    h = ackfloor_harness(app, partitions=3)
    h.send("orders", "bad", partition=2)
    h.advance("30s")
    assert [record.reason for record in h.dlq("orders")] == ["exhausted"]
    assert len(h.errors) == 2
"""
#: What a user's strict project has: no warning passes.
STRICT = (
    *("-q", "-W", "error", "-p", "no:cacheprovider"),
    *("-o", "asyncio_default_fixture_loop_scope=function"),
)


def outcome(
    pytester: pytest.Pytester, tests: str, *arguments: str, **expected: int
) -> pytest.RunResult:
    """Run a project of one app and one file of tests, and compare how many of them did what."""
    pytester.makepyfile(shop=APP, test_shop=tests)
    result = pytester.runpytest_subprocess(*STRICT, *plugin_arguments(), *arguments)
    result.assert_outcomes(**expected)
    return result


def test_the_entry_point_names_the_plugin() -> None:
    """What pyproject.toml tells pytest to load is this module, with these fixtures."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    (named,) = project["entry-points"]["pytest11"].values()
    assert named == PLUGIN
    module = import_module(named)
    assert {"ackfloor_harness", "ackfloor_kafka"} <= set(vars(module))


@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        ("def test_one(ackfloor_harness):", ()),
        ("import pytest\n@pytest.mark.asyncio\nasync def test_one(ackfloor_harness):", ()),
        ("async def test_one(ackfloor_harness):", ("-o", "asyncio_mode=auto")),
        (
            """import pytest
@pytest.fixture
def anyio_backend(): return "asyncio"
@pytest.mark.anyio
async def test_one(ackfloor_harness):""",
            (),
        ),
    ],
    ids=["plain", "pytest-asyncio", "asyncio_mode=auto", "anyio"],
)
def test_a_harness_runs_whatever_drives_the_test(
    pytester: pytest.Pytester, head: str, arguments: tuple[str, ...]
) -> None:
    """The same lines do in a plain test and in an async one of either plugin."""
    outcome(pytester, f"from shop import app\n{head}{BODY}", *arguments, passed=1)


def test_a_harness_runs_inside_asyncio_run(pytester: pytest.Pytester) -> None:
    """A test that starts its own event loop needs no plugin."""
    tests = (
        "import asyncio\nfrom shop import app\ndef test_one(ackfloor_harness):\n"
        "    async def body():\n"
        + "".join(f"        {line.strip()}\n" for line in BODY.strip().splitlines())
        + "    asyncio.run(body())\n"
    )
    outcome(pytester, tests, passed=1)


def test_harnesses_end_with_their_test(pytester: pytest.Pytester) -> None:
    """The next test may use the same app, also after one that failed; two at once both end."""
    tests = """
import pytest
from shop import app
from ackfloor import App

started = []

def test_fails(ackfloor_harness):
    other = App(group="other")
    @other.handler("returns")
    def back(value: str) -> None: ...
    started.extend([ackfloor_harness(app), ackfloor_harness(other)])
    started[0].send("orders", "good")
    assert False

def test_after_it(ackfloor_harness):
    for harness in started:
        with pytest.raises(RuntimeError, match="not running"):
            harness.settle()
    h = ackfloor_harness(app)
    h.send("orders", "good")
    assert len(h.handled()) == 1
"""
    outcome(pytester, tests, passed=1, failed=1)


def test_a_run_that_does_not_use_it_loads_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tests of the same environment pay for a few small modules, and for nothing heavy."""
    tests = """
import sys

def test_nothing_of_ours_is_loaded():
    ours = {name for name in sys.modules if name.startswith("ackfloor.testing")}
    assert ours == {"ackfloor.testing", "ackfloor.testing.pytest_plugin"}
    heavy = {"asyncio", "confluent_kafka", "pydantic", "ackfloor.app", "ackfloor.runtime"}
    assert heavy & set(sys.modules) == set()
"""
    # Other plugins load what we look for.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_other=tests)
    result = pytester.runpytest_subprocess("-q", "-W", "error", "-p", PLUGIN)
    result.assert_outcomes(passed=1)


def test_the_options_are_those_of_the_harness() -> None:
    """What the factory's types name is what `Harness` takes, no more and no less."""
    taken = set(inspect.signature(Harness).parameters) - {"app"}
    assert HarnessOptions.__annotations__.keys() == taken


KAFKA = """
import socket

def address(servers):
    host, _, port = servers.partition(":")
    return host, int(port)

def test_one(ackfloor_kafka):
    socket.create_connection(address(ackfloor_kafka), 5).close()
    print("the broker is", ackfloor_kafka)

def test_two(ackfloor_kafka):
    socket.create_connection(address(ackfloor_kafka), 5).close()
    print("the broker is", ackfloor_kafka)
"""


def brokers(result: pytest.RunResult) -> set[str]:
    """The addresses that tests have printed."""
    return {line for line in result.outlines if line.startswith("the broker is")}


def listens(line: str) -> bool:
    """Whether somebody still listens at a printed address."""
    host, _, port = line.rsplit(maxsplit=1)[-1].partition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a given broker nor Docker."""
    monkeypatch.delenv("ACKFLOOR_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


@pytest.mark.kafka
@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_local_broker_serves_the_run_and_ends_with_it(
    pytester: pytest.Pytester, no_engine: None, processes: tuple[str, ...]
) -> None:
    """All tests of a run share one, in whatever process they are; then it is gone."""
    result = outcome(pytester, KAFKA, "-rP", *processes, passed=2)
    (broker,) = brokers(result)
    assert not listens(broker)


@pytest.mark.kafka
def test_a_given_broker_is_used(
    pytester: pytest.Pytester, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ACKFLOOR_BOOTSTRAP_SERVERS decides, and what it names is left running."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    result = outcome(pytester, KAFKA, "-rP", passed=2)
    assert brokers(result) == {f"the broker is {bootstrap_servers}"}
    assert listens(f"the broker is {bootstrap_servers}")


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_given_broker_that_is_away_fails_the_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, processes: tuple[str, ...]
) -> None:
    """Nothing is skipped, nothing waits: each test fails with the address and what to do."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        away = f"127.0.0.1:{free.getsockname()[1]}"
        monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", away)
        result = outcome(pytester, KAFKA, *processes, errors=2)
    lines = [line for line in result.outlines if line.startswith("ackfloor_kafka: no broker")]
    assert len(lines) == 2
    assert f"ACKFLOOR_BOOTSTRAP_SERVERS={away}" in lines[0]
    assert "unset the variable" in lines[0]


def test_no_broker_at_all_fails_the_tests(
    pytester: pytest.Pytester, no_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Docker and without the extra the error is the line that installs it."""
    pytester.makeconftest("import sys\nsys.modules['jgo'] = None\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path / "cache"))
    result = outcome(pytester, KAFKA, errors=2)
    assert "pip install 'ackfloor[broker]'" in result.stdout.str()
