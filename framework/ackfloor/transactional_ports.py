"""The ports of transactional parking; they belong to the other ones in `ports`."""

from __future__ import annotations

from typing import Protocol

from ackfloor.core.transaction import Outcome, Transaction


class TransactionListener(Protocol):
    """What a transactional sink reports. No method may raise."""

    def on_transaction(self, transaction: Transaction, outcome: Outcome) -> None:
        """A transaction is over, and it is known how."""
        ...


class TransactionalSink(Protocol):
    """Writes parcels together with the commits that settle them. Only the owner thread calls it.

    One transaction at a time. Nothing of one is ever seen by a reader of committed records unless
    all of it is, the commit included.
    """

    def open(self, listener: TransactionListener) -> None:
        """Make ready to write, and end what a killed predecessor left open.

        Raises:
            SourceFailed: the broker did not let it within a bounded time.
        """
        ...

    def transact(self, transaction: Transaction, member: object) -> None:
        """Begin to write a transaction, which takes its time elsewhere.

        One report follows in a later `poll`. It is told as committed or as aborted only when that
        is certain, however long it takes to find out.

        Args:
            member: what `Source.membership` says now.
        """
        ...

    def poll(self) -> None:
        """Report the transaction that has ended, without waiting."""
        ...

    def pending(self) -> int:
        """Transactions whose report is outstanding: one or none."""
        ...

    def close(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for the outstanding report, delivering it, then stop.

        One whose end is not known by then is not reported.
        """
        ...
