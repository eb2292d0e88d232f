"""RetryPolicy: after which delays a failed record comes again, and the hops of a longer wait.

The policy is frozen data; each distinct delay of its schedule is one retry tier. Jitter is not
random: a tier's wait is its delay times a factor in [1, 1 + jitter] that belongs to the tier's
partition. So records of one tier partition fall due in the order in which they were parked, no
wait is ever shorter than the delay, and the spread survives at the cap.

The names follow ActiveMQ's RedeliveryPolicy where it has them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil, inf
from typing import NamedTuple

from ackfloor.core.values.durations import format_duration, parse_duration
from ackfloor.core.values.setting_error import SettingError

GOLDEN = 0.6180339887498949
#: A schedule that is over sooner than this sends an outage's records to the DLQ.
SHORT_SCHEDULE_S = 10.0
#: Each delay is a retry topic; a multiplier near 1 would ask for thousands of them.
MOST_STEPS = 100
#: Beyond this a count stands for "no limit", and a schedule could not be listed.
MOST_REDELIVERIES = 1_000_000
#: RocketMQ's delay levels 3 to 18, which its redeliveries step through.
_ROCKETMQ_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


@dataclass(frozen=True, init=False, slots=True)
class RetryPolicy:
    """When a failed record comes again, and when it goes to the dead-letter queue.

    Redelivery n waits `initial_delay * multiplier ** (n - 1)`, at most `max_delay`. The default
    gives 1s, 5s, 25s, 2m5s, 10m, 10m: seven deliveries, 22m36s to the dead-letter queue.

    Args:
        initial_delay: timedelta or text with a unit ("1s").
        multiplier: at least 1.
        max_delay: the cap of a single delay.
        max_redeliveries: 0 for none, None for no limit.
        jitter: up to this share is added to each wait, 0 to 1.
        delays: an explicit schedule that replaces the computed one; its last entry repeats.

    Raises:
        SettingError: a value is refused; the message names it and the fix.
    """

    initial_delay_s: float
    multiplier: float
    max_delay_s: float
    max_redeliveries: int | None
    jitter: float
    delays_s: tuple[float, ...]

    def __init__(
        self,
        initial_delay: timedelta | str = "1s",
        multiplier: float = 5,
        max_delay: timedelta | str = "10m",
        max_redeliveries: int | None = 6,
        jitter: float = 0.15,
        *,
        delays: Iterable[timedelta | str] = (),
    ) -> None:
        initial_s = _whole_ms(parse_duration(initial_delay, field="retry.initial_delay"))
        max_s = _whole_ms(parse_duration(max_delay, field="retry.max_delay"))
        explicit = tuple(_whole_ms(parse_duration(d, field="retry.delays")) for d in delays)
        _check_numbers(multiplier, max_redeliveries, jitter)
        if explicit:
            initial_s, max_s = explicit[0], max(explicit)
        elif max_s < initial_s:
            raise SettingError(
                "retry.max_delay",
                format_duration(max_s),
                f"shorter than initial_delay {format_duration(initial_s)}",
                "raise max_delay or lower initial_delay",
            )
        for name, value in (
            ("initial_delay_s", initial_s),
            ("multiplier", float(multiplier)),
            ("max_delay_s", max_s),
            ("max_redeliveries", max_redeliveries),
            ("jitter", float(jitter)),
            ("delays_s", explicit),
        ):
            object.__setattr__(self, name, value)
        self._check_delays()

    def _check_delays(self) -> None:
        if self.max_redeliveries == 0:
            return
        field = "retry.delays" if self.delays_s else "retry.initial_delay"
        if min(self.delays_s, default=self.initial_delay_s) <= 0:
            why = "no wait at all; a retry topic has one"
            fix = 'give a delay of at least "1ms", or max_redeliveries=0'
            if self.max_redeliveries is None:
                why = "redelivers for ever without a pause"
                fix = 'give a delay of at least "1ms" and a max_redeliveries'
            raise SettingError(field, "0s", why, fix)
        if self._steps() > MOST_STEPS:
            why = f"more than {MOST_STEPS} different delays, and each is a retry topic"
            if self.delays_s:
                raise SettingError(field, f"{len(self.delays_s)} delays", why, "list fewer")
            fix = "raise multiplier, or lower max_delay or max_redeliveries"
            raise SettingError("retry.multiplier", self.multiplier, why, fix)

    @classmethod
    def fixed(
        cls, delay: timedelta | str, max_redeliveries: int | None = 6, jitter: float = 0.15
    ) -> RetryPolicy:
        """The same delay every time."""
        return cls(delay, 1, delay, max_redeliveries, jitter)

    @classmethod
    def activemq(cls) -> RetryPolicy:
        """ActiveMQ's defaults: 6 redeliveries, 1 s apart, no collision avoidance.

        Its backOffMultiplier of 5 counts only with useExponentialBackOff, which is off there;
        `RetryPolicy()` is that schedule with a cap.
        """
        return cls("1s", 1, "1s", 6, 0)

    @classmethod
    def rocketmq(cls) -> RetryPolicy:
        """RocketMQ's defaults: 16 redeliveries on its delay levels 3 to 18 of 18, 10s to 2h."""
        return cls(
            max_redeliveries=16, jitter=0, delays=[timedelta(seconds=s) for s in _ROCKETMQ_S]
        )

    def delay_s(self, redelivery: int) -> float | None:
        """The nominal wait before redelivery n (1 = first) in seconds; None past the budget."""
        if redelivery < 1:
            raise ValueError(f"redelivery {redelivery}: they count from 1")
        if self.max_redeliveries is not None and redelivery > self.max_redeliveries:
            return None
        return self._nominal_s(redelivery)

    def _nominal_s(self, redelivery: int) -> float:
        if self.delays_s:
            return self.delays_s[min(redelivery, len(self.delays_s)) - 1]
        try:
            raw_s = self.initial_delay_s * self.multiplier ** (redelivery - 1)
        except OverflowError:
            raw_s = inf
        return _whole_ms(min(raw_s, self.max_delay_s))

    def _steps(self) -> int:
        """How many redeliveries it takes until the delay stays what it is; past the most, one more.

        Found by walking: two neighbours may be equal to the millisecond and grow later.
        """
        steps = len(self.delays_s) or 1
        if not self.delays_s and self.multiplier > 1:
            reached = (
                n for n in range(1, MOST_STEPS + 1) if self._nominal_s(n) >= self.max_delay_s
            )
            steps = next(reached, MOST_STEPS + 1)
        return steps if self.max_redeliveries is None else min(steps, self.max_redeliveries)

    def _growth(self) -> tuple[float, ...]:
        return tuple(self._nominal_s(n) for n in range(1, self._steps() + 1))

    def schedule(self) -> tuple[float, ...]:
        """The nominal delays in seconds, in order.

        Without a limit: up to and including the first that repeats for ever.
        """
        growth = self._growth()
        if self.max_redeliveries is None:
            return growth
        return growth + growth[-1:] * (self.max_redeliveries - len(growth))

    def tiers(self) -> tuple[float, ...]:
        """The distinct delays in seconds, shortest first: one retry topic each."""
        return tuple(sorted(set(self._growth())))

    def total_s(self) -> float:
        """Nominal seconds from the first failure to the dead-letter queue; inf without limit."""
        return inf if self.max_redeliveries is None else sum(self.schedule())


