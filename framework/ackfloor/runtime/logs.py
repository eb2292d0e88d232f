"""Logging: set-up for worker processes, and the filter that names the delivery.

Nothing here logs payloads.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import NamedTuple

from ackfloor.runtime.invoke import current_delivery

#: The name of our own handler of the root logger.
OURS = "ackfloor"


class LogSettings(NamedTuple):
    """How a process logs: a level, "text" or "json", and what it is called."""

    level: str
    style: str
    name: str


_in_force: list[LogSettings] = []


def log_settings(name: str) -> LogSettings | None:
    """How a process of this one should log; None where nothing was set up here.

    Args:
        name: what it is called, behind the name of this process.
    """
    if not _in_force:
        return None
    _, style, own = _in_force[-1]
    level = logging.getLevelName(logging.getLogger().level)
    return LogSettings(level, style, f"{own}/{name}")


class DeliveryFilter(logging.Filter):
    """Adds `delivery` to each log record: `topic/partition/offset#attempt`, or "-" outside.

    Add it to a handler of your own logging set-up and use `%(delivery)s` in its format.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Never drops a record."""
        delivery = current_delivery()
        record.delivery = (
            "-"
            if delivery is None
            else f"{delivery.topic}/{delivery.partition}/{delivery.offset}#{delivery.attempt}"
        )
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; the traceback, if any, is one string field."""
        entry: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        delivery = record.__dict__.get("delivery", "-")
        if delivery != "-":
            entry["delivery"] = delivery
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up_logging(level: str, style: str, name: str) -> None:
    """Log to standard error, unless the app's own module has set logging up already.

    Call it after the app was imported: what the user configured there is left as it is.

    Args:
        level: a level name of `logging`, any case.
        style: "text" for people or "json" for machines.
        name: what the process is called in text lines, for example "worker-0".
    """
    _in_force[:] = [LogSettings(level, style, name)]
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(DeliveryFilter())
    if style == "json":
        handler.setFormatter(JsonFormatter())
    else:
        pattern = f"%(asctime)s %(levelname)-7s {name} %(name)s [%(delivery)s] %(message)s"
        handler.setFormatter(logging.Formatter(pattern))
    handler.set_name(OURS)
    root.addHandler(handler)
    root.setLevel(level.upper())


def set_log_level(level: str) -> None:
    """Log from another level on, unless the app's own module has set logging up."""
    root = logging.getLogger()
    if any(handler.get_name() == OURS for handler in root.handlers):
        root.setLevel(level.upper())
