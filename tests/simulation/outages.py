"""Outages: troubles of the size of real ones, which no seed of `plan` would make.

Each says how long healthy records waited for their start, how many failed records left for the
retry topics and how fast, how many were dead-lettered because their budget ran out, and how often
the circuit breaker changed. Sizes are a tenth of those on a real broker, or less; with a `size`
below 1 there are as many fewer records, and what has hardly any is shorter, so that many seeds can
be played.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random
from typing import NamedTuple, Protocol

from ackfloor.core.messages.events import (
    BreakerClosed,
    BreakerOpened,
    DeliveryTimedOut,
    Event,
    RecordDeadLettered,
    RecordParked,
)
from ackfloor.core.records.envelope import Reason
from tests.simulation.plan import Act, HandlerPlan, Plan, RecordPlan, hash_of
from tests.simulation.process import FAILURES
from tests.simulation.world import play

_HANDLER = HandlerPlan(
    "async",
    concurrency=64,
    timeout_s=1.0,
    delays_s=(1.0, 5.0, 25.0),
    redeliveries=3,
    breaker=FAILURES,
)
#: What failures take, in seconds.
_FAST_S = 0.005
_FAIL = (Act("fail", _FAST_S),)


@dataclass(frozen=True, slots=True)
class Outage:
    """One trouble.

    Attributes:
        plan: the run.
        begins_s, ends_s: between these the dependency is away, or the trouble lasts.
        judged_from_s: healthy records produced from then on are looked at, until `ends_s`.
        lasting: what is sick stays so: it is dead-lettered by the policy in the end.
    """

    plan: Plan
    begins_s: float = 0.0
    ends_s: float = inf
    judged_from_s: float = 0.0
    lasting: bool = False


def _plan(seed: int, records: list[RecordPlan], *handlers: HandlerPlan, workers: int = 1) -> Plan:
    return Plan(
        seed,
        handlers or (_HANDLER,),
        tuple(records),
        partitions=4,
        workers=workers,
        batch=500,
        most_events=3_000_000,
    )


def _record(
    uid: int, at_s: float, acts: tuple[Act, ...], keys: int = 1_000, handler: int = 0
) -> RecordPlan:
    key = b"key-%d" % (uid % keys)
    return RecordPlan(uid, handler, hash_of(key) % 4, key, at_s, acts)


def _ok(takes_s: float = _FAST_S) -> tuple[Act, ...]:
    return (Act("ok", takes_s),)


def _down(until_s: float, takes_s: float = _FAST_S) -> tuple[Act, ...]:
    return (Act("down", takes_s, until_s),)


def burst(share: float, seed: int, size: float = 1.0) -> Outage:
    """Records at once of which some never return, then a trickle of healthy ones."""
    dice = Random(f"burst {share} {seed}")
    count = int(dice.randrange(2_500, 3_500) * size)
    stuck = set(dice.sample(range(count), max(1, int(count * share))))
    records = [_record(n, 0.0, (Act("hang"),) if n in stuck else _ok(0.0)) for n in range(count)]
    drained_s = len(stuck) / 64 * 2 + 2.0
    trickle = [
        _record(count + n, 0.5 + n / (50 * size), _ok(0.0)) for n in range(int(2_000 * size))
    ]
    return Outage(_plan(seed, records + trickle), judged_from_s=drained_s, lasting=True)


def share_of_keys(
    share: float, takes_s: float, rate: float, seed: int, size: float = 1.0
) -> Outage:
    """Some of the keys fail for a while."""
    dice = Random(f"share {share} {seed}")
    rate = max(2.0, rate * size)
    failing = {n for n in range(1_000) if dice.random() < share}
    begins_s, ends_s = 10.0, 10.0 + dice.choice((20.0, 25.0, 30.0))
    records = []
    for n in range(int(rate * (ends_s + 10.0))):
        at_s = n / rate
        away = n % 1_000 in failing and begins_s <= at_s < ends_s
        records.append(_record(n, at_s, _down(ends_s) if away else _ok(takes_s)))
    handler = replace(_HANDLER, timeout_s=30.0)
    return Outage(_plan(seed, records, handler), begins_s, ends_s, begins_s)


def dead(
    takes_s: float, rate: float, lasts_s: float, workers: int, seed: int, size: float = 1.0
) -> Outage:
    """The dependency is away, for every record."""
    if rate < 1:
        lasts_s *= size
    else:
        rate *= size
    dice = Random(f"dead {takes_s} {seed}")
    before = max(1, round(20 * rate * dice.uniform(0.8, 1.2)))
    begins_s = before / rate
    ends_s = begins_s + lasts_s
    count = int(rate * (ends_s + 20.0)) if rate >= 1 else before + int(lasts_s * rate) + 2
    records = [
        _record(n, n / rate, _down(ends_s, takes_s) if begins_s <= n / rate < ends_s else _ok())
        for n in range(count)
    ]
    # The default schedule: one that is shorter than ten failures take can't be helped.
    delays_s = (1.0, 5.0, 25.0, 125.0, 600.0)
    handler = replace(_HANDLER, timeout_s=5.0, delays_s=delays_s, redeliveries=6)
    return Outage(_plan(seed, records, handler, workers=workers), begins_s, ends_s, ends_s)


def ended(seed: int, size: float = 1.0) -> Outage:
    """The dependency dies, and ten seconds later the input ends; 50 minutes."""
    dice = Random(f"ended {seed}")
    begins_s, rate = 20.0, dice.choice((20.0, 30.0))
    ends_s = begins_s + 3_000.0 * size
    records = [
        _record(n, n / rate, _down(ends_s) if n / rate >= begins_s else _ok())
        for n in range(int(30 * rate))
    ]
    records.append(_record(len(records), ends_s + 1.0, _ok()))
    handler = replace(_HANDLER, delays_s=(1.0, 5.0, 25.0, 125.0, 600.0), redeliveries=6)
    return Outage(_plan(seed, records, handler), begins_s, ends_s, ends_s)


def poison(
    share: float, seed: int, size: float = 1.0, *, handler: HandlerPlan = _HANDLER
) -> Outage:
    """Some of the records fail whatever happens, for ever."""
    dice = Random(f"poison {share} {seed}")
    rate, lasts_s = 50.0, 40.0 * size
    count = int(rate * lasts_s)
    records = [
        _record(n, n / rate, _FAIL if dice.random() < share else _ok(), keys=100_000)
        for n in range(count)
    ]
    # Something goes on until the last of them has used up its attempts: where nothing does, the
    # breaker can't tell a record's fault from the dependency's.
    records += [_record(count + n, lasts_s + n, _ok(), keys=100_000) for n in range(60)]
    return Outage(_plan(seed, records, handler), lasting=True)


def restart(first: int, act: Act, share: float, seed: int, size: float = 1.0) -> Outage:
    """Failed records are what a worker finds first; some of the others fail as well.

    A second handler has work of its own.
    """
    dice = Random(f"restart {first} {seed}")
    acts, first, rate = (act,), int(first * size), 50 * size
    records = [
        _record(n, 0.0, (replace(act, takes_s=act.takes_s * dice.random()),), keys=100_000)
        for n in range(first)
    ]
    for n in range(int(rate * 40)):
        bad = dice.random() < share
        records.append(_record(first + n, n / rate, acts if bad else _ok(), keys=100_000))
    base = len(records)
    records += [_record(base + n, n * 5 / rate, _ok(), handler=1) for n in range(int(rate * 8))]
    return Outage(_plan(seed, records, _HANDLER, replace(_HANDLER)), lasting=True)


_LANES = replace(_HANDLER, ordering="key", on_failure="park")
_BLOCKING = replace(_HANDLER, ordering="key", on_failure="block")

#: Of a seed, and a size.
OUTAGES: Mapping[str, Callable[..., Outage]] = {
    "burst-0.5": partial(burst, 0.005),
    "burst-1": partial(burst, 0.01),
    "burst-5": partial(burst, 0.05),
    **{
        f"share-{share:.0%}-{times}x": partial(share_of_keys, share, _FAST_S * times, rate)
        for share in (0.2, 0.6, 0.8)
        for times, rate in ((1, 50.0), (20, 50.0), (1_000, 10.0))
    },
    **{
        f"share-{share:.1%}": partial(share_of_keys, share, _FAST_S, 100.0)
        for share in (0.95, 0.99, 0.999)
    },
    "dead-fast": partial(dead, _FAST_S, 100.0, 60.0, 1),
    "dead-fast-4-workers": partial(dead, _FAST_S, 100.0, 60.0, 4),
    "dead-hang": partial(dead, 30.0, 20.0, 60.0, 1),
    "dead-quiet": partial(dead, _FAST_S, 1 / 60, 3_600.0, 1),
    "dead-quiet-3h": partial(dead, _FAST_S, 1 / 60, 10_800.0, 1),
    "dead-ended": ended,
    "poison-60%": partial(poison, 0.6),
    "poison-90%": partial(poison, 0.9),
    "poison-1%-batch": partial(poison, 0.01, handler=replace(_HANDLER, batch=100)),
    "poison-60%-lanes": partial(poison, 0.6, handler=_LANES),
    "poison-10%-blocking": partial(poison, 0.1, handler=_BLOCKING),
    "restart-400": partial(restart, 400, _FAIL[0], 0.1),
    "restart-5000": partial(restart, 5_000, _FAIL[0], 0.1),
    "restart-64-hang": partial(restart, 64, Act("hang"), 0.0),
}


#: They take minutes; `make soak` plays them, and each run of the tests a shorter one of the kind.
LONG = frozenset({"dead-quiet-3h"})


class Bound(NamedTuple):
    """What an outage may do.

    Attributes:
        p99_s: how long healthy records may wait for their start, in seconds.
        changes: how often the breaker of one worker may open or close.
        first_minute, further_minute: failed records that may leave for the retry topics.
    """

    p99_s: float
    changes: int = 2
    first_minute: float = inf
    further_minute: float = inf


#: By how an outage's name begins; the last that fits counts. Waits are those of the outage alone: a
#: simulated turn takes up to 20 ms.
BOUNDS = {
    "burst": Bound(1.0, changes=0),
    "share": Bound(0.05),
    "share-9": Bound(0.05, changes=40),
    "dead": Bound(1.0, 2, 200, 120),
    "poison": Bound(1.0, changes=40),
    "restart": Bound(3.0),
    "restart-5000": Bound(30.0),
}
#: Seconds after the end of an outage in which no breaker may be open any more.
BACK_S = 5.0
#: Seconds from a deadline until the park is confirmed, at the 99th percentile; the simulated turn
#: and the simulated broker are slower than real ones.
LATE_S = 0.2
#: How long the records of a handler beside it may wait.
OTHER_S = 0.1


class Seen(Protocol):
    """What is seen of a run."""

    @property
    def told(self) -> Sequence[tuple[float, Event]]:
        """What the workers told, and when, in seconds from the beginning."""

    @property
    def starts_s(self) -> Mapping[int, float]:
        """Of records by their uid: seconds from when it was produced to its first start."""

    @property
    def took_s(self) -> float:
        """Seconds until everything had ended."""

    @property
    def broken(self) -> object:
        """What was promised and not held, if anything."""


class Found(NamedTuple):
    """What an outage did.

    Attributes:
        healthy: records that were looked at, and how long they waited for their start: median,
            99th percentile, longest, in seconds.
        other_p99_s: the same of the second handler, where there is one.
        first_minute, further_minute: failed deliveries that were parked in the first minute, and
            the most in any further one.
        first_records, further_records: records that left their topic in these.
        exhausted: records dead-lettered because their budget ran out while it lasted.
        changes: how often breakers opened or closed.
        back_s: seconds from its end until no breaker was open; None where none had opened.
        late_p99_s: of those that hang: seconds from the deadline until the park was confirmed.
        took_s: until everything had ended, in seconds.
    """

    name: str
    seed: int
    size: float
    healthy: int
    p50_s: float
    p99_s: float
    longest_s: float
    other_p99_s: float
    first_minute: int
    further_minute: int
    first_records: int
    further_records: int
    exhausted: int
    changes: int
    back_s: float | None
    late_p99_s: float
    took_s: float
    broken: str


def found_in(name: str, seed: int, size: float = 1.0, *, breaker: bool = True) -> Found:
    """Play an outage, with a circuit breaker or without."""
    outage = OUTAGES[name](seed, size)
    plan = outage.plan
    if not breaker:
        plan = without_breaker(plan)
    return judged(name, seed, size, outage, play(plan))


def without_breaker(plan: Plan) -> Plan:
    """The same run without circuit breakers."""
    return replace(plan, handlers=tuple(replace(h, breaker=0) for h in plan.handlers))


def judged(name: str, seed: int, size: float, outage: Outage, result: Seen) -> Found:
    """What an outage did, by what was seen of it."""
    first, other = _waits(outage, result, 0), _waits(outage, result, 1)
    parks = [
        (int((at_s - outage.begins_s) // 60), event)
        for at_s, event in result.told
        if isinstance(event, RecordParked) and outage.begins_s <= at_s < outage.ends_s
    ]
    minutes = Counter(minute for minute, _ in parks)
    records = Counter(minute for minute, event in parks if event.attempt == 1)
    changes = [(t, e) for t, e in result.told if isinstance(e, BreakerOpened | BreakerClosed)]
    closed_s = [t for t, event in changes if isinstance(event, BreakerClosed)]
    return Found(
        name,
        seed,
        size,
        len(first),
        _at(first, 0.5),
        _at(first, 0.99),
        _at(first, 1.0),
        _at(other, 0.99),
        minutes.pop(0, 0),
        max(minutes.values(), default=0),
        records.pop(0, 0),
        max(records.values(), default=0),
        0 if outage.lasting else _exhausted(outage, result),
        len(changes),
        max(0.0, closed_s[-1] - outage.ends_s) if closed_s else None,
        _at(_lateness(result), 0.99),
        result.took_s,
        str(result.broken or ""),
    )


def misses(found: Found) -> list[str]:
    """What an outage did and must not."""
    bound = next(b for start, b in reversed(BOUNDS.items()) if found.name.startswith(start))
    workers = 4 if found.name.endswith("4-workers") else 1
    left, left_later = found.first_records, found.further_records
    if found.size == 1.0:
        # Before fewer records have failed in a row than it takes, those that were parked come again
        # and are parked further.
        left, left_later = found.first_minute, found.further_minute
    held = {
        f"p99 of healthy records is {found.p99_s:.3f} s": found.p99_s <= bound.p99_s,
        f"p99 beside it is {found.other_p99_s:.3f} s": found.other_p99_s <= OTHER_S,
        f"{found.changes} changes": found.changes <= bound.changes * workers,
        f"{left} left in the first minute": left <= bound.first_minute,
        f"{left_later} in a further one": left_later <= bound.further_minute,
        f"{found.exhausted} dead-lettered": not found.exhausted,
        f"back after {found.back_s} s": found.back_s is None or found.back_s <= BACK_S,
        f"parks are late by {found.late_p99_s:.3f} s": found.late_p99_s <= LATE_S,
        found.broken: not found.broken,
    }
    return [what for what, holds in held.items() if not holds]


def _waits(outage: Outage, result: Seen, handler: int) -> list[float]:
    """How long the healthy records of one handler waited for their start, shortest first."""
    until_s = outage.ends_s if outage.judged_from_s < outage.ends_s else inf
    judged = {
        record.uid
        for record in outage.plan.records
        if record.handler == handler
        and not record.sick
        and outage.judged_from_s <= record.at_s < until_s
    }
    return sorted(wait_s for uid, wait_s in result.starts_s.items() if uid in judged)


def _exhausted(outage: Outage, result: Seen) -> int:
    return sum(
        isinstance(event, RecordDeadLettered) and event.reason is Reason.EXHAUSTED
        for at_s, event in result.told
        if at_s < outage.ends_s
    )


def _lateness(result: Seen) -> list[float]:
    """Of time-outs that were parked: seconds from the deadline until that was confirmed."""
    overdue = {
        (e.topic, e.partition, e.offset): e.late_by_s
        for _, e in result.told
        if isinstance(e, DeliveryTimedOut) and e.attempt == 1
    }
    return sorted(
        overdue[e.topic, e.partition, e.offset] + e.since_failure_s
        for _, e in result.told
        if isinstance(e, RecordParked)
        and e.attempt == 1
        and (e.topic, e.partition, e.offset) in overdue
    )


def _at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0
