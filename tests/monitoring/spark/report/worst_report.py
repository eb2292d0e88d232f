"""The largest report that a history can make: each text of it an attack, or as long as it gets."""

from __future__ import annotations

from dataclasses import replace

from ackfloor_monitoring.spark.report.answer import Report, Sample
from ackfloor_monitoring.spark.report.build import MOST_GROUPS, MOST_KEYS
from tests.monitoring.spark.report.hostile_history import ATTACKS
from tests.monitoring.spark.report.samples import DAYS, FAR, REPORT


def _worst() -> Report:
    """Quotes are what takes most bytes on a page, and 249 are as many as a name may have."""
    quotes, long = '"' * 249, "\x00" * 60_000
    names = [*ATTACKS, *(f"{quotes[:-4]}{n:04}" for n in range(500)), long]
    sample = Sample("t" * 249, 1, 2, quotes)
    groups = tuple(
        replace(
            REPORT.failure_groups[0], group="g" * 249, handler=name, cause=name, error_type=name,
            sample=sample, releases=(name,) * 9, trend=tuple(range(97)),
        )
        for name in names
    )[:MOST_GROUPS]  # fmt: skip
    return replace(
        FAR,
        table=long,
        groups=tuple(names),
        buckets=DAYS,
        over_time=tuple(replace(REPORT.over_time[0], handler=each, reason=each) for each in names),
        failure_groups=groups,
        new=groups,
        since_release=long,
        funnel=tuple(
            replace(REPORT.funnel[0], handler=name, attempt=attempt, tiers=("1" * 200 + "s",) * 9)
            for name in names
            for attempt in range(1, 40)
        ),
        times=tuple(replace(REPORT.times[0], handler=name) for name in names),
        hot_keys=tuple(replace(REPORT.hot_keys[0], key=name) for name in names[:MOST_KEYS]),
        hot_partitions=tuple(replace(REPORT.hot_partitions[0], topic=name) for name in names),
        traffic=tuple(replace(REPORT.traffic[0], topic=name) for name in names),
        handlers=tuple(replace(REPORT.handlers[0], handler=name) for name in names),
        replays=tuple(replace(REPORT.replays[0], handler=name) for name in names),
        far=tuple(replace(each, topic="t" * 249) for each in FAR.far),
    )


WORST = _worst()
