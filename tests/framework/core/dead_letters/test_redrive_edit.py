"""Edits of dead letters: what may be changed, what is kept, and how it is marked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.records.envelope import (
    PREFIX,
    Envelope,
    copies_for_others,
    read_envelope,
    write_headers,
)
from ackfloor.core.records.record import Headers
from ackfloor.core.records.redaction import Redaction
from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.rules.kept_edits import KeptEdit
from ackfloor.dead_letters.rules.redrive_edit import (
    Edit,
    EditMark,
    edited,
    read_mark,
    shown_mark,
    unedited,
    with_kept,
    with_own_headers,
)
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, redriven_headers
from ackfloor.dead_letters.rules.redrive_tally import SAMPLES, Preview
from ackfloor.redrive import Target

DIED = Envelope("orders", 1, 7, 0, "billing", "bill", 7, error_type="shop.Bad")
OWN: Headers = [("tenant", b"acme"), ("trace", None)]
WAS = hashlib.sha256(b"was").hexdigest()
AT_MS = 1_790_000_000_000
MARK = f"{WAS} {AT_MS} ann@ops"


def dead(own: Headers = OWN, value: bytes | None = b"was", **copies: bool) -> DeadLetter:
    """A dead letter of ours."""
    return DeadLetter("d", 0, 3, b"k", value, write_headers(DIED, own, **copies))


def corrected(dead_letter: DeadLetter, edit: Edit, by: str = "ann@ops") -> DeadLetter:
    """As it is to be sent."""
    return edited(dead_letter, edit, by, AT_MS)


def own(headers: Headers | None) -> list[tuple[str, bytes | None]]:
    """The headers that are not ours."""
    return [each for each in headers or () if not each[0].startswith(PREFIX)]


def test_what_is_edited_says_what_it_was() -> None:
    """The hash of the first value stays; who edited it when is that of the last edit."""
    first = corrected(dead(), lambda letter: replace(letter, value=b"now"))
    assert (first.value, read_envelope(first.headers).edited) == (b"now", MARK)
    again = replace(first, headers=redriven_headers(first, 1))
    told = read_envelope(again.headers)
    assert (told.edited, told.replays, told.attempt) == (MARK, 1, 0)
    twice = corrected(again, lambda letter: replace(letter, value=b"then"), "Bob B. at home")
    mark = read_mark(read_envelope(redriven_headers(twice, 1)).edited or "")
    assert mark == EditMark(WAS, AT_MS, "Bob B. at home")
    assert own(redriven_headers(twice, 1)) == list(OWN)


def test_a_foreign_one_that_is_edited_says_so_too() -> None:
    """Beside the count it gets the hash, and keeps its other headers."""
    letter = DeadLetter("d", 0, 3, None, None, [("h", b"1")])
    made = corrected(letter, lambda each: replace(each, value=b"", headers=[("h", b"2")]))
    assert redriven_headers(made, 1) == [
        ("h", b"2"),
        ("ackfloor.replays", b"1"),
        ("ackfloor.edited", f"{hashlib.sha256(b'').hexdigest()} {AT_MS} ann@ops".encode()),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (WAS, EditMark(WAS)),
        (f"{WAS} soon ann", EditMark(WAS)),
        (f"{WAS} 7", EditMark(WAS)),
        (f"{WAS} 7 ann at home", EditMark(WAS, 7, "ann at home")),
        ("", EditMark("")),
    ],
)
def test_what_others_wrote_is_read_as_far_as_it_goes(text: str, says: EditMark) -> None:
    """A hash alone is one."""
    assert read_mark(text) == says


@pytest.mark.parametrize("says", [None, WAS, f"{WAS} {AT_MS} Bob B.", f"{WAS} soon Bob"])
def test_rules_leave_no_hash(says: str | None) -> None:
    """It is of a payload that they may hide; who corrected it, and when, stays."""
    assert shown_mark(says, Redaction()) == says
    shown = shown_mark(says, Redaction(fields=("card",)))
    bob = says is not None and "B." in says
    assert shown == (None if says is None else f"*** {AT_MS} Bob B." if bob else "***")


def test_a_kept_edit_is_that_of_one_dead_letter() -> None:
    """Its payload; every other one stays as it is."""
    letter = dead()
    edit = with_kept(KeptEdit(0, 3, "job", "ann", 1, b"now", "id"))
    assert edit(letter) == replace(letter, value=b"now")
    other = replace(letter, offset=4)
    assert edit(other) is other


def test_what_comes_back_as_it_was_is_not_marked() -> None:
    """The same object, or one with the same contents."""
    letter = dead()
    assert unedited(letter) is letter
    assert corrected(letter, unedited) is letter
    same = corrected(letter, lambda each: replace(each, headers=tuple(each.headers or ())))
    assert same is letter


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda _: None, "it returned None; return the dead letter"),
        (lambda each: replace(each, key=b"other"), "its key is changed"),
        (lambda each: replace(each, offset=4), "its offset is changed"),
        (lambda each: replace(each, value="text"), "its value is made str"),
        (lambda each: replace(each, headers=None), "None is no header"),
        (lambda each: replace(each, headers=[("h", "text")]), "is no header"),
        (lambda each: replace(each, headers=OWN), "under ackfloor. is changed"),
        (
            lambda each: replace(each, headers=[*each.headers, ("ackfloor.x", b"")]),
            "under ackfloor. is changed",
        ),
    ],
)
def test_what_can_t_be_edited_is_refused(edit: Callable[[Any], Any], why: str) -> None:
    """With the place of the dead letter, and what to do instead."""
    with pytest.raises(SettingError, match="edit='d/0/3': ") as refused:
        corrected(dead(), edit)
    assert why in str(refused.value)


headers = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=4)


@given(headers, headers, st.booleans(), st.booleans())
def test_own_headers_are_what_the_edit_says(
    before: Headers, after: Headers, spring: bool, kafka: bool
) -> None:
    """In order and byte for byte; ours stay, and the copies for other tools are written anew."""
    letter = dead(before, spring=spring, kafka=kafka)
    behind = own(letter.headers)[len(before) :]
    made = corrected(letter, lambda each: with_own_headers(each, [*after, *behind]))
    written = redriven_headers(made, 1)
    assert written[: len(after)] == list(after)
    assert copies_for_others(letter.headers or ()) == copies_for_others(written)
    assert read_envelope(written).edited == (None if before == after else MARK)


def test_copies_that_are_left_as_they_are_stay_at_the_end() -> None:
    """Behind ours, where they were."""
    letter = dead(spring=True)
    copies = [each for each in own(letter.headers) if each not in OWN]
    made = with_own_headers(letter, [("h", b"1"), *copies])
    assert copies
    assert [each for each in made.headers or () if each[0] == "h"] == [("h", b"1")]
    assert list(made.headers or ())[-len(copies) :] == copies
    assert read_envelope(made.headers) == read_envelope(letter.headers)


def test_copies_that_are_edited_away_are_not_written_anew() -> None:
    """Whoever writes other headers without them does not want them."""
    made = with_own_headers(dead(spring=True), [("h", b"1")])
    assert own(redriven_headers(made, 1)) == [("h", b"1")]
    foreign = DeadLetter("d", 0, 3, None, None, [("h", b"1")])
    assert with_own_headers(foreign, []).headers == []


def test_a_dry_run_counts_and_samples_edits() -> None:
    """All are counted, a few are kept to be shown; what is as it was is not among them."""
    preview = Preview(Target("t", 1, "retry"))
    before = dead()
    after = corrected(before, lambda letter: replace(letter, value=b"now"))
    for _ in range(SAMPLES + 1):
        preview.add(before, after)
    preview.add(before, before)
    preview.add(before)
    assert (preview.edited, preview.changes) == (SAMPLES + 1, [(before, after)] * SAMPLES)
