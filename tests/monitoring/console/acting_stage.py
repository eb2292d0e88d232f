"""Two runs whose lanes are blocked, and a console that may act on them; its notes stay here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.reads import cluster_facts
from tests.framework.cli.lanes.test_lanes import TOKEN, Stage
from tests.monitoring.console.kept_notes import Notes, kept_notes
from tests.monitoring.console.served_console import Console, console_of

OF_BILL = (("group", "billing"), ("handler", "bill"))


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Notes:
    """Kept here, and not in Kafka; no settings file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster_facts, "RUNS_EVERY_S", 0.05)
    monkeypatch.setattr(cluster_facts, "KAFKA_EVERY_S", 0.05)
    monkeypatch.setattr(cluster_facts, "PATIENCE_S", 60.0)
    return kept_notes(monkeypatch)


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[tuple[Stage, Stage]]:
    """Two runs of one group, whose lanes are blocked; the first has two workers."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    both = Stage((b"a", b"b"), (b"b",)), Stage((b"c",))
    yield both
    for stage in both:
        stage.metrics.stop()


def console(
    stages: tuple[Stage, ...], role: Role = Role.operator, **more: Any
) -> AbstractContextManager[Console]:
    """A console of these runs, of which it has the tokens."""
    runs = [stage.listen for stage in stages]
    return console_of(*runs, role=role, token_files=dict.fromkeys(runs, Path("token")), **more)
