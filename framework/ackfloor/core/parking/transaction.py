"""Transaction: parked records and the commit that settles them, written together or not at all.

Its content is fixed when it begins. Its positions assume that its records are written: they hold if
it is committed, and not otherwise. What holds the key of a dead letter is written along with it and
shares its fate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.records.record import CommitPosition, TopicPartition


class Refusal(NamedTuple):
    """Why one record can't be written."""

    error: str
    too_large: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Transaction:
    """One transaction from its beginning to its known end.

    Attributes:
        writes: what it writes, in order.
        positions: what it commits, one of each partition that its records came from.
        led: what it writes along with a dead letter -> that dead letter.
        along: partitions that it commits without any record of theirs, because they have others of
            its outputs' lanes. Their commits may be as they were: they do not show how it ended.
        singly: each of its writes goes in a request of its own: they were refused for their size,
            which may have been that of a batch.
        hopeless: writes that the brokers have since reported as impossible. The transactional sink
            looks here between two waits, on any thread, and need not wait for the client.
        left: partitions that were dropped since it began. The owner thread adds them before their
            next owner can have them, and never takes one out, also where it comes back.
    """

    writes: tuple[PendingWrite, ...]
    positions: tuple[CommitPosition, ...]
    led: Mapping[PendingWrite, PendingWrite] = field(default_factory=dict)
    along: frozenset[TopicPartition] = frozenset()
    singly: bool = False
    hopeless: dict[PendingWrite, Refusal] = field(default_factory=dict)
    left: set[TopicPartition] = field(default_factory=set)

    @property
    def queued(self) -> tuple[PendingWrite, ...]:
        """What was queued of it: all but what is led."""
        return tuple(write for write in self.writes if write not in self.led)

    @property
    def batched(self) -> bool:
        """Whether several of its writes may have gone in one request, which is refused as one."""
        return len(self.writes) > 1 and not self.singly

    def refused(self, outcome: TransactionOutcome) -> dict[PendingWrite, tuple[str, Refusal]]:
        """Which of those made it fail, with what they lead -> at what topic, and why.

        Of several causes a size counts: what is behind such a record fails because of it.
        """
        found: dict[PendingWrite, tuple[str, Refusal]] = {}
        for write, refusal in outcome.refusals.items():
            leader = self.led.get(write, write)
            if leader not in found or refusal.too_large:
                found[leader] = write.topic, refusal
        return found

    def is_in(self, committed: Mapping[TopicPartition, tuple[int, str]]) -> bool:
        """Whether the group's commits show that it was committed: one that nobody else can have
        made is enough. Any thread may ask, after it has read them.

        Where all its partitions have left, none shows it, and nothing of it is settled here.

        Args:
            committed: partition -> position and metadata.
        """
        return any(
            committed.get(partition) == (p.position, p.metadata)
            for p in self.positions
            if (partition := TopicPartition(p.topic, p.partition)) not in self.left
            and partition not in self.along
        )


@dataclass(frozen=True, slots=True)
class Transact:
    """Carry out a transaction, and report how it ended in any case."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """How a transaction ended: committed or aborted, which the sink has to find out.

    Attributes:
        error: why nothing of it was written; "" where all of it was.
        refusals: the writes that made it fail; none where it failed as a whole.
    """

    error: str = ""
    refusals: Mapping[PendingWrite, Refusal] = field(default_factory=dict)

    @property
    def committed(self) -> bool:
        """Whether everything in it is written."""
        return not self.error


COMMITTED = TransactionOutcome()
