"""Requests to a group's coordinator, repeated while it is being found, moves or loads."""

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
    """Ask, and ask again while the coordinator is not ready; returns the answer.

    Args:
        within_s: how long to repeat the request; each one has a time limit of its own.

    Raises:
        KafkaException: there is no answer, or the request is refused.
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
