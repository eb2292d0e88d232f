"""Coverage traces every test but those that execute none of our lines, and goes on after them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from coverage import Coverage

from tests import tracing


def measure(frame: FrameType, event: str, argument: Any) -> None:
    """Stands for the function that coverage traces with."""


@pytest.fixture
def measured() -> Iterator[None]:
    """With a tracer of the test's own."""
    before = sys.gettrace()
    sys.settrace(measure)
    yield
    sys.settrace(before)


def traced_in(nodeid: str) -> bool:
    """Whether a test is traced; afterwards all is as it was."""
    item: Any = SimpleNamespace(nodeid=nodeid)
    around = tracing.pytest_runtest_protocol(item)
    next(around)
    traced = sys.gettrace() is measure
    with pytest.raises(StopIteration):
        around.send(None)
    assert sys.gettrace() is measure
    return traced


@pytest.mark.usefixtures("measured")
def test_readers_of_sources_and_the_browsers_side_are_not_traced() -> None:
    """Others of the same folder are."""
    found = {
        nodeid: traced_in(nodeid)
        for nodeid in (
            "tests/browser/test_jobs.py::test_a_job",
            "tests/structure/test_size.py::test_a_function_is_short",
            "tests/structure/test_docs.py::test_a_page",
            "tests/framework/test_codec.py::test_a_codec",
        )
    }
    assert list(found.values()) == [False, False, True, True]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"option": SimpleNamespace(numprocesses=6)}, ["off", "loop", "on"]),
        ({"option": SimpleNamespace(numprocesses=6), "workerinput": {}}, ["loop"]),
        ({"option": SimpleNamespace(numprocesses=None)}, ["loop"]),
        ({"option": SimpleNamespace()}, ["loop"]),
    ],
    ids=["controller", "worker", "alone", "without-xdist"],
)
def test_the_controller_is_not_traced(
    config: dict[str, Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It plays no test."""
    seen: list[str] = []
    measuring = SimpleNamespace(start=lambda: seen.append("on"), stop=lambda: seen.append("off"))
    monkeypatch.setattr(Coverage, "current", lambda: measuring)
    session: Any = SimpleNamespace(config=SimpleNamespace(**config))
    around = tracing.pytest_runtestloop(session)
    next(around)
    seen.append("loop")
    with pytest.raises(StopIteration):
        around.send(None)
    assert seen == expected
