"""RetryPolicy: how often and after which delays a failed record is delivered again.

The policy is frozen data; each distinct delay of its schedule is one retry tier. Jitter is not
random: a tier's wait is its delay times a factor in [1, 1 + jitter] that belongs to the tier's
partition. So records of one tier partition fall due in the order in which they were parked, no
wait is ever shorter than the delay, and the spread survives at the cap.

The names follow ActiveMQ's RedeliveryPolicy where it has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil, inf
from typing import NamedTuple

from ackfloor.core.durations import format_duration, format_exact_unit, parse_duration
from ackfloor.core.errors import SettingError

_GOLDEN = 0.6180339887498949
#: A schedule that is over sooner than this sends an outage's records to the DLQ.
SHORT_SCHEDULE_S = 10.0
#: RocketMQ's delay levels 3 to 18, which its redeliveries step through.
_ROCKETMQ_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


@dataclass(frozen=True, init=False)
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
        initial_s = parse_duration(initial_delay, field="retry.initial_delay")
        max_s = parse_duration(max_delay, field="retry.max_delay")
        explicit = tuple(parse_duration(d, field="retry.delays") for d in delays)
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
        for delay_s in self.delays_s or (self.initial_delay_s, self.max_delay_s):
            if delay_s < 0.001:
                unlimited = self.max_redeliveries is None
                raise SettingError(
                    "retry.initial_delay",
                    format_duration(delay_s),
                    "redelivers for ever without a pause" if unlimited else "no wait at all",
                    'give a delay of at least "1ms"'
                    + (" and a max_redeliveries" if unlimited else ", or max_redeliveries=0"),
                )

    @classmethod
    def fixed(
        cls, delay: timedelta | str, max_redeliveries: int | None = 6, jitter: float = 0.15
    ) -> RetryPolicy:
        """The same delay every time."""
        return cls(delay, 1, delay, max_redeliveries, jitter)

    @classmethod
    def activemq(cls) -> RetryPolicy:
        """ActiveMQ's defaults: 6 redeliveries, 1 s apart, no backoff, no collision avoidance."""
        return cls("1s", 1, "1s", 6, 0)

    @classmethod
    def rocketmq(cls) -> RetryPolicy:
        """RocketMQ's defaults: 16 redeliveries on its delay levels 3 to 18, 10s to 2h."""
        return cls(
            max_redeliveries=16, jitter=0, delays=[timedelta(seconds=s) for s in _ROCKETMQ_S]
        )

    def delay_s(self, redelivery: int) -> float | None:
        """The nominal wait before redelivery n (1 = first) in seconds; None past the budget."""
        if self.max_redeliveries is not None and redelivery > self.max_redeliveries:
            return None
        return self._nominal_s(redelivery)

    def _nominal_s(self, redelivery: int) -> float:
        if self.delays_s:
            return self.delays_s[min(redelivery, len(self.delays_s)) - 1]
        try:
            raw = self.initial_delay_s * self.multiplier ** (redelivery - 1)
        except OverflowError:
            raw = inf
        # Whole milliseconds: topic names and headers carry no less.
        return round(min(raw, self.max_delay_s) * 1000) / 1000

    def schedule(self) -> tuple[float, ...]:
        """The nominal delays in seconds, in order.

        Without a limit: up to and including the first that repeats for ever.
        """
        if self.max_redeliveries is not None:
            return tuple(self._nominal_s(n) for n in range(1, self.max_redeliveries + 1))
        delays = [self._nominal_s(1)]
        while len(delays) < max(1, len(self.delays_s)) or delays[-1] != self._nominal_s(
            len(delays) + 1
        ):
            delays.append(self._nominal_s(len(delays) + 1))
        return tuple(delays)

    def tiers(self) -> tuple[float, ...]:
        """The distinct delays in seconds, shortest first: one retry topic each."""
        return tuple(sorted(set(self.schedule())))

    def total_s(self) -> float:
        """Nominal seconds from the first failure to the dead-letter queue; inf without limit."""
        return inf if self.max_redeliveries is None else sum(self.schedule())


def _check_numbers(multiplier: float, max_redeliveries: int | None, jitter: float) -> None:
    if isinstance(multiplier, bool) or not 1 <= multiplier < inf:
        raise SettingError(
            "retry.multiplier", multiplier, "delays would shrink", "give a number from 1 up"
        )
    if max_redeliveries is not None and (type(max_redeliveries) is not int or max_redeliveries < 0):
        raise SettingError(
            "retry.max_redeliveries",
            max_redeliveries,
            "not a count",
            "give 0 for none, a positive whole number, or None for no limit",
        )
    if isinstance(jitter, bool) or not 0 <= jitter <= 1:
        raise SettingError("retry.jitter", jitter, "not a share", "give a number from 0 to 1")


def tier_wait_s(delay_s: float, jitter: float, partition: int) -> float:
    """The wait in seconds of one partition of a tier: the delay and its own share of jitter.

    The shares of neighbouring partitions are spread evenly (golden-ratio sequence).
    """
    share = (partition + 1) * _GOLDEN % 1.0
    return ceil(delay_s * (1 + jitter * share) * 1000 - 1e-6) / 1000


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
) -> Hop:
    """Where a record waits next when `left_s` seconds are left to its due time.

    In the longest tier that has a partition whose wait does not overshoot; where none has, in
    the shortest tier, which rounds the rest up. So the record is never early, and late by less
    than the shortest tier's wait.

    Args:
        tiers: nominal delays in seconds, shortest first, at least one.
        partitions: how many each tier has.
        pick: chooses one of n eligible partitions.
    """
    for tier_s in reversed(tiers):
        waits = [(p, tier_wait_s(tier_s, jitter, p)) for p in range(partitions)]
        fitting = [(p, wait_s) for p, wait_s in waits if wait_s <= left_s]
        if fitting:
            partition, wait_s = fitting[pick(len(fitting))]
            return Hop(tier_s, partition, wait_s)
    partition = pick(partitions)
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
    told = []
    total_s = policy.total_s()
    if total_s == inf:
        told.append("unlimited redeliveries: a poison record is retried for ever")
    elif total_s < SHORT_SCHEDULE_S:
        told.append(
            f"the whole schedule is over in {format_duration(total_s)}: a short outage of a "
            "dependency sends its records to the dead-letter queue"
        )
    if retention_s is not None and total_s != inf and total_s > retention_s:
        told.append(
            f"the schedule takes {format_duration(total_s)}, longer than the topic's retention "
            f"of {format_duration(retention_s)}"
        )
    told.extend(
        f"dead_letter_on names {broad.__name__}: it also covers errors that would heal, "
        "such as time-outs and decoding problems of libraries"
        for broad in (BaseException, Exception, OSError, ValueError)
        if broad in dead_letter_on
    )
    return tuple(told)


def describe(policy: RetryPolicy) -> str:
    """The schedule in one line: "1s, 5s, 25s, 2m5s, 10m, 10m"."""
    delays = ", ".join(format_duration(delay_s) for delay_s in policy.schedule())
    if policy.max_redeliveries is None:
        return f"{delays}, and so on"
    return delays or "no redelivery"


def tier_name(delay_s: float) -> str:
    """A tier as its topic's name carries it."""
    return format_exact_unit(delay_s)
