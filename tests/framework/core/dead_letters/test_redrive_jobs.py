"""Notes of jobs: written, read back, and never a disposition."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, Jobs, JobState, read_job

NOTE = JobNote(
    job="20261121-1",
    action="replayed",
    state=JobState.RUNNING,
    by="änn@host",
    host="host",
    pid=42,
    target="orders--billing--retry-1s",
    done=500,
    wanted=3_000,
    began_ms=1_700_000_000_123,
    at_ms=1_700_000_001_000,
    silent_at_ms=1_700_000_031_000,
    asked={"filter": {"handler": "bill"}, "ends": {"0": 7}},
)


def test_a_note_is_read_back_as_it_was() -> None:
    """Times to the millisecond, and what was asked for."""
    assert NOTE.key == b"job/20261121-1"
    assert read_job(NOTE.key, NOTE.to_bytes()) == NOTE
    facts = json.loads(NOTE.to_bytes())
    assert (facts["state"], facts["at"]) == ("running", "2023-11-14T22:13:21.000Z")


def test_a_note_keeps_text_that_utf8_can_not_say() -> None:
    """A name of the system that is no UTF-8, or what another tool has written."""
    strange = replace(NOTE, by="caf\udce9", why="half \ud83d of a face")
    assert read_job(strange.key, strange.to_bytes()) == strange


@pytest.mark.parametrize("year", [1970, 2026, 3970, 9999])
def test_times_are_exact_in_any_year(year: int) -> None:
    """A time in ms divided by a thousand is not."""
    new_year_ms = round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000
    for at_ms in range(new_year_ms, new_year_ms + 1000):
        note = replace(NOTE, at_ms=at_ms)
        assert read_job(note.key, note.to_bytes()) == note


def test_silence_ends_what_runs_and_nothing_else() -> None:
    """At its time, not before."""
    assert NOTE.state_at(NOTE.silent_at_ms - 1) is JobState.RUNNING
    assert NOTE.state_at(NOTE.silent_at_ms) is JobState.SILENT
    assert replace(NOTE, state=JobState.DONE).state_at(2 * NOTE.silent_at_ms) is JobState.DONE


def test_the_last_note_of_a_job_counts() -> None:
    """The latest job comes first."""
    jobs = Jobs()
    later = replace(NOTE, job="later", began_ms=NOTE.began_ms + 1)
    for each in (NOTE, later, replace(NOTE, state=JobState.STOPPED, why="cancelled")):
        jobs.note(each.key, each.to_bytes())
    jobs.note(b"job/other", b"no note")
    first, second = jobs.latest_first()
    assert (first, second.state, second.why) == (later, JobState.STOPPED, "cancelled")


def _with(**facts: object) -> bytes:
    return json.dumps({**json.loads(NOTE.to_bytes()), **facts}).encode()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, NOTE.to_bytes()),
        (b"0/1", NOTE.to_bytes()),
        (NOTE.key, None),
        (b"job/\xff", NOTE.to_bytes()),
        (NOTE.key, b""),
        (NOTE.key, b"[]"),
        (NOTE.key, b"{}"),
        (NOTE.key, b"[" * 100_000),
        (NOTE.key, _with(state="forwarding")),
        (NOTE.key, _with(by=1)),
        (NOTE.key, _with(pid=None)),
        (NOTE.key, _with(pid=float("inf"))),
        (NOTE.key, _with(at="2026-11-21T00:00:00")),
        (NOTE.key, _with(at="yesterday")),
    ],
)
def test_what_is_no_note_is_left_out(key: bytes | None, value: bytes | None) -> None:
    """Whatever it is."""
    assert read_job(key, value) is None


def test_a_note_without_a_readable_order_is_still_a_note() -> None:
    """It can't be asked for again, and that is all."""
    found = read_job(NOTE.key, _with(asked=[1]))
    assert found is not None
    assert found.asked == {}


def test_a_note_hides_no_dead_letter() -> None:
    """It stands among the dispositions and is none; it is no unreadable one either."""
    disposed = Disposed()
    disposed.note(NOTE.key, NOTE.to_bytes())
    assert (len(disposed), disposed.unreadable) == (0, 0)
    assert disposed.jobs.latest_first() == [NOTE]
