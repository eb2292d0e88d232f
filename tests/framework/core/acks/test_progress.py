"""Progress: lag as Kafka sees it, and what of it is open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.acks.progress import Progress, oddity


def of(**facts: object) -> Progress:
    """A partition of a source topic."""
    return Progress("g", "t", 0, **{"kind": "source", "start": 0, "end": 20, **facts})  # type: ignore[arg-type]


def test_what_is_settled_above_the_floor_is_not_open() -> None:
    """Kafka's lag counts it."""
    seen = of(floor=5, runs=[(6, 9), (12, 13)])
    assert (seen.lag, seen.settled, seen.open) == (15, 4, 11)
    assert (seen.oldest, seen.read_to) == (5, 13)
    assert oddity(seen) == ""


def test_without_a_commit_there_is_no_lag() -> None:
    """Nobody can tell where the group will begin."""
    seen = of()
    assert (seen.lag, seen.open, seen.oldest, seen.read_to) == (None, None, None, None)
    assert oddity(seen) == "no commit yet"


def test_without_the_ends_of_the_log_there_is_no_lag() -> None:
    """The topic may be gone, or not to be described; what is committed is known all the same."""
    seen = of(start=None, end=None, floor=5, runs=[(6, 9)])
    assert (seen.lag, seen.open, seen.settled, seen.oldest) == (None, None, 3, None)
    assert oddity(seen) == ""


def test_nothing_is_open_when_all_is_settled() -> None:
    """At the end, and where the floor itself was settled by an earlier worker."""
    assert (of(floor=20).open, of(floor=20).oldest) == (0, None)
    assert (of(floor=5, runs=[(5, 20)]).open, of(floor=5, runs=[(5, 20)]).oldest) == (0, None)
    assert of(floor=5, runs=[(5, 7), (9, 10)]).oldest == 7


def test_what_retention_has_removed_is_not_open() -> None:
    """Kafka's lag counts it; what of it was not settled is lost, and said."""
    seen = of(start=8, floor=5, runs=[(6, 7), (9, 11)])
    assert (seen.lag, seen.settled, seen.open, seen.oldest) == (15, 2, 10, 8)
    assert oddity(seen) == "retention has removed 2 offsets that were not settled"
    within = of(start=8, floor=5, runs=[(6, 12)])
    assert (within.settled, within.open, within.oldest) == (4, 8, 12)
    assert oddity(within) == "retention has removed 1 offsets that were not settled"


def test_a_floor_beyond_the_end_is_odd() -> None:
    """A topic that was made anew, or a log that was truncated."""
    seen = of(floor=25)
    assert (seen.lag, seen.open) == (0, 0)
    assert oddity(seen).startswith("the floor is 5 beyond the log's end")


def test_of_dead_letters_those_with_a_disposition_are_settled() -> None:
    """They have no floor, which is not odd."""
    seen = of(kind="dlq", start=3, end=10, disposed=2)
    assert (seen.lag, seen.settled, seen.open) == (None, 2, 5)
    assert (seen.oldest, oddity(seen)) == (None, "")
    assert of(kind="dlq", start=3, end=10, disposed=2, empty=5).open == 0


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.sets(st.integers(0, 40)))
def test_open_is_what_a_naive_count_says(
    start: int, length: int, floor: int, settled: set[int]
) -> None:
    """Over any log, any floor and any gap set."""
    end = start + length
    above = sorted(offset for offset in settled if offset >= floor)
    seen = of(start=start, end=end, floor=floor, runs=[(offset, offset + 1) for offset in above])
    naive = [n for n in range(start, end) if n >= floor and n not in settled]
    assert (seen.open, seen.oldest) == (len(naive), naive[0] if naive else None)
