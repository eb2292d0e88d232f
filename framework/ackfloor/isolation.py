"""Isolation: what a handler must be to run in processes of its own (`executor="process"`).

Such a process is a new interpreter that imports the handler by its module and name. So whatever has
no name there is refused when it is registered: lambdas, and functions inside of functions. What
only shows when it is pickled is refused when the worker starts (runtime/process/plan.py).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ackfloor.core.errors import SettingError
from ackfloor.core.sizes import parse_size
from ackfloor.errors import ConfigError

if TYPE_CHECKING:
    from ackfloor.registration import HandlerSpec


def cores() -> int:
    """How many cores this process may use: as many process handlers run at once by default."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def size_in_bytes(field: str, value: object) -> object:
    """A size as it was given, in bytes; None for no limit."""
    if not isinstance(value, str):
        return value
    try:
        return parse_size(value, field=field)
    except SettingError as exc:
        raise ConfigError.of(exc) from None


def check_isolation(spec: HandlerSpec) -> None:
    """Refuse what can't be meant about a handler's processes.

    Raises:
        ConfigError: names the option, its value and the fix.
    """
    field = f"handlers.{spec.name}"
    limit, records = spec.process_memory_limit_bytes, spec.process_max_records
    if spec.executor != "process":
        for option, value in (("process_memory_limit", limit), ("process_max_records", records)):
            if value is not None:
                why = f"the handler runs on {spec.executor!r}, which has no processes of its own"
                fix = 'pass executor="process" (of a `def` handler), or drop it'
                raise ConfigError(f"{field}.{option}", value, why, fix)
        return
    name = spec.function.__qualname__
    if "<lambda>" in name or "<locals>" in name:
        what = "a lambda" if name.endswith("<lambda>") else "defined inside another function"
        why = f"{what}: a process of its own has to import it by name"
        raise ConfigError(f"{field}.executor", name, why, "define it with `def` at module level")
    if spec.manual:
        why = "a process handler answers by its return or its exception"
        raise ConfigError(
            f"{field}.ack", spec.ack, why, 'leave it "auto", or drop executor="process"'
        )
    _check_count(f"{field}.process_memory_limit", limit, 'write a size such as "512MiB"')
    _check_count(f"{field}.process_max_records", records, "write a whole number from 1")
    if limit is not None and not sys.platform.startswith("linux"):
        why = f"resident memory is read from /proc, which {sys.platform} has not"
        raise ConfigError(f"{field}.process_memory_limit", limit, why, "leave it out here")


def _check_count(field: str, value: object, fix: str) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(field, value, "not a positive whole number", fix)
