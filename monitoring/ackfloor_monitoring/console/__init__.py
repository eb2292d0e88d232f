"""The console: what is wrong in a browser, the same facts as on the command line.

`access` decides who may see and do what, `reads` asks runs and Kafka, `pages` makes HTML of the
answers. `web` joins them to an ASGI app, `console_commands` serves it, and `mounting` makes it a
part of another one. A request never waits for Kafka once there is a first answer: reads happen
beside it, and a page says how old its facts are.

Names resolve on first use: the command line imports this package without its extra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ackfloor import MissingExtra

if TYPE_CHECKING:
    from ackfloor_monitoring.console.access.gate import Who
    from ackfloor_monitoring.console.access.roles import Person, Role
    from ackfloor_monitoring.console.mounted_arguments import ConsoleCluster
    from ackfloor_monitoring.console.mounting import ConsoleApp, console_app

_HOMES = {
    "ConsoleApp": "ackfloor_monitoring.console.mounting",
    "ConsoleCluster": "ackfloor_monitoring.console.mounted_arguments",
    "Person": "ackfloor_monitoring.console.access.roles",
    "Role": "ackfloor_monitoring.console.access.roles",
    "Who": "ackfloor_monitoring.console.access.gate",
    "console_app": "ackfloor_monitoring.console.mounting",
}

__all__ = ["ConsoleApp", "ConsoleCluster", "Person", "Role", "Who", "console_app"]


if not TYPE_CHECKING:
    # A type checker that saw this would accept every misspelt name.
    def __getattr__(name: str) -> object:
        try:
            home = _HOMES[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        try:
            return getattr(import_module(home), name)
        except ModuleNotFoundError as exc:
            if (exc.name or "").partition(".")[0] in {"jinja2", "markupsafe", "starlette"}:
                raise MissingExtra("console", "the console") from exc
            raise
