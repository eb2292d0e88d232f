"""Working off: says of an overdue retry topic that it gets shorter, where the facts show it.

A cause that was mended leaves work behind: retries are overdue until they are handled. What is
wrong stays wrong meanwhile, and whoever looks wants to know whether it ends by itself. Two facts
together show that: the floor of each partition that has open records has moved just now, and
nothing that is open has failed lately. One alone shows nothing: a floor also moves where records
fail and go on to the next retry topic, and one partition may stand still beside those that go on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ackfloor.cli.status.run_answers import RunAnswer
from ackfloor.cli.status.status_line import StatusLine
from ackfloor.core.values.durations import format_rounded
from ackfloor.operations.run_client import workers_of

#: A floor has moved just now within so many seconds.
MOVED_S: Final = 30.0
#: Nothing has failed lately for so many seconds.
QUIET_S: Final = 60.0
#: A worker gets its partitions within so many seconds of its start; their floors begin there.
JOINS_S: Final = 10.0


def with_working_off(lines: Sequence[StatusLine], answers: Sequence[RunAnswer]) -> list[StatusLine]:
    """The same lines; those about overdue retry topics that get shorter say so."""
    moved = moved_ago_s(answers)
    return [_worked_off(line, moved.get((line.group, line.subject), {})) for line in lines]


def _worked_off(line: StatusLine, moved: Mapping[int, float]) -> StatusLine:
    if line.about != "overdue" or line.quiet_s is None or not line.open_in <= moved.keys():
        return line
    moved_s = max((moved[partition] for partition in line.open_in), default=math.inf)
    if moved_s > MOVED_S or line.quiet_s < QUIET_S:
        return line
    text = (
        f"{line.detail}; being worked off: its floor moved {format_rounded(moved_s)} ago, and what "
        f"is open last failed {format_rounded(line.quiet_s)} ago"
    )
    return replace(line, detail=text)


def moved_ago_s(answers: Sequence[RunAnswer]) -> dict[tuple[str, str], dict[int, float]]:
    """Group and topic -> partition -> seconds since its floor moved, as far as runs tell.

    Topics of handlers whose circuit breaker is not closed are left out.
    """
    found: dict[tuple[str, str], dict[int, float]] = {}
    for answer in answers:
        for _, worker in workers_of(answer.state):
            for topic, partition, moved_ms in _moved(worker):
                ago_s = max(0.0, (answer.state["now_ms"] - moved_ms) / 1000)
                parts = found.setdefault((answer.group, topic), {})
                parts[partition] = min(ago_s, parts.get(partition, ago_s))
    return found


def _moved(worker: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and time of each floor that has moved since the worker got the partition."""
    ran_s = worker.get("polled_s", 0.0) + worker.get("worked_s", 0.0)
    joined_ms = worker["taken_ms"] - (ran_s - JOINS_S) * 1000
    stopped = {
        handler["name"]
        for handler in worker["handlers"]
        # An older run has no breakers.
        if handler.get("breaker", {}).get("state", "closed") != "closed"
    }
    for part in worker["partitions"]:
        # A partition that it has just got begins with a floor, and nothing is settled in it.
        moved = part["highest_settled"] >= 0 and part["floor_advanced_ms"] > joined_ms
        if moved and part["handler"] not in stopped:
            yield part["topic"], part["partition"], part["floor_advanced_ms"]
