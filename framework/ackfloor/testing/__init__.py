"""What users test with: a real local Kafka, and the kit that needs no broker at all.

Names resolve on first use, so importing this package loads neither Java nor a Kafka client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackfloor.testing.bootstrap import Broker, open_broker
    from ackfloor.testing.clock import ManualClock
    from ackfloor.testing.cluster import KafkaCluster
    from ackfloor.testing.driver import Unsettled
    from ackfloor.testing.event_loop import ManualEventLoop
    from ackfloor.testing.harness import Harness
    from ackfloor.testing.memory import MemoryBroker
    from ackfloor.testing.memory_client import MemorySink, MemorySource
    from ackfloor.testing.schema_registry import SchemaRegistry
    from ackfloor.testing.witness import HandledRecord, ParkedRecord, SeenRecord, Trouble

_HOMES = {
    "Broker": "ackfloor.testing.bootstrap",
    "HandledRecord": "ackfloor.testing.witness",
    "Harness": "ackfloor.testing.harness",
    "KafkaCluster": "ackfloor.testing.cluster",
    "ManualClock": "ackfloor.testing.clock",
    "ManualEventLoop": "ackfloor.testing.event_loop",
    "MemoryBroker": "ackfloor.testing.memory",
    "MemorySink": "ackfloor.testing.memory_client",
    "MemorySource": "ackfloor.testing.memory_client",
    "ParkedRecord": "ackfloor.testing.witness",
    "SchemaRegistry": "ackfloor.testing.schema_registry",
    "SeenRecord": "ackfloor.testing.witness",
    "Trouble": "ackfloor.testing.witness",
    "Unsettled": "ackfloor.testing.driver",
    "open_broker": "ackfloor.testing.bootstrap",
}

__all__ = [
    "Broker",
    "HandledRecord",
    "Harness",
    "KafkaCluster",
    "ManualClock",
    "ManualEventLoop",
    "MemoryBroker",
    "MemorySink",
    "MemorySource",
    "ParkedRecord",
    "SchemaRegistry",
    "SeenRecord",
    "Trouble",
    "Unsettled",
    "open_broker",
]


if not TYPE_CHECKING:
    # A type checker that saw this would take every misspelt name for one of these.
    def __getattr__(name: str) -> object:
        try:
            home = _HOMES[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
