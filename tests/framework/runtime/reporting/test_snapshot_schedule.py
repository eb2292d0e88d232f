"""Snapshots: twice a second while something happens, and more seldom while nothing does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor.core.state.snapshot import Fault, Snapshot
from ackfloor.runtime.reporting.snapshot_schedule import INTERVAL_S, QUIET_INTERVAL_S, Freshness
from tests.monitoring.samples import HANDLER, PARTITION, SNAPSHOT

IDLE = replace(HANDLER, running=0, oldest=())
WRITTEN = replace(PARTITION, parking=0)
QUIET = replace(SNAPSHOT, handlers=(IDLE,), partitions=(WRITTEN,))


def test_it_is_due_soon_where_something_has_happened() -> None:
    """And late where nothing has; the first one at once, and the last."""
    freshness = Freshness()
    assert freshness.due(0.0)
    freshness.made(QUIET, 10.0)
    assert not freshness.due(10.0 + INTERVAL_S)
    assert freshness.due(10.0 + QUIET_INTERVAL_S)
    freshness.changed = True
    assert not freshness.due(10.0 + INTERVAL_S - 0.01)
    assert freshness.due(10.0 + INTERVAL_S)
    freshness.expire()
    assert freshness.due(10.0)


@pytest.mark.parametrize(
    "moving",
    [
        SNAPSHOT,
        replace(QUIET, handlers=(IDLE, replace(IDLE, held_for_s=3.0))),
        replace(QUIET, faults=(Fault("commit", "orders", "refused", 0),)),
        replace(QUIET, partitions=(WRITTEN, replace(PARTITION, parking=1))),
    ],
    ids=["something runs", "a handler is held", "something is wrong", "a record is written"],
)
def test_what_changes_by_itself_is_told_soon(moving: Snapshot) -> None:
    """Although nothing happens."""
    freshness = Freshness()
    freshness.made(moving, 10.0)
    assert freshness.due(10.0 + INTERVAL_S)
    freshness.made(QUIET, 11.0)
    assert not freshness.due(11.0 + INTERVAL_S)
