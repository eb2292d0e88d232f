"""Logging: set-up for worker processes, as text for people or JSON for machines.

A line about a record carries topic, partition, offset, attempt and handler: those of the delivery
that is handled where it was logged, or those it was given (`about`). Nothing here logs payloads,
and what the patterns of `[redaction]` match is masked in every line, tracebacks included. What an
exception says may hold a piece of a payload: a terminal obeys nothing of a line.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, NamedTuple

from ackfloor.core.records.redaction import Redaction
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.values.printable import plain
from ackfloor.runtime.calls.invoke import current

#: The name of our own handler of the root logger.
OURS = "ackfloor"
#: What a line about a record has as fields of its own.
FIELDS = ("topic", "partition", "offset", "attempt", "handler")


class LogSettings(NamedTuple):
    """How a process logs: a level, "text" or "json", what it is called, and what it masks."""

    level: str
    style: str
    name: str
    redaction: Redaction


_in_force: list[LogSettings] = []


def log_settings(name: str) -> LogSettings | None:
    """How a process of this one should log; None where nothing was set up here.

    Args:
        name: what it is called, behind the name of this process.
    """
    if not _in_force:
        return None
    _, style, own, redaction = _in_force[-1]
    level = logging.getLevelName(logging.getLogger().level)
    return LogSettings(level, style, f"{own}/{name}", redaction)


def about(topic: str, partition: int, offset: int, attempt: int, handler: str) -> dict[str, object]:
    """What a line is about, as `extra` of a logging call: fields of its own in JSON."""
    return dict(zip(FIELDS, (topic, partition, offset, attempt, handler), strict=True))


def place_of(delivery: TrackedDelivery) -> dict[str, object]:
    """`about` for a delivery."""
    return about(
        delivery.topic,
        delivery.partition,
        delivery.offset,
        delivery.attempt,
        delivery.assignment.handler.rules.name,
    )


def named(delivery: TrackedDelivery) -> str:
    """A delivery in the text of a line."""
    return f"{delivery.topic}/{delivery.partition}/{delivery.offset} attempt {delivery.attempt}"


class DeliveryFilter(logging.Filter):
    """Adds the delivery that is handled here to each log record.

    `delivery` is `topic/partition/offset#attempt`, or "-" outside of a handler; `topic`,
    `partition`, `offset`, `attempt` and `handler` are there where the line is about a record. Add
    it to a handler of your own logging set-up and use `%(delivery)s` in its format.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Never drops a record."""
        delivery = current.get(None)
        record.delivery = "-"
        if delivery is not None:
            record.delivery = (
                f"{delivery.topic}/{delivery.partition}/{delivery.offset}#{delivery.attempt}"
            )
            if "offset" not in record.__dict__:
                record.__dict__.update(place_of(delivery))
        return True


class TextFormatter(logging.Formatter):
    """Lines for people: what was logged inside a handler names its delivery and the handler.

    Args:
        name: what the process is called.
        redaction: its patterns are masked, tracebacks included.
    """

    def __init__(self, name: str, redaction: Redaction) -> None:
        super().__init__(f"%(asctime)s %(levelname)-7s {name} %(name)s [%(at)s] %(message)s")
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        fields = record.__dict__
        at = fields.get("delivery", "-")
        record.at = at if at == "-" else f"{at} {fields['handler']}"
        return plain(self._redaction.of_text(super().format(record)) or "")


class JsonFormatter(logging.Formatter):
    """One JSON object a line.

    Args:
        name: what the process is called.
        redaction: its patterns are masked in messages and tracebacks.
    """

    def __init__(self, name: str = "", redaction: Redaction | None = None) -> None:
        super().__init__()
        self._name = name
        self._redaction = redaction or Redaction()

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; the traceback, if any, is one string field."""
        entry: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redaction.of_text(record.getMessage()),
            "process": record.process,
            "name": self._name,
        }
        fields = record.__dict__
        if "offset" in fields:
            entry |= {field: fields.get(field) for field in FIELDS}
            entry["delivery"] = "{topic}/{partition}/{offset}#{attempt}".format_map(fields)
        entry |= _trace()
        if record.exc_info:
            entry["traceback"] = self._redaction.of_text(self.formatException(record.exc_info))
        elif record.exc_text:
            # Of an exception that is not here any more, or was in another process.
            entry["traceback"] = self._redaction.of_text(record.exc_text)
        return json.dumps(entry, default=str)


def _trace() -> dict[str, str]:
    """The ids of the span that is current, where OpenTelemetry is in use."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def set_up_logging(level: str, style: str, name: str, redaction: Redaction | None = None) -> None:
    """Log to standard error, unless the app's own module has set logging up already.

    Call it after the app was imported: what the user configured there is left as it is.

    Args:
        level: a level name of `logging`, any case.
        style: "text" for people or "json" for machines.
        name: what the process is called, for example "worker-0".
        redaction: its patterns are masked in every line.
    """
    rules = redaction or Redaction()
    _in_force[:] = [LogSettings(level, style, name, rules)]
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(DeliveryFilter())
    formatter = JsonFormatter if style == "json" else TextFormatter
    handler.setFormatter(formatter(name, rules))
    handler.set_name(OURS)
    root.addHandler(handler)
    root.setLevel(level.upper())


def set_log_level(level: str) -> None:
    """Log from another level on, unless the app's own module has set logging up."""
    root = logging.getLogger()
    if any(handler.get_name() == OURS for handler in root.handlers):
        root.setLevel(level.upper())
