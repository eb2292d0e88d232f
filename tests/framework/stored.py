"""A record of a topic, without a broker that has it."""

from __future__ import annotations

from dataclasses import dataclass

from ackfloor.core.records.record import Headers


@dataclass
class Stored:
    """A record as Kafka gives it."""

    data: bytes | None
    of: str = "orders"
    head: Headers | None = None

    def topic(self) -> str:
        return self.of

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return self.data

    def headers(self) -> Headers | None:
        return self.head

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)

    def __len__(self) -> int:
        return len(self.data or b"")
