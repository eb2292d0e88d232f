"""Outages: scenarios of the size of real ones, which no seed would make.

Each tells how long healthy records waited for their start after the trouble had begun.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.simulation.plan import Act, HandlerPlan, Plan, RecordPlan, hash_of
from tests.simulation.world import play

_HANDLER = HandlerPlan(
    "async", concurrency=64, timeout_s=1.0, delays_s=(1.0, 5.0, 25.0), redeliveries=3, breaker=50
)
_OK = (Act("ok", 0.001),)


def _plan(seed: int, records: list[RecordPlan]) -> Plan:
    return Plan(seed, (_HANDLER,), tuple(records), partitions=2, batch=500)


def _record(uid: int, at_s: float, acts: tuple[Act, ...], keys: int = 1_000) -> RecordPlan:
    key = b"key-%d" % (uid % keys)
    return RecordPlan(uid, 0, hash_of(key) % 2, key, at_s, acts)


def burst(seed: int) -> Plan:
    """6,000 records at once of which 200 never return, then 50 healthy ones a second."""
    dice = Random(f"burst {seed}")
    stuck = set(dice.sample(range(6_000), 200))
    at_once = (Act("ok"),)
    records = [_record(n, 0.0, (Act("hang"),) if n in stuck else at_once) for n in range(6_000)]
    records += [_record(6_000 + n, 0.5 + n / 50, at_once) for n in range(50 * 60)]
    return _plan(seed, records)


def partial(seed: int) -> Plan:
    """60 % of the keys fail for 60 s, at 50 records a second."""
    dice = Random(f"partial {seed}")
    failing = {n for n in range(1_000) if dice.random() < 0.6}
    down = (Act("down", 0.001, 60.0),)
    return _plan(
        seed, [_record(n, n / 50, down if n % 1_000 in failing else _OK) for n in range(50 * 90)]
    )


def restart(seed: int) -> Plan:
    """380 failed records are what a worker finds at its start; 10 % of the others fail as well."""
    dice = Random(f"restart {seed}")
    fail = (Act("fail", 0.001),)
    records = [_record(n, 0.0, fail) for n in range(380)]
    records += [
        _record(380 + n, n / 50, fail if dice.random() < 0.1 else _OK) for n in range(50 * 90)
    ]
    return _plan(seed, records)


OUTAGES: dict[str, Callable[[int], Plan]] = {
    "burst": burst,
    "partial": partial,
    "restart": restart,
}


class Waits(NamedTuple):
    """How long healthy records waited for their start, in seconds."""

    name: str
    records: int
    p50_s: float
    p99_s: float
    longest_s: float
    broken: str


def waits_in(name: str, seed: int) -> Waits:
    """Play an outage."""
    plan = OUTAGES[name](seed)
    result = play(plan)
    healthy = {record.uid for record in plan.records if not record.sick}
    waits = sorted(wait_s for uid, wait_s in result.starts_s.items() if uid in healthy)
    return Waits(
        name,
        len(waits),
        waits[len(waits) // 2],
        waits[len(waits) * 99 // 100],
        waits[-1],
        str(result.broken or ""),
    )
