"""The documents are true: programs run, links lead somewhere, the file map is whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ackfloor.declare.registration import HandlerOptions
from docs.file_map import BEGIN, with_map
from tests.structure.pages import (
    blocks,
    broken_links,
    check_page,
    missing_files,
    missing_modules,
    unknown_commands,
)
from tests.structure.sources import REPOSITORY, modules

DOCS = REPOSITORY / "docs"
GUIDE = sorted((DOCS / "guide").glob("*.md"))
PAGES = [*sorted(DOCS.rglob("*.md")), REPOSITORY / "CHANGELOG.md", REPOSITORY / "CONTRIBUTING.md"]


def name(page: Path) -> str:
    """A page's path, to tell tests apart."""
    return page.relative_to(REPOSITORY).as_posix()


@pytest.mark.parametrize("page", GUIDE, ids=name)
def test_a_page_of_the_guide_is_true(page: Path, tmp_path: Path) -> None:
    """Every program in it runs, every command in it exists."""
    assert check_page(page.read_text(), tmp_path) > 0


def test_no_program_uses_what_is_deprecated(tmp_path: Path) -> None:
    """Strict pyright, which readers may use, refuses that."""
    for page in [*GUIDE, REPOSITORY / "README.md"]:
        folder = tmp_path / page.stem
        folder.mkdir()
        for number, block in enumerate(blocks(page.read_text())):
            if block.language == "python":
                (folder / f"block_{number}.py").write_text(block.text)
    rules = {"typeCheckingMode": "off", "reportDeprecated": "error"}
    extra = [str(REPOSITORY / each) for each in ("framework", "handlers", "monitoring")]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({**rules, "extraPaths": extra}))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run([*command, "-p", tmp_path], capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] > len(GUIDE)
    deprecated = [
        f"{each['file']}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in told["generalDiagnostics"]
        if each.get("rule") == "reportDeprecated"
    ]
    assert deprecated == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """What a page links to is there, headings included."""
    assert broken_links(page) == []


@pytest.mark.parametrize("page", [*sorted(DOCS.rglob("*.md")), REPOSITORY / "README.md"], ids=name)
def test_what_a_sentence_names_exists(page: Path) -> None:
    """Commands with their options, modules, and files; of others' only what is linked to."""
    text = page.read_text()
    assert unknown_commands(text) == []
    assert missing_modules(text) == []
    if page.name != "five-examples.md":
        assert missing_files(text) == []


def test_a_module_that_is_gone_is_found() -> None:
    """A page may go on to name what was renamed: by itself, in a command, or in a package."""
    text = "Copy `ackfloor_handlers.once`, run `python -m ackfloor_handlers.gone.app`, not `x.py`."
    assert missing_modules(text) == ["ackfloor_handlers.once", "ackfloor_handlers.gone.app"]
    assert missing_modules("Copy `ackfloor_handlers.echo`, import `ackfloor.App`.") == []


def test_the_index_names_every_page() -> None:
    """Nobody has to guess what else there is."""
    index = (DOCS / "index.md").read_text()
    others = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert [page for page in others if page != "index.md" and f"]({page})" not in index] == []


def test_every_option_of_a_handler_is_explained() -> None:
    """The guide's table has them all."""
    told = (DOCS / "guide" / "handlers.md").read_text().partition("## All options")[2]
    named = set(re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE))
    assert named == {*HandlerOptions.__annotations__, "to"}


def test_quoted_messages_are_ours() -> None:
    """What troubleshooting says that a message says, some source says."""
    text = (DOCS / "guide" / "troubleshooting.md").read_text()
    table = text.partition("| it says | do |")[2].partition("\n\n")[0]
    quoted = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    pieces = [piece.strip() for message in quoted for piece in message.split("...")]
    sources = "\n".join(file.read_text() for file in modules().values())
    assert quoted
    assert [piece for piece in pieces if piece not in sources] == []


def test_the_file_map_is_whole() -> None:
    """docs/DESIGN.md has one line for each folder of the three packages, with its files."""
    page = (DOCS / "DESIGN.md").read_text()
    assert BEGIN in page
    assert page == with_map(page), "run: make docs"
