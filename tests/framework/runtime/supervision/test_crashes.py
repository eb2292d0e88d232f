"""Crashes: who is suspected, who is condemned, and what workers are told of it."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from ackfloor.runtime.supervision import channel, crashes
from ackfloor.runtime.supervision.crashes import Crashes, exit_text, named, suspects_in
from ackfloor.runtime.supervision.in_flight_memory import RecordId

A, B, C = (RecordId("orders", 0, offset) for offset in (5, 6, 7))


@pytest.fixture
def ends() -> Iterator[tuple[Connection, Connection]]:
    """Both ends of a channel."""
    ours, theirs = channel.pair()
    worker = Connection(theirs.detach())
    yield ours, worker
    ours.close()
    worker.close()


def known(counts: Crashes, ends: tuple[Connection, Connection]) -> dict[int, int]:
    """Offset -> crashes, as a worker hears it."""
    assert counts.tell(ends[0])
    told = channel.receive(ends[1])
    assert told is not None
    assert told[0] is channel.Kind.SUSPECTS
    return {offset: count for _, _, offset, count, _ in suspects_in(told[1])}


def test_all_that_were_in_flight_are_suspects_and_told_with_the_reason(
    ends: tuple[Connection, Connection],
) -> None:
    """Of any number of partitions."""
    counts = Crashes()
    other = RecordId("orders--shop--retry-1s", 3, 9)
    assert not counts.died([A, B, other], "was killed by signal 9 (SIGKILL)")
    assert counts.tell(ends[0])
    told = channel.receive(ends[1])
    assert told is not None
    assert sorted(suspects_in(told[1])) == [
        (*A, 1, "was killed by signal 9 (SIGKILL)"),
        (*B, 1, "was killed by signal 9 (SIGKILL)"),
        (*other, 1, "was killed by signal 9 (SIGKILL)"),
    ]


def test_only_a_death_with_nothing_else_in_flight_condemns(
    ends: tuple[Connection, Connection],
) -> None:
    """However many processes have died with it beside others."""
    counts = Crashes()
    for _ in range(5):
        assert not counts.died([A, B], "died")
    assert known(counts, ends) == {5: 2, 6: 2}
    assert counts.died([A], "died")
    assert known(counts, ends) == {5: 3, 6: 2}


def test_three_deaths_alone_condemn(ends: tuple[Connection, Connection]) -> None:
    """A quiet topic has one record in flight at a time."""
    counts = Crashes()
    assert [counts.died([A], "died") for _ in range(3)] == [False, False, True]
    assert known(counts, ends) == {5: 3}


def test_what_a_worker_says_is_over_is_forgotten(ends: tuple[Connection, Connection]) -> None:
    """Also if it never was a suspect."""
    counts = Crashes()
    counts.died([A, B], "died")
    counts.over(b'[["orders", 0, 5], ["orders", 9, 9]]')
    assert known(counts, ends) == {6: 1}


def test_every_death_is_news_and_nothing_else() -> None:
    """What is over elsewhere need not be told."""
    counts = Crashes()
    assert counts.edition == 0
    counts.died([A], "died")
    counts.over(b'[["orders", 0, 5]]')
    assert counts.edition == 1


def test_memory_is_bounded_and_keeps_those_that_matter(
    ends: tuple[Connection, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewest deaths first, the oldest of these first."""
    monkeypatch.setattr(crashes, "MOST", 2)
    counts = Crashes()
    counts.died([A], "died")
    counts.died([A], "died")
    counts.died([B], "died")
    counts.died([C], "died")
    assert known(counts, ends) == {5: 2, 7: 1}


def test_a_worker_without_room_is_told_later(ends: tuple[Connection, Connection]) -> None:
    """The supervisor of the others must not wait for it."""
    counts = Crashes()
    counts.died([A], "died")
    while channel.send_if_room(ends[0], channel.Kind.SETTINGS, b"x" * 50_000):
        pass
    assert not counts.tell(ends[0])


def test_ends_in_words() -> None:
    """For the log and the dead letter's header."""
    assert exit_text(-11) == "was killed by signal 11 (SIGSEGV)"
    assert exit_text(-255) == "was killed by signal 255"
    assert exit_text(1) == "ended with code 1"


def test_a_few_records_are_named_and_the_others_counted() -> None:
    """A line of the log, whatever the concurrency."""
    assert named([A]) == "orders/0/5"
    many = [RecordId("orders", 0, n) for n in range(64)]
    assert named(many) == ("orders/0/0, orders/0/1, orders/0/2, orders/0/3, orders/0/4 and 59 more")