def _whole_ms(seconds: float) -> float:
    """Seconds to the millisecond: topic names and headers carry no less."""
    return round(seconds * 1000) / 1000


def _check_numbers(multiplier: float, max_redeliveries: int | None, jitter: float) -> None:
    if not _within(multiplier, 1, sys.float_info.max):
        fix = "give a number from 1 up"
        raise SettingError("retry.multiplier", multiplier, "delays would shrink", fix)
    if max_redeliveries is not None and (type(max_redeliveries) is not int or max_redeliveries < 0):
        fix = "give 0 for none, a positive whole number, or None for no limit"
        raise SettingError("retry.max_redeliveries", max_redeliveries, "not a count", fix)
    if max_redeliveries is not None and max_redeliveries > MOST_REDELIVERIES:
        why = f"over {MOST_REDELIVERIES}"
        raise SettingError(
            "retry.max_redeliveries", max_redeliveries, why, "give None for no limit"
        )
    if not _within(jitter, 0, 1):
        raise SettingError("retry.jitter", jitter, "not a share", "give a number from 0 to 1")


def _within(number: object, least: float, most: float) -> bool:
    """A number in the range; True, False and NaN are none."""
    return (
        isinstance(number, int | float) and not isinstance(number, bool) and least <= number <= most
    )


