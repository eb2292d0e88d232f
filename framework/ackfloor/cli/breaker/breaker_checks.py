"""The doctor's checks of circuit breakers: finds those that open too late, or never.

A breaker opens when enough different records have failed in a row. Without redeliveries each of
these is dead-lettered until then. If failures block their partition, at most one record for each
partition fails until one is given up. The number of keys of a topic is not known, so
`ordering="key"` is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ackfloor.core.values.doctor_result import CheckResult
from ackfloor.core.values.durations import format_duration

if TYPE_CHECKING:
    from ackfloor.declare.registration import HandlerSpec


def of_policies(specs: Sequence[HandlerSpec]) -> Iterator[CheckResult]:
    """Warn of each handler whose failures are dead-lettered without another attempt."""
    for spec in specs:
        if not spec.breaker.enabled or spec.retry.max_redeliveries != 0:
            continue
        if spec.breaker.failures == 1:
            continue  # The failure that opens it is withheld.
        text = (
            "retry.max_redeliveries=0: up to "
            f"{_counts(spec, 1)} go to the dead-letter topic before it opens"
        )
        fix = (
            f"set handlers.{spec.name}.retry.max_redeliveries to 1 or more, or "
            f"handlers.{spec.name}.breaker.failures lower"
        )
        yield CheckResult(f"breaker of {spec.name}", "warn", text, fix)


def of_partitions(
    specs: Sequence[HandlerSpec], partitions: Mapping[str, int]
) -> Iterator[CheckResult]:
    """Warn of each handler with fewer partitions than failures that open its breaker.

    Args:
        specs: the handlers, settings applied.
        partitions: topic -> number of partitions, of existing topics.
    """
    for spec in specs:
        lanes = sum(partitions.get(topic, 0) for topic in spec.topics)
        in_lanes = spec.ordering == "partition" and spec.in_place
        few = 0 < lanes < spec.breaker.quiet_failures
        if not (spec.breaker.enabled and in_lanes and few):
            continue
        text = (
            f'ordering="partition" with on_failure="block": of {lanes} partitions no more than '
            f"{lanes} different records fail until one is given up"
        )
        if spec.retry.max_redeliveries is None:
            text += f", which is never; so it never opens (quiet_failures={_quiet(spec)})"
        else:
            text += f"; so at least {_counts(spec, lanes)} go to the dead-letter topic before"
        fix = f"set handlers.{spec.name}.breaker.quiet_failures to {lanes} or less"
        yield CheckResult(f"breaker of {spec.name}", "warn", text, fix)


def _counts(spec: HandlerSpec, less: int = 0) -> str:
    breaker = spec.breaker
    quiet = format_duration(breaker.quiet_after_s)
    return (
        f"{breaker.failures - less} records ({_quiet(spec) - less} where nothing has succeeded "
        f"for {quiet})"
    )


def _quiet(spec: HandlerSpec) -> int:
    return spec.breaker.quiet_failures
