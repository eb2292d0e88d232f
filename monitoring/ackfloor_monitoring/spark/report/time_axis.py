"""The axis of time: from when to when the report draws, and how long one stretch of it is.

A worker whose clock is wrong writes failures of 1970 or 2090. Such a record is counted like any
other and named in the report, but it stretches no axis and is no "first" or "last seen". A day is
left out

* where no record can be: before Kafka was there, or later than a day from now;
* where it lies far from the rest: further than the rest is long, at least 30 days, and what lies
  there is less than a tenth of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

DAY_MS = 86_400_000
# Stretches of a period of more than two days are parts of this length, or several of them.
PART_OF_DAY_MS = DAY_MS // 4
LONGEST_IN_SHORTER_MS = 2 * DAY_MS
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
# The longest period that each length of a stretch is for, in seconds: at most 97 stretches.
_STRETCHES = (
    (300, 5), (1_800, _MINUTE_S), (3 * _HOUR_S, 300), (14 * _HOUR_S, 1_800), (2 * _DAY_S, _HOUR_S),
    (8 * _DAY_S, 6 * _HOUR_S), (95 * _DAY_S, _DAY_S), (95 * 7 * _DAY_S, 7 * _DAY_S),
)  # fmt: skip
_FOUR_WEEKS_S, _MOST_STRETCHES = 28 * _DAY_S, 95
# Days are counted from Thursday, 1970-01-01; weeks begin on Monday.
TO_MONDAY_MS = 3 * DAY_MS
# Kafka was published in January 2011.
EARLIEST_DAY = (datetime(2011, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days
_FAR_DAYS = 30


@dataclass(frozen=True, slots=True)
class Period:
    """From the first to the last failure that is drawn, in milliseconds since the epoch."""

    first_ms: int
    last_ms: int

    @property
    def stretch_ms(self) -> int:
        """The length of a stretch of time."""
        return 1000 * stretch_s((self.last_ms - self.first_ms) / 1000)

    @property
    def starts(self) -> list[int]:
        """When each stretch begins."""
        first = self.first_ms - (self.first_ms + TO_MONDAY_MS) % self.stretch_ms
        return list(range(first, self.last_ms + 1, self.stretch_ms))

    @property
    def earliest_ms(self) -> int:
        """What is before lies far from the period."""
        return self.first_ms - max(self.last_ms - self.first_ms, _FAR_DAYS * DAY_MS)


def stretch_s(period_s: float) -> int:
    """The length of a stretch of time that a period is drawn in, in seconds."""
    found = next((length for longest, length in _STRETCHES if period_s <= longest), None)
    if found is not None:
        return found
    return _FOUR_WEEKS_S * -int(-period_s // (_FOUR_WEEKS_S * _MOST_STRETCHES))


def day_after(made_at: datetime) -> int:
    """The first day on which nothing can have failed yet, counted from 1970."""
    return int((made_at + timedelta(days=1)).timestamp() * 1000 // DAY_MS) + 1


def drawn_days(records: Mapping[int, int], end: int) -> tuple[int, int]:
    """The first and the last day that is drawn.

    Args:
        records: how many a day has, by day since 1970; at least one.
        end: from `day_after`.
    """
    possible = sorted(day for day in records if EARLIEST_DAY <= day < end)
    # Where all of them are impossible, it is our own clock.
    days: Sequence[int] = possible or sorted(records)
    while len(near := _without_far_end(days, records)) < len(days):
        days = near
    return days[0], days[-1]


def _without_far_end(days: Sequence[int], records: Mapping[int, int]) -> Sequence[int]:
    """The days on one side of the longest gap, where those on the other are few and far."""
    if len(days) < 2:
        return days
    at = max(range(1, len(days)), key=lambda n: days[n] - days[n - 1])
    gap = days[at] - days[at - 1]
    sides = [(sum(records[day] for day in side), side) for side in (days[:at], days[at:])]
    (few, _), (many, rest) = sorted(sides, key=lambda side: side[0])
    far = gap > max(rest[-1] - rest[0] + 1, _FAR_DAYS)
    return rest if far and 10 * few < many else days
