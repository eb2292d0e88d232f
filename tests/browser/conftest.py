"""A real Chromium for the tests of this folder, and a console for its windows to look at."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, sync_playwright

from ackfloor.operations import run_client
from ackfloor_monitoring.console.index import follower
from ackfloor_monitoring.console.reads import cluster_facts, searches
from tests.browser.window import WIDE, Window
from tests.e2e.conftest import make_stage  # noqa: F401 -- a fixture of this folder, too
from tests.monitoring.console.conftest import bootstrap_servers  # noqa: F401 -- likewise
from tests.monitoring.console.shown_cluster import kafka, run  # noqa: F401 -- likewise
from tests.processes import leave_untraced
from tests.structure.sources import REPOSITORY

CHROMIUM = shutil.which("chromium")
#: The name of a site of somebody else's, which the browser finds on this machine.
OTHER_SITE = "elsewhere.test"
_WINDOWS = pytest.StashKey[list[Window]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The walks of the guide make its pictures: `pytest tests/browser --pictures docs/images`."""
    told = "the folder that the guide's pictures are written to, from the repository"
    parser.addoption("--pictures", metavar="FOLDER", help=told)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder are marked, and run in one process; without Chromium they are left out."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("browser"))
            if CHROMIUM is None:
                reason = "chromium is not installed (Debian's package chromium): no page was seen"
                item.add_marker(pytest.mark.skip(reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """What a failed test saw, as pictures in its folder."""
    report: pytest.TestReport = yield
    if report.when == "call" and report.failed:
        for number, window in enumerate(item.stash.get(_WINDOWS, [])):
            folder: Path = item.funcargs["tmp_path"]  # type: ignore[attr-defined]
            try:
                seen = str(window.screenshot(folder / f"window-{number}.png"))
            except Error as error:  # of a page that is too long for a picture
                seen = error.message
            report.sections.append(("screenshot", f"{seen}\n{window.complaints}"))
    return report


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for a file's tests; each has windows of its own."""
    with sync_playwright() as playwright:
        # Its sandbox needs rights that containers do not have; it sees our own pages alone.
        args = ["--no-sandbox", f"--host-resolver-rules=MAP {OTHER_SITE} 127.0.0.1"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=args)
        yield browser
        browser.close()


@pytest.fixture
def look(
    chromium: Browser, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., Window]]:
    """Opens windows on a console, each of a person of their own."""
    del tmp_path  # the pictures of a failed test go there
    windows = request.node.stash.setdefault(_WINDOWS, [])

    def opened(home: str, *, width: int = WIDE, height: int = 800, **taste: Any) -> Window:
        context = chromium.new_context(viewport={"width": width, "height": height}, **taste)
        contexts.callback(context.close)
        windows.append(Window(context, home))
        return windows[-1]

    with ExitStack() as contexts:
        yield opened


@pytest.fixture
def pictures(request: pytest.FixtureRequest) -> Path | None:
    """The folder for the guide's pictures; None where they are not made."""
    folder = request.config.getoption("--pictures", default=None)
    return None if folder is None else (REPOSITORY / folder).resolve()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Answers are asked for often; no settings file; what is started is covered elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster_facts, "RUNS_EVERY_S", 0.2)
    monkeypatch.setattr(cluster_facts, "KAFKA_EVERY_S", 0.2)
    monkeypatch.setattr(follower, "EVERY_S", 0.2)
    # A run that is not answered for in time is gone from the pages, and what was opened with it.
    monkeypatch.setattr(run_client, "STATE_S", 60.0)
    monkeypatch.setattr(searches, "PATIENCE_S", 120.0)
    leave_untraced(monkeypatch)


@pytest.fixture
def broker(
    bootstrap_servers: str,  # noqa: F811 -- the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """The broker's address, which is in the environment as well."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    return bootstrap_servers
