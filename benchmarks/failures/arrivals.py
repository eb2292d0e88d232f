"""Which messages fail, and when: the same for every retry policy.

The month is cut into slots of ten minutes. Each cause gets its share of each slot, and inside a
slot times are drawn. So messages come in order of time, and no more than a slot is held at once.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.failures.scenario import CAUSES, END_MS, PARTITIONS, START_MS, Cause, Job

_SLOT_MS = 600_000
_MASK = (1 << 64) - 1
#: Log-spaced: the first of the hot keys has a fifth of all, the last less than a hundredth.
_HOT_KEYS = 24
_KEYS = 40_000


@dataclass(frozen=True, slots=True)
class Message:
    """A message that fails at least once.

    Attributes:
        time_ms: when its first delivery starts.
        healed_ms: from when on it succeeds, where its cause heals.
    """

    number: int
    cause: Cause
    time_ms: int
    healed_ms: int
    partition: int
    offset: int
    key: bytes

    @property
    def producer(self) -> bytes:
        """Who wrote it."""
        return self.cause.producer.encode()

    @property
    def value(self) -> bytes:
        """Its value, about 200 bytes; of the importer something that is no order."""
        total = "n/a" if self.cause.direct == "decode" else self.number % 90_000 / 100
        lines = [{"sku": f"A-{self.number * 7919 % 90_000}", "count": self.number % 5 + 1}]
        order = {"order": self.number, "customer": self.key.decode(), "total": total}
        return json.dumps({**order, "lines": lines, "note": "x" * 100}).encode()


def draw(seed: int, number: int, what: int) -> float:
    """A number in [0, 1) that depends on the arguments alone (splitmix64)."""
    z = (
        seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + what * 0x94D049BB133111EB
    ) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) / 2**64


def arrivals(messages: int, seed: int) -> Iterator[Message]:
    """About `messages` messages in order of time."""
    slots = range(START_MS, END_MS, _SLOT_MS)
    scale = messages / sum(cause.weight for cause in CAUSES)
    shares = {cause: _shares(cause, len(slots)) for cause in CAUSES}
    owed = dict.fromkeys(CAUSES, 0.0)
    offsets: dict[tuple[Job, int], int] = {}
    number = 0
    for slot, slot_ms in enumerate(slots):
        drawn: list[tuple[int, int, Cause]] = []
        for cause in CAUSES:
            owed[cause] += cause.weight * scale * shares[cause][slot]
            count, owed[cause] = int(owed[cause]), owed[cause] % 1
            for _ in range(count):
                number += 1
                time_ms = slot_ms + int(draw(seed, number, 0) * _SLOT_MS)
                drawn.append((_while_down(time_ms, cause), number, cause))
        for time_ms, each, cause in sorted(drawn, key=lambda one: one[:2]):
            yield _message(each, cause, time_ms, seed, offsets)


def _while_down(time_ms: int, cause: Cause) -> int:
    """The time, or one of the same cycle at which the dependency is down."""
    if cause.cycle_s is None:
        return time_ms
    down_ms, cycle_ms = (1000 * seconds for seconds in cause.cycle_s)
    into_ms = (time_ms - START_MS) % cycle_ms
    return time_ms - into_ms + into_ms * down_ms // cycle_ms


def _message(
    number: int, cause: Cause, time_ms: int, seed: int, offsets: dict[tuple[Job, int], int]
) -> Message:
    partition, key = _key(number, cause, seed)
    # The offset follows from the rate of the topic; failing messages only never share one.
    reached = int((time_ms - START_MS) / 1000 * cause.job.input_per_s / PARTITIONS)
    offset = max(reached, offsets.get((cause.job, partition), -1) + 1)
    offsets[cause.job, partition] = offset
    ends_ms = [START_MS + int(end * 3_600_000) for _, end in cause.windows]
    window_ms = next((end for end in ends_ms if time_ms < end), END_MS * 2)
    healed_ms = window_ms + int(30_000 * draw(seed, number, 5))
    return Message(number, cause, time_ms, healed_ms, partition, offset, key)


def _key(number: int, cause: Cause, seed: int) -> tuple[int, bytes]:
    luck = draw(seed, number, 3)
    if cause.hot and luck < 0.9:
        name = f"merchant-{int((_HOT_KEYS + 1) ** (luck / 0.9)):03d}"
    else:
        name = f"customer-{int(draw(seed, number, 4) * _KEYS):05d}"
    return zlib.crc32(name.encode()) % PARTITIONS, name.encode()


def _shares(cause: Cause, slots: int) -> list[float]:
    """Which part of the cause's messages comes in each slot; together 1."""
    hours = [slot * _SLOT_MS / 3_600_000 for slot in range(slots)]
    width = _SLOT_MS / 3_600_000
    if cause.windows:
        parts = [
            sum(max(0.0, min(h + width, end) - max(h, start)) for start, end in cause.windows)
            for h in hours
        ]
    else:
        parts = [1.0 - 0.7 * math.cos((h - 3) / 24 * 2 * math.pi) for h in hours]
    total = sum(parts)
    return [part / total for part in parts]
