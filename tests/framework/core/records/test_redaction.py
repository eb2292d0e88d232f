"""Redaction takes away what it is told to, and everything where it can't tell."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.records.redaction import MASK, Redaction
from ackfloor.core.values.setting_error import SettingError

SECRET = "4111111111111111"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["card", "number", "email", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


def test_nothing_is_taken_away_by_default() -> None:
    """Bytes, names and order are those of the record."""
    rules = Redaction()
    headers = [("a", b"\xff"), ("a", None), ("", b"")]
    assert rules.of_payload(b"\xff\x00") == b"\xff\x00"
    assert rules.of_payload(None) is None
    assert rules.of_key(b"k") == b"k"
    assert rules.of_key(None) is None
    assert rules.of_headers(headers) == headers
    assert rules.of_headers(None) == []
    assert rules.of_text("text") == "text"
    assert rules.of_text(None) is None


def test_fields_are_masked_wherever_they_are() -> None:
    """In lists, below other fields, by the end of their path; and only where the rules say so."""
    rules = Redaction(fields=("card.number", "email"))
    assert rules.active
    assert not Redaction().active
    document = {"list": [{"card": {"number": 1, "x": 2}}, 3], "number": 4, "email": [5]}
    masked = {"list": [{"card": {"number": MASK, "x": 2}}, 3], "number": 4, "email": MASK}
    assert json.loads(rules.of_payload(json.dumps(document).encode()) or b"") == masked


def test_a_field_whose_name_has_dots_is_masked_by_that_name() -> None:
    """Flat documents write paths as names; where both readings are possible, both are meant."""
    rules = Redaction(fields=("card.number", "email"))
    document = {"card.number": 1, "order": {"card.number": 2}, "user.email": 3, "discard.number": 4}
    masked = {"card.number": MASK, "order": {"card.number": MASK}, "user.email": MASK}
    kept = json.loads(rules.of_payload(json.dumps(document).encode()) or b"")
    assert kept == {**masked, "discard.number": 4}


def test_what_json_can_say_and_utf8_can_not_stays_beside_a_masked_field() -> None:
    """Half a surrogate pair is written as the escape that it was."""
    rules = Redaction(fields=("card",))
    document = {"card": "4711", "note": "half \ud83d of a face", "ä": "\U0001f600"}
    masked = rules.of_payload(json.dumps(document).encode())
    assert masked is not None
    assert json.loads(masked) == {**document, "card": MASK}


def test_payloads_and_keys_can_be_dropped() -> None:
    """Nothing of them is left."""
    rules = Redaction(payload="drop", key="drop")
    assert rules.of_payload(b"x") is None
    assert rules.of_key(b"x") is None


def test_hashed_keys_stay_apart() -> None:
    """Equal keys are equal afterwards, others differ, and none can be read."""
    rules = Redaction(key="hash")
    hashes = [rules.of_key(key) for key in (b"ada", b"ada", b"bob", b"")]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    assert all(value and len(value) == 16 and value != b"a" for value in hashes)


@given(JSON)
def test_no_masked_field_keeps_its_value(document: Any) -> None:
    """However deep it is; everything else stays, and a document without it is left alone."""
    rules = Redaction(fields=("email", "card.number"))
    given = json.dumps(document).encode()
    kept = rules.of_payload(given)
    assert kept is not None

    def check(before: Any, after: Any, parent: str) -> None:
        if isinstance(before, list):
            for one, other in zip(before, after, strict=True):
                check(one, other, parent)
        elif isinstance(before, dict):
            assert list(before) == list(after)
            for name, value in before.items():
                if name == "email" or (parent, name) == ("card", "number"):
                    assert after[name] == MASK
                else:
                    check(value, after[name], name)
        else:
            assert before == after

    check(document, json.loads(kept), "")
    if MASK not in kept.decode():
        assert kept == given


@pytest.mark.parametrize("value", [b"", b"email: a@b", b"\x00\x00\x00\x00\x07\x02", b"[" * 100_000])
def test_fields_of_what_is_no_json_take_the_payload_away(value: bytes) -> None:
    """There the field can't be found, so nothing is kept."""
    assert Redaction(fields=("email",)).of_payload(value) is None


def test_patterns_reach_everything_that_is_kept() -> None:
    """Also what is no valid UTF-8."""
    rules = Redaction(patterns=(r"\d{13,16}", "geheim|sträng"), fields=("email",))
    dirty = f"{SECRET} sträng".encode()
    assert rules.of_payload(b'{"card": "%s"}' % SECRET.encode()) == b'{"card": "***"}'
    assert rules.of_key(b"\xff" + dirty) == b"\xff*** ***"
    assert rules.of_headers([("h", b"\xfe" + dirty), ("none", None)]) == [
        ("h", b"\xfe*** ***"), ("none", None),
    ]  # fmt: skip
    assert rules.of_text(f"card {SECRET}: sträng") == "card ***: ***"


def test_headers_are_masked_by_name() -> None:
    """A star stands for anything, case does not count, and other signs mean themselves."""
    rules = Redaction(headers=("Authorization", "x-user-*", "a.b"))
    names = ["authorization", "X-User-Id", "x-user-", "a.b", "axb", "authorization2"]
    kept = rules.of_headers([(name, b"1") for name in names])
    assert [value for _, value in kept] == [b"***"] * 4 + [b"1"] * 2


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"patterns": ("(",)}, "redaction.patterns='('"),
        ({"fields": ("",)}, "redaction.fields"),
        ({"fields": ("card..number",)}, "'card..number'"),
        ({"headers": ("a", "")}, "redaction.headers"),
    ],
)
def test_rules_that_mean_nothing_are_refused(rules: dict[str, Any], told: str) -> None:
    """The message names field and value."""
    with pytest.raises(SettingError, match=r"redaction\.") as caught:
        Redaction(**rules)
    assert told in str(caught.value)
