"""The way of a record: what happened to it in one group, step by step, and where it is now.

It is made of what the index has: each time that the record was written to a retry topic or the
dead-letter topic, and who disposed of it there. What happened between those is not known: a record
that left its last retry topic without being written anywhere else was handled, or discarded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.envelope import DID_NOT_FAIL, Reason
from ackfloor.dead_letters.rules.dispositions import Disposition
from ackfloor_monitoring.console.index.record_history import DisposedBy, Stage
from ackfloor_monitoring.console.reads.settled_copies import SettledCopies

_NOTHING_NEWER: Final = "the index has nothing newer of it"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened.

    Attributes:
        at_ms: when, in wall-clock ms; None where it is not known.
        dead_letter: the place of the dead letter that it made; "" for none.
        due_ms: when the wait that it began ends; None for none.
        waiting: the place of the record of a retry topic that it made; "" for none.
    """

    at_ms: int | None
    text: str
    dead_letter: str = ""
    due_ms: int | None = None
    waiting: str = ""


@dataclass(frozen=True, slots=True)
class Now:
    """Where a record is.

    Attributes:
        due_ms: when it is due there; None where no time makes it due.
        index_ms: of when the index is, where it may have gone on since; None where it has not.
    """

    text: str
    due_ms: int | None = None
    index_ms: int | None = None


def way_of(stages: Sequence[Stage]) -> list[Step]:
    """The steps of a record in one group, the oldest first; at least one stage is known."""
    first = stages[0]
    written_ms = next((each.source_ms for each in stages if each.source_ms is not None), None)
    steps = [Step(written_ms, f"written as {first.source}")]
    before: Stage | None = None
    for stage in stages:
        steps += _steps(stage, before)
        before = stage
    return steps


def _steps(stage: Stage, before: Stage | None) -> Iterator[Step]:
    dead_letter, waiting = ("", stage.place) if stage.kind == "retry" else (stage.place, "")
    if _is_copied(stage, before):
        yield Step(stage.at_ms, f"renewed: written as {stage.place}", waiting=waiting)
    elif _is_moved(stage, before):
        text = f"moved on, without another attempt: written as {stage.place}"
        yield Step(None, text, dead_letter, stage.due_ms, waiting)
    else:
        text = f"{_why(stage)}: written as {stage.place}"
        yield Step(stage.at_ms, text, dead_letter, stage.due_ms, waiting)
    if stage.disposed is not None:
        yield _disposal(stage.disposed)


def _is_copied(stage: Stage, before: Stage | None) -> bool:
    """Whether it waits on for another one of its key."""
    return stage.reason in DID_NOT_FAIL and before is not None and before.reason == stage.reason


def _is_moved(stage: Stage, before: Stage | None) -> bool:
    """Whether it was written once more, with the failure that it was written with before."""
    if before is None or before.disposed is not None or stage.reason in DID_NOT_FAIL:
        return False
    same = (stage.attempt, stage.at_ms) == (before.attempt, before.at_ms)
    return same and stage.attempt > 0


def _why(stage: Stage) -> str:
    """Why it was written there."""
    on = f" on handler {stage.handler}" if stage.handler else ""
    if stage.is_held:
        return "its key is held until an operator frees it"
    if stage.reason == Reason.BEHIND:
        return f"set behind another record of its key{on}, which failed"
    if not stage.attempt and stage.replays:
        times = "once" if stage.replays == 1 else f"{stage.replays} times by now"
        return f"redriven, {times}"
    causes = ", ".join(dict.fromkeys(filter(None, (stage.reason, stage.error_type))))
    message = f", {stage.message}" if stage.message else ""
    return f"attempt {stage.attempt} failed{on} ({causes or 'no header says why'}{message})"


def _disposal(by: DisposedBy) -> Step:
    if not by.disposition:
        return Step(None, "replayed, discarded or archived; by whom the index does not know")
    to = f" to {by.target}" if by.target else ""
    job = f", job {by.job}" if by.job else ""
    return Step(by.at_ms, f"{by.disposition}{to} by {by.by or 'somebody'}{job}")


def now_of(stages: Sequence[Stage], settled: SettledCopies, index_ms: int | None) -> Now:
    """Where a record is, by its stages in one group.

    Args:
        stages: the oldest first; at least one is known.
        index_ms: all that was there then is in the index; None where that is not known.
    """
    stage = next((each for each in reversed(stages) if not each.is_held), stages[-1])
    if stage.kind == "dlq":
        return Now(_dead(stage) + _held(stages, settled))
    if stage.is_held:
        return Now(f"It is dead-lettered.{_held(stages, settled)}")
    copy = stage.group, stage.topic, stage.partition, stage.offset
    settled_there = settled.has(*copy)
    if settled_there is None:
        return Now(f"It was written to {stage.topic}; whether it waits there, Kafka has not said.")
    if settled_there and not settled.had(index_ms, *copy):
        return may_have_gone_on(stage.topic, index_ms)
    if settled_there:
        return Now(
            f"It is worked off: the group has settled it in {stage.topic}, and {_NOTHING_NEWER}. "
            "It was handled, or discarded."
        )
    if stage.reason == Reason.BEHIND:
        return Now(f"It waits in {stage.topic} behind another record of its key.")
    return Now(f"It waits in {stage.topic}.", stage.due_ms)


def may_have_gone_on(topic: str, index_ms: int | None) -> Now:
    """Where a record is that is settled in a topic, by an index that is older than that may be."""
    if index_ms is None:
        return Now(f"It is settled in {topic}. Whether it has gone on, the index does not say.")
    return Now(f"It is settled in {topic}.", index_ms=index_ms)


def _held(stages: Sequence[Stage], settled: SettledCopies) -> str:
    """That its key is held, as far as that is so."""
    last = stages[-1]
    if not last.is_held or settled.has(last.group, last.topic, last.partition, last.offset):
        return ""
    return " Its key is held: those behind it wait until an operator frees it on Lanes."


def _dead(stage: Stage) -> str:
    if stage.disposed is None:
        return f"It is in the dead-letter topic {stage.topic}, and open."
    by = stage.disposed
    if by.disposition == Disposition.REPLAYED:
        parsed = parse_topic(by.target)
        if by.target and (parsed is None or parsed.kind != "retry"):
            return f"It was redriven to {by.target}: it is another record there."
        where = f"to {by.target}, " if by.target else ""
        return (
            f"It was redriven {where}and {_NOTHING_NEWER}: it is on its way, or was handled there."
        )
    if not by.disposition:
        return f"Its dead letter is not open any more, and {_NOTHING_NEWER}."
    return f"Its dead letter was {by.disposition}."
