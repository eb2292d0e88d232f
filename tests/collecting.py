"""Every process of a run collects all tests, and most of them for half the price.

Collecting makes thousands of objects that stay: looking for garbage among them is left out, then
and later. And what is traced while one process collects need not be traced in the others.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import nullcontext
from typing import Any

import pytest

from tests.simulation.untraced import untraced


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Around the collection of a process; the first one's is traced."""
    worker: dict[str, Any] = getattr(session.config, "workerinput", {})
    is_first = worker.get("workerid", "gw0") == "gw0"
    gc.disable()
    try:
        with nullcontext() if is_first else untraced():
            return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
