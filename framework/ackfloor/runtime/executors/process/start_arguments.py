"""Plan: everything that a handler's process needs to start, as bytes.

The process is a new interpreter (spawned, never forked: a fork would copy the Kafka client and
every lock that another thread holds just then). So functions and classes are sent by name, and
objects such as a decoder as pickles. Each piece is pickled alone, so that an error names the
culprit.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any, TypedDict

from ackfloor.app import App
from ackfloor.core.records.redaction import Redaction
from ackfloor.declare.registration import HandlerSpec
from ackfloor.declare.result_topic import To
from ackfloor.declare.signature import Signature
from ackfloor.errors import ConfigError
from ackfloor.runtime.logging.logs import LogSettings, log_settings


class Plan(TypedDict):
    """What the worker sends first; unpickle `pieces` after `path` is set."""

    handler: str
    path: list[str]
    log: LogSettings | None
    group: str
    mode: str
    memory_limit: int | None
    batch: bool
    exactly_once: bool
    redaction: Redaction
    pieces: dict[str, bytes]


def plan_of(
    app: App,
    spec: HandlerSpec,
    signature: Signature,
    redaction: Redaction | None = None,
    report: Callable[[], str] | None = None,
) -> Plan:
    """Make the plan of one handler's processes.

    Args:
        app: whose handler it is.
        spec: the handler.
        signature: what its function takes.
        redaction: what is masked in what exceptions say.
        report: what a process calls for a monitor's report on it; see `ports.ProcessMonitor`.

    Raises:
        ConfigError: another process can't import it; names what, and the fix.
    """
    field = f"handlers.{spec.name}"
    # Where nothing takes the yielded state, there is no need to enter it again.
    lifespan = app.lifespan if signature.state_params else None
    return Plan(
        handler=spec.name,
        path=list(sys.path),
        log=log_settings(spec.name),
        group=app.group,
        mode=app.mode,
        memory_limit=spec.process_memory_limit_bytes,
        batch=spec.batch is not None,
        exactly_once=spec.exactly_once,
        redaction=redaction or Redaction(),
        pieces={
            "function": _pickled(f"{field}.executor", spec.function),
            "middleware": _each(f"{field}.middleware", (*app.middleware, *spec.middleware)),
            "decoder": _pickled(f"{field}.decoder", spec.decoder),
            "to": _results(f"{field}.to", spec.to),
            "dead_letter_on": _each(f"{field}.dead_letter_on", spec.dead_letter_on),
            "lifespan": _pickled("lifespan", lifespan),
            "report": _pickled("process_report", report),
        },
    )


def _results(field: str, to: To[Any] | None) -> bytes:
    """Where the results go; its functions by themselves first, for the error to name them."""
    if to is not None:
        _pickled(f"{field}.key", to.key)
        _pickled(f"{field}.headers", to.headers)
    return pickle.dumps(to)


def _each(field: str, values: tuple[object, ...]) -> bytes:
    return pickle.dumps([_pickled(field, value) for value in values])


def _pickled(field: str, value: object) -> bytes:
    name = getattr(value, "__qualname__", None) or type(value).__name__
    module = getattr(value, "__module__", None)
    if module == "__main__":
        why = "defined in the main module, which another process can't import"
        raise ConfigError(field, name, why, "move it to a module that is imported")
    try:
        return pickle.dumps(value)
    except Exception as exc:
        why = f"another process can't import it: {type(exc).__name__}: {exc}"
        fix = (
            "define it with `def` or `class` at module level, its decorators below "
            '@app.handler, or drop executor="process"'
        )
        raise ConfigError(field, name, why, fix) from exc
