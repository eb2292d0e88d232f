"""PendingWrite: a record on its way to a retry tier or to the dead-letter topic.

It is made when a delivery fails and lives until the broker confirms it; until then its record
stays open. Target, wait and headers are worked out anew for
every attempt to write, so that a record whose park was delayed by an outage still waits its
full delay, and a record that was refused as too large is written with less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ackfloor.core.records.envelope import Envelope
from ackfloor.core.records.outcomes import Verdict
from ackfloor.core.records.record import Headers
from ackfloor.core.records.tracked_delivery import LaneKey, TrackedDelivery

if TYPE_CHECKING:
    from ackfloor.core.state.assignment import AfterDeadLetter


@dataclass(slots=True, eq=False)
class PendingWrite:
    """One record to write elsewhere.

    Attributes:
        delivery: the delivery that failed, or the tier record that hops on.
        verdict: what was decided; None for a hop.
        envelope: the headers to write, sizes shed so far included.
        failed_s: monotonic seconds of the failure (of the hop).
        topic: where it goes.
        partition: the target partition, None to let the producer choose.
        headers: own headers and ours, ready to write.
        wait_s: how long it waits in the tier; 0 for the dead-letter topic.
        after: of a dead letter of a quarantined key: what becomes of the records behind it.
        companion: of such a one in transactions: what holds its key, written along with it.
        refusals: how often the write has failed.
        retry_at_s: monotonic seconds of the next attempt to write it.
        late: its lane went on before it failed: only its outputs were refused.
        lane: what keeps its place among a lane's outputs; None where nothing does.
    """

    delivery: TrackedDelivery
    verdict: Verdict | None
    envelope: Envelope
    failed_s: float
    topic: str = ""
    partition: int | None = None
    headers: Headers = ()
    wait_s: float = 0.0
    after: AfterDeadLetter = "continue"
    companion: PendingWrite | None = None
    refusals: int = 0
    retry_at_s: float = 0.0
    late: bool = False
    lane: LaneKey | None = None

    @property
    def key(self) -> bytes | None:
        """The key to write."""
        return self.delivery.key

    @property
    def value(self) -> bytes | None:
        """The value to write."""
        return self.delivery.value

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.delivery.size

    @property
    def keeps_place(self) -> bool:
        """Whether it stays in the queue when it is refused: for the order of a lane's outputs."""
        return self.late

    @property
    def settles(self) -> bool:
        """Whether its record is settled when it is written; otherwise `Outbox.written` decides."""
        return self.after == "continue"
