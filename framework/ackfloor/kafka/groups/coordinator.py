"""Questions to a group's coordinator, asked again while it is found, moves or loads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from ackfloor.kafka.client.client_errors import kafka_error

Answer = TypeVar("Answer")

AGAIN_S = 0.2
PASSING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


def coordinated(ask: Callable[[], Answer], within_s: float) -> Answer:
    """The answer.

    Args:
        within_s: so long the question is asked again; each one is bounded by itself.

    Raises:
        KafkaException: there is no answer, or it is a no.
    """
    until_s = time.monotonic() + within_s
    while True:
        try:
            return ask()
        except KafkaException as exc:
            error = kafka_error(exc)
            if error is None or error.code() not in PASSING or time.monotonic() >= until_s:
                raise
        time.sleep(AGAIN_S)
