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
    from ackfloor.testing.memory import MemoryBroker
    from ackfloor.testing.memory_client import MemorySink, MemorySource

_HOMES = {
    "Broker": "ackfloor.testing.bootstrap",
    "KafkaCluster": "ackfloor.testing.cluster",
    "ManualClock": "ackfloor.testing.clock",
    "MemoryBroker": "ackfloor.testing.memory",
    "MemorySink": "ackfloor.testing.memory_client",
    "MemorySource": "ackfloor.testing.memory_client",
    "open_broker": "ackfloor.testing.bootstrap",
}

__all__ = [
    "Broker",
    "KafkaCluster",
    "ManualClock",
    "MemoryBroker",
    "MemorySink",
    "MemorySource",
    "open_broker",
]


def __getattr__(name: str) -> object:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
