"""Payloads that are corrected in a browser: unchanged where nobody changes them, and checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor import SettingError
from ackfloor_monitoring.console.acts.corrections.payload_edits import (
    LONGEST,
    difference,
    edited_payload,
    fault_of,
    kind_of,
    why_not_editable,
)

payloads = st.text(st.sampled_from('a{}"\n\r\t\0é\u2028<'), max_size=12).map(str.encode)


def sent_back(value: bytes) -> str:
    """What a browser makes of the text of a field: its line ends as a form has them."""
    text = value.decode().replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return text.replace("\n", "\r\n")


@given(payloads | payloads.map(lambda each: each.replace(b"\n", b"\r\n")))
def test_what_nobody_changes_stays_as_it_is(value: bytes) -> None:
    """Byte for byte, or it is not given to a browser at all."""
    if not why_not_editable(value):
        assert edited_payload(value, sent_back(value)) == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "a tombstone"),
        (b"\xff\x00", "not UTF-8"),
        (b"a\0b", "zero character"),
        (b"a\rb", "end in several ways"),
        (b"a\r\nb\n", "end in several ways"),
        (b"a" * (LONGEST + 1), "more than 65,536 bytes"),
        (b"", ""),
        (b"a\r\nb\r\n", ""),
        ("\u202e".encode(), ""),
    ],
)
def test_what_a_browser_would_change_is_not_given_to_it(value: bytes | None, why: str) -> None:
    """With the reason."""
    found = why_not_editable(value)
    assert why in found
    assert bool(why) is bool(found)


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (b'{"n": "one"}', b'{"n": 1}', ""),
        (b'{"n": "one"}', b'{\n "n": 1\n!', "none now: line 3, column 1: "),
        (b'{"n": "one"}', b'{"n": NaN}', "NaN is no value of JSON"),
        (b"[1]", b"[" * 60_000, "it was JSON and is none now"),
        (b'{"n": NaN}', b'{"n": }', ""),
        (b"7 apples", b"8 apples", ""),
        (b"7", b"7 apples", ""),
        (b'{"n" 1}', b'{"n": 1}', ""),
        (b"same", b"same", "nothing is changed"),
    ],
)
def test_a_document_stays_one(before: bytes, after: bytes, fault: str) -> None:
    """Of what was none, nothing is asked."""
    found = fault_of(before, after)
    assert fault in found
    assert bool(fault) is bool(found)


def test_a_payload_is_called_what_it_is() -> None:
    """For people."""
    assert [kind_of(each) for each in (b"{}", b"{", b"", b'{"n": Infinity}')] == [
        "JSON", "text", "text", "text",
    ]  # fmt: skip


def test_a_correction_that_is_too_large_is_refused() -> None:
    """With what takes more; what is not text any more is replaced."""
    with pytest.raises(SettingError, match=r"65,537 bytes.*too large for a browser"):
        edited_payload(b"a", "a" * (LONGEST + 1))
    assert edited_payload(b"a", "\ud800") == b"?"


def test_a_difference_shows_what_can_not_be_seen() -> None:
    """Of JSON field by field; white space alone is said; very much is cut."""
    assert difference(b'{"a": 1, "b": 2}', '{"a": 1, "b": "\u202e"}'.encode()) == [
        " {", '  "a": 1,', '- "b": 2', '+ "b": "\\x202e"', " }",
    ]  # fmt: skip
    assert difference(b'{"a":1}', b'{"a": 1}') == ["only white space between its parts is changed"]
    assert difference(b"a", b"a") == []
    many = "\n".join(map(str, range(900)))
    assert difference(b"a", many.encode())[-1] == "... and 501 lines more"
