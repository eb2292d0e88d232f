"""Tables in narrow terminals: a row is a line, and what is copied is in one piece."""

from __future__ import annotations

import os
import pty
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from typing import Any

import pytest

from ackfloor.cli.lanes import lane_list
from ackfloor.cli.progress import acks, lag
from ackfloor.cli.run import inflight
from ackfloor.cli.shared.rows import RowsOutput, print_rows
from ackfloor.dead_letters.commands.dead_letter_views import (
    OPTIONAL_COLUMNS,
    OPTIONAL_GROUP_COLUMNS,
)
from tests.framework.cli.command import PATIENCE_S, environment, rest_of

DLQ = "orders--billing--dlq"
GROUPS = [
    {
        "topic": DLQ, "handler": "bill", "error": "shop.payments.errors.PaymentDown",
        "count": 1_204 + n, "first": "2026-11-21T14:30:00Z", "last": "2026-11-22T14:30:00Z",
        "releases": "2.3.9, 2.4.0",
        "latest": f"{DLQ}/0/{41_927 + n}", "cause": f"3f1c0a5be1d2{n:04x}",
        "message": "connection to payments.internal refused after 3 attempts\nby its peer",
    }
    for n in range(3)
]  # fmt: skip
LETTERS = [
    {
        "place": f"{DLQ}/0/{41_927 + n}", "failed": "2026-11-22T14:30:00Z", "handler": "bill",
        "reason": "exhausted", "error": "shop.payments.errors.PaymentDown", "attempt": 7,
        "replays": 0, "release": "2.4.0", "key": "customer-4711", "bytes": 1_024, "disposed": False,
    }
    for n in range(3)
]  # fmt: skip
DONE = [
    {
        **letter, "disposed": "replayed", "at": "2026-11-23T14:30:00Z", "by": "ann@shop-12",
        "job": "20261123-143000-5f2c", "target": "orders--billing--retry-1s",
    }
    for letter in LETTERS
]  # fmt: skip
LAG = [
    {
        "group": "billing", "topic": topic, "partition": n, "kind": "source", "floor": 1_234_567,
        "end": 1_234_999, "lag": 432, "settled": 3, "open": 429,
        "owner": "ackfloor-worker-1-0a1b2c3d4e5f", "note": "the floor has not moved for 4 minutes",
    }
    for n in range(2)
    for topic in ("orders", "orders--billing--retry-1500ms", DLQ)
]  # fmt: skip
ACKS = [
    {
        "group": "billing", "partition": f"orders/{n}", "floor": 1_234_567, "map": "·" * 16,
        "read_to": 1_234_999, "open": 429, "gaps": 3, "oldest": 1_234_567, "age_s": 47.5,
        "handler": "bill", "seen": "live", "note": "",
    }
    for n in range(3)
]  # fmt: skip
INFLIGHT = [
    {
        "record": f"orders/{n}/41927", "handler": "charge_the_credit_card", "attempt": 1,
        "running_s": 47.5, "left_s": 12.5, "worker": 0, "pid": 4_194_304,
    }
    for n in range(3)
]  # fmt: skip
LANES = [
    {
        "record": f"orders/{n}/41927", "handler": "bill", "key": "customer-4711",
        "state": "quarantined", "head": "waiting", "attempt": 2, "error": "shop.errors.PaymentDown",
        "blocked_s": 1_047.5, "at_least": True, "next_try_s": 12.5, "behind": 19,
        "worker": 0, "run": "127.0.0.1:9600",
    }
    for n in range(3)
]  # fmt: skip
TABLES: dict[str, tuple[list[dict[str, Any]], tuple[str, ...], tuple[str, ...]]] = {
    "groups": (GROUPS, OPTIONAL_GROUP_COLUMNS, ("latest", "cause", "handler", "error")),
    "letters": (LETTERS, OPTIONAL_COLUMNS, ("place", "handler", "reason", "error")),
    "letters and what was done": (
        *(DONE, OPTIONAL_COLUMNS),
        ("place", "handler", "error", "disposed", "by"),
    ),
    "lag": (LAG, lag.SPARE, ("group", "topic", "partition")),
    "acks": (ACKS, acks.SPARE, ("group", "partition")),
    "inflight": (INFLIGHT, inflight.SPARE, ("record", "handler")),
    "lanes": (LANES, lane_list.SPARE, ("record", "handler", "error")),
}


