"""What is read from exceptions of the client."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from ackfloor.kafka.client.client_errors import CLIENT_RAISES, error_text, kafka_error

FENCED = KafkaError(KafkaError._FENCED, "taken over", fatal=True)


def test_a_fatal_error_that_a_callback_ran_into_is_found() -> None:
    """The client raises it, gives out one more report, and Python blames the callback's call."""
    with pytest.raises(CLIENT_RAISES) as caught:
        raise SystemError("returned a result with an exception set") from KafkaException(FENCED)
    found = kafka_error(caught.value)
    assert found is not None
    assert (found.code(), found.fatal()) == (KafkaError._FENCED, True)
    assert error_text(caught.value) == "_FENCED: taken over"


def test_an_error_that_is_not_the_clients_has_none() -> None:
    """Nothing is made up."""
    assert kafka_error(SystemError("something else")) is None
    assert kafka_error(KafkaException()) is None
    assert kafka_error(ValueError(3)) is None
