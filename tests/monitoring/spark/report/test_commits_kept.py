"""Whether the commits of now settle what earlier ones did."""

from __future__ import annotations

import random

from ackfloor.commits import Settled
from ackfloor_monitoring.spark.report.kept.commits_kept import contained, lost_topics


def commit(position: int, *runs: tuple[int, int], partition: int = 0) -> Settled:
    """Of a partition of one topic."""
    return Settled("orders--billing--retry-1s", "id", partition, position, list(runs))


def test_a_commit_contains_what_all_its_offsets_contain() -> None:
    """Compared with sets of offsets, for many commits."""
    drawn = random.Random(7)

    def some() -> tuple[Settled, set[int]]:
        position = drawn.randrange(4)
        runs = [(start, start + drawn.randrange(1, 4)) for start in drawn.sample(range(9), 2)]
        above = {offset for start, end in runs for offset in range(start, end)}
        return commit(position, *runs), above | set(range(position))

    answers = set()
    for _ in range(2_000):
        (before, settled_before), (now, settled_now) = some(), some()
        answers.add(settled_before <= settled_now)
        assert contained(before, now) == (settled_before <= settled_now), (before, now)
    assert answers == {True, False}


def test_a_partition_of_which_nothing_is_known_now_loses_what_was_settled() -> None:
    """But one of which nothing was settled loses nothing."""
    assert not contained(commit(1), None)
    assert contained(commit(0), None)
    assert lost_topics([commit(5), commit(5, partition=1)], [commit(5)]) == {commit(0).topic}
    assert lost_topics([commit(5)], [commit(5), commit(5, partition=1)]) == set()
