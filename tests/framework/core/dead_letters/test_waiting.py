"""Waiting records: when they are due, and which of them an operator's order is about."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from ackfloor.core.acks.tier_counts import TierCount
from ackfloor.core.records.envelope import DID_NOT_FAIL, Envelope, Reason, write_headers
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.dead_letters.rules.waiting import choose_waiting, count_waiting, due_at_ms


def waiting(offset: int, reason: Reason = Reason.ERROR, due_ms: int | None = 50) -> DeadLetter:
    """A record of partition 1 of a retry topic."""
    envelope = Envelope(origin_topic="orders", reason=reason, not_before_ms=due_ms)
    return DeadLetter("tier", 1, offset, b"k%d" % offset, b"", write_headers(envelope, []))


ALL = [
    waiting(0),
    waiting(1, Reason.BEHIND),
    waiting(2, due_ms=200),
    waiting(3, Reason.HELD),
    waiting(4, due_ms=None),
]


def test_what_waits_behind_another_one_is_not_due() -> None:
    """What says no time is due at once."""
    assert [due_at_ms(each) for each in ALL] == [50, None, 200, None, 0]
    assert count_waiting(ALL, now_ms=100) == TierCount(1, 2, 0, 200, 200, behind=2)


def test_all_that_match_are_chosen_but_for_some_reasons() -> None:
    """Those are counted."""
    chosen = choose_waiting(ALL, None, lambda each: each.offset != 2, DID_NOT_FAIL)
    assert chosen.offsets == {1: array("q", [0, 4])}
    assert (len(chosen), chosen.gone, chosen.left) == (2, 0, 2)


def test_named_ones_are_chosen_and_nothing_is_read_behind_them() -> None:
    """What is not open is counted; another partition's offset is another record."""
    read: list[int] = []

    def records() -> Iterator[DeadLetter]:
        for each in ALL:
            read.append(each.offset)
            yield each

    everything = lambda _: True  # noqa: E731 -- no filter
    chosen = choose_waiting(records(), {1: array("q", [0, 1])}, everything, {Reason.BEHIND})
    assert (chosen.offsets, chosen.gone, chosen.left) == ({1: array("q", [0])}, 0, 1)
    assert read == [0, 1]
    named = {1: array("q", [2, 9]), 0: array("q", [0])}
    chosen = choose_waiting(ALL, named, everything, ())
    assert (chosen.offsets, chosen.gone) == ({1: array("q", [2])}, 2)


def test_one_that_is_named_and_does_not_match_is_not_gone() -> None:
    """It is open, and not meant."""
    chosen = choose_waiting(ALL, {1: array("q", [0])}, lambda _: False, ())
    assert (len(chosen), chosen.gone, chosen.left) == (0, 0, 0)
