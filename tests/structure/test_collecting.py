"""Collecting is cheap, and leaves a process as it was: traced, and rid of garbage now and then."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
from coverage import Coverage

from tests import collecting


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, where coverage is measured."""
    seen: list[str] = []
    measuring = SimpleNamespace(start=lambda: seen.append("on"), stop=lambda: seen.append("off"))
    monkeypatch.setattr(Coverage, "current", lambda: measuring)
    return seen


def collect(steps: list[str], **config: Any) -> None:
    """Play the hook around a collection."""
    session: Any = SimpleNamespace(config=SimpleNamespace(**config))
    around = collecting.pytest_collection(session)
    next(around)
    steps.append(f"collect, garbage {'looked for' if gc.isenabled() else 'left'}")
    with pytest.raises(StopIteration):
        around.send(None)
    assert gc.isenabled()


@pytest.mark.parametrize("config", [{}, {"workerinput": {"workerid": "gw0"}}])
def test_what_collecting_executes_is_traced_once(steps: list[str], config: dict[str, Any]) -> None:
    """Imports, and what files of tests call while they are loaded."""
    collect(steps, **config)
    assert steps == ["collect, garbage left"]


def test_the_others_are_traced_afterwards(steps: list[str]) -> None:
    """What their tests execute counts."""
    collect(steps, workerinput={"workerid": "gw1"})
    assert steps == ["off", "collect, garbage left", "on"]


def test_what_was_collected_is_not_looked_through_for_garbage() -> None:
    """In this very process."""
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
