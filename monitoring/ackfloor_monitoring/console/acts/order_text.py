"""An order and what came of it, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from ackfloor.core.values.durations import format_duration
from ackfloor.operations import (
    BreakerAction,
    BreakerOutcome,
    HandlerBreaker,
    HandlerPause,
    LaneAction,
    LaneOutcome,
    PauseAction,
    PauseOutcome,
    RetryAction,
    RetryMove,
    RetryOutcome,
    retry_moves,
)
from ackfloor.operations.lane_moves import DONE, LEFT
from ackfloor_monitoring.console.acts.order_forms import Does

_VERBS: Final = {
    LaneAction.RETRY: "Try now",
    LaneAction.DELAY: "Give another time",
    LaneAction.PARK: "Park in a retry topic",
    LaneAction.DEAD_LETTER: "Move to the dead-letter topic",
    LaneAction.DISCARD: "Discard",
}
_RETRY_VERBS: Final = {
    RetryAction.PROMOTE: "Make due now",
    RetryAction.BURY: "Move to the dead-letter topic",
}


_FORCED: Final = {
    BreakerAction.OPEN: "Keep the circuit breaker of {} open",
    BreakerAction.CLOSE: "Keep the circuit breaker of {} closed",
    BreakerAction.AUTO: "Return the circuit breaker of {} to automatic",
}
#: What that means, as `ackfloor breaker` says it.
_MEANS: Final = {
    BreakerAction.OPEN: "Only single records are tried, and what succeeds does not close it.",
    BreakerAction.CLOSE: "It does not open, however many fail: what is withheld goes to the retry "
    "topics and, at the end of its policy, to the dead-letter topic.",
    BreakerAction.AUTO: "It goes on from the state that it has.",
}
_KEPT: Final = {
    BreakerAction.OPEN: "kept open",
    BreakerAction.CLOSE: "kept closed",
    BreakerAction.AUTO: "returned to automatic",
}
Outcome: TypeAlias = BreakerOutcome | LaneOutcome | PauseOutcome | RetryOutcome


def meaning_of(does: Does) -> str:
    """What an order means, where its headline does not say it all; "" where it does."""
    return _MEANS[does.action] if isinstance(does, HandlerBreaker) else ""


def title_of(does: Does) -> str:
    """What an order does, as a headline."""
    if isinstance(does, RetryMove):
        return f"{_RETRY_VERBS[does.action]}: {_records(does.meant)} of {does.topic}"
    if isinstance(does, HandlerPause):
        if does.action is PauseAction.RESUME:
            return f"Resume {does.handler}"
        how_long = "until it is resumed" if does.for_s is None else format_duration(does.for_s)
        return f"Pause {does.handler} {'' if does.for_s is None else 'for '}{how_long}"
    if isinstance(does, HandlerBreaker):
        how_long = "" if does.for_s is None else f" for {format_duration(does.for_s)}"
        return _FORCED[does.action].format(does.handler) + how_long
    verb = _VERBS[does.action]
    if "delay_s" in does.more:
        verb = f"Try in {format_duration(does.more['delay_s'])}"
    places = does.which.get("places")
    if places is None:
        return f"{verb}: all failed records that lanes of {does.handler} wait for"
    count = _records(len(places), "failed record")
    return f"{verb}: {count} that lanes of {does.handler} wait for"


def done_of(outcome: Outcome) -> Iterator[str]:
    """What was done, or would be."""
    if isinstance(outcome, RetryOutcome):
        would = "would be " if outcome.dry_run else ""
        done = retry_moves.DONE[outcome.action]
        yield f"{outcome.done:,} of {_records(outcome.meant)} {would}{done}"
        return
    if isinstance(outcome, PauseOutcome | BreakerOutcome):
        if isinstance(outcome, BreakerOutcome):
            done = _KEPT[BreakerAction(outcome.action)]
        else:
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


def left_of(outcome: Outcome) -> Iterator[str]:
    """What was not reached, and why."""
    if isinstance(outcome, RetryOutcome):
        yield from _left_waiting(outcome)
        return
    if isinstance(outcome, LaneOutcome):
        for doing, count in outcome.left.items():
            yield f"{count:,} {LEFT.get(doing, doing)}"
        if outcome.missing:
            yield f"wait in no worker that answered: {', '.join(outcome.missing)}"
    for who, why in outcome.refused.items():
        yield why if who in why else f"{who}: {why}"
    yield from outcome.unknown.values()
    for who in outcome.silent:
        yield f"no answer from {who}"


def _left_waiting(outcome: RetryOutcome) -> Iterator[str]:
    if outcome.left:
        yield f"{outcome.left:,} {retry_moves.LEFT[outcome.action]}"
    if outcome.missing:
        yield (
            f"{outcome.missing:,} do not wait in a worker that answered: in flight, settled since, "
            "or not read yet"
        )
    yield from outcome.refused.values()
    yield from outcome.unknown.values()
    for run, worker in sorted(outcome.silent):
        yield f"no answer from worker {worker} of {run}"


def _records(count: int, what: str = "record") -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _lanes(count: int) -> str:
    return f"{count:,} lane{'' if count == 1 else 's'}"
