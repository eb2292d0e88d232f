"""Jobs that this console has begun: on the page of jobs before the index has read their notes."""

from __future__ import annotations

import time

import pytest

from ackfloor.redrive import JobNote, JobState
from ackfloor_monitoring.console.reads import begun_jobs
from ackfloor_monitoring.console.reads.begun_jobs import BegunJobs

DLQ = "orders--billing--dlq"


def note(job: str, at_ms: int) -> JobNote:
    """What a job says of itself."""
    return JobNote(
        job, "replayed", JobState.RUNNING, "ann", "ops-1", 1, "", 0, 9, at_ms, at_ms, at_ms
    )


def names(begun: BegunJobs, *notes: JobNote) -> list[str]:
    """Those that are not known by these notes."""
    return [each.job for each in begun.unread({DLQ: notes})]


def test_one_is_there_until_its_note_is_read() -> None:
    """The latest first; that of another one, or of its earlier go, tells nothing of it."""
    begun = BegunJobs()
    assert names(begun) == []
    begun.begin(DLQ, "first")
    begun.begin(DLQ, "second")
    now_ms = time.time_ns() // 1_000_000
    assert names(begun, note("other", now_ms)) == ["second", "first"]
    assert names(begun, note("first", now_ms - 60_000)) == ["second", "first"]
    assert names(begun, note("first", now_ms + 60_000)) == ["second"]
    assert names(begun) == ["second"]


def test_one_that_may_have_no_note_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It failed before it wrote one; or its topic is gone, and nobody reads it."""
    begun = BegunJobs()
    begun.begin(DLQ, "refused")
    begun.begin(DLQ, "lost")
    begun.forget("refused")
    begun.forget("unheard of")
    assert names(begun) == ["lost"]
    monkeypatch.setattr(begun_jobs, "LONGEST_MS", -1)
    assert names(begun) == []
