"""Inbox: an effect in a database happens once, however often its record is delivered.

Delivery is at least once. A record is settled only after its handler has returned, so it comes
again after a crash in between, after a timeout, in a retry and in a redrive. No consumer can
prevent that; a handler can make the second time harmless. `delivery.idempotency_key` is the same
each time.

The rule: the key is written in the transaction of the effect. Either both are there or neither is,
and where the key is there, the effect is. Of two transactions with one key at once the second waits
for the first, by the table's primary key, and then finds it.

The database is SQLite, or PostgreSQL by its URL (with a driver, such as psycopg):

    LEDGER_DATABASE=postgresql+psycopg://localhost/ledger python -m ackfloor_handlers.inbox_table

Needs `pip install sqlalchemy`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from pydantic import BaseModel
from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from ackfloor import App, Delivery

#: What inserts a row or leaves the one that is there; a database needs an entry of its own.
INSERTS: Mapping[str, Callable[[Table], postgresql.Insert | sqlite.Insert]] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}


class Inbox:
    """Which records had their effect: a table in the database of the effects.

    Args:
        metadata: that of the database's other tables, so that it is created with them.
    """

    def __init__(self, metadata: MetaData) -> None:
        self.table = Table(
            "inbox",
            metadata,
            Column("handler", String(200), primary_key=True),
            # As the contract has it: at most 300 characters.
            Column("key", String(300), primary_key=True),
            Column("seen_at", DateTime(timezone=True), nullable=False, index=True),
        )

    def is_first(self, transaction: Connection, handler: str, delivery: Delivery) -> bool:
        """Note that a record has its effect in this transaction; False if it had it before.

        A record that comes again may come once more, so its row counts from now on anew.

        Args:
            transaction: that of the effect. Call this in it before anything else.
            handler: whose effect it is: several handlers of one topic have one each.

        Raises:
            KeyError: the database is none that `INSERTS` knows.
        """
        insert = INSERTS[transaction.dialect.name](self.table)
        key, now = delivery.idempotency_key, datetime.now(UTC)
        # What it returns, and not how many rows it says: that is not told by every driver.
        row = insert.values(handler=handler, key=key, seen_at=now)
        new = row.on_conflict_do_nothing().returning(self.table.c.key)
        if transaction.execute(new).first() is not None:
            return True
        there = (self.table.c.handler == handler) & (self.table.c.key == key)
        transaction.execute(update(self.table).where(there).values(seen_at=now))
        return False

    def forget(self, transaction: Connection, before: datetime) -> int:
        """Drop the rows from before a time in UTC, and return how many.

        Args:
            before: so long ago that none of their records can come again: the retention of the
                source topic, the retry schedule and `dlq_retention` together, at least.
        """
        return transaction.execute(delete(self.table).where(self.table.c.seen_at < before)).rowcount


def create_tables(metadata: MetaData, engine: Engine) -> None:
    """Create the tables that are missing, also while other workers do the same.

    Raises:
        DBAPIError: the database refuses it.
    """
    try:
        metadata.create_all(engine)
    except DBAPIError:
        # It looks first and creates afterwards: another worker may have been between the two.
        metadata.create_all(engine)


class Transfer(BaseModel):
    """Money that must move exactly once."""

    account: str
    cents: int


class Ledger:
    """Balances, and which transfers they have in them.

    Args:
        engine: the database.
    """

    _metadata = MetaData()
    inbox = Inbox(_metadata)
    _balance = Table(
        "balance",
        _metadata,
        Column("account", String(100), primary_key=True),
        Column("cents", Integer, nullable=False),
    )

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        create_tables(self._metadata, engine)

    def apply(self, transfer: Transfer, delivery: Delivery) -> bool:
        """Move the money, unless this record did so before; returns whether it moved."""
        with self._engine.begin() as transaction:
            if not self.inbox.is_first(transaction, "transfer", delivery):
                return False
            insert = INSERTS[transaction.dialect.name](self._balance).values(transfer.model_dump())
            moved = self._balance.c.cents + insert.excluded.cents
            transaction.execute(
                insert.on_conflict_do_update(index_elements=["account"], set_={"cents": moved})
            )
            return True

    def cents(self, account: str) -> int:
        """The balance of an account, 0 where it is unknown."""
        wanted = select(self._balance.c.cents).where(self._balance.c.account == account)
        with self._engine.connect() as connection:
            found: int | None = connection.execute(wanted).scalar()
        return found or 0


@asynccontextmanager
async def open_ledger(_app: App) -> AsyncGenerator[Ledger]:
    """One pool of connections for each worker process, closed when it ends."""
    engine = create_engine(os.environ.get("LEDGER_DATABASE", "sqlite:///ledger.db"))
    try:
        yield Ledger(engine)
    finally:
        engine.dispose()


app = App(group="ledger", lifespan=open_ledger)


@app.handler("transfers", ordering="key", on_failure="park")
def transfer(transfer: Transfer, delivery: Delivery, ledger: Ledger) -> None:
    """Apply a transfer once, however often it is delivered."""
    if not ledger.apply(transfer, delivery):
        print(f"{delivery.idempotency_key} was applied before: skipped")


if __name__ == "__main__":
    from ackfloor.testing import Harness

    with Harness(app) as h:
        h.send("transfers", Transfer(account="ada", cents=500), key="ada")
        h.send("transfers", Transfer(account="ada", cents=-200), key="ada")
        h.restart()  # killed before it could commit: both are delivered again
        h.settle()
        print(f"handled {len(h.handled('transfers'))} deliveries of 2 transfers")
