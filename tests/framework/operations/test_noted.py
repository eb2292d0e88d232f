"""What is done within `noted` has a note, however it ends."""

from __future__ import annotations

import pytest

from ackfloor.operations import ActionNote, ActionState, new_note, noted
from ackfloor.operations.action_notes import read_note
from ackfloor.operations.run_client import NotKnown


def states(notes: list[ActionNote]) -> list[tuple[ActionState, dict[str, int], str]]:
    """How far each note says it came."""
    return [(note.state, dict(note.counts), note.error) for note in notes]


def test_an_action_is_noted_once_when_it_is_done() -> None:
    """Not before: a broker that is away delays none."""
    notes: list[ActionNote] = []
    with noted(new_note("lanes retry", "tests", "ann@ops"), notes.append) as ending:
        assert notes == []
        ending.counts["done"] = 2
    assert states(notes) == [(ActionState.DONE, {"done": 2}, "")]


def test_a_job_is_noted_when_it_begins_as_well() -> None:
    """Under one correlation id, which no other action has."""
    notes: list[ActionNote] = []
    with noted(new_note("dlq replay", "tests", "ann@ops"), notes.append, job=True) as ending:
        assert states(notes) == [(ActionState.BEGUN, {}, "")]
        ending.whole, ending.counts = False, {"done": 1, "remaining": 2}
    assert states(notes)[1] == (ActionState.PARTIAL, {"done": 1, "remaining": 2}, "")
    assert notes[0].id == notes[1].id != new_note("dlq replay", "tests", "ann@ops").id


def test_without_a_single_one_done_it_has_failed() -> None:
    """As the exit code says."""
    notes: list[ActionNote] = []
    with noted(new_note("lanes retry", "tests", "ann@ops"), notes.append) as ending:
        ending.whole, ending.counts = False, {"done": 0, "missing": 1}
    assert notes[0].state is ActionState.FAILED


@pytest.mark.parametrize(
    ("raised", "said"),
    [(ValueError("no run answers"), "no run answers"), (KeyboardInterrupt(), "KeyboardInterrupt")],
)
def test_what_is_raised_is_noted_and_goes_on(raised: BaseException, said: str) -> None:
    """Ctrl-C included."""
    notes: list[ActionNote] = []
    with (
        pytest.raises(type(raised)),
        noted(new_note("lanes retry", "tests", "ann@ops"), notes.append),
    ):
        raise raised
    assert states(notes) == [(ActionState.FAILED, {}, said)]


def test_what_a_run_has_not_answered_is_not_noted_as_failed() -> None:
    """It may have been carried out."""
    notes: list[ActionNote] = []
    with (
        pytest.raises(NotKnown),
        noted(new_note("lanes retry", "tests", "ann@ops"), notes.append),
    ):
        raise NotKnown("the run has not answered")
    assert states(notes) == [(ActionState.UNKNOWN, {}, "the run has not answered")]
    assert read_note(notes[0].to_bytes()) == notes[0]


def test_who_refuses_what_can_not_be_noted_does_nothing() -> None:
    """A job's first note comes before it: what that raises prevents the job."""
    done: list[str] = []

    def away(_note: ActionNote) -> None:
        raise OSError("away")

    with (
        pytest.raises(OSError, match="away"),
        noted(new_note("dlq replay", "tests", "ann@ops"), away, job=True),
    ):
        done.append("replayed")
    assert done == []
