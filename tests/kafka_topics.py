"""Topics that a test leaves behind."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient


def delete_topics(admin: AdminClient, names: Iterable[str]) -> None:
    """Delete those of them that are still there."""
    left = list(names)
    # The client refuses to be asked for none.
    for future in admin.delete_topics(left).values() if left else ():
        try:
            future.result(60)
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
