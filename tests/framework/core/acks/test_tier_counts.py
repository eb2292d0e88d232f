"""A retry topic counted: what is due, what waits, and the times at their edges."""

from __future__ import annotations

from ackfloor.core.acks.tier_counts import TierCount


def test_what_is_due_now_does_not_wait() -> None:
    """In any order; the oldest of what is due, the next and the last of what waits."""
    count = TierCount()
    for due_ms in (70, 100, 30, 120, 101, 110):
        count.add(due_ms, 100)
    assert count == TierCount(3, 3, 30, 101, 120)


def test_what_waits_behind_another_record_has_no_time() -> None:
    """It neither waits for one nor is due, and it makes nothing look overdue."""
    count = TierCount()
    count.add(70, 100)
    count.add_behind()
    count.add_behind()
    assert count == TierCount(0, 1, 70, None, None, behind=2)


def test_an_empty_one_has_no_times() -> None:
    """Nothing is made up."""
    assert TierCount() == TierCount(0, 0, None, None, None)
