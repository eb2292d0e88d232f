"""Delivery reports: a record counts as written only if the report has its offset.

An idempotent producer relies on a log that never loses its sequence. Where a request failed and a
later one for the same partition was taken, librdkafka concludes that the first was written all the
same, and reports its records as delivered, without an offset ("implicitly persisted" in
`rdkafka_request.c`). Where the topic was deleted and created anew in between, that is false: the
new log takes any sequence, and the records are nowhere.

So a report without an offset counts as a failure here. Mostly the record was written and is now
written twice; sometimes it was lost, and twice is better than never.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, Message


def failure(error: KafkaError | None, message: Message) -> KafkaError | None:
    """Why a reported record does not count as written; None if it does."""
    if error is None and message.offset() is None:
        return KafkaError(
            KafkaError._NO_OFFSET,  # noqa: SLF001
            "the client takes it for written, but no broker has said so",
        )
    return error
