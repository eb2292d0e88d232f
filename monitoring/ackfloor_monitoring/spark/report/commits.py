"""Commits of the groups as rows: read with the runtime's own decoder, and only if they prove it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ackfloor.core.gapset import MetadataRefused, gap_set_of
from ackfloor.core.model import StartPosition

CommitRow = tuple[str, int, int, list[tuple[int, int]]]


class GroupCommit(NamedTuple):
    """What a group has committed for a partition; `topic_id` is the topic's present one."""

    topic: str
    topic_id: str
    partition: int
    position: int
    metadata: str


def commit_rows(commits: Iterable[GroupCommit]) -> tuple[list[CommitRow], int]:
    """Rows of `settled.COMMIT`, and how many commits' metadata could not be believed.

    Of those only the position counts; what is settled above it is then taken for waiting. An empty
    text, as other tools commit, has nothing to say and is not counted.
    """
    rows: list[CommitRow] = []
    refused = 0
    for each in commits:
        runs: list[tuple[int, int]] = []
        if each.metadata:
            start = StartPosition(
                each.topic,
                each.partition,
                each.position,
                metadata=each.metadata,
                topic_id=each.topic_id,
            )
            try:
                runs = list(gap_set_of(start).runs)
            except MetadataRefused:
                refused += 1
        rows.append((each.topic_id, each.partition, each.position, runs))
    return rows, refused
