"""Broadcast mode: what differs for handlers and settings where every worker reads every record.

There is no group: nothing is committed, nobody else takes over, and a worker reads from the
log's end as of its start. So a retry topic could not say whose retry it holds, and a failed
record waits in place, in the worker where it failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ackfloor.core.values.rates import format_rate
from ackfloor.declare.registration import HandlerSpec, settings_key
from ackfloor.errors import ConfigError

if TYPE_CHECKING:
    from ackfloor.settings import Settings


def in_broadcast(spec: HandlerSpec) -> HandlerSpec:
    """A handler as it is in broadcast mode: it retries in place.

    Raises:
        ConfigError: it asks for retry topics, for a rate, or for topics by a pattern.
    """
    if spec.on_failure != "block" and "on_failure" in spec.given:
        raise ConfigError(
            f"handlers.{spec.name}.on_failure",
            spec.on_failure,
            "there are no retry topics in broadcast mode: they could not tell whose retry it is",
            'leave it out: the policy is followed in place, as with on_failure="block"',
        )
    if spec.rate_per_s is not None:
        raise rate_refused(spec)
    if spec.exactly_once:
        raise ConfigError(
            f"handlers.{spec.name}.output",
            spec.output,
            "nothing is committed in broadcast mode, so there is nothing to write an output with",
            "leave it out, and use `await app.publish(...)`",
        )
    if spec.patterns:
        raise ConfigError(
            f"handlers.{spec.name}.topics",
            spec.patterns[0],
            "in broadcast mode a worker reads from the end as of its start and commits nothing, so "
            "what is in a topic that it finds later would be missed",
            "name each topic",
        )
    return replace(spec, on_failure="block")


def rate_refused(spec: HandlerSpec, source: str = "") -> ConfigError:
    """Why a handler has no rate in broadcast mode."""
    return ConfigError(
        f"handlers.{spec.name}.rate",
        format_rate(spec.rate_per_s or 0.0),
        "in broadcast mode each worker handles every record, and none knows how many workers there "
        "are: no part of a rate for all of them is its own",
        "leave it out, and limit what the function does itself",
        source=source,
    )


def check_settings(settings: Settings, handlers: Iterable[HandlerSpec] = ()) -> None:
    """Refuse settings that mean nothing in broadcast mode.

    Args:
        settings: what was loaded.
        handlers: the handlers with what it says of them.

    Raises:
        ConfigError: names the setting and where it came from.
    """
    for spec in handlers:
        if spec.rate_per_s is not None:
            rate = settings.assigned_to(f"handlers.{settings_key(spec.name)}.rate")
            raise rate_refused(spec, "" if rate is None else rate.source)
    if settings.app.start != "latest":
        given = settings.assigned_to("app.start")
        if given is not None:
            raise ConfigError(
                "app.start",
                settings.app.start,
                "in broadcast mode every worker reads from the end, as of its start",
                'leave it out, or set "latest"',
                source=given.source,
            )
    if settings.app.static_membership:
        given = settings.assigned_to("app.static_membership")
        raise ConfigError(
            "app.static_membership",
            settings.app.static_membership,
            "there is no group in broadcast mode to be a member of",
            "leave it out, or set false",
            source="" if given is None else given.source,
        )
    if settings.app.transactional:
        given = settings.assigned_to("app.parking")
        raise ConfigError(
            "app.parking",
            settings.app.parking,
            "nothing is committed in broadcast mode, so there is nothing to write with a park",
            'leave it out, or set "at_least_once"',
            source="" if given is None else given.source,
        )
