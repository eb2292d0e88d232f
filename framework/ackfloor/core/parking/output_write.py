"""OutputWrite: what a handled record's delivery has published, on its way to Kafka.

The first output is queued and leads the others (`rest`): they are written in one transaction, with
the commit that settles the record, or not at all. Its lane has gone on meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.records.envelope import Envelope
from ackfloor.core.records.output import Output
from ackfloor.core.records.tracked_delivery import LaneKey, TrackedDelivery

_NOTHING = Envelope()


@dataclass(slots=True, eq=False)
class OutputWrite(PendingWrite):
    """One output of a handled record.

    Attributes:
        output: the record to write.
        rest: of the first one: the record's other outputs.
        held: of the first one: the bytes of all of them.
    """

    output: Output = field(kw_only=True)
    rest: tuple[OutputWrite, ...] = ()
    held: int = 0

    @property
    def keeps_place(self) -> bool:
        """Always: those behind it in its lane wait for it."""
        return True

    @property
    def key(self) -> bytes | None:
        """The key to write."""
        return self.output.key

    @property
    def value(self) -> bytes | None:
        """The value to write."""
        return self.output.value

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.output.size


def lane_name(delivery: TrackedDelivery) -> LaneKey | None:
    """The lane in whose order a delivery's outputs are; None where its handler is unordered."""
    ordering = delivery.assignment.handler.rules.ordering
    return None if ordering == "unordered" else delivery.lane_key(ordering == "key")


def output_writes(
    delivery: TrackedDelivery, outputs: Sequence[Output], now_s: float
) -> OutputWrite:
    """The writes of one record's outputs; returns the first, which leads the others."""
    lane = lane_name(delivery)
    first, *rest = [
        OutputWrite(
            delivery,
            None,
            _NOTHING,
            now_s,
            topic=output.topic,
            partition=output.partition,
            headers=output.headers,
            output=output,
            lane=lane,
        )
        for output in outputs
    ]
    first.rest = tuple(rest)
    first.held = outputs[0].size if not rest else sum([output.size for output in outputs])
    return first
