"""HeldOutputs: what handled records have published, until a transaction has written it.

Theory. A handled record with outputs is not settled when its handler returns: it stays open until
the transaction that writes them and its commit is known to be committed. For its lane and its
circuit breaker it has ended: the lane goes on, and the next record may be handled meanwhile. What
waits is in the order of the writes' queue (`transactional_outbox`, T7). An abort writes the same
outputs again; no handler is called for it.

Held outputs count as bytes of their record, in all levels. These stop fetching, and what was read
before could still be handled and hold its outputs: far more than the worker may hold, where a topic
takes none. So a handler that holds its part of these bytes is given nothing more until they are
written, and gives back what it has not started (`Scheduler`, R6).

Outputs that a broker refuses for their size, in a transaction of their own, are their record's
failure: another delivery would publish the same, so it is dead-lettered. Its lane has gone on; the
outputs behind it wait for the dead letter, or its next owner might publish after them. Whatever
else a broker refuses leaves the record open, named as a fault, and its outputs keep their place in
the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ackfloor.core.parking.output_write import OutputWrite, lane_name, output_writes
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.records.outcomes import Rejected, judge
from ackfloor.core.records.output import OUTPUT_TOO_LARGE
from ackfloor.core.records.record import Failure, Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import Assignment
from ackfloor.core.state.worker_state import WorkerState


class HeldOutputs:
    """The outputs of one worker that are not written."""

    __slots__ = ("_state",)

    def __init__(self, state: WorkerState) -> None:
        self._state = state

    def take(self, deliveries: Sequence[TrackedDelivery], now: Now) -> list[PendingWrite]:
        """Take the outputs of a partition's handled records over; returns what is to be written."""
        held, writes = 0, list[PendingWrite]()
        for delivery in deliveries:
            outputs = delivery.outputs
            assert outputs is not None, "who has outputs has begun them"
            # A thread that its handler has left behind may publish now: what it adds is too late.
            items = tuple(outputs.items)
            if outputs.too_large:
                writes.append(self.reject(delivery, outputs.too_large, now))
                continue
            write = output_writes(delivery, items, now.mono_s)
            delivery.size += write.held
            held += write.held
            writes.append(write)
        self._hold(deliveries[0].assignment, held)
        return writes

    def _hold(self, assignment: Assignment, size: int) -> None:
        """So many bytes more are held for records of a partition."""
        assignment.open_bytes += size
        self._state.flow.add(0, size, 0, tier=assignment.tier_s is not None)
        handler = assignment.handler
        was_full = handler.outputs_full
        self._held(assignment, size)
        if handler.outputs_full and not was_full:
            self._state.take_back(handler)

    @staticmethod
    def _held(assignment: Assignment, size: int) -> None:
        """So many more bytes of outputs are held for records of a partition; negative: less."""
        assignment.outputs_held += size
        assignment.handler.outputs_held += size

    def written(self, writes: Iterable[OutputWrite]) -> None:
        """The outputs of records are written, and with them the commits that settle them."""
        of: dict[Assignment, list[OutputWrite]] = {}
        for write in writes:
            of.setdefault(write.delivery.assignment, []).append(write)
        for assignment, written in of.items():
            deliveries = [write.delivery for write in written]
            stats = assignment.stats
            # Their breaker has counted them when their handlers returned.
            stats.acked[stats.noted : stats.noted] = deliveries
            stats.noted += len(deliveries)
            self._held(assignment, -sum([write.held for write in written]))
            self._state.settle_all(assignment, deliveries)
        # Not left to the next read or answer: while everything is paused there may be none.
        self._state.unbalanced = self._state.flow.any_paused

    def drop(self, write: OutputWrite) -> None:
        """The outputs of a record are not to be written: they are held no longer."""
        delivery = write.delivery
        delivery.size -= write.held
        self._held(delivery.assignment, -write.held)
        delivery.assignment.open_bytes -= write.held
        self._state.flow.sub(0, write.held)

    def reject(self, delivery: TrackedDelivery, why: str, now: Now) -> PendingWrite:
        """A handled record's outputs are too large: returns the write that dead-letters it."""
        policy = delivery.assignment.handler.rules.policy
        outcome = Rejected(Failure(OUTPUT_TOO_LARGE, why))
        self._state.failed(delivery, outcome)
        verdict = judge(outcome, policy, delivery.attempt, delivery.last_error)
        write = self._state.parking.park(delivery, verdict, now)
        write.after, write.late, write.lane = "continue", True, lane_name(delivery)
        return write
