"""What a commit settles: all below its position, and the runs above it that its metadata lists.

For readers such as reports and audits. They may count less as settled than the worker that owns the
partition, never more: metadata that can't be trusted lists nothing, and `refused` says why.
"""

from __future__ import annotations

from typing import NamedTuple

from ackfloor.core.acks.gap_set import MetadataRefused, gap_set_of
from ackfloor.core.records.record import StartPosition


class Settled(NamedTuple):
    """What is settled of one partition: all below `position`, and the runs [start, end) above it.

    `topic_id` is the topic's as Kafka prints it, "" where the broker does not send it. `refused`
    says why the commit's metadata was rejected, "" where it was not or there was none.
    """

    topic: str
    topic_id: str
    partition: int
    position: int
    runs: list[tuple[int, int]]
    refused: str = ""


def settled_by(commit: StartPosition) -> Settled:
    """What this commit settles; never an exception, whatever its metadata holds."""
    runs: list[tuple[int, int]] = []
    refused = ""
    if commit.metadata:
        try:
            runs = list(gap_set_of(commit).runs)
        except MetadataRefused as exc:
            refused = str(exc)
    return Settled(commit.topic, commit.topic_id, commit.partition, commit.position, runs, refused)
