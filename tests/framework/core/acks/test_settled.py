"""Settled: what a commit says of a partition to whoever looks on."""

from __future__ import annotations

from ackfloor.core.acks.gap_set import GapSet, encode, topic_hash
from ackfloor.core.acks.settled import Settled, settled_by
from ackfloor.core.records.record import StartPosition


def commit(metadata: str, topic_id: str = "id") -> StartPosition:
    """A commit at position 7."""
    return StartPosition("orders", 2, 7, metadata=metadata, topic_id=topic_id)


def test_a_commit_settles_what_its_gap_set_lists() -> None:
    """Beside all that is below its position."""
    text, _ = encode(GapSet(7, [(9, 12)], topic_hash("id"), 0), "orders", 2)
    assert settled_by(commit(text)) == Settled("orders", "id", 2, 7, [(9, 12)])
    assert settled_by(commit("")) == Settled("orders", "id", 2, 7, [])


def test_what_can_not_be_believed_lists_nothing() -> None:
    """Of an earlier topic, or no gap set at all: the position stays, and why is said."""
    text, _ = encode(GapSet(7, [(9, 12)], topic_hash("id"), 0), "orders", 2)
    earlier = settled_by(commit(text, "another"))
    assert (earlier.position, earlier.runs) == (7, [])
    assert "an earlier topic" in earlier.refused
    assert settled_by(commit("odd")).refused
