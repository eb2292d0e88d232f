"""A folder holds one subject and says what; a module's name is used once."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.structure.sources import PACKAGES, imports, modules

MOST = 15
CORE = "ackfloor.core"
SOURCES = modules()
#: Modules that share a name, where the folder makes plain which is meant.
SHARED = {
    # A command is named as what it is about.
    "audit": {"spark.audit", "spark.cli"},
    "ingest": {"spark.table", "spark.cli"},
    "report": {"spark.report", "spark.cli"},
    "watch": {"spark.watch", "spark.cli"},
    "whatif": {"spark.whatif", "spark.cli"},
    "doctor": {"cli.setup", "spark.cli"},
    "parameters": {"cli.shared", "spark.cli"},
    # What users run: the class, and a shop to practise on.
    "app": {"ackfloor", "ackfloor_handlers.incident"},
    # The parts of two Spark jobs of the same shape.
    "answer": {"spark.report", "spark.whatif"},
    "build": {"spark.report", "spark.whatif"},
    "terminal": {"spark.report", "spark.whatif"},
}


def folders() -> dict[str, list[str]]:
    """The modules of each folder, by the package's dotted name."""
    found = defaultdict(list)
    for name, file in SOURCES.items():
        if file.name not in {"__init__.py", "__main__.py"}:
            found[name.rpartition(".")[0]].append(name)
    return found


def packages() -> list[str]:
    """Every package, by its dotted name."""
    return [name for name, file in SOURCES.items() if file.name == "__init__.py"]


@pytest.mark.parametrize("folder", sorted(folders()))
def test_a_folder_holds_few_modules(folder: str) -> None:
    """Who looks for the place of a change reads a folder's names at one glance."""
    assert len(folders()[folder]) <= MOST


@pytest.mark.parametrize("package", packages())
def test_a_folder_says_what_lives_there(package: str) -> None:
    """The first line says what lives there, in words that a search finds."""
    text = ast.get_docstring(ast.parse(SOURCES[package].read_text()))
    assert text is not None
    assert len(text.split("\n", 1)[0]) > 20


def test_a_name_is_used_once() -> None:
    """Two modules of one name are told apart only by who knows both."""
    places = defaultdict(set)
    for folder, names in folders().items():
        for name in names:
            places[name.rpartition(".")[2]].add(folder)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    plain = {
        name: {next((f for f in found if f.endswith(end)), end) for end in SHARED[name]}
        for name, found in twice.items()
        if name in SHARED
    }
    assert twice == plain


def test_the_rooms_of_the_core_have_an_order() -> None:
    """A folder of the core is read after those that it imports, and none imports it back.

    What is imported for annotations alone does not count: state and its parts name each other.
    """
    rooms = {(_folder(name), _folder(found)) for name, found in at_run_time()}
    core = [(a, b) for a, b in rooms if a != b and a.startswith(CORE) and b.startswith(CORE)]
    assert len({a for a, _ in core}) > 5
    have_an_order(core)


def at_run_time() -> Iterator[tuple[str, str]]:
    """(module, module that it imports), but for what is under `TYPE_CHECKING`."""
    for name, file in SOURCES.items():
        tree = ast.parse(file.read_text())
        tree.body = [node for node in tree.body if not _for_types(node)]
        yield from ((name, found) for found in _named(tree) if found != name)


def _for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def test_modules_have_an_order() -> None:
    """No module needs itself to be loaded: there is no circle of imports."""
    have_an_order(_at_load())


def have_an_order(imported: Iterable[tuple[str, str]]) -> None:
    """Fail where some of these (what imports, what is imported) import each other."""
    order: dict[str, set[str]] = defaultdict(set)
    for name, found in imported:
        order[name].add(found)
    try:
        list(TopologicalSorter(order).static_order())
    except CycleError as circle:
        pytest.fail(f"these import each other: {circle.args[1]}")


def _folder(name: str) -> str:
    return name.rpartition(".")[0]


def _at_load() -> Iterator[tuple[str, str]]:
    """What is imported when a module is loaded: neither in functions nor for types."""
    for name, file in SOURCES.items():
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from ((name, found) for found in _named(node) if found != name)


def _named(node: ast.AST) -> Iterator[str]:
    """The modules of ours that imports in a piece of code name."""
    for each in imports(ast.unparse(node)):
        target = f"{each.module}.{each.name}" if each.name else each.module
        if target in SOURCES or each.module in SOURCES:
            yield target if target in SOURCES else each.module


def test_every_package_is_looked_at() -> None:
    """The three packages of the distribution, whole."""
    assert {name.partition(".")[0] for name in SOURCES} == set(PACKAGES)
    assert len(SOURCES) > 300
