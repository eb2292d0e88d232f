"""`ackfloor spark` is found by `ackfloor`, and costs it nothing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module

from ackfloor_monitoring.spark.cli import spark_app
from tests.structure.sources import REPOSITORY

LOADED = """
import sys
import ackfloor_monitoring.spark.cli
print(*sorted({"pyspark", "pandas", "py4j", "plotly"} & sys.modules.keys()))
"""


def test_the_entry_point_is_this_app() -> None:
    """The name in pyproject.toml is where the commands are."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["ackfloor.commands"]["spark"].partition(":")
    assert getattr(import_module(module), name) is spark_app


def test_loading_the_commands_loads_no_spark() -> None:
    """Every `ackfloor` loads them, on machines without the extra as well."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout == "\n"
