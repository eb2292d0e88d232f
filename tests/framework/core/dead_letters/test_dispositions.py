"""Dispositions: what was done with a dead letter hides it, and nothing else does."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.acks.offset_set import OffsetSet
from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.rules.disposition_notes import DispositionNotes
from ackfloor.dead_letters.rules.dispositions import (
    Disposed,
    Disposition,
    DispositionNote,
    disposition_key,
    dispositions_topic_of,
)

NOTE = DispositionNote(
    Disposition.REPLAYED, 1_700_000_000_123, "änn@host", "job-1", "orders--billing--retry-1s", "id"
)


def test_the_record_is_that_of_the_contract() -> None:
    """Key and value are part of the public surface."""
    assert disposition_key(3, 41_927) == b"3/41927"
    assert json.loads(NOTE.to_bytes()) == {
        "disposition": "replayed",
        "at": "2023-11-14T22:13:20.123Z",
        "by": "änn@host",
        "job": "job-1",
        "target": "orders--billing--retry-1s",
        "topic_id": "id",
    }


def test_what_is_disposed_is_counted_from_an_offset_on() -> None:
    """Near and far; one that was taken back counts no more."""
    disposed = Disposed("id")
    for offset in (3, 4, 5, 200_000):
        disposed.note(disposition_key(0, offset), NOTE.to_bytes())
    disposed.note(disposition_key(0, 5), None)
    assert [disposed.count_from(0, offset) for offset in (0, 4, 5, 200_001)] == [3, 2, 1, 0]
    assert disposed.count_from(1, 0) == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2**62) | st.integers(0, 20_000), st.booleans())
    )
)
def test_the_last_word_on_a_dead_letter_counts(words: list[tuple[int, int, bool]]) -> None:
    """A disposition hides, one without a value takes it back; beside a plain dictionary."""
    disposed, model = Disposed("id"), set()
    for partition, offset, done in words:
        disposed.note(disposition_key(partition, offset), NOTE.to_bytes() if done else None)
        (model.add if done else model.discard)((partition, offset))
    assert len(disposed) == len(model)
    assert all(disposed.hides(p, o) == ((p, o) in model) for p, o, _ in words)
    assert not disposed.hides(9, 9)


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", b"[]", b'"replayed"', b"{}", b'{"disposition": 1}', b"[" * 100_000],
    ids=repr,
)
def test_what_is_no_disposition_hides_nothing(value: bytes) -> None:
    """Whatever else somebody writes there is counted and left alone."""
    disposed = Disposed()
    disposed.note(b"0/1", value)
    assert (disposed.hides(0, 1), disposed.unreadable) == (False, 1)


@pytest.mark.parametrize("key", [None, b"", b"1", b"a/b", b"1/2/3", b"-1/2", b" 1/2"])
def test_a_key_of_another_kind_is_counted(key: bytes | None) -> None:
    """No key, no dead letter."""
    disposed = Disposed()
    disposed.note(key, NOTE.to_bytes())
    assert (len(disposed), disposed.unreadable) == (0, 1)


def test_a_word_of_a_newer_version_hides() -> None:
    """Something was done with it, and doing it again may be wrong."""
    disposed = Disposed("id")
    disposed.note(b"0/1", b'{"disposition": "forwarded", "topic_id": 7}')
    assert disposed.hides(0, 1)


def test_a_topic_that_was_created_anew_has_other_dead_letters() -> None:
    """The id tells; where either side does not know it, the disposition counts."""
    of_another, known, unknown = Disposed("new"), Disposed("id"), Disposed()
    for disposed in (of_another, known, unknown):
        disposed.note(b"0/1", NOTE.to_bytes())
    assert not of_another.hides(0, 1)
    assert known.hides(0, 1)
    assert unknown.hides(0, 1)


def test_what_was_done_is_read_for_those_that_are_asked_for() -> None:
    """The last note counts; one without a value, or of a newer version, leaves nothing."""
    notes = DispositionNotes("id")
    later = replace(NOTE, by="bob")
    for offset, value in (
        (1, NOTE.to_bytes()), (1, later.to_bytes()),
        (2, NOTE.to_bytes()), (2, None),
        (3, NOTE.to_bytes()), (3, b'{"disposition": "forwarded"}'),
        (4, NOTE.to_bytes()), (4, replace(later, topic_id="old").to_bytes()),
    ):  # fmt: skip
        notes.note(disposition_key(0, offset), value)
    notes.note(disposition_key(1, 2_000), later.to_bytes())
    for key in (None, b"job/0/1", b"edit/0/2"):
        notes.note(key, NOTE.to_bytes())
    found = {(p, offset): notes.of(p, offset) for p in range(3) for offset in (*range(9), 2_000)}
    assert {place: note for place, note in found.items() if note is not None} == {
        (0, 1): later, (0, 4): NOTE, (1, 2_000): later,
    }  # fmt: skip


def test_notes_of_many_dead_letters_share_what_is_the_same() -> None:
    """Each has a time of its own; who did it, and how, is kept once for a job."""
    notes = DispositionNotes("id")
    for offset in range(50_000):
        by = ("ann", "bob")[offset % 2]
        value = replace(NOTE, at_ms=NOTE.at_ms + offset, by=by).to_bytes()
        notes.note(disposition_key(0, offset), value)
    assert notes.of(0, 49_999) == replace(NOTE, at_ms=NOTE.at_ms + 49_999, by="bob")
    sizes = [len(each) * each.itemsize for page in notes._pages.values() for each in page]
    assert (len(notes._shared), sum(sizes) <= 51_000 * 12) == (2, True)


def test_each_dead_letter_topic_has_dispositions_of_its_own() -> None:
    """Ours by the contract's name, another tool's by two parts, and no other topic at all."""
    assert dispositions_topic_of("orders--billing--dlq") == "orders--billing--dispositions"
    assert dispositions_topic_of("orders.DLT") == "orders.DLT--dispositions"
    for name in ("orders--billing--retry-1s", "orders--billing--dispositions"):
        with pytest.raises(SettingError, match="no dead-letter topic"):
            dispositions_topic_of(name)
    with pytest.raises(SettingError, match="of another topic"):
        dispositions_topic_of("orders--billing")


def test_a_million_neighbours_are_small() -> None:
    """What a job remembers of a large topic is bits."""
    offsets = OffsetSet()
    for offset in range(0, 1_000_000, 7):
        offsets.add(offset)
        offsets.add(offset)
    assert len(offsets) == len(range(0, 1_000_000, 7))
    assert sum(map(len, offsets._pages.values())) < 130_000
    offsets.discard(7)
    offsets.discard(7)
    assert 7 not in offsets
    assert 14 in offsets


@given(st.sets(st.integers(0, 20_000)), st.integers(0, 20_000))
def test_those_from_an_offset_on_are_counted(added: set[int], first: int) -> None:
    """As a naive count does, over pages and inside of one."""
    disposed = Disposed()
    for offset in added:
        disposed.note(disposition_key(1, offset), NOTE.to_bytes())
    assert disposed.count_from(1, first) == sum(offset >= first for offset in added)
    assert disposed.count_from(0, 0) == 0


@given(st.integers(0, 40_000), st.integers(0, 20_000), st.sets(st.integers(0, 40_000)))
def test_the_first_without_is_found(length: int, first: int, taken_back: set[int]) -> None:
    """As a naive search does, over full pages and inside of one."""
    offsets = OffsetSet()
    for offset in range(length):
        offsets.add(offset)
    for offset in taken_back:
        offsets.discard(offset)
    naive = next(n for n in range(first, 80_000) if n not in offsets)
    assert offsets.first_missing(first) == naive


@given(st.sets(st.integers(0, 50)), st.integers(0, 50))
def test_the_first_that_is_not_disposed_is_found(added: set[int], first: int) -> None:
    """From an offset on; one itself where that is not, and of another partition any."""
    disposed = Disposed()
    for offset in added:
        disposed.note(disposition_key(1, offset), NOTE.to_bytes())
    expected = next(offset for offset in range(first, 52) if offset not in added)
    assert disposed.first_without(1, first) == expected
    assert disposed.first_without(0, first) == first
