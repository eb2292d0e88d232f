"""The commits that a day was counted with: whether those of now settle all that they settled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ackfloor.commits import Settled


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
