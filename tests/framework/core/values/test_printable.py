"""Text from anywhere, made fit to be printed."""

from __future__ import annotations

from ackfloor.core.values.printable import plain


def test_what_people_read_stays() -> None:
    """Letters of any script, and what puts them in lines and columns."""
    assert plain("über 売上") == "über 売上"
    assert plain("a\tb\nc") == "a\tb\nc"


def test_what_a_terminal_obeys_is_shown() -> None:
    """Neither the colour changes nor the line is cleared."""
    assert plain("\x1b[31mred\r\x00") == "\\x1b[31mred\\x0d\\x00"
