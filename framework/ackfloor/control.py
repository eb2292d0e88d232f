"""Control: the state of a run's settings, and requests at the run's address.

Passed between the supervisor and its monitor, besides the workers' reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class SettingsState:
    """The state of a run's settings.

    Attributes:
        reloads: how often the file was read again and accepted.
        failures: how often settings were refused.
        reloaded_ms: when they were accepted last; wall clock.
        error: why they were refused the last time; empty if they were accepted.
        needs_restart: settings that have changed in the file and need a restart.
        overridden: the values given with `config set`, by setting name.
        refused_by: worker number -> why it refused them.
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
    """A request to one of the run's controls.

    Attributes:
        client: the client's address.
        authorization: the header of that name; empty if there is none.
        body: at most `CONTROL_BYTES`; none of one that only reads.
        method: of HTTP: POST asks for something to be done, GET only reads.
    """

    client: str
    authorization: str
    body: bytes
    method: str = "POST"


#: Answers a request with an HTTP status and a JSON value; called in any thread.
Control = Callable[[ControlRequest], tuple[int, object]]
#: The longest body of a request, in bytes.
CONTROL_BYTES = 64 * 1024


class PageRequest(NamedTuple):
    """A request for one of the monitor's pages.

    Attributes:
        method: of HTTP, such as "GET".
        path: such as "/metrics".
        query: what follows the "?" in the URL; empty if nothing does.
        headers: by name in lower case.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


class PageAnswer(NamedTuple):
    """A page, or why there is none.

    Attributes:
        status: of HTTP.
        headers: all that belong to it.
        body: for a HEAD request too, though it is not sent then.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
