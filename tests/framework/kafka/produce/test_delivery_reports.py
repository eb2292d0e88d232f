"""Which delivery reports are believed.

How the client comes to call a record written that is nowhere can be watched, but not forced: it
takes a topic that is replaced between two requests. `make soak` does it.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import KafkaError, Message

import ackfloor.dead_letters.kafka
import ackfloor.kafka.produce
from ackfloor.kafka.produce.delivery_reports import failure


def test_a_report_without_an_offset_is_a_failure() -> None:
    """Nobody but the client says that the record is written; the producer is still good."""
    error = failure(None, Message(topic="t", partition=0))
    assert error is not None
    assert error.code() == KafkaError._NO_OFFSET
    assert not error.fatal()


def test_a_report_with_an_offset_or_an_error_is_taken_as_it_is() -> None:
    """The first record of a log has the offset 0."""
    assert failure(None, Message(topic="t", partition=0, offset=0)) is None
    refused = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    assert failure(refused, Message(topic="t", partition=0)) is refused


def test_everything_that_writes_asks_what_its_reports_are_worth() -> None:
    """A new writer would believe the client."""
    packages = (ackfloor.kafka, ackfloor.dead_letters.kafka)
    files = [file for each in packages for file in Path(*each.__path__).rglob("*.py")]
    writers = [file for file in files if "on_delivery=" in file.read_text()]
    believing = [
        file.name for file in writers if "= failure(error, message)" not in file.read_text()
    ]
    assert len(writers) == 3
    assert believing == []
    assert (
        "= failure(error, message)"
        in Path(*ackfloor.kafka.produce.__path__, "transactional_producer.py").read_text()
    )
