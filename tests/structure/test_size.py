"""A source file fits in a head: its length is bounded, it says what it is and leaves no errand."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.structure.sources import modules

LONGEST_FILE = 400
ERRAND = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SHAPELESS = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
MODULES = modules()


@pytest.mark.parametrize("module", MODULES)
def test_a_file_is_short_and_introduces_itself(module: str) -> None:
    """At most 400 lines, a docstring at the top, and a name that says what is inside."""
    text = MODULES[module].read_text()
    assert len(text.splitlines()) <= LONGEST_FILE
    assert ast.get_docstring(ast.parse(text))
    assert module.rpartition(".")[2].strip("_") not in SHAPELESS


@pytest.mark.parametrize("module", MODULES)
def test_a_file_leaves_no_errand(module: str) -> None:
    """What is left to do is in the tracker, not in the source."""
    assert errands(MODULES[module]) == []


def test_the_search_for_errands_finds_one(tmp_path: Path) -> None:
    """A note to oneself is found wherever it stands in a line."""
    file = tmp_path / "unfinished.py"
    file.write_text("x = 1  # TO" + "DO: think\ny = 'FIX" + "ME'\ntodo = 2\n")
    assert len(errands(file)) == 2


def errands(file: Path) -> list[str]:
    """The lines of `file` that put something off."""
    return [line for line in file.read_text().splitlines() if ERRAND.search(line)]
