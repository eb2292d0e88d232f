"""Broadcast mode: what differs for handlers and settings where every worker reads every record.

There is no group: nothing is committed, nobody else takes over, and a worker reads from the
log's end as of its start. So a retry topic could not say whose retry it holds, and a failed
record waits in place, in the worker where it failed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ackfloor.declare.registration import HandlerSpec
from ackfloor.errors import ConfigError

if TYPE_CHECKING:
    from ackfloor.settings import Settings


def in_broadcast(spec: HandlerSpec) -> HandlerSpec:
    """A handler as it is in broadcast mode: it retries in place.

    Raises:
        ConfigError: it asks for retry topics.
    """
    if spec.on_failure != "block" and "on_failure" in spec.given:
        raise ConfigError(
            f"handlers.{spec.name}.on_failure",
            spec.on_failure,
            "there are no retry topics in broadcast mode: they could not tell whose retry it is",
            'leave it out: the policy is followed in place, as with on_failure="block"',
        )
    return replace(spec, on_failure="block")


def check_settings(settings: Settings) -> None:
    """Refuse settings that mean nothing in broadcast mode.

    Raises:
        ConfigError: names the setting and where it came from.
    """
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
