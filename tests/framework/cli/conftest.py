"""What tests of commands share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs the command can be asked: standard input passes for a terminal."""
    stdin = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("ackfloor.cli.confirmation.sys", SimpleNamespace(stdin=stdin))
