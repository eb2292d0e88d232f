"""The commits that a day was counted with, and those of now: what they settle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ackfloor.commits import Settled
from ackfloor_monitoring.spark.report.kept.arrays import Mask, Numbers


def lost_topics(before: Iterable[Settled], now: Iterable[Settled]) -> set[str]:
    """The topics of which a record that was settled may be so no more: somebody has reset the
    group's offsets, or nothing is known of the partition now."""
    known = {(each.topic_id, each.partition): each for each in now}
    return {
        each.topic
        for each in before
        if not contained(each, known.get((each.topic_id, each.partition)))
    }


def contained(before: Settled, now: Settled | None) -> bool:
    """Whether all offsets that one commit settles are settled by the other."""
    spans = [] if now is None else list(_spans(now))
    return all(any(a <= start and end <= b for a, b in spans) for start, end in _spans(before))


def with_settled(open_records: pa.Table, now: Iterable[Settled]) -> pa.Table:
    """Add `settled`, as `table.settled_rows` does: null where no commit is known.

    Args:
        open_records: with `topic_id`, `partition` and `offset`.
    """
    known = {(each.topic_id, each.partition): each for each in now}
    place = open_records.select(["topic_id", "partition"]).append_column(
        "row", pa.array(np.arange(open_records.num_rows))
    )
    offsets = open_records["offset"].to_numpy()
    settled = np.zeros(open_records.num_rows, bool)
    unknown = np.zeros(open_records.num_rows, bool)
    by_place = place.group_by(["topic_id", "partition"]).aggregate([("row", "list")])
    for found in by_place.to_pylist():
        rows = np.array(found["row_list"], int)
        commit = known.get((found["topic_id"], found["partition"]))
        if commit is None:
            unknown[rows] = True
        else:
            settled[rows] = _covers(commit, offsets[rows])
    return open_records.append_column("settled", pa.array(settled, mask=unknown))


def _covers(commit: Settled, offsets: Numbers) -> Mask:
    """Which offsets lie in one of its spans."""
    spans = list(_spans(commit))
    if not spans:
        return np.zeros(len(offsets), bool)
    starts, ends = (np.array(each, np.int64) for each in zip(*spans, strict=True))
    at = np.searchsorted(starts, offsets, side="right") - 1
    found: Mask = (at >= 0) & (offsets < ends[at])
    return found


def _spans(commit: Settled) -> Iterator[tuple[int, int]]:
    """What it settles as spans [start, end) with something unsettled between them."""
    start, end = 0, commit.position
    for run_start, run_end in sorted(commit.runs):
        if run_start > end:
            if end > start:
                yield start, end
            start = run_start
        end = max(end, run_end)
    if end > start:
        yield start, end
