"""The log of a worker process, and the ack map in it, as people and as programs read them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ackfloor import App, Delivery
from ackfloor.runtime.ack_map import ack_map
from ackfloor.runtime.logs import JsonFormatter, set_up_logging
from tests.framework.runtime.live import Gate, live, register


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """The root logger without handlers, pytest's included; as it was afterwards."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    logger.handlers[:] = []
    try:
        yield logger
    finally:
        logger.handlers[:] = handlers
        logger.setLevel(level)


def test_a_line_of_text_names_process_logger_and_delivery(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Below the level nothing is written; outside of a handler the delivery is a dash."""
    with bare_root():
        set_up_logging("warning", "text", "worker-3")
        logging.getLogger("shop").info("quiet")
        logging.getLogger("shop").warning("loud")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" WARNING worker-3 shop [-] loud")


def test_a_line_of_json_is_one_object(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also with a traceback and with line ends in the message."""
    with bare_root():
        set_up_logging("info", "json", "worker-3")
        logging.getLogger("shop").error("two\nlines", exc_info=KeyError("id"))
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"], entry["message"]) == ("error", "shop", "two\nlines")
    assert entry["traceback"].endswith("KeyError: 'id'")
    assert "delivery" not in entry


def test_json_names_the_delivery_where_there_is_one() -> None:
    """As topic, partition, offset and attempt."""
    record = logging.LogRecord("shop", logging.INFO, "f", 1, "hello %s", ("you",), None)
    record.delivery = "orders/0/7#2"
    entry = json.loads(JsonFormatter().format(record))
    assert (entry["delivery"], entry["message"]) == ("orders/0/7#2", "hello you")


def test_a_set_up_of_the_users_own_is_left_alone() -> None:
    """Whoever configures logging in the app's module means it."""
    own = logging.StreamHandler(sys.stdout)
    with bare_root() as root:
        root.addHandler(own)
        set_up_logging("debug", "json", "worker-0")
        assert root.handlers == [own]


def test_the_ack_map_shows_floors_gaps_and_the_longest_running() -> None:
    """One line a partition, then who is running and for how long."""
    app, gate = App("g"), Gate()

    def script(delivery: Delivery) -> Iterator[Gate]:
        if delivery.offset == 1:
            yield gate

    register(app, "thread", "orders", script)
    with live(app) as worker:
        worker.send("orders", n=4)
        worker.until(
            lambda: (
                worker.watcher.latest
                and any(p.gap_count == 2 for p in worker.watcher.latest.partitions)
            )
        )
        assert worker.watcher.latest is not None
        lines = ack_map(worker.watcher.latest).splitlines()
        gate.open()
        worker.until(worker.settled)
        worker.close()
        nothing = ack_map(worker.watcher.latest)
    assert lines[0].startswith("orders/0 floor=1 position=4 open=1 gaps=2 parking=0 oldest=")
    assert lines[-1].startswith("handle: orders/0/1 attempt 1 running ")
    assert nothing == "no partitions assigned"
