"""Kept edits: written and read, and what the records of a dispositions topic say of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.dead_letters.commands.dlq_replay import Replay
from ackfloor.dead_letters.commands.redrive_views import resume_of
from ackfloor.dead_letters.commands.selection import Places
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor.dead_letters.rules.kept_edits import KeptEdit, edit_key, read_edit, why_not
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState, resumable
from ackfloor.dead_letters.rules.redrive_rules import Order
from ackfloor.dead_letters.rules.redrive_tally import Tally
from ackfloor.redrive import select

KEPT = KeptEdit(3, 41_927, "20261128-1", "ann", 1_790_000_000_000, b'{"n": 1}', "id-1")


@given(st.binary(max_size=40), st.text(max_size=9))
def test_an_edit_is_read_as_it_was_written(value: bytes, by: str) -> None:
    """Any bytes."""
    kept = replace(KEPT, value=value, by=by.encode("utf-8", "replace").decode())
    assert read_edit(kept.key, kept.to_bytes()) == kept


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"edit/3", KEPT.to_bytes()),
        (b"edit/3/x", KEPT.to_bytes()),
        (b"3/41927", KEPT.to_bytes()),
        (KEPT.key, b"no JSON"),
        (KEPT.key, b"[1]"),
        (KEPT.key, b"[" * 100_000),
        (KEPT.key, b"{}"),
        (KEPT.key, KEPT.to_bytes().replace(b"1790000000000", b"true")),
        (KEPT.key, KEPT.to_bytes().replace(b'"ann"', b"7")),
        (KEPT.key, json.dumps({**json.loads(KEPT.to_bytes()), "value_base64": "?"}).encode()),
    ],
)
def test_what_is_no_edit_is_left_out(key: bytes, value: bytes) -> None:
    """And counted as unreadable, where it says that it is one."""
    assert read_edit(key, value) is None
    disposed = Disposed("id-1")
    disposed.note(key, value)
    assert (disposed.edits, disposed.unreadable) == ({}, 1)
    assert not disposed.hides(3, 41_927)


def test_the_newest_counts_until_it_is_deleted() -> None:
    """An edit hides nothing, and that of an earlier topic of the name is none."""
    disposed, newer = Disposed("id-1"), replace(KEPT, job="20261128-2")
    for each in (KEPT, newer, replace(KEPT, topic_id="id-0"), replace(newer, offset=7)):
        disposed.note(each.key, each.to_bytes())
    assert disposed.edits == {(3, 41_927): newer, (3, 7): replace(newer, offset=7)}
    assert (len(disposed), disposed.unreadable, disposed.jobs.notes) == (0, 0, {})
    disposed.note(edit_key(3, 41_927), None)
    disposed.note(edit_key(3, 8), None)
    assert list(disposed.edits) == [(3, 7)]


OTHER = replace(KEPT, job="20261128-2", by="bob")
LATER = replace(OTHER, at_ms=KEPT.at_ms + 1)


@pytest.mark.parametrize(
    ("there", "resumes", "why"),
    [
        (None, False, ""),
        (None, True, "keeps no edit any more"),
        (KEPT, False, ""),
        (KEPT, True, ""),
        (OTHER, False, ""),
        (OTHER, True, "job 20261128-1 keeps no edit any more"),
        (LATER, False, "bob has edited 3/41927 later, in job 20261128-2"),
        (LATER, True, "or edited once more"),
    ],
)
def test_an_older_edit_never_replaces_a_newer_one(
    there: KeptEdit | None, why: str, *, resumes: bool
) -> None:
    """A job that goes on has to find its own; a new one, its own retries included, no later one."""
    said = why_not(KEPT, there, resumes=resumes)
    assert (why in said, bool(said)) == (True, bool(why))


def test_only_a_job_that_keeps_its_edit_is_resumed_by_its_note() -> None:
    """Of another one the note does not say where the edit is."""
    asked = Replay(
        Places("d", select([(3, 41_927)])), DeadLetterFilter(), "retry", None, 5, {3: 41_928},
        "id-1", "by hand", edit_kept=True,
    )  # fmt: skip
    note = JobNote("j", "replayed", JobState.STOPPED, "a", "h", 1, "t", 0, 1, 1, 1, 1)
    facts = json.loads(json.dumps(asked.to_dict()))
    assert Replay.of("d", replace(note, asked=facts)) == asked
    in_a_file = replace(asked, edit_kept=False).to_dict()
    assert in_a_file["places"] == []
    assert [resumable(each) for each in ({}, facts, in_a_file)] == [False, True, False]
    order = Order("d", "retry", "j", "a", asked=facts, kept=KEPT)
    assert resume_of(order, Tally()) == "ackfloor dlq replay d --resume j --yes"
    assert resume_of(replace(order, asked=in_a_file), Tally()) is None
