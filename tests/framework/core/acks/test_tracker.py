"""AckTracker by example; the model test beside it holds the invariants."""

from __future__ import annotations

from ackfloor.core.acks.tracker import AckTracker


def test_an_empty_batch_registers_nothing() -> None:
    """A poll that brought only what is not ours."""
    tracker: AckTracker[str] = AckTracker(5)
    assert tracker.register([], []) == []
    assert (tracker.position, tracker.floor(), tracker.span()) == (5, 5, 0)


def test_a_batch_that_repeats_itself_is_registered_once() -> None:
    """Only what lies above the position counts, also within one batch."""
    tracker: AckTracker[str] = AckTracker(0)
    assert tracker.register([0, 2, 2, 1, 3], ["a", "b", "again", "below", "c"]) == ["a", "b", "c"]
    assert tracker.open == {0: "a", 2: "b", 3: "c"}
    assert tracker.register([1, 3], ["x", "y"]) == []


def test_the_floor_is_the_lowest_open_offset() -> None:
    """And the position where none is open; the oldest record is the one it waits for."""
    tracker: AckTracker[str] = AckTracker(100)
    tracker.register([100, 107, 250], ["a", "b", "c"])
    assert tracker.settle(107) == "b"
    assert (tracker.floor(), tracker.oldest(), tracker.gap_runs()) == (100, "a", [(101, 108)])
    tracker.settle(100)
    assert (tracker.floor(), tracker.oldest(), tracker.gap_count()) == (250, "c", 0)
    tracker.settle(250)
    assert (tracker.floor(), tracker.oldest(), tracker.highest_settled) == (251, None, 250)


def test_many_settle_at_once() -> None:
    """As one by one: those that are not open change nothing."""
    tracker: AckTracker[str] = AckTracker(0)
    tracker.register([0, 1, 2], ["a", "b", "c"])
    tracker.register([3, 4], ["d", "e"])
    tracker.settle_all([7])
    assert (tracker.highest_settled, tracker.floor()) == (-1, 0)
    tracker.settle_all([3, 1, 3])
    assert (tracker.highest_settled, tracker.floor(), tracker.gap_count()) == (3, 0, 2)
    tracker.settle_all([0, 2, 9])
    assert (tracker.highest_settled, tracker.floor(), tracker.gap_count()) == (3, 4, 0)


def test_what_was_never_registered_settles_nothing() -> None:
    """It is stale, or somebody else's."""
    tracker: AckTracker[str] = AckTracker(0)
    assert tracker.settle(3) is None
    assert tracker.highest_settled == -1


def test_a_newer_item_takes_the_place_of_an_open_one() -> None:
    """What is retried in place is open with its newest delivery; what is settled stays settled."""
    tracker: AckTracker[str] = AckTracker(0)
    tracker.register([3, 4], ["first attempt", "b"])
    tracker.replace(3, "second attempt")
    assert (tracker.oldest(), tracker.floor(), tracker.gap_count()) == ("second attempt", 3, 0)
    tracker.settle(4)
    tracker.replace(4, "too late")
    assert tracker.open == {3: "second attempt"}


def test_a_restored_run_that_is_read_half_is_one_run() -> None:
    """What was skipped of it, and what of it is still to come; a run that lies behind is told."""
    tracker: AckTracker[str] = AckTracker(10, [(12, 13), (14, 20)])
    tracker.register([10], ["a"])
    for offset in (12, 14, 15):
        assert tracker.skip(offset)
    assert tracker.gap_runs() == [(11, 20)]


def test_markers_that_were_passed_before_move_nothing() -> None:
    """The position goes on and never back."""
    tracker: AckTracker[str] = AckTracker(5)
    tracker.passed(3)
    assert (tracker.position, tracker.floor()) == (5, 5)
    tracker.passed(8)
    assert (tracker.position, tracker.floor()) == (8, 8)


def test_a_rewind_keeps_what_is_known_of_the_log_ahead() -> None:
    """What an earlier assignment settled: read again below the position, and ahead of it."""
    tracker: AckTracker[str] = AckTracker(0, [(3, 5), (8, 9)])
    tracker.register([0, 1, 2], ["a", "b", "c"])
    assert tracker.was_settled(3)
    assert tracker.skip(3)
    assert tracker.skip(4)
    tracker.register([5], ["f"])
    assert tracker.rewind(1) == ["b", "c", "f"]
    assert (tracker.position, tracker.floor(), list(tracker.restored)) == (1, 0, [(3, 5), (8, 9)])
    assert tracker.gap_runs() == [(3, 5), (8, 9)]
