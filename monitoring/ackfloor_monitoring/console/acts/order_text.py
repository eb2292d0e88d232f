"""An order and what came of it, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ackfloor.core.values.durations import format_duration
from ackfloor.operations import (
    HandlerPause,
    LaneAction,
    LaneMove,
    LaneOutcome,
    PauseAction,
    PauseOutcome,
)
from ackfloor.operations.lane_moves import DONE, LEFT

_VERBS: Final = {
    LaneAction.RETRY: "Try now",
    LaneAction.DELAY: "Give another time",
    LaneAction.PARK: "Park in a retry topic",
    LaneAction.DEAD_LETTER: "Move to the dead-letter topic",
    LaneAction.DISCARD: "Discard",
}


def title_of(does: LaneMove | HandlerPause) -> str:
    """What an order does, as a headline."""
    if isinstance(does, HandlerPause):
        if does.action is PauseAction.RESUME:
            return f"Resume {does.handler}"
        how_long = "until it is resumed" if does.for_s is None else format_duration(does.for_s)
        return f"Pause {does.handler} {'' if does.for_s is None else 'for '}{how_long}"
    verb = _VERBS[does.action]
    if "delay_s" in does.more:
        verb = f"Try in {format_duration(does.more['delay_s'])}"
    places = does.which.get("places")
    if places is None:
        return f"{verb}: all failed records that lanes of {does.handler} wait for"
    count = f"{len(places):,} failed record{'' if len(places) == 1 else 's'}"
    return f"{verb}: {count} that lanes of {does.handler} wait for"


def done_of(outcome: LaneOutcome | PauseOutcome) -> Iterator[str]:
    """What was done, or would be."""
    if isinstance(outcome, PauseOutcome):
        done = "paused" if outcome.action == PauseAction.PAUSE else "resumed"
        for run, workers in outcome.applied.items():
            numbers = ", ".join(map(str, workers))
            yield f"{done} by {f'worker {numbers}' if workers else 'no worker yet'} of {run}"
        return
    would = "would be " if outcome.dry_run else ""
    others = outcome.done - outcome.freed
    if others or not outcome.freed:
        lanes = f"the head{'' if others == 1 else 's'} of {_lanes(others)}"
        yield f"{would}{DONE[LaneAction(outcome.action)]}: {lanes}"
    if outcome.freed:
        yield f"{would}freed: {_lanes(outcome.freed)} that a dead-lettered record held"


def left_of(outcome: LaneOutcome | PauseOutcome) -> Iterator[str]:
    """What was not reached, and why."""
    if isinstance(outcome, LaneOutcome):
        for doing, count in outcome.left.items():
            yield f"{count:,} {LEFT.get(doing, doing)}"
        if outcome.missing:
            yield f"wait in no worker that answered: {', '.join(outcome.missing)}"
    for who, why in outcome.refused.items():
        yield why if who in why else f"{who}: {why}"
    for who in outcome.silent:
        yield f"no answer from {who}"


def _lanes(count: int) -> str:
    return f"{count:,} lane{'' if count == 1 else 's'}"
