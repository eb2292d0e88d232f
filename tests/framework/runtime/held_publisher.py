"""A publisher of a worker that writes nothing before a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ackfloor import App, PublishFailed
from ackfloor.core.records.record import Headers
from ackfloor.testing.memory.memory_broker import MemoryPublisher
from tests.framework.runtime.live import Live


class HeldPublisher:
    """Writes nothing before it is told to."""

    def __init__(self, worker: Live, app: App) -> None:
        self._inner = MemoryPublisher(worker.broker, create_topics=True)
        self._held: list[tuple[Any, ...]] = []
        app.attach(self, worker.worker._publishes.confirmed)

    def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        on_done: Callable[[BaseException | None], None],
        partition: int | None = None,
    ) -> None:
        """Keep it."""
        self._held.append((topic, value, key, headers, on_done, partition))

    @property
    def count(self) -> int:
        """How many writes are held."""
        return len(self._held)

    def release(self) -> None:
        """Write all."""
        while self._held:
            self._inner.publish(*self._held.pop(0))

    def refuse(self) -> None:
        """Fail all."""
        while self._held:
            self._held.pop(0)[4](PublishFailed("no leader"))

    def close(self, timeout_s: float) -> None:
        """Nothing is left to do."""
