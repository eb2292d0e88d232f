"""A retry topic counted: what is due, what waits, and the times at their edges."""

from __future__ import annotations

from ackfloor.core.acks.tier_counts import TierCount


def test_what_is_due_now_does_not_wait() -> None:
    """In any order; the oldest of what is due, the next and the last of what waits."""
    count = TierCount()
    for due_ms in (70, 100, 30, 120, 101, 110):
        count.add(due_ms, 100)
    assert count == TierCount(3, 3, 30, 101, 120)


def test_an_empty_one_has_no_times() -> None:
    """Nothing is made up."""
    assert TierCount() == TierCount(0, 0, None, None, None)
