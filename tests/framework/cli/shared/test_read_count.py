"""The count of what is read: seen on a terminal while it grows, and gone afterwards."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import termios
from fcntl import ioctl

import pytest

from ackfloor.cli.shared.read_count import counted
from tests.framework.cli.command import PATIENCE_S, environment, rest_of

COLUMNS = 40
#: Reads some of 2,000 records, and writes what a command would write afterwards.
CODE = """
import sys
from ackfloor.cli.shared.read_count import counted
try:
    for number in counted(range(2_000), "orders--billing--dlq" * {times}):
        if number == {last}:
            {end}
except ValueError:
    pass
print("after", file=sys.stderr)
"""


def written(end: str, last: int, times: int = 1, **given: str) -> str:
    """All that a process writes to a narrow terminal."""
    ours, theirs = os.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    code = CODE.format(end=end, last=last, times=times)
    try:
        subprocess.run(
            [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
            env=environment({"TERM": "xterm", **given}), timeout=PATIENCE_S, check=True,
        )  # fmt: skip
    finally:
        os.close(theirs)
    return rest_of(ours)


def left_on_screen(text: str) -> list[str]:
    """The lines that a terminal shows in the end."""
    lines = [""]
    for part in text.replace("\r\n", "\n").split("\n"):
        # What is cleared is gone; what is not cleared stays in front.
        lines[-1] += part.rpartition("\r\x1b[K")[2]
        lines.append("")
    return [line for line in lines if line]


@pytest.mark.parametrize(
    ("end", "last"), [("pass", 1_999), ("break", 700), ("raise ValueError", 700)]
)
def test_nothing_of_it_stays(end: str, last: int) -> None:
    """Read to the end, left early or failed: what is said then stands in a line of its own."""
    text = written(end, last)
    assert "orders--billing--dlq: 500 read" in text
    assert left_on_screen(text) == ["after"]


def test_it_is_never_longer_than_a_line() -> None:
    """The topic is cut, and the number is not."""
    text = written("pass", 0, times=12)
    shown = [part for part in text.split("\r\x1b[K") if part.endswith(" read")]
    assert len(shown) == 4
    assert {len(part) for part in shown} == {COLUMNS - 1}
    assert shown[-1].endswith(": 1,500 read")


def test_a_terminal_that_can_clear_nothing_gets_nothing() -> None:
    """Such as the one of an editor."""
    assert left_on_screen(written("pass", 0, TERM="dumb")) == ["after"]
    assert "read" not in written("pass", 0, TERM="dumb")


def test_a_pipe_gets_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """And all records come through."""
    assert list(counted(range(1_200), "orders")) == list(range(1_200))
    assert capsys.readouterr().err == ""
