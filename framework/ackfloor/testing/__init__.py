"""Testing: a real local Kafka, and a harness that needs no broker.

Names resolve on first use, so importing this package loads neither Java nor a Kafka client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackfloor.testing.kit.driver import Unsettled
    from ackfloor.testing.kit.harness import Harness
    from ackfloor.testing.kit.harness_factory import HarnessFactory
    from ackfloor.testing.kit.manual_event_loop import ManualEventLoop
    from ackfloor.testing.kit.observations import (
        HandledRecord,
        ParkedRecord,
        QuarantinedKey,
        SeenRecord,
        Trouble,
    )
    from ackfloor.testing.kit.schema_registry import SchemaRegistry
    from ackfloor.testing.local_kafka.bootstrap import Broker, open_broker
    from ackfloor.testing.local_kafka.cluster import KafkaCluster
    from ackfloor.testing.memory.manual_clock import ManualClock
    from ackfloor.testing.memory.memory_broker import MemoryBroker
    from ackfloor.testing.memory.memory_client import MemorySink, MemorySource

_HOMES = {
    "Broker": "ackfloor.testing.local_kafka.bootstrap",
    "HandledRecord": "ackfloor.testing.kit.observations",
    "Harness": "ackfloor.testing.kit.harness",
    "HarnessFactory": "ackfloor.testing.kit.harness_factory",
    "KafkaCluster": "ackfloor.testing.local_kafka.cluster",
    "ManualClock": "ackfloor.testing.memory.manual_clock",
    "ManualEventLoop": "ackfloor.testing.kit.manual_event_loop",
    "MemoryBroker": "ackfloor.testing.memory.memory_broker",
    "MemorySink": "ackfloor.testing.memory.memory_client",
    "MemorySource": "ackfloor.testing.memory.memory_client",
    "ParkedRecord": "ackfloor.testing.kit.observations",
    "QuarantinedKey": "ackfloor.testing.kit.observations",
    "SchemaRegistry": "ackfloor.testing.kit.schema_registry",
    "SeenRecord": "ackfloor.testing.kit.observations",
    "Trouble": "ackfloor.testing.kit.observations",
    "Unsettled": "ackfloor.testing.kit.driver",
    "open_broker": "ackfloor.testing.local_kafka.bootstrap",
}

__all__ = [
    "Broker",
    "HandledRecord",
    "Harness",
    "HarnessFactory",
    "KafkaCluster",
    "ManualClock",
    "ManualEventLoop",
    "MemoryBroker",
    "MemorySink",
    "MemorySource",
    "ParkedRecord",
    "QuarantinedKey",
    "SchemaRegistry",
    "SeenRecord",
    "Trouble",
    "Unsettled",
    "open_broker",
]


if not TYPE_CHECKING:
    # A type checker that saw this would accept every misspelt name.
    def __getattr__(name: str) -> object:
        try:
            home = _HOMES[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
