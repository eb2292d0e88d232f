"""LaneOrder: what an operator wants done to lanes that wait for a failed record, and the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Action(StrEnum):
    """What an operator does to the head of a blocked lane."""

    RETRY = "retry"
    DELAY = "delay"
    PARK = "park"
    DEAD_LETTER = "dead_letter"
    DISCARD = "discard"


#: A write costs the owner thread about 50 µs: of one order so many at most are begun.
MOST_WRITES = 10_000
#: Keys and places that one order names at most; a dry run names as many.
MOST_NAMED = 1_000
#: What heads are called that an order has left for the next one.
TOO_MANY = "too_many"
#: What a withheld head is called that has no attempt left, and so is not parked.
EXHAUSTED = "exhausted"
#: What a quarantined head is called that is to be parked, and is parked.
PARKED = "parked"

Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """What is to be done, and to which lanes of a handler.

    Attributes:
        wanted: keys, or places (topic, partition, offset) of heads; all lanes where empty.
        delay_s: of `DELAY`: in how many seconds the head is tried.
        with_behind: of `DEAD_LETTER`: whether those behind a quarantined head go with it; None for
            what the handler says, which leaves a head that is held as it is.
        reason: of `DISCARD`: why, for the log.
        dry_run: change nothing, and answer what it would be.
    """

    action: Action
    handler: str
    wanted: tuple[bytes | Place, ...] = ()
    delay_s: float = 0.0
    with_behind: bool | None = None
    reason: str = ""
    dry_run: bool = False


@dataclass(slots=True)
class LaneAnswer:
    """What one worker did.

    Attributes:
        done: how many lanes it did it to, or would.
        freed: of how many of them the head was dead-lettered already, and held its key until now.
        left: what a head was doing, of those that it left as they were -> how many; or `TOO_MANY`,
            `EXHAUSTED` or `PARKED`.
        found: which of the order's `wanted` it has, by their places there.
        refused: why it did nothing; empty where it did.
        places: of a dry run: the heads that it would do it to; none where there are more than
            `MOST_NAMED`.
    """

    done: int = 0
    freed: int = 0
    left: dict[str, int] = field(default_factory=dict)
    found: set[int] = field(default_factory=set)
    refused: str = ""
    places: list[Place] = field(default_factory=list)
