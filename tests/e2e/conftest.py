"""The stage of an end-to-end test on the run's broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.stage import Stage
from tests.processes import leave_untraced


@pytest.fixture(autouse=True)
def untraced_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts of them the tests of the parts cover."""
    leave_untraced(monkeypatch)


@pytest.fixture
def make_stage(tmp_path: Path, bootstrap_servers: str) -> Iterator[Callable[..., Stage]]:
    """Makes stages; their processes and topics are gone when the test is over."""
    stages: list[Stage] = []

    def make(body: str, *, partitions: int = 2, session_s: int = 45) -> Stage:
        folder = tmp_path / str(len(stages))
        folder.mkdir()
        stages.append(Stage(folder, bootstrap_servers, partitions, session_s))
        # Each of them, whatever becomes of the others.
        ends.callback(stages[-1].close)
        stages[-1].app(body)
        return stages[-1]

    with ExitStack() as ends:
        yield make
