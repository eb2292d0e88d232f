"""Outputs: what the simulated handlers publish, and how it says what it is.

Each delivery publishes its record's outputs before anything else it does, so that those of
attempts that fail, time out or are stale have to be dropped. A value says the record, which of its
outputs it is, and of which of the record's starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ackfloor.core.records.output import Output
from tests.simulation.plan import HandlerPlan

#: Where outputs go: those of one lane to both.
TOPICS = ("out0", "out1")
PARTITIONS = 2
#: The bytes that a topic takes which takes too few: those of two records in three.
FEW = 95


class Said(NamedTuple):
    """What an output says of itself."""

    uid: int
    number: int
    start: int


def outputs_of(plan: HandlerPlan, uid: int, start: int, key: bytes | None) -> Iterator[Output]:
    """What a delivery publishes: the `start`th of its record."""
    for number in range(plan.outputs):
        value = b"%d:%d:%d:" % (uid, number, start) + b"x" * (uid % 3 * 10)
        yield Output(TOPICS[(uid + number) % len(TOPICS)], key, value, (("by", b"sim"),))


def read_output(value: bytes | None) -> Said:
    """What an output says."""
    uid, number, start, _ = (value or b"").split(b":")
    return Said(int(uid), int(number), int(start))
