"""What tests of commands share."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ackfloor.operations import ActionLog, ActionNote
from tests.redrive_stage import Stage


@pytest.fixture
def stage(bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A group's topics, empty; commands find their broker, and no settings file."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    monkeypatch.chdir(tmp_path)
    return Stage(bootstrap_servers)


@pytest.fixture(autouse=True)
def notes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[ActionNote]:
    """The notes of what commands did; kept here, not in Kafka, where a test needs no broker."""
    found: list[ActionNote] = []
    if request.node.get_closest_marker("kafka") is None:
        monkeypatch.setattr(ActionLog, "write", lambda _log, note: found.append(note))
    return found


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs the command can be asked: standard input passes for a terminal."""
    stdin = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("ackfloor.cli.shared.confirmation.sys", SimpleNamespace(stdin=stdin))
