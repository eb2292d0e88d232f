"""Exactly-once output: what `output="exactly_once"` asks of a handler and of the app's settings.

What such a handler publishes through its delivery is written in one Kafka transaction with the
commit that settles its record. So the worker needs a transactional producer, which transactional
parking has: that is implied, and the opposite is refused where somebody has asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ackfloor.declare.registration import HandlerSpec
from ackfloor.errors import ConfigError
from ackfloor.settings import Settings


def with_transactions(settings: Settings, handlers: Iterable[HandlerSpec]) -> Settings:
    """The settings, with the parking that the handlers imply.

    Raises:
        ConfigError: another parking was asked for.
    """
    needing = next((spec.name for spec in handlers if spec.exactly_once), None)
    if needing is None or settings.app.transactional:
        return settings
    given = settings.assigned_to("app.parking")
    if given is not None:
        raise ConfigError(
            "app.parking",
            settings.app.parking,
            f'handler {needing!r} has output="exactly_once", which writes in transactions',
            f'leave it out, set "transactional", or drop output= of {needing!r}',
            source=given.source,
        )
    app = settings.app.model_copy(update={"parking": "transactional"})
    return settings.model_copy(update={"app": app})
