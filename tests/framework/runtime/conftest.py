"""What tests of this folder that start processes of handlers share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import leave_untraced


@pytest.fixture(autouse=True)
def untraced_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of every kind of handler has coverage not trace the processes of the kind "process".

    They start as a matter of course here; their lines are covered by tests of `executors/process`
    and the contract of executors.
    """
    is_kind = "process" in request.node.name.partition("[")[2]
    if is_kind and request.path.parent == Path(__file__).parent:
        leave_untraced(monkeypatch)
