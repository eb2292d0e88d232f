"""Kept selections: written and read, and what the records of a dispositions topic say of them."""

from __future__ import annotations

import json
import zlib
from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.parking.topic_names import LONGEST_NAME
from ackfloor.dead_letters.commands.dlq_replay import Replay
from ackfloor.dead_letters.commands.redrive_views import resume_of
from ackfloor.dead_letters.commands.selection import Places
from ackfloor.dead_letters.rules import kept_selections
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.dispositions import Disposed, Disposition
from ackfloor.dead_letters.rules.kept_selections import (
    KeptPart,
    PlaceOfPart,
    job_and_place,
    part_bytes,
    part_key,
    parts_of,
    read_part,
    selection_of,
)
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState, resumable
from ackfloor.dead_letters.rules.redrive_rules import Order
from ackfloor.dead_letters.rules.redrive_tally import Tally
from ackfloor.errors import RedriveRefused
from ackfloor.redrive import select

NOTE = JobNote("j", "discarded", JobState.STOPPED, "a", "h", 1, "", 0, 1, 1, 1, 1)
AT = PlaceOfPart(3, 7)
PART = parts_of(select([(3, 7), (3, 9)]), "id-1")[AT]


@given(
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 2**62)), min_size=1, max_size=40),
    st.integers(1, 7),
)
def test_a_selection_is_read_as_it_was_written(places: set[tuple[int, int]], size: int) -> None:
    """In however many parts, in whatever order these are met."""
    wanted = select(places)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_selections, "PART", size)
        parts = parts_of(wanted, "id-1")
        disposed = Disposed("id-1")
        for place, part in reversed(parts.items()):
            disposed.note(part_key("a job/1", place), part_bytes(part))
        assert selection_of(disposed.selections["a job/1"]) == wanted
    for place in parts:
        disposed.note(part_key("a job/1", place), None)
    assert (disposed.selections, disposed.unreadable, len(disposed)) == ({}, 0, 0)


def test_a_part_is_small() -> None:
    """Of however many side by side, and where every other one is meant, less than a topic takes."""
    every_third = {0: array("q", range(10**15, 10**15 + 3 * kept_selections.PART, 3))}
    [part] = parts_of(every_third, "id-1").values()
    assert len(part_bytes(part)) < 1_000
    scattered = {0: array("q", (n * n % 977 + 1_000 * n for n in range(kept_selections.PART)))}
    [part] = parts_of(scattered, "id-1").values()
    assert len(part_bytes(part)) + LONGEST_NAME < 200_000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"selection/3/j", part_bytes(PART)),
        (b"selection/3/x/j", part_bytes(PART)),
        (b"selection/3/7/", part_bytes(PART)),
        (part_key("j", AT), b"no JSON"),
        (part_key("j", AT), b"[1]"),
        (part_key("j", AT), b"[" * 100_000),
        (part_key("j", AT), b"{}"),
        (part_key("j", AT), part_bytes(PART).replace(b'"id-1"', b"7")),
        (part_key("j", AT), part_bytes(PART).replace(b'"parts": 1', b'"parts": true')),
        (part_key("j", AT), b'{"topic_id": "id-1", "parts": 1, "distances_base64": "?"}'),
    ],
)
def test_what_is_no_part_is_left_out(key: bytes, value: bytes) -> None:
    """And counted as unreadable."""
    assert job_and_place(key) is None or read_part(value) is None
    disposed = Disposed("id-1")
    disposed.note(key, value)
    assert (disposed.selections, disposed.unreadable) == ({}, 1)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {AT: PART._replace(in_all=2)},
        {AT: PART._replace(packed=b"no zlib")},
        {AT: PART._replace(packed=zlib.compress(b"1 x"))},
        {AT: PART._replace(packed=zlib.compress(b"1 0"))},
        {AT: PART._replace(packed=zlib.compress(b"-9"))},
        {AT: PART._replace(packed=zlib.compress(b"9" * 19))},
        {AT: PART._replace(packed=zlib.compress(b"1")[:-5])},
        {AT: PART._replace(packed=zlib.compress(b"1 " * 10_000_000))},
        {
            AT: PART._replace(in_all=2),
            PlaceOfPart(3, 8): PART._replace(in_all=2),
        },
    ],
)
def test_a_selection_that_is_not_whole_is_none(parts: dict[PlaceOfPart, KeptPart]) -> None:
    """Fewer would be done than were meant, or others."""
    assert selection_of(parts) is None


def test_that_of_an_earlier_topic_is_none() -> None:
    """The same offsets are other dead letters."""
    disposed = Disposed("id-2")
    disposed.note(part_key("j", AT), part_bytes(PART))
    assert (disposed.selections, disposed.unreadable) == ({}, 0)


def test_a_job_that_keeps_its_selection_is_resumed_by_its_note() -> None:
    """A discard too; and by no release that would send it, or would take the whole topic."""
    whole = Replay(Places("d"), DeadLetterFilter(), "", None, 5, {3: 8}, "id-1")
    asked = replace(whole, action=Disposition.DISCARDED, selection_kept=True)
    facts: dict[str, Any] = json.loads(json.dumps(asked.to_dict()))
    assert not {"places", "filter", "to"} & facts.keys()
    assert Replay.of("d", replace(NOTE, asked=facts)) == asked
    assert resumable(facts)
    order = Order("d", "", "j", "a", action=Disposition.DISCARDED, asked=facts)
    kept = replace(order, keeps_selection=True)
    assert resume_of(kept, Tally()) == "ackfloor dlq discard d --resume j --yes"
    # Who goes on with it is told so as well, though it has done nothing yet.
    assert resume_of(order, Tally()) == "ackfloor dlq discard d --resume j --yes"
    assert (kept.resumes, order.resumes) == (False, True)
    assert resume_of(replace(order, asked={"places": []}), Tally()) is None
    by_filter = replace(whole, action=Disposition.DISCARDED, wanted=DeadLetterFilter(key="k"))
    facts = json.loads(json.dumps(by_filter.to_dict()))
    assert "to" not in facts
    assert Replay.of("d", replace(NOTE, asked=facts)) == by_filter
    sent = replace(whole, to="retry", selection_kept=True)
    replayed = replace(NOTE, action="replayed", asked=sent.to_dict())
    assert Replay.of("d", replayed) == sent


@pytest.mark.parametrize("action", ["replayed", "archived", "burnt", 7])
def test_a_note_of_two_actions_is_not_followed(action: object) -> None:
    """What was discarded is not sent, and what is archived has its file elsewhere."""
    asked = Replay(
        Places("d"), DeadLetterFilter(), "", None, 5, {}, action=Disposition.DISCARDED
    ).to_dict()
    note = replace(NOTE, asked={**asked, "action": action, "to": "retry"})
    with pytest.raises(RedriveRefused, match="not a job of this command"):
        Replay.of("d", note)
    if action == "archived":
        with pytest.raises(RedriveRefused, match="not a job of this command"):
            Replay.of("d", replace(note, action="archived"))
