"""UnorderedRecords: what waits in a quarantining handler's retry topics and is in no key's order.

Theory. A record without a key has no order, and neither has one that was first delivered in another
partition. The former waits as it does for any handler. The latter was written by a release that
does not know of quarantine, or was read by one last: it is written to the partition of its source,
where its key is. How many of them are to be read is a hint to whoever makes room for them
(`quarantine_renewal`).
"""

from __future__ import annotations

from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.worker_state import WorkerState


class UnorderedRecords:
    """The records that are in no key's order; only the owner thread calls it."""

    __slots__ = ("_outbox", "_state")

    def __init__(self, state: WorkerState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    def expect(self, write: PendingWrite) -> None:
        """One was written, and is to be read from a retry topic."""
        target = self._state.assignments.get((write.topic, write.partition or 0))
        if target is not None:
            target.others_unread += 1

    def go_home(self, delivery: TrackedDelivery, now: Now) -> bool:
        """One was read: write it to its source's partition if it has a key and waits elsewhere."""
        assignment = delivery.assignment
        assignment.others_unread = max(0, assignment.others_unread - 1)
        if delivery.key is None:
            return False
        home = self._state.parking.own_partition(delivery, delivery.topic)
        if home is None or home == delivery.partition:
            return False
        envelope = delivery.envelope
        assert envelope is not None
        if envelope.retry_at_ms is None:
            delivery.envelope = envelope._replace(retry_at_ms=envelope.not_before_ms)
        self._outbox.hop(delivery, now)
        return True
