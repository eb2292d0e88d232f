"""What the doctor says of circuit breakers: where one opens later than it is meant to, or never.

A breaker opens when enough different records have failed in a row. Without redeliveries each of
them is dead-lettered until then. And where a partition waits for its first record, no more records
than partitions fail until one of them is given up. How many keys a topic has is not known
beforehand, so of `ordering="key"` nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ackfloor.core.values.doctor_result import CheckResult
from ackfloor.core.values.durations import format_duration
from ackfloor.declare.registration import HandlerSpec


def of_policies(specs: Sequence[HandlerSpec]) -> Iterator[CheckResult]:
    """Each handler whose failures go to the dead-letter topic without another attempt."""
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
    """Each handler whose partitions are fewer than the failures that open its breaker.

    Args:
        specs: the handlers, settings applied.
        partitions: topic -> how many it has, of those that are there.
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
