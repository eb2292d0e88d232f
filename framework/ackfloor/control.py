"""Control: how a run stands to its settings, and what may be asked of it at its address.

What the supervisor and its monitor say to each other beside the workers' reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SettingsState:
    """How a run stands to its settings.

    Attributes:
        reloads: how often they were read again and accepted.
        failures: how often they were refused.
        reloaded_ms: when they were accepted last; wall clock.
        error: why they were refused the last time; empty where they were accepted.
        needs_restart: settings that have changed in the file and wait for a restart.
        overridden: what `config set` told the run, by setting name.
        refused_by: worker number -> why it did not take them.
    """

    reloads: int = 0
    failures: int = 0
    reloaded_ms: int = 0
    error: str = ""
    needs_restart: tuple[str, ...] = ()
    overridden: Mapping[str, str] = field(default_factory=dict)
    refused_by: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """Somebody wants the run to do something.

    Attributes:
        client: the address that asks.
        authorization: the header of that name; empty where there is none.
        body: at most `CONTROL_BYTES`.
    """

    client: str
    authorization: str
    body: bytes


#: Answers a request with a status of HTTP and a tree for JSON; called in any thread.
Control = Callable[[ControlRequest], tuple[int, object]]
#: The longest body of a request, in bytes.
CONTROL_BYTES = 64 * 1024