def printed(
    rows: list[dict[str, Any]], spare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """The lines of a table, without its heading."""
    print_rows(rows, RowsOutput.table, spare=spare)
    return [line for line in capsys.readouterr().out.splitlines() if line.strip()][2:]


@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("name", TABLES)
def test_a_row_is_a_line_with_its_names_in_one_piece(
    name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the terminals that people have, nothing is folded and no name is cut."""
    monkeypatch.setenv("COLUMNS", str(width))
    rows, spare, copied = TABLES[name]
    lines = printed(rows, spare, capsys)
    assert len(lines) == len(rows)
    assert max(map(len, lines)) <= width
    for line, row in zip(lines, rows, strict=True):
        shown = set(line.split())
        assert {str(row[each]) for each in copied if each != "error"} <= shown
        if "error" in copied:
            # Of a class, what people call it is enough; it never goes.
            assert shown & {row["error"], row["error"].rpartition(".")[2]}


@pytest.mark.parametrize("error", ["ValueError", "no route: to x.y", "a.b.Refused: no.dots"])
def test_an_error_that_names_no_module_stays_whole(
    error: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever room there is: only what is before the name of a class can be missed."""
    monkeypatch.setenv("COLUMNS", "10")
    (line,) = printed([{"place": "orders/0/7", "error": error}], ("error",), capsys)
    assert error in line


def test_what_an_error_says_makes_room_for_whose_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane's failure has its text: it is shortened, its class is not, and the key stays."""
    monkeypatch.setenv("COLUMNS", "80")
    rows = [{**row, "error": "LookupError: no price for article 4711" * 3} for row in LANES]
    lines = printed(rows, lane_list.SPARE, capsys)
    assert max(map(len, lines)) <= 80
    for line, row in zip(lines, rows, strict=True):
        assert {row["record"], row["key"], "LookupError:"} <= set(line.split())
        assert "…" in line


def test_what_names_something_has_no_separators(capsys: pytest.CaptureFixture[str]) -> None:
    """A process id goes into `kill` as it is; counts are read, and are easier to read so."""
    (line,) = printed([{"pid": 4_194_304, "partition": 1_024, "lag": 4_194_304}], (), capsys)
    assert line.split() == ["4194304", "1024", "4,194,304"]


@pytest.mark.parametrize("name", TABLES)
def test_a_pipe_gets_every_column_in_full(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long its lines become."""
    monkeypatch.delenv("COLUMNS", raising=False)
    rows, spare, _ = TABLES[name]
    long = [{**row, "note": "far " * 100 + "away"} for row in rows]
    lines = printed(long, spare, capsys)
    assert len(lines) == len(rows)
    for line, row in zip(lines, long, strict=True):
        for value in row.values():
            if isinstance(value, str) and value:
                assert " ".join(value.split()) in line


def test_a_process_id_can_be_copied(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kill 4,194,304` is no command; counts keep their separators."""
    monkeypatch.setenv("COLUMNS", "80")
    (line,) = printed([{"pid": 4_194_304, "lag": 4_194_304}], (), capsys)
    assert line.split() == ["4194304", "4,194,304"]


def test_free_text_is_shortened_before_a_column_goes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ellipsis says so; of columns that go, standard error says which."""
    row = {"place": "orders/0/7", "bytes": 5, "message": "a" * 60}
    monkeypatch.setenv("COLUMNS", "40")
    print_rows([row], RowsOutput.table, spare=("message", "bytes"))
    told = capsys.readouterr()
    assert "aaa…" in told.out
    assert "bytes" in told.out
    assert told.err == ""
    monkeypatch.setenv("COLUMNS", "20")
    print_rows([row], RowsOutput.table, spare=("message", "bytes"))
    told = capsys.readouterr()
    assert "aaa" not in told.out
    assert told.err == "no room for message: -o json has all\n"


def test_a_name_too_long_for_the_terminal_is_in_one_piece(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal breaks the line where it ends, and who copies it gets it whole."""
    monkeypatch.setenv("COLUMNS", "80")
    topic = "a" * 249
    (line,) = printed([{"topic": topic, "lag": 5}], (), capsys)
    assert line.split() == [topic, "5"]


@pytest.mark.parametrize("columns", [80, 120, 160])
def test_a_terminal_says_how_wide_it_is(columns: int) -> None:
    """A real one, by its size and no variable."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    code = (
        "from tests.framework.cli.shared.test_tables import GROUPS, OPTIONAL_GROUP_COLUMNS\n"
        "from ackfloor.cli.shared.rows import RowsOutput, print_rows\n"
        "print_rows(GROUPS, RowsOutput.table, spare=OPTIONAL_GROUP_COLUMNS)\n"
    )
    plain = {**environment({"TERM": "xterm"}), "NO_COLOR": "1"}
    del plain["COLUMNS"]
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=plain
    )
    os.close(theirs)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors.decode()
    text = rest_of(ours)
    lines = [line for line in text.splitlines() if "3f1c0a5be1d2" in line]
    assert len(lines) == 3
    for line, row in zip(lines, GROUPS, strict=True):
        assert len(line.split("\x1b")[0].rstrip()) <= columns
        assert {str(row["latest"]), str(row["cause"])} <= set(line.split())
