"""Dead letters of other tools: what their headers say, as each of them writes it."""

from __future__ import annotations

import struct

import pytest

from ackfloor.core.records.envelope import Envelope, write_headers
from ackfloor.core.records.record import Headers
from ackfloor.dead_letters.rules.cause_groups import CauseGroups
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor.dead_letters.rules.foreign_headers import ForeignDeadLetter, read_foreign
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, Left, Order, why_left

SPRING: Headers = [
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", struct.pack(">i", 3)),
    ("kafka_dlt-original-offset", struct.pack(">q", 41_927)),
    ("kafka_dlt-original-consumer-group", b"billing"),
    ("kafka_dlt-exception-fqcn", b"org.springframework.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-cause-fqcn", b"shop.BadOrder"),
    ("kafka_dlt-exception-message", b"no such n\xc3\xa4me"),
    ("kafka_dlt-exception-stacktrace", b"at shop.Bill"),
]
CONNECT: Headers = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.offset", b"12345678"),
    ("__connect.errors.connector.name", b"sink"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", b"bad"),
    ("__connect.errors.exception.stacktrace", b"at X"),
]
KAFKA: Headers = [
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"3"),
    ("__dlq.errors.offset", b"7"),
    ("__dlq.errors.group", b"billing"),
    ("__dlq.errors.delivery.count", b"5"),
    ("__dlq.errors.message", b"gave up"),
]
KARAFKA: Headers = [
    ("source_topic", b"orders"),
    ("source_partition", b"3"),
    ("source_offset", b"8"),
    ("source_consumer_group", b"billing"),
    ("source_attempts", b"4"),
]


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (
            SPRING,
            ForeignDeadLetter("spring", "orders/3/41927", "billing", None, "shop.BadOrder",
                          "no such n\u00e4me", "at shop.Bill"),
        ),
        (
            CONNECT,
            ForeignDeadLetter("connect", "orders/3/12345678", None, "sink",
                          "org.apache.kafka.connect.errors.DataException", "bad", "at X"),
        ),
        (
            KAFKA,
            ForeignDeadLetter("kafka", "orders/3/7", "billing", error_message="gave up", attempt=5),
        ),
        (KARAFKA, ForeignDeadLetter("karafka", "orders/3/8", "billing", attempt=4)),
        ([("h", b"1")], None),
        ([("source_topic", None)], None),
        ([("kafka_dlt-original-topic", b"\xff")], ForeignDeadLetter("spring")),
        (
            [*KARAFKA[:1], ("source_partition", b"xxxx"), ("source_attempts", b"\0\0\0\1")],
            ForeignDeadLetter("karafka", "orders/2021161080"),
        ),
        (
            [*SPRING[:1], ("kafka_dlt-exception-cause-fqcn", b"\xff"),
             ("kafka_dlt-exception-fqcn", b"E"), ("kafka_dlt-original-offset", b"?")],
            ForeignDeadLetter("spring", "orders", error_type="E"),
        ),
    ],
)  # fmt: skip
def test_each_tool_is_read_in_its_own_words(
    headers: Headers, told: ForeignDeadLetter | None
) -> None:
    """Spring's numbers are binary; what can't be read is absent; the cause is preferred."""
    assert read_foreign(headers) == told
    assert read_foreign(None) is None


def letter(headers: Headers | None) -> DeadLetter:
    """A dead letter with these headers."""
    return DeadLetter("orders.DLT", 0, 5, b"k", b"v", headers, 9)


def test_they_are_grouped_and_filtered_by_cause() -> None:
    """As our own are, with the message of the latest."""
    groups = CauseGroups()
    for headers in (SPRING, SPRING, CONNECT, KAFKA, None):
        groups.add(letter(headers))
    found = [
        (each.handler, each.cause, each.count, each.message) for each in groups.largest_first()
    ]
    assert found == [
        ("", "not said", 2, ""),
        ("", "shop.BadOrder", 2, "no such n\u00e4me"),
        ("sink", "org.apache.kafka.connect.errors.DataException", 1, "bad"),
    ]
    meant = DeadLetterFilter(error="BadOrder", handler=None)
    assert [meant.matches(letter(each)) for each in (SPRING, CONNECT, None)] == [True, False, False]
    assert DeadLetterFilter(least_attempts=5).matches(letter(KAFKA))


def test_it_is_told_and_decides_nothing() -> None:
    """They still have no origin of ours; where ours are, copies for others say nothing."""
    foreign = letter(SPRING)
    assert (foreign.origin, foreign.envelope.origin_topic) == ("orders/3/41927", None)
    assert why_left(foreign, Order("orders.DLT", "source", "j", "me"), Disposed()) is Left.FOREIGN
    died = Envelope("orders", 1, 2, group="g", error_type="mine", attempt=3)
    ours = letter(write_headers(died, KARAFKA, spring=True))
    assert (ours.origin, ours.envelope) == ("orders/1/2", died)
    assert letter([("h", b"1")]).origin == ""
