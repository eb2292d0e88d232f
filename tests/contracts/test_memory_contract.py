"""The in-memory broker keeps the contracts of Source and Sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Literal

import pytest

from ackfloor.core.records.record import Record
from ackfloor.testing import MemoryBroker, MemorySink, MemorySource
from ackfloor.testing.memory.memory_broadcast import MemoryBroadcastSource
from ackfloor.testing.memory.memory_transactions import MemoryTransactionalSink
from tests.contracts.broadcast_contract import BroadcastContract, BroadcastWorld
from tests.contracts.parked_contract import ParkedContract, ParkedWorld, Waiting
from tests.contracts.sink_contract import SinkContract
from tests.contracts.source_contract import SourceContract
from tests.contracts.transaction_contract import TransactionContract, TransactionWorld


class MemoryWorld(BroadcastWorld, ParkedWorld, TransactionWorld):
    """A broker in memory."""

    def __init__(self) -> None:
        self._broker = MemoryBroker()
        self._numbers = count()

    def create_topic(self, partitions: int = 1, most_bytes: int | None = None) -> str:
        topic = f"t{next(self._numbers)}"
        self._broker.create_topic(topic, partitions)
        self._broker.limit_size(topic, most_bytes)
        return topic

    def produce(self, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
        for value in values:
            self._broker.produce(topic, value, partition=partition)

    def leave_hole(self, topic: str) -> None:
        self._broker.skip_offsets(topic)

    def trim(self, topic: str, start: int) -> None:
        self._broker.trim(topic, 0, start)

    def commit(self, group: str, topic: str, position: int) -> None:
        self._broker.commit(group, topic, 0, position)

    def committed(self, group: str, topic: str, partition: int = 0) -> tuple[int, str] | None:
        return self._broker.committed(group, topic, partition)

    def new_group(self) -> str:
        return f"g{next(self._numbers)}"

    def source(self, group: str, start: Literal["earliest", "latest"] = "earliest") -> MemorySource:
        return MemorySource(self._broker, group, start=start)

    def quarantining_source(self, group: str, sources: Mapping[str, str]) -> MemorySource:
        return MemorySource(self._broker, group, quarantined_topics=sources)

    def park(self, topic: str, records: Sequence[Waiting], partition: int = 0) -> None:
        for key, headers in records:
            self._broker.produce(topic, b"v", key=key, headers=headers, partition=partition)

    def broadcast_source(self, group: str) -> MemoryBroadcastSource:
        return MemoryBroadcastSource(self._broker, group)

    def add_partitions(self, topic: str, count: int) -> None:
        self._broker.create_topic(topic, count)

    def missing_topic(self) -> str:
        return "missing"

    def records(self, topic: str) -> Sequence[Record]:
        return self._broker.records(topic)

    def sink(self) -> MemorySink:
        return MemorySink(self._broker)

    def transactional_sink(self, group: str) -> MemoryTransactionalSink:
        return MemoryTransactionalSink(self._broker, group)


@pytest.fixture
def memory_world() -> MemoryWorld:
    """A broker in memory."""
    return MemoryWorld()


class TestMemorySource(SourceContract):
    """MemorySource keeps the contract."""

    @pytest.fixture
    def world(self, memory_world: MemoryWorld) -> MemoryWorld:  # type: ignore[override]
        """A broker in memory."""
        return memory_world


class TestMemoryParked(ParkedContract):
    """MemorySource keeps the contract."""

    @pytest.fixture
    def world(self, memory_world: MemoryWorld) -> MemoryWorld:  # type: ignore[override]
        """A broker in memory."""
        return memory_world


class TestMemorySink(SinkContract):
    """MemorySink keeps the contract."""

    @pytest.fixture
    def world(self, memory_world: MemoryWorld) -> MemoryWorld:  # type: ignore[override]
        """A broker in memory."""
        return memory_world


class TestMemoryBroadcast(BroadcastContract):
    """MemoryBroadcastSource keeps the contract."""

    @pytest.fixture
    def world(self) -> MemoryWorld:  # type: ignore[override]
        """A broker of this test's own."""
        return MemoryWorld()


class TestMemoryTransactionalSink(TransactionContract):
    """MemoryTransactionalSink keeps the contract."""

    @pytest.fixture
    def world(self, memory_world: MemoryWorld) -> MemoryWorld:  # type: ignore[override]
        """A broker in memory."""
        return memory_world
