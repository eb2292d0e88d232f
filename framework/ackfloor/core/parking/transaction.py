"""Transaction: parcels and the commit that settles their records, written together or not at all.

What is in it is fixed when it begins. Its positions are made as if its parcels were written: they
are true if it is committed, and worth nothing if it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.records.record import CommitPosition


class Refusal(NamedTuple):
    """Why one parcel can't be written."""

    error: str
    too_large: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Transaction:
    """One transaction from its beginning to its known end.

    Attributes:
        parcels: what it writes, in order.
        positions: what it commits, one of each partition that its parcels came from.
        hopeless: what the brokers have said meanwhile that can't be written. Who carries it out
            looks here between two waits, on whatever thread, and need not wait for the client.
    """

    writes: tuple[PendingWrite, ...]
    positions: tuple[CommitPosition, ...]
    hopeless: dict[PendingWrite, Refusal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Transact:
    """Carry a transaction out; its end must be told, whatever it is."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """How a transaction ended. There is no third way: who carries it out finds out.

    Attributes:
        error: why nothing of it was written; "" where all of it was.
        refusals: the parcels it failed for; none where it failed as a whole.
    """

    error: str = ""
    refusals: Mapping[PendingWrite, Refusal] = field(default_factory=dict)

    @property
    def committed(self) -> bool:
        """Whether everything in it is written."""
        return not self.error


COMMITTED = TransactionOutcome()
