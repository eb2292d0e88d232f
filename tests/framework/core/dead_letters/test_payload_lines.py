"""Payload lines: nothing of a document is lost, and nothing of a difference."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.dead_letters.rules.payload_lines import differing_lines, payload_lines

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
).filter(lambda each: isinstance(each, dict | list))
lines = st.lists(st.sampled_from("abc"), max_size=12)


def test_a_document_is_shown_field_by_field_as_it_is_written() -> None:
    """Numbers are not rounded, escapes and repeated names stay."""
    payload = '{"n":1.10 , "n": 1e400,"t":"a, {b}: \\" \\u00e9","l":[1,{"x":null}],"e":{}}'
    assert payload_lines(payload) == [
        "{",
        ' "n": 1.10,',
        ' "n": 1e400,',
        ' "t": "a, {b}: \\" \\u00e9",',
        ' "l": [',
        "  1,",
        "  {",
        '   "x": null',
        "  }",
        " ],",
        ' "e": {',
        " }",
        "}",
    ]


@pytest.mark.parametrize("payload", ["one\ntwo", "7", '"a, b"', "{", "", "[" * 100_000])
def test_what_is_no_document_is_shown_line_by_line(payload: str) -> None:
    """As it is."""
    assert payload_lines(payload) == payload.splitlines()


@given(documents, st.sampled_from([None, 2]), st.booleans())
def test_no_character_of_a_document_is_lost(
    document: object, indent: int | None, ascii_only: bool
) -> None:
    """But white space between its parts."""
    payload = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    assert json.loads("\n".join(payload_lines(payload))) == document


@given(lines, lines, st.integers(0, 3))
def test_a_difference_leads_from_the_one_to_the_other(
    before: list[str], after: list[str], context: int
) -> None:
    """What is not shown is the same in both."""
    found = differing_lines(before, after, context)
    assert (found == []) == (before == after)
    gone = [line[1:] for line in found if line[0] != "+"]
    come = [line[1:] for line in found if line[0] != "-"]
    assert len(before) - len(gone) == len(after) - len(come)
    assert {line[0] for line in found} <= {"+", "-", " "}
    for shown, whole in ((gone, before), (come, after)):
        left = iter(whole)
        assert all(each in left for each in shown)


def test_very_many_lines_are_not_compared_one_by_one() -> None:
    """What is the same at both ends is left out all the same."""
    before = ["same", *(f"a{n}" for n in range(60_000)), "end"]
    after = ["same", *(f"b{n}" for n in range(60_000)), "end"]
    found = differing_lines(before, after, 0)
    assert (len(found), found[0], found[-1]) == (120_000, "-a0", "+b59999")
