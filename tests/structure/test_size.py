"""A function fits in a head, a file is one idea: it says which, and leaves no errand.

How long a function is, is bounded here; how many ways lead through it, in `pyproject.toml` (ruff's
C901). The length of a file says little, so its bound is loose: beyond it nothing is one idea.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.sources import modules

LONGEST_FILE = 600
#: Lines below the signature and the docstring: what a reader has to keep in mind at once.
LONGEST_BODY = 40
#: Longer for a reason. Whoever cuts one takes it out of here.
LONGER = {
    # One row for each kind of event, and no branch.
    "ackfloor_monitoring.metrics.worker_metrics.WorkerMetrics.__init__",
    # What is counted at the same time, and then one field of the report after the other.
    "ackfloor_monitoring.spark.report.build.report_of",
}
ERRAND = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SHAPELESS = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
MODULES = modules()


@pytest.mark.parametrize("module", MODULES)
def test_a_file_introduces_itself(module: str) -> None:
    """At most 600 lines, a docstring at the top, and a name that says what is inside."""
    text = MODULES[module].read_text()
    assert len(text.splitlines()) <= LONGEST_FILE
    assert ast.get_docstring(ast.parse(text))
    assert module.rpartition(".")[2].strip("_") not in SHAPELESS


def test_a_function_is_short() -> None:
    """At most 40 lines below its signature and docstring; those that are longer are named."""
    longer = {
        f"{module}.{name}"
        for module, file in MODULES.items()
        for name, lines in bodies(ast.parse(file.read_text()))
        if lines > LONGEST_BODY
    }
    assert longer == LONGER


def test_the_length_of_a_function_is_that_of_its_body() -> None:
    """Decorators, signature and docstring do not count, and a function inside is one as well."""
    source = '''
class Outer:
    @decorated
    def method(
        self,
        first: int,
    ) -> int:
        """Says
        what it does.
        """
        def inner():
            return first

        return (
            inner()
        )

async def bare(): ...

def told():
    """Says what it does."""
'''
    assert list(bodies(ast.parse(source))) == [
        ("Outer.method", 6),
        ("Outer.method.inner", 1),
        ("bare", 1),
        ("told", 0),
    ]


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


def bodies(node: ast.AST, around: str = "") -> Iterator[tuple[str, int]]:
    """Every function below `node` by its qualified name, and how many lines its body has."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from bodies(child, around)
            continue
        name = f"{around}{child.name}"
        if not isinstance(child, ast.ClassDef):
            body = child.body[ast.get_docstring(child) is not None :]
            yield name, (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        yield from bodies(child, f"{name}.")
