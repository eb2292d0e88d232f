"""Publishing outside a worker: opens the publisher that `App.publishing` publishes through.

It is the publisher of a worker, with a worker's settings and its spans. It touches nothing else of
its process: no signal, no logging, no garbage collector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ackfloor.declare.encoders import Encoders
from ackfloor.declare.publishers import Way
from ackfloor.runtime.calls.tracing import spans_of
from ackfloor.settings import Settings, sections_of

if TYPE_CHECKING:
    from ackfloor.ports import Publisher


def open_way(group: str, options: Mapping[str, object]) -> Way:
    """A way to Kafka; connects when it is first used.

    Args:
        group: the app's group, which spans name.
        options: the app's options; file and environment override them.

    Raises:
        ConfigError: a setting is refused.
    """
    from ackfloor.kafka.client.client_options import KafkaOptions
    from ackfloor.kafka.produce.publisher import KafkaPublisher

    settings = Settings.load(sections_of(group, options))
    publisher: Publisher = KafkaPublisher(KafkaOptions.of(settings.kafka, "publishing"))
    spans = spans_of(group, settings.redaction.rules())
    if spans is not None:
        publisher = spans.publisher(publisher)
    return Way(publisher, Encoders(settings.registry))
