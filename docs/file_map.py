"""Write the file map of docs/DESIGN.md: each folder by what it says of itself, and its files.

    python docs/file_map.py

The docstring of a package begins with one sentence that says what lives there; the map is those
sentences, so it can't be older than the folders. A test looks whether it was written anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "DESIGN.md"
BEGIN = "<!-- Written by docs/file_map.py (make docs) from the first sentence of each folder. -->\n"
END = "<!-- The end of the file map. -->\n"
#: The packages, in the order in which one reads them.
PACKAGES = (
    "framework/ackfloor",
    "handlers/ackfloor_handlers",
    "monitoring/ackfloor_monitoring",
)
#: Folders of `framework/ackfloor` in the order in which one reads them; others follow.
FIRST = ("core", "kafka", "runtime", "dead_letters", "declare", "settings", "live", "cli")


def with_map(page: str) -> str:
    """The page with the map as the folders are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{render()}\n{END}{after}"


def render() -> str:
    """One row for each folder."""
    rows = [
        f"| `{_shown(folder)}` | {_first_sentence(folder / '__init__.py')} | {_files(folder)} |"
        for folder in folders()
    ]
    return "\n".join(["| folder | what lives there | files |", "|---|---|---|", *rows]) + "\n"


def folders() -> Iterator[Path]:
    """Every folder with modules in it, in the order in which one reads them."""
    for package in PACKAGES:
        files = (ROOT / package).rglob("*.py")
        found = {file.parent for file in files if file.name != "__init__.py"}
        yield from sorted(found, key=lambda folder: _place(folder.relative_to(ROOT / package)))


def _place(folder: Path) -> tuple[int, tuple[str, ...]]:
    top = folder.parts[0] if folder.parts else ""
    return (FIRST.index(top) + 1 if top in FIRST else len(FIRST) * bool(top) + 1, folder.parts)


def _shown(folder: Path) -> str:
    path = folder.relative_to(ROOT).as_posix()
    return path.removeprefix("framework/ackfloor/") + "/"


def _files(folder: Path) -> str:
    return ", ".join(f.stem for f in sorted(folder.glob("*.py")) if f.stem != "__init__")


def _first_sentence(file: Path) -> str:
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(with_map(PAGE.read_text()))
