"""Tests of one `xdist_group` run in one worker, so that what they share is started once.

xdist 3.8 says so in the test's id, and since pytest 9.2 that attribute has another name: groups
were taken for single tests, without a word (pytest-xdist, issue 1386). A later xdist that sets the
id itself finds nothing left to do here.
"""

from __future__ import annotations

import pytest
from _pytest.nodeid import NodeId


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker of `--dist loadgroup`: each id ends with its group."""
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        marks = item.iter_markers("xdist_group")
        names = sorted({str(mark.args[0] if mark.args else mark.kwargs["name"]) for mark in marks})
        ending = f"@{'_'.join(names)}"
        if names and not item.nodeid.endswith(ending):
            item._id = NodeId.parse(item.nodeid + ending)
