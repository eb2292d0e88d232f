"""Rows as people and programs read them."""

from __future__ import annotations

import csv
import json

import pytest

from ackfloor.cli.shared.rows import RowsOutput, print_rows

ROWS = [
    {"place": "orders/0/7", "count": 1_204, "note": "", "hidden": True, "stack": ["a", "b"]},
    {"place": 'or"ders,\x1b[31m', "count": None, "note": "é\n", "hidden": False, "stack": []},
]


def test_a_table_has_nothing_in_it_that_a_terminal_would_obey(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is missing is a dash, and numbers can be read."""
    monkeypatch.delenv("COLUMNS", raising=False)
    print_rows(ROWS, RowsOutput.table)
    told = capsys.readouterr().out
    assert "1,204" in told
    assert "\\x1b[31m" in told
    assert "\x1b" not in told


def test_json_lines_and_csv_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Every value is there, and comes back."""
    print_rows(ROWS, RowsOutput.json)
    assert json.loads(capsys.readouterr().out) == ROWS
    print_rows(ROWS, RowsOutput.jsonl)
    assert [json.loads(line) for line in capsys.readouterr().out.split("\n")[:-1]] == ROWS
    print_rows(ROWS, RowsOutput.csv)
    head, first, second = csv.reader(capsys.readouterr().out.splitlines(keepends=True))
    assert head == list(ROWS[0])
    assert (first[:2], first[4]) == (["orders/0/7", "1204"], "a; b")
    assert second[:3] == ['or"ders,\x1b[31m', "", "é\n"]


def test_what_utf8_can_not_say_is_printed_as_json_writes_it(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """Half a surrogate pair: no row is lost for it."""
    rows = [{"by": "caf\udce9", "why": "ä"}]
    print_rows(rows, RowsOutput.json)
    print_rows(rows, RowsOutput.jsonl)
    told = capfdbinary.readouterr().out
    assert told.count(b"caf\\udce9") == 2
    assert told.count("ä".encode()) == 2


def test_nothing_found_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """And is valid in each form; a heading stays. A table without a row has none to say so in."""
    print_rows([], RowsOutput.table)
    assert capsys.readouterr().out == "nothing found\n"
    print_rows([], RowsOutput.json)
    assert json.loads(capsys.readouterr().out) == []
    print_rows([], RowsOutput.jsonl)
    assert capsys.readouterr().out == ""
    print_rows([], RowsOutput.csv, ("place", "count"))
    assert capsys.readouterr().out == "place,count\n"
