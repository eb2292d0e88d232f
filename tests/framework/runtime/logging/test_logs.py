"""The log of a worker process, and the ack map in it, as people and as programs read them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.records.redaction import Redaction
from ackfloor.runtime.logging.logs import JsonFormatter, set_up_logging
from ackfloor.runtime.reporting.ack_map import ack_map
from ackfloor.testing import Harness
from tests.framework.runtime.live import Gate, live, register
from tests.framework.runtime.tracing import traced


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


def lines_of_a_handler(style: str, redaction: Redaction | None = None) -> None:
    """Log a line inside a handler, one about a record outside of it, and one about none."""
    app = App("g")

    @app.handler("orders", retry=RetryPolicy.fixed("1s", 1))
    def bill(delivery: Delivery) -> None:
        logging.getLogger("shop").warning("card 4111 of %s", "you")
        raise ValueError("card 4111 refused")

    with bare_root():
        set_up_logging("warning", style, "worker-3", redaction)
        with Harness(app) as harness:
            harness.send("orders", b"x")
        try:
            {}["card 4111"]
        except KeyError:
            logging.getLogger("shop").exception("at the end")


def test_a_line_of_text_in_a_handler_names_its_delivery_and_the_handler(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the worker logs of a record has both in its words."""
    lines_of_a_handler("text")
    said, failed, *_ = capsys.readouterr().err.splitlines()
    assert said.endswith("worker-3 shop [orders/0/0#1 bill] card 4111 of you")
    line, _, cause = failed.partition(" (the first of cause ")
    assert line.endswith(
        "ackfloor.worker [-] orders/0/0 attempt 1: handler bill: ValueError: card 4111 refused"
    )
    assert cause


def test_a_line_of_json_about_a_record_has_its_place_as_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same five, whether a handler logged it or the worker."""
    lines_of_a_handler("json")
    said, failed, other = map(json.loads, capsys.readouterr().err.splitlines())
    place = {"topic": "orders", "partition": 0, "offset": 0, "attempt": 1, "handler": "bill"}
    for entry in (said, failed):
        assert {name: entry[name] for name in place} == place
        assert (entry["delivery"], entry["name"]) == ("orders/0/0#1", "worker-3")
    assert not place.keys() & other.keys()


@pytest.mark.parametrize("style", ["text", "json"])
def test_what_the_rules_mask_is_in_no_line(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the app's own lines and of tracebacks as well."""
    lines_of_a_handler(style, Redaction(patterns=(r"\b4\d+",)))
    told = capsys.readouterr().err
    assert "4111" not in told
    assert told.count("card ***") == 6  # in the source line of a traceback as well, of which two


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_terminal_obeys_nothing_of_a_line(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What an exception says may come out of a payload; line ends and tabs are left."""
    with bare_root():
        set_up_logging("info", style, "worker-3")
        logging.getLogger("shop").error("no \x1b[2Jsuch\r\tthing", exc_info=ValueError("\x9b31m"))
    told = capsys.readouterr().err
    assert not {"\x1b", "\r", "\x9b"} & set(told)
    if style == "text":
        assert "no \\x1b[2Jsuch\\x0d\tthing\n" in told
        assert told.endswith("ValueError: \\x9b31m\n")


def test_json_names_the_span_where_there_is_one() -> None:
    """So a line leads to the trace it belongs to."""
    record = logging.LogRecord("shop", logging.INFO, "f", 1, "hello %s", ("you",), None)
    with traced() as seen, seen.provider.get_tracer("t").start_as_current_span("s") as span:
        entry = json.loads(JsonFormatter().format(record))
    context = span.get_span_context()
    assert int(entry["trace_id"], 16) == context.trace_id
    assert int(entry["span_id"], 16) == context.span_id
    assert "trace_id" not in json.loads(JsonFormatter().format(record))


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
