"""How a pytest that a test starts is given our plugin."""

from __future__ import annotations

from importlib.metadata import entry_points

PLUGIN = "ackfloor.testing.pytest_plugin"


def plugin_arguments() -> tuple[str, ...]:
    """Nothing where the entry point is installed, as for users; else the option that names it."""
    installed = {point.value for point in entry_points(group="pytest11")}
    return () if PLUGIN in installed else ("-p", PLUGIN)
