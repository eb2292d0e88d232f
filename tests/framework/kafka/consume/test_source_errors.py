"""Errors that a consumer reports in place of a record: whose they are, and of which topic."""

from __future__ import annotations

import logging
from typing import cast

import pytest
from confluent_kafka import KafkaError, Message

from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.consume.source import KafkaSource


class ErrorMessage:
    """What the client hands out where a fetch fails."""

    def __init__(self, topic: str | None, partition: int) -> None:
        self._topic, self._partition = topic, partition

    def topic(self) -> str | None:
        """Where it belongs; None where it is the client's own."""
        return self._topic

    def partition(self) -> int:
        """Where it belongs."""
        return self._partition


def test_a_topic_that_may_not_be_read_is_one_line_that_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client's text names a broker only; each partition reports it again."""
    source = KafkaSource(KafkaOptions({"bootstrap.servers": "127.0.0.1:1"}), "billing")
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Fetch from broker 1 failed")
    caplog.set_level(logging.WARNING)
    for topic in ("orders", "orders", "payments"):
        for partition in range(3):
            source._erred(denied, cast(Message, ErrorMessage(topic, partition)))
    lines = [r.getMessage() for r in caplog.records if r.name == "ackfloor.kafka"]
    text = "TOPIC_AUTHORIZATION_FAILED: Fetch from broker 1 failed"
    assert lines == [f"consumer of group billing: {t}: {text}" for t in ("orders", "payments")]


def test_an_error_of_no_topic_names_the_group(caplog: pytest.LogCaptureFixture) -> None:
    """A host may run the workers of several."""
    source = KafkaSource(KafkaOptions({"bootstrap.servers": "127.0.0.1:1"}), "billing")
    down = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    source._erred(down, cast(Message, ErrorMessage(None, -1)))
    (line,) = [r.getMessage() for r in caplog.records if r.name == "ackfloor.kafka"]
    assert line == "consumer of group billing: _ALL_BROKERS_DOWN: 1/1 brokers are down"
