"""Slot: one unit of concurrency on a thread of its own, and its lease.

Who decides whether a thread that is just ending its handler goes on or was abandoned: its lease,
a list that holds its delivery. The thread takes the delivery out when the handler has ended, the
owner takes it out to abandon; `list.pop` is atomic, and each handling has a list of its own, so
one of them gets it and a thread is never abandoned for the record after. A thread that lost its
lease leaves what it was at, and the owner has posted the end of that already.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.runtime.executors.thread_scheduling import wait_for_a_core

if TYPE_CHECKING:
    from ackfloor.runtime.executors.thread_executor import ThreadExecutor


class Slot(threading.Thread):
    """One unit of concurrency."""

    def __init__(self, executor: ThreadExecutor, number: int, place: int) -> None:
        name = f"ackfloor:{executor.handler}:{number}"
        super().__init__(name=name, daemon=True)
        self._executor = executor
        #: Where its marks go.
        self.place = place
        #: The delivery being handled, of a batch the first; whoever pops it decides whether the
        #: slot goes on.
        self.lease: list[TrackedDelivery] = []
        #: What it is at, where that is not one delivery alone.
        self.unit: Work | Batch | None = None
        self.abandoned = False
        self.bell = threading.Lock()
        self.bell.acquire(blocking=False)
        #: Of the delivery at hand: set by its answer, or to stop waiting for one.
        self.answered = self.new_answer()

    def new_answer(self) -> threading.Event:
        """What the answer to one delivery sets."""
        return threading.Event()

    def running(self) -> Sequence[TrackedDelivery]:
        """What occupies it; any thread may ask."""
        lease, unit = self.lease, self.unit
        return unit.items if lease and isinstance(unit, Batch) else list(lease)

    def take_lease(self, delivery: TrackedDelivery) -> bool:
        """Take the lease, if it is that of this delivery."""
        lease = self.lease
        try:
            return lease[0] is delivery and lease.pop() is delivery
        except IndexError:
            return False

    def run(self) -> None:
        """Take and handle deliveries until the executor stops or the slot is abandoned."""
        wait_for_a_core()
        try:
            self._executor.work(self)
        except BaseException as exc:
            # No handler's: those are caught where it is called. `PyThreadState_SetAsyncExc` raises
            # wherever the thread just is.
            self._executor.broke(self, exc)
        finally:
            self._executor.thread_ended(self)


def end_lease(slot: Slot, lease: list[TrackedDelivery]) -> None:
    """A handler has ended: whoever pops the lease decides whether its slot goes on."""
    try:
        lease.pop()
    except IndexError:
        slot.abandoned = True
