"""The five examples of the docs: no longer than the nearest neighbour's, and typed strictly.

That the page's programs and tests run is checked with those of all pages, by `test_docs`.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest

from tests.structure.pages import blocks, mypy, run
from tests.structure.sources import REPOSITORY

PAGE = (REPOSITORY / "docs" / "guide" / "five-examples.md").read_text()
FILES = {block.file: block.text for block in blocks(PAGE) if block.file}
HANDLERS = ("bill.py", "store.py", "invoice.py", "price.py")
#: File here -> lines with code of the example of the same kind there, and its path below
#: `docs/docs_src` of github.com/ag2ai/faststream at the commit.
COMMIT = "7c9a125dfdf20cc45b64aac26b53559057443da1"
THERE = {
    "bill.py": (14, "confluent/consumes_basics/app.py"),
    "store.py": (15, "confluent/batch_consuming_pydantic/app.py"),
    "invoice.py": (12, "index/confluent/pydantic.py"),
    "price.py": (9, "getting_started/dependencies/basic/confluent/depends.py"),
    "test_bill.py": (16, "getting_started/subscription/confluent/testing.py"),
}
_ROW = re.compile(r"^\| \[[^]]+\]\(#[\w-]+\) \| (\d+) \| (\d+) \| `([^`]+)` \|$", re.MULTILINE)


def lines(text: str) -> int:
    """How many lines have code: neither blank nor comments."""
    stripped = (line.strip() for line in text.splitlines())
    return sum(1 for line in stripped if line and not line.startswith("#"))


@pytest.mark.parametrize("file", THERE)
def test_an_example_is_no_longer_than_the_neighbours(file: str) -> None:
    """As both are published."""
    assert lines(FILES[file]) <= THERE[file][0]


def test_the_page_says_how_long_both_are() -> None:
    """Each row of its table is counted, and names what was counted."""
    found = [(int(here), int(there), path) for here, there, path in _ROW.findall(PAGE)]
    assert found == [(lines(FILES[file]), *THERE[file]) for file in THERE]
    assert COMMIT in PAGE


@pytest.mark.parametrize("file", HANDLERS)
def test_deadline_order_and_retry_are_an_argument_each(file: str) -> None:
    """Of the one handler of each example, which has a test of its own on the page."""
    calls = [each for each in ast.walk(ast.parse(FILES[file])) if isinstance(each, ast.Call)]
    (handler,) = (each for each in calls if ast.unparse(each.func) == "app.handler")
    given = {each.arg: ast.unparse(each.value) for each in handler.keywords}
    assert given["consume_timeout"] == "'30s'"
    assert given["ordering"] == "'key'"
    assert given["retry"] == "RetryPolicy('1s')"
    assert "with Harness(app)" in FILES[f"test_{file}"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all files of the page."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_mypy_takes_them_in_strict_mode(folder: Path) -> None:
    """Handlers and tests, with the configuration of all pages, which is of Kafka's client alone."""
    mypy(folder, *FILES)


def test_pyright_takes_them_in_strict_mode(folder: Path) -> None:
    """Likewise; what it can't find would be an error."""
    (folder / "pyrightconfig.json").write_text(
        json.dumps(
            {
                "typeCheckingMode": "strict",
                "extraPaths": [str(REPOSITORY / each) for each in ("framework", "handlers")],
            }
        )
    )
    command = ["python", "-m", "pyright", "--pythonpath", sys.executable]
    run([*command, "--project", "pyrightconfig.json"], folder)
