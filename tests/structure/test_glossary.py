"""The glossary says what is there, and the code keeps to its words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.structure.sources import REPOSITORY, modules

PAGE = REPOSITORY / "docs/glossary.md"
SOURCES = modules()
#: Python's own, and those that users read: of events, of exports, of JSON.
GIVEN = frozenset({"garbage_collection", "alone", "words", "findings", "followers"})
_ROW = re.compile(r"^\| (?!word \||not \||---)(.+) \|$", re.MULTILINE)
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def rows() -> list[list[str]]:
    """The cells of each row of the page's tables, without the heads."""
    return [row.split(" | ") for row in _ROW.findall(PAGE.read_text())]


WORDS = [row for row in rows() if len(row) == 3]
UNUSED = frozenset(word for row in rows() if len(row) == 2 for word in row[0].split(", "))


@pytest.mark.parametrize("row", WORDS, ids=lambda row: row[0])
def test_what_a_word_means_in_the_code_exists(row: list[str]) -> None:
    """Who looks a word up reads on in the code."""
    names = re.findall(r"`([\w.]+)`", row[2])
    assert names
    assert [name for name in names if not exists(f"ackfloor.{name}")] == []


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or a class or function at the top of one."""
    if name in SOURCES:
        return True
    module, _, last = name.rpartition(".")
    if module not in SOURCES:
        return False
    body = ast.parse(SOURCES[module].read_text()).body
    return last in {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def test_a_word_has_one_meaning() -> None:
    """It stands in one row, and not among the words that are not used."""
    words = [row[0] for row in WORDS]
    assert len(words) == len(set(words)) > 30
    assert not UNUSED & set(words)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_no_word_is_used_that_tells_a_reader_nothing(name: str) -> None:
    """Neither in the module's own name nor in those that it defines."""
    last = name.rpartition(".")[2]
    tree = ast.parse(SOURCES[name].read_text())
    assert {each for each in {last, *defined(tree)} - GIVEN if words_of(each) & UNUSED} == set()


def words_of(name: str) -> set[str]:
    """The words that an identifier is made of; of a dead letter none is left."""
    words = [word.lower() for word in _PARTS.findall(name)]
    pairs = zip(words, ["", *words], strict=False)
    return {word for word, before in pairs if not (before == "dead" and "letter" in word)}


def defined(tree: ast.AST) -> Iterator[str]:
    """What a module names: classes, functions, parameters, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_words_of_a_name() -> None:
    """As people write them: in snake case and in camel case."""
    assert words_of("_dead_letter_rows") == {"dead", "rows"}
    assert words_of("RetryOrders") == {"retry", "orders"}
    assert words_of("LETTERS_SPARE") == {"letters", "spare"}
    assert words_of("DLQName") == {"dlq", "name"}
