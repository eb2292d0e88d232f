"""Broadcast mode: every worker gets every record, nothing is committed, failures wait in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackfloor import App, Delivery, RetryPolicy, Router
from ackfloor.core.values.setting_error import SettingError
from ackfloor.declare.registration import HandlerOptions
from ackfloor.errors import ConfigError
from ackfloor.launch import Launch
from ackfloor.testing import Harness


def prices(**options: object) -> tuple[App, list[tuple[str, int]]]:
    """An app that keeps what it sees; "bad" always fails, "shaky" once."""
    app, seen = App("prices", mode="broadcast"), []

    @app.handler("prices", retry=RetryPolicy.fixed("1s", 2), **options)  # type: ignore[arg-type]
    async def note(value: str, delivery: Delivery) -> None:
        seen.append((value, delivery.attempt))
        if value == "bad" or (value == "shaky" and delivery.attempt == 1):
            raise ConnectionError("away")

    return app, seen


def test_a_failed_record_is_retried_in_place_and_then_dead_lettered_with_the_worker() -> None:
    """No retry topic is made; the dead letter says whose it is."""
    app, seen = prices()
    with Harness(app) as h:
        h.send("prices", "bad")
        h.send("prices", "shaky")
        h.send("prices", "fine")
        assert seen == [("bad", 1), ("shaky", 1), ("fine", 1)]
        h.advance("10s")
        # Two retries that are due at once, of a handler that keeps no order.
        assert sorted(seen[3:5]) == [("bad", 2), ("shaky", 2)]
        assert seen[5:] == [("bad", 3)]
        (dead,) = h.dlq("prices")
        assert (dead.value, dead.reason, dead.attempt) == (b"bad", "exhausted", 3)
        assert sorted(h.broker.topics) == ["prices", "prices--prices--dlq"]
        (record,) = h.broker.records("prices--prices--dlq")
        assert dict(record.headers() or ())["ackfloor.worker"] == b"harness/worker-0"
        assert h.broker.committed("prices", "prices") is None
    assert h.broker.committed("prices", "prices") is None


def test_a_group_names_no_worker() -> None:
    """Its dead letters are anybody's."""
    app = App("prices")

    @app.handler("prices", retry=RetryPolicy.fixed("1s", 0))
    async def note(_value: str) -> None:
        raise ConnectionError("away")

    with Harness(app) as h:
        h.send("prices", "bad")
        (record,) = h.broker.records("prices--prices--dlq")
        assert "ackfloor.worker" not in dict(record.headers() or ())


def test_a_restarted_worker_reads_what_is_written_from_then_on() -> None:
    """What it had not handled, and what came while it was away, is not for it."""
    app, seen = prices()
    with Harness(app) as h:
        h.send("prices", "bad")
        h.restart()
        h.send("prices", "fine")
        h.advance("10s")
        assert seen == [("bad", 1), ("fine", 1)]
        assert h.dlq("prices") == []


def test_order_by_key_holds_in_broadcast_mode() -> None:
    """A failed record holds its key, as under `on_failure="block"`."""
    app, seen = prices(ordering="key")
    with Harness(app, partitions=2) as h:
        for value in ("shaky", "next"):
            h.send("prices", value, key="eur")
        h.advance("1s")
    assert seen == [("shaky", 1), ("shaky", 2), ("next", 1)]


def test_new_partitions_are_picked_up() -> None:
    """From their beginning."""
    app, seen = prices()
    with Harness(app) as h:
        h.broker.create_topic("prices", 2)
        h.broker.produce("prices", b"there", partition=1)
        h.advance("1s")
    assert seen == [("there", 1)]


def test_what_asks_for_retry_topics_is_refused() -> None:
    """In the line that registers it, on the app as on a router."""
    app = App("prices", mode="broadcast")
    told = "handlers.note.on_failure='park': there are no retry topics in broadcast mode"
    with pytest.raises(ConfigError, match=told):
        app.handler("prices", name="note", on_failure="park")(lambda: None)
    router = Router()
    router.handler("prices", name="note", on_failure="park")(lambda: None)
    with pytest.raises(ConfigError, match=told):
        app.include(router)
    quarantine = HandlerOptions(name="note", ordering="key", on_failure="quarantine")
    with pytest.raises(ConfigError, match=told.replace("park", "quarantine")):
        app.handler("prices", **quarantine)(lambda: None)
    assert app.handlers == ()


def test_an_unknown_mode_is_refused() -> None:
    """With the modes there are."""
    with pytest.raises(SettingError, match="mode='everyone': no such mode; choose one of 'group'"):
        App("prices", mode="everyone")  # type: ignore[arg-type]


def test_reading_from_the_beginning_is_refused_where_it_was_asked_for(tmp_path: Path) -> None:
    """By the operator's setting and by the code's; the built-in default is not meant."""
    app, _ = prices()
    config = tmp_path / "ackfloor.toml"
    config.write_text('[app]\nstart = "earliest"\n')
    with pytest.raises(ConfigError, match=r"app\.start='earliest': in broadcast mode") as refused:
        Launch.of(app, flags={}, config=config)
    assert "ackfloor.toml" in str(refused.value)
    with pytest.raises(ConfigError, match="every worker reads from the end"):
        Harness(app, settings={"app": {"start": "earliest"}})
    config.write_text('[app]\nstart = "latest"\n')
    assert Launch.of(app, flags={}, config=config).handlers[0].in_place


def test_the_worker_is_named_by_host_and_number() -> None:
    """In broadcast mode alone."""
    app, _ = prices()
    worker = Launch.of(app, flags={}).worker_config("worker-3").worker
    assert worker is not None
    assert worker.endswith("/worker-3")


def test_a_rate_for_all_workers_is_refused() -> None:
    """In code, and where an operator sets it: none knows how many there are."""
    with pytest.raises(ConfigError, match=r"handlers\.note\.rate='5/s': in broadcast mode each"):
        prices(rate="5/s")
    with pytest.raises(ConfigError, match=r"handlers\.note\.rate='30/m'.*\(from flag"):
        Launch.of(prices()[0], flags={"handlers.note.rate": "0.5/s"})
    Launch.of(prices()[0], flags={"handlers.note.rate": "none"})
