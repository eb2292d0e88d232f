"""Batching: what a handler must be to take batches (`batch=`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackfloor.core.durations import format_duration
from ackfloor.errors import ConfigError

if TYPE_CHECKING:
    from ackfloor.registration import HandlerSpec


def check_batches(spec: HandlerSpec) -> None:
    """Refuse what can't be meant about a handler's batches.

    Raises:
        ConfigError: names the option, its value and the fix.
    """

    def refuse(option: str, value: object, why: str, fix: str) -> ConfigError:
        return ConfigError(f"handlers.{spec.name}.{option}", value, why, fix)

    size: object = spec.batch
    wait_s: object = spec.batch_wait_s
    if size is None:
        if "batch_wait" in spec.given:
            value, why = format_duration(spec.batch_wait_s), "it takes one record at a time"
            raise refuse("batch_wait", value, why, "write batch=100 too, or drop it")
        return
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        why = "not a number of records for one call"
        raise refuse("batch", size, why, "pass a whole number from 1")
    if wait_s is None:
        raise refuse("batch_wait", None, "no duration", 'write batch_wait="200ms"')
    if spec.manual:
        why = "in a batch every record can be answered through its delivery, and return is the rest"
        raise refuse("ack", spec.ack, why, 'leave ack="auto", or drop batch=')
    if spec.middleware:
        why = "middleware goes around one delivery, and a batch has many"
        fix = "do it in the function, or give the middleware to other handlers only"
        raise refuse("middleware", len(spec.middleware), why, fix)