def tier_wait_s(delay_s: float, jitter: float, partition: int) -> float:
    """The wait in seconds of one partition of a tier: the delay and its own share of jitter."""
    return ceil(delay_s * (1 + jitter * jitter_share(partition)) * 1000 - 1e-6) / 1000


def jitter_share(partition: int) -> float:
    """A partition's share of the jitter of its tier, from 0 to 1.

    The shares of neighbouring partitions are spread evenly (golden-ratio sequence).
    """
    return (partition + 1) * GOLDEN % 1.0


def in_place_wait_s(delay_s: float, jitter: float, share: float) -> float:
    """The wait in seconds of a retry in place: the delay, lengthened by a share of the jitter.

    Args:
        share: of the jitter, 0 to 1; drawn by the caller.
    """
    return delay_s * (1 + jitter * share)


class Hop(NamedTuple):
    """One wait on the way to an explicit due time."""

    tier_s: float
    partition: int
    wait_s: float


def next_hop(
    left_s: float,
    tiers: Sequence[float],
    jitter: float,
    partitions: int,
    pick: Callable[[int], int],
    own: int | None = None,
) -> Hop:
    """Where a record waits next when `left_s` seconds are left to its due time.

    In the longest tier that has a partition whose wait does not overshoot; where none has, in
    the shortest tier, which rounds the rest up. So the record is never early, and late by less
    than the shortest tier's wait.

    Args:
        tiers: nominal delays in seconds, shortest first, at least one.
        partitions: how many each tier has.
        pick: chooses one of n eligible partitions.
        own: the only one that is eligible; None where all are.
    """
    eligible = range(partitions) if own is None else (own,)
    for tier_s in reversed(tiers):
        if tier_s > left_s:
            continue
        waits = [(p, tier_wait_s(tier_s, jitter, p)) for p in eligible]
        fitting = [(p, wait_s) for p, wait_s in waits if wait_s <= left_s]
        if fitting:
            partition, wait_s = fitting[pick(len(fitting))]
            return Hop(tier_s, partition, wait_s)
    partition = pick(partitions) if own is None else own
    return Hop(tiers[0], partition, tier_wait_s(tiers[0], jitter, partition))


def warnings(
    policy: RetryPolicy,
    *,
    dead_letter_on: Sequence[type[BaseException]] = (),
    retention_s: float | None = None,
) -> tuple[str, ...]:
    """What a person should know before this policy runs, one sentence each.

    Args:
        dead_letter_on: the handler's exception classes that skip the policy.
        retention_s: how long the source topic keeps records, in seconds.
    """
    found = []
    total_s = policy.total_s()
    if total_s == inf:
        found.append("unlimited redeliveries: a poison record is retried for ever")
    elif policy.max_redeliveries == 0:
        found.append("no redelivery: the first failure sends a record to the dead-letter queue")
    elif total_s < SHORT_SCHEDULE_S:
        found.append(
            f"the whole schedule is over in {format_duration(total_s)}: a short outage of a "
            "dependency sends its records to the dead-letter queue"
        )
    if retention_s is not None and total_s != inf and total_s > retention_s:
        found.append(
            f"the schedule takes {format_duration(total_s)}, longer than the topic's retention "
            f"of {format_duration(retention_s)}"
        )
    found.extend(
        f"dead_letter_on names {broad.__name__}: it also covers errors that would heal, "
        "such as time-outs and decoding problems of libraries"
        for broad in (BaseException, Exception, OSError, ValueError)
        if broad in dead_letter_on
    )
    return tuple(found)
