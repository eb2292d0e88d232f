"""Waiting records: when those of a retry topic are due, and which of them somebody means."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from ackfloor.core.acks.tier_counts import TierCount
from ackfloor.core.records.envelope import DID_NOT_FAIL
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, Wanted


def due_at_ms(record: DeadLetter) -> int | None:
    """When an open record is due, in wall-clock ms; None where no time makes it due.

    Such a record waits for another one of its key.
    """
    envelope = record.envelope
    return None if envelope.reason in DID_NOT_FAIL else envelope.not_before_ms or 0


def count_waiting(records: Iterable[DeadLetter], now_ms: int) -> TierCount:
    """How many of a retry topic's open records wait, and how many are due now."""
    count = TierCount()
    for record in records:
        if (due_ms := due_at_ms(record)) is None:
            count.add_behind()
        else:
            count.add(due_ms, now_ms)
    return count


@dataclass(slots=True)
class ChosenWaiting:
    """Open records of a retry topic that were chosen.

    Attributes:
        offsets: of each partition, in the order in which they were read.
        gone: how many of the named ones are not open.
        left: how many of the others are not meant, because of their reason.
    """

    offsets: dict[int, array[int]] = field(default_factory=dict)
    gone: int = 0
    left: int = 0

    def __len__(self) -> int:
        return sum(map(len, self.offsets.values()))


def choose_waiting(
    records: Iterable[DeadLetter],
    only: Wanted | None,
    matches: Callable[[DeadLetter], bool],
    leave: Collection[str],
) -> ChosenWaiting:
    """Choose among the open records of a retry topic.

    Args:
        only: the named ones; None where all are meant. Nothing is read once all of them were found.
        leave: the reasons of those that are not meant all the same.
    """
    chosen = ChosenWaiting()
    named = None if only is None else {p: set(offsets) for p, offsets in only.items()}
    missing = -1 if named is None else sum(map(len, named.values()))
    for record in records:
        if named is not None:
            if record.offset not in named.get(record.partition, ()):
                continue
            missing -= 1
        if matches(record):
            if record.envelope.reason in leave:
                chosen.left += 1
            else:
                chosen.offsets.setdefault(record.partition, array("q")).append(record.offset)
        if not missing:
            break
    chosen.gone = max(missing, 0)
    return chosen
