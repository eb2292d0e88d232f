"""Redrives: a test's dead letters go back to work, by the rules of `ackfloor dlq replay`."""

from __future__ import annotations

from ackfloor.core.records.record import Origin
from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor.dead_letters.rules.redrive_rules import (
    DeadLetter,
    Order,
    Target,
    in_order,
    redriven_headers,
    target_partition,
    target_topic,
    why_left,
)
from ackfloor.testing.memory.memory_broker import MemoryBroker


class Redrives:
    """Sends dead letters of a broker in memory, each once.

    Args:
        broker: where they are, and where they go.
    """

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._sent: set[Origin] = set()

    def send(self, dlq: str, to: str) -> int:
        """Send what may go, in the order of the source; returns how many were sent.

        Args:
            dlq: the dead-letter topic.
            to: "retry", "source", or the name of a topic.

        Raises:
            SettingError: there is no such topic, or nothing reads it.
        """
        broker = self._broker
        order = Order(dlq, to, "harness", "harness")
        topic = target_topic(order, broker.topics)
        target = Target(topic, broker.topics[topic], to)
        now_ms = broker.clock.now().wall_ms
        wanted = [
            DeadLetter(dlq, r.partition(), r.offset(), r.key(), r.value(), r.headers())
            for r in broker.records(dlq)
            if Origin(dlq, r.partition(), r.offset()) not in self._sent
        ]
        sent = [d for d in in_order(wanted) if why_left(d, order, Disposed()) is None]
        for dead_letter in sent:
            broker.produce(
                topic,
                dead_letter.value,
                key=dead_letter.key,
                headers=redriven_headers(dead_letter, now_ms),
                partition=target_partition(dead_letter, target),
            )
            self._sent.add(Origin(dlq, dead_letter.partition, dead_letter.offset))
        return len(sent)
