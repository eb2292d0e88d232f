"""Write the file map of docs/DESIGN.md: each file of the three packages by its first sentence.

    python docs/file_map.py

A module's docstring begins with one paragraph that says what it is; the map is those paragraphs,
so it can't be older than the files. A test looks whether it was written anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "DESIGN.md"
BEGIN = "<!-- Written by docs/file_map.py (make docs) from the first sentence of each file. -->\n"
END = "<!-- The end of the file map. -->\n"
#: Folders in the order in which one reads them.
FOLDERS = (
    "framework/ackfloor",
    "framework/ackfloor/core",
    "framework/ackfloor/kafka",
    "framework/ackfloor/runtime",
    "framework/ackfloor/runtime/process",
    "framework/ackfloor/settings",
    "framework/ackfloor/live",
    "framework/ackfloor/cli",
    "framework/ackfloor/testing",
    "handlers/ackfloor_handlers",
    "handlers/ackfloor_handlers/demo",
    "handlers/ackfloor_handlers/incident",
    "monitoring/ackfloor_monitoring",
    "monitoring/ackfloor_monitoring/dashboards",
    "monitoring/ackfloor_monitoring/spark",
    "monitoring/ackfloor_monitoring/spark/cli",
    "monitoring/ackfloor_monitoring/spark/report",
    "monitoring/ackfloor_monitoring/spark/watch",
    "monitoring/ackfloor_monitoring/spark/whatif",
)


def with_map(page: str) -> str:
    """The page with the map as the files are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{render()}\n{END}{after}"


def render() -> str:
    """The tables, one for each folder."""
    return "\n".join(f"### `{folder}/`\n\n{_table(ROOT / folder)}" for folder in FOLDERS)


def _table(folder: Path) -> str:
    rows = [f"| `{file.name}` | {_first_sentence(file)} |" for file in sorted(folder.glob("*.py"))]
    return "\n".join(["| file | what it is |", "|---|---|", *rows]) + "\n"


def _first_sentence(file: Path) -> str:
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def unmapped() -> Iterator[Path]:
    """Files in folders that the map does not have."""
    for top in ("framework", "handlers", "monitoring"):
        for file in (ROOT / top).rglob("*.py"):
            if file.parent.relative_to(ROOT).as_posix() not in FOLDERS:
                yield file


if __name__ == "__main__":
    PAGE.write_text(with_map(PAGE.read_text()))
