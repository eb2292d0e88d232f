"""What coverage does not trace, which takes as long again: what executes none of our lines.

These are the process that deals tests out to others, tests that read sources, and the side of the
browser in its tests. The console that it looks at runs in threads of its own, which are traced.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

import pytest

from tests.simulation.untraced import untraced

UNTRACED = (
    "tests/browser/",
    *(
        f"tests/structure/test_{name}.py"
        for name in ("glossary", "import_direction", "rooms", "size")
    ),
)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """In xdist's controller: the loop of what others report."""
    config = session.config
    deals_out = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if not deals_out:
        return (yield)
    with untraced():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """This thread alone: coverage would have to begin anew in all of them."""
    if not item.nodeid.startswith(UNTRACED):
        return (yield)
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)
