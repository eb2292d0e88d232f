"""The core's nouns that do more than hold values."""

from __future__ import annotations

from ackfloor.core.records.record import Headless
from tests.framework.core.worlds import START_MS, MemoryRecord


def test_a_headless_record_is_the_record_without_its_headers() -> None:
    """Everything else passes through, and the headers are never asked for again."""

    class Unreadable(MemoryRecord):
        def headers(self) -> None:
            raise AssertionError

    record = Headless(Unreadable("orders", 3, 9, b"value", b"key"))
    assert (record.topic(), record.partition(), record.offset()) == ("orders", 3, 9)
    assert (record.key(), record.value(), len(record)) == (b"key", b"value", 5)
    assert (record.timestamp(), record.leader_epoch()) == ((1, START_MS), 0)
    assert record.headers() is None
