"""Idempotent handling: skip records that were handled before, by their origin.

Delivery is at least once. A record is settled only after its handler has returned, so after a
crash in between it is redelivered, and a handler that outlives its consume timeout runs beside its
own retry. No consumer can prevent that; a handler can make the second time harmless.
`delivery.origin` names a record for ever: it stays the same through every retry tier and every
redrive.

The rule: write "done" in the same transaction as the effect. Here both are rows of one SQLite
database; with another store, use its transaction or a conditional write.

Run `python -m ackfloor_handlers.once`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from pydantic import BaseModel

from ackfloor import App, Delivery


class Transfer(BaseModel):
    """Money that must move exactly once."""

    account: str
    cents: int


class Accounts:
    """Balances, and which records have been applied to them."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS done ("
            "topic TEXT, partition INT, offset INT, PRIMARY KEY (topic, partition, offset))"
        )
        self._db.execute("CREATE TABLE IF NOT EXISTS balance (account TEXT PRIMARY KEY, cents INT)")

    def apply(self, transfer: Transfer, delivery: Delivery) -> bool:
        """Move the money unless this record did so before; returns whether it moved."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute("INSERT INTO done VALUES (?, ?, ?)", delivery.origin)
            self._db.execute(
                "INSERT INTO balance VALUES (?, ?) "
                "ON CONFLICT (account) DO UPDATE SET cents = cents + excluded.cents",
                (transfer.account, transfer.cents),
            )
        except sqlite3.IntegrityError:
            self._db.execute("ROLLBACK")
            return False
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        return True

    def cents(self, account: str) -> int:
        """The balance of an account, 0 where it is unknown."""
        row = self._db.execute("SELECT cents FROM balance WHERE account = ?", (account,)).fetchone()
        return row[0] if row else 0

    def close(self) -> None:
        """Close the database."""
        self._db.close()


DATABASE = ":memory:"


@asynccontextmanager
async def open_accounts(_app: App) -> AsyncGenerator[Accounts]:
    """One database for each worker process, closed when it ends."""
    accounts = Accounts(DATABASE)
    try:
        yield accounts
    finally:
        accounts.close()


app = App(group="ledger", lifespan=open_accounts)


@app.handler("transfers", ordering="key", on_failure="park")
async def transfer(transfer: Transfer, delivery: Delivery, accounts: Accounts) -> None:
    """Apply a transfer once, however often it is delivered."""
    if not accounts.apply(transfer, delivery):
        print(f"{delivery.origin} was applied before: skipped")


if __name__ == "__main__":
    from ackfloor.testing import Harness

    with Harness(app) as h:
        h.send("transfers", Transfer(account="ada", cents=500), key="ada")
        h.send("transfers", Transfer(account="ada", cents=-200), key="ada")
        print(f"handled {len(h.handled('transfers'))} transfers")
