"""Pages that name tests: each of them exists, and no row goes without, or without a source."""

from __future__ import annotations

import ast
import re

import pytest

from tests.structure.sources import REPOSITORY

PAGE = (REPOSITORY / "docs" / "reliability.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+)`", PAGE)))

SIMULATED = (REPOSITORY / "docs" / "simulation-broker.md").read_text()


def section(heading: str) -> str:
    """What stands under a heading."""
    return PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def existing() -> set[str]:
    """Every test function of the suite."""
    found = set()
    for file in (REPOSITORY / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
    return found


def test_every_test_that_is_named_exists() -> None:
    """By its name, wherever it is."""
    assert len(NAMED) > 80
    assert sorted(set(NAMED) - existing()) == []


@pytest.mark.parametrize(
    ("heading", "rows"), [("Failure matrix", 16), ("What Kafka does not protect you from", 12)]
)
def test_every_row_has_its_tests(heading: str, rows: int) -> None:
    """Or says that what it is about is not there yet."""
    found = re.findall(r"^\| (\d+) \|(.*)\|$", section(heading), re.MULTILINE)
    assert [int(number) for number, _ in found] == list(range(1, rows + 1))
    assert [
        number for number, row in found if "`test_" not in row and "Not there yet" not in row
    ] == []


def test_what_the_simulation_takes_for_kafka_is_shown() -> None:
    """Each behaviour has a test that exists; what no real broker shows says where it is written."""
    rows = re.findall(r"^\| (\d+) \|(.*)\|(.*)\|(.*)\|$", SIMULATED, re.MULTILINE)
    named = set(re.findall(r"`(test_\w+)`", SIMULATED))
    assert [int(number) for number, *_ in rows] == list(range(1, 20))
    assert sorted(named - existing()) == []
    assert [number for number, _, tests, _ in rows if "`test_" not in tests] == []
    on_kafka = ("both", "Kafka")
    unseen = [written for _, _, tests, written in rows if not any(k in tests for k in on_kafka)]
    assert len(unseen) == 3
    assert all(written.strip() for written in unseen)
