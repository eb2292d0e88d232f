"""The packages' sources as the structure tests see them: files, module names and imports.

Imports are read from the syntax tree, so nothing is loaded. Those inside functions and under
`TYPE_CHECKING` count like any other; `import_module("name")` counts as an import of `name`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGES = {
    "ackfloor": REPOSITORY / "framework",
    "ackfloor_handlers": REPOSITORY / "handlers",
    "ackfloor_monitoring": REPOSITORY / "monitoring",
}
# What `import_module` is called with where the name isn't written there: read as this.
DYNAMIC = "<dynamic>"
# What users import; each states what it exports.
PUBLIC_MODULES = (
    "ackfloor",
    "ackfloor.dead_letters.commands.redriving",
    "ackfloor.commits",
    "ackfloor.delivery",
    "ackfloor.errors",
    "ackfloor.observe",
    "ackfloor.operations",
    "ackfloor.redrive",
    "ackfloor.schemas",
    "ackfloor.testing",
    "ackfloor_monitoring.console",
    "ackfloor_monitoring.spark.notebook",
)


@dataclass(frozen=True, slots=True)
class Import:
    """One name that one line of a module imports.

    Attributes:
        module: the module that is loaded, or `DYNAMIC`.
        name: what is taken from it; empty where the module itself is.
    """

    module: str
    name: str
    line: int


def modules() -> dict[str, Path]:
    """Every module of the three packages, by its dotted name."""
    found = {}
    for package, root in PACKAGES.items():
        for file in sorted((root / package).rglob("*.py")):
            found[module_name(file, root)] = file
    return found


def module_name(file: Path, root: Path) -> str:
    """The dotted name of `file` when `root` is on the import path."""
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str) -> Iterator[Import]:
    """Every import in `source`, in the order of the lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, "", node.lineno)
        elif isinstance(node, ast.ImportFrom):
            where = "." * node.level + (node.module or "")
            for alias in node.names:
                yield Import(where, alias.name, node.lineno)
        elif isinstance(node, ast.Call) and _called(node.func) in {"import_module", "__import__"}:
            yield Import(_text(node.args[0]), "", node.lineno)


def exported(source: str) -> list[str] | None:
    """The names in `__all__`, or None where the module states none."""
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            names: list[str] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            return names
    return None


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _text(argument: ast.expr) -> str:
    """The literal start of an argument: "jgo" for `f"jgo.{name}"`."""
    if isinstance(argument, ast.JoinedStr) and argument.values:
        argument = argument.values[0]
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value.rstrip(".")
    return DYNAMIC
