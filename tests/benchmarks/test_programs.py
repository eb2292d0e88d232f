"""Every program of benchmarks/ starts: no check of types reads them, and nobody runs them daily."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "benchmarks"
#: The other peers are installed in environments of their own.
MODULES = sorted(
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    for path in ROOT.rglob("*.py")
    if path.parent.name != "peers"
)


@pytest.mark.parametrize("module", MODULES)
def test_a_program_can_be_imported(module: str) -> None:
    """A name that was renamed elsewhere shows here, and not after an hour of rounds."""
    assert importlib.import_module(module).__doc__
