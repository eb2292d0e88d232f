"""Rewinds: what waits behind failed records leaves memory where a worker holds too much.

Theory. When the head of a lane fails, all that was read of the lane waits behind it: its partition
may have read half of what the worker may hold by then. What waits so does not count against other
partitions, or a few failing records would stop them all. So with many partitions a worker could
hold any number of records. Where it holds more than its limits, a partition keeps its share of
what waits. The rest is dropped, beginning with what was read last, and the partition is rewound:
when it has room again, it is read from there.

What comes behind a record in its lane has a higher offset, so it is dropped before. Records that
were settled beyond the new position stay settled: the tracker restores them, as it does what an
earlier assignment has settled.

Invariants (tests/framework/core/state/test_rewinds.py):

D1  a record that is dropped has not started, and its lane waits for a head that failed, or runs.
D2  a dropped record is registered again before its partition's floor passes it.
D3  a partition keeps its share of what waits; it is rewound only while it is not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import Assignment


def rewind(assignment: Assignment) -> Sequence[TrackedDelivery]:
    """Drop what waits behind failed records beyond a partition's share; returns what it was."""
    if not assignment.paused or assignment.stopping or assignment.orphaned:
        return ()
    position = _take_from_lanes(assignment)
    if position is None:
        return ()
    tracker, epochs = assignment.tracker, assignment.leader_epochs
    dropped = tracker.rewind(position)
    if tracker.restored:
        settled_epoch = epochs.at(tracker.highest_settled)
        assignment.restored_epoch = max(assignment.restored_epoch, settled_epoch)
    epochs.rewind(position)
    assignment.rewound = True
    for delivery in dropped:
        delivery.closed = True
    return dropped


def _take_from_lanes(assignment: Assignment) -> int | None:
    """Take the last records out of their lanes, as far as there are too many.

    Returns the lowest offset of these; None without any.
    """
    gates, lanes = assignment.gates, assignment.handler.lanes
    position = None
    for offset, delivery in reversed(assignment.tracker.open.items()):
        enough = assignment.held <= gates.held.limit and assignment.held_bytes <= gates.bytes.limit
        if enough or not lanes.drop_last(delivery):
            break
        position = offset
    return position
