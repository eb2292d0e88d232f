"""The inbox: one effect for each record, whatever delivers it again. On SQLite, or by a URL."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, create_engine, make_url
from sqlalchemy.schema import CreateSchema, DropSchema

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.testing import Harness
from ackfloor_handlers import inbox_table
from ackfloor_handlers.inbox_table import Ledger, Transfer, create_tables

#: The URL of a database to run these on in place of SQLite; each test has a schema of its own.
URL = os.environ.get("LEDGER_TEST_DATABASE")
ADA = Transfer(account="ada", cents=500)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if URL is None:
        yield f"sqlite:///{tmp_path}/ledger.db"
        return
    schema = f"test_{uuid.uuid4().hex[:8]}"
    engine = create_engine(URL)
    with engine.begin() as connection:
        connection.execute(CreateSchema(schema))
    own = make_url(URL).update_query_dict({"options": f"-csearch_path={schema}"})
    yield own.render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(DropSchema(schema, cascade=True))
    engine.dispose()


class Outage(Exception):
    """What fails beside the effect."""


class Till:
    """An app whose handler fails on demand, before or after its transaction has ended."""

    def __init__(self, database: str, *, batch: int | None = None) -> None:
        self.fails_after = False
        self.calls = 0
        self.ledger: Ledger | None = None

        @asynccontextmanager
        async def lifespan(_app: App) -> AsyncGenerator[Ledger]:
            engine = create_engine(database)
            self.ledger = Ledger(engine)
            yield self.ledger
            engine.dispose()

        def one(transfer: Transfer, delivery: Delivery, ledger: Ledger) -> None:
            self.calls += 1
            ledger.apply(transfer, delivery)
            if self.fails_after:
                raise Outage

        def many(transfers: list[Transfer], deliveries: list[Delivery], ledger: Ledger) -> None:
            for transfer, delivery in zip(transfers, deliveries, strict=True):
                one(transfer, delivery, ledger)

        self.app = App(group="ledger", lifespan=lifespan)
        retry = RetryPolicy.fixed("10s", 1)
        if batch is None:
            self.app.handler("transfers", retry=retry)(one)
        else:
            self.app.handler("transfers", retry=retry, batch=batch, batch_wait="1s")(many)


@pytest.mark.parametrize("to", ["retry", "source"])
def test_a_redelivery_a_retry_and_a_redrive_have_one_effect(database: str, to: str) -> None:
    """The effect was there before each of them: the handler failed behind it."""
    till = Till(database)
    with Harness(till.app) as h:
        h.send("transfers", ADA)
        h.restart()
        h.settle()
        assert till.calls == 2
        till.fails_after = True
        h.send("transfers", ADA)
        h.advance("10s")
        assert (till.calls, len(h.dlq("transfers"))) == (4, 1)
        till.fails_after = False
        assert h.redrive("transfers", to) == 1
        assert till.calls == 5
        assert till.ledger is not None
        assert till.ledger.cents("ada") == 2 * 500


def test_an_effect_that_was_undone_is_tried_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key went with it: a transaction that failed has noted nothing."""
    till, real, failed = Till(database), Ledger.inbox.is_first, list[bool]()

    def is_first(transaction: Any, handler: str, delivery: Delivery) -> bool:
        first = real(transaction, handler, delivery)
        if not failed:
            failed.append(first)
            raise Outage
        return first

    monkeypatch.setattr(Ledger.inbox, "is_first", is_first)
    with Harness(till.app) as h:
        h.send("transfers", ADA)
        assert till.ledger is not None
        assert (failed, till.ledger.cents("ada")) == ([True], 0)
        h.advance("10s")
        assert till.ledger.cents("ada") == 500
        assert len(h.handled("transfers")) == 1


def test_a_batch_has_one_effect_for_each_record(database: str) -> None:
    """Its records come again one by one."""
    till = Till(database, batch=2)
    with Harness(till.app) as h:
        till.fails_after = True
        h.send("transfers", ADA)
        h.send("transfers", ADA)
        h.advance("20s")
        assert len(h.dlq("transfers")) == 2
        assert till.ledger is not None
        assert till.ledger.cents("ada") == 2 * 500
        assert till.calls >= 5


class Twin:
    """As much of a delivery as the inbox reads."""

    idempotency_key = "Jq0bS6aTQs2aGUqzyx4zZw/3/41927"


def test_of_two_at_once_one_has_the_effect(database: str) -> None:
    """A handler that outlived its deadline, and its retry: the second waits for the first."""
    engine = create_engine(database)
    ledger, applied = Ledger(engine), list[bool]()
    twin: Any = Twin()
    start = threading.Barrier(4)

    def apply() -> None:
        start.wait()
        applied.append(ledger.apply(ADA, twin))

    threads = [threading.Thread(target=apply) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(applied) == [False, False, False, True]
    assert ledger.cents("ada") == 500
    engine.dispose()


def test_each_handler_has_its_own_and_old_rows_are_dropped(database: str) -> None:
    """Two handlers of one topic have an effect each; a record that comes after all has it again."""
    engine = create_engine(database)
    ledger = Ledger(engine)
    twin: Any = Twin()
    now = datetime.now(UTC)
    with engine.begin() as transaction:
        seen = [ledger.inbox.is_first(transaction, name, twin) for name in ("a", "b", "a")]
        assert seen == [True, True, False]
        assert ledger.inbox.forget(transaction, now - timedelta(days=1)) == 0
        assert ledger.inbox.forget(transaction, now + timedelta(days=1)) == 2
        assert ledger.inbox.is_first(transaction, "a", twin)
    engine.dispose()


def test_the_module_runs_as_it_is_written(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The app that users copy: two transfers, a crash before the commit, and each again."""
    monkeypatch.setenv("LEDGER_DATABASE", database)
    with Harness(inbox_table.app) as h:
        h.send("transfers", ADA, key="ada")
        h.send("transfers", Transfer(account="ada", cents=-200), key="ada")
        h.restart()
        h.settle()
    engine = create_engine(database)
    assert Ledger(engine).cents("ada") == 300
    engine.dispose()
    assert capsys.readouterr().out.count("was applied before: skipped") == 2


def test_a_record_that_comes_again_keeps_its_row_for_longer(database: str) -> None:
    """A dead letter that was redriven, and failed again, may be redriven once more."""
    till = Till(database)
    till.fails_after = True
    with Harness(till.app) as h:
        h.send("transfers", ADA, key="ada")
        h.advance("30s")
        assert till.ledger is not None
        again = datetime.now(UTC)
        assert h.redrive("transfers") == 1
        h.advance("30s")
        engine = create_engine(database)
        with engine.begin() as transaction:
            assert till.ledger.inbox.forget(transaction, again) == 0
        assert h.redrive("transfers") == 1
        h.advance("30s")
        assert till.ledger.cents("ada") == 500
        engine.dispose()


def test_workers_that_start_at_once_create_the_tables_once(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that comes second finds no table when it looks, and one when it creates it."""
    engine = create_engine(database)
    create_all, calls = MetaData.create_all, list[int]()

    def late(metadata: MetaData, bind: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            create_all(metadata, bind)
            create_all(metadata, bind, checkfirst=False)
        create_all(metadata, bind)

    monkeypatch.setattr(MetaData, "create_all", late)
    create_tables(Ledger._metadata, engine)
    assert len(calls) == 2
    assert Ledger(engine).cents("ada") == 0
    engine.dispose()
