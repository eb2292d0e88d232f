"""The envelope under the names of other tools: what is written, and what is replaced."""

from __future__ import annotations

import struct

import pytest

from ackfloor.core.records.envelope import (
    MESSAGE_CAP,
    STACK_CAP,
    Envelope,
    foreign_headers,
    write_headers,
)
from ackfloor.core.records.record import Headers

FAILED = Envelope(
    origin_topic="orders",
    origin_partition=3,
    origin_offset=41_927,
    origin_timestamp_ms=1_700_000_000_000,
    group="billing",
    attempt=4,
    error_type="shop.InvalidOrder",
    error_message="no such näme",
    error_stack="Traceback\n  File",
)


def named(headers: Headers, name: str) -> list[bytes | None]:
    """All values of one name."""
    return [value for found, value in headers if found == name]


def test_spring_s_names_carry_numbers_as_big_endian_binary() -> None:
    """As its DeadLetterPublishingRecoverer writes them."""
    assert foreign_headers(FAILED, spring=True, kafka=False, timestamp_type=1) == [
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", struct.pack(">i", 3)),
        ("kafka_dlt-original-offset", struct.pack(">q", 41_927)),
        ("kafka_dlt-original-timestamp", struct.pack(">q", 1_700_000_000_000)),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-original-consumer-group", b"billing"),
        ("kafka_dlt-exception-fqcn", b"shop.InvalidOrder"),
        ("kafka_dlt-exception-message", "no such näme".encode()),
        ("kafka_dlt-exception-stacktrace", b"Traceback\n  File"),
    ]


def test_kafka_s_names_are_text() -> None:
    """As a share group's dead-letter queue writes them."""
    assert foreign_headers(FAILED, spring=False, kafka=True) == [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"41927"),
        ("__dlq.errors.group", b"billing"),
        ("__dlq.errors.delivery.count", b"4"),
        ("__dlq.errors.message", "no such näme".encode()),
    ]


def test_other_tools_names_are_optional_capped_and_absent_where_ours_are() -> None:
    """Neither unless asked for; a shed stack is shed from its copy as well."""
    assert foreign_headers(FAILED, spring=False, kafka=False) == []
    assert foreign_headers(Envelope(), spring=True, kafka=True) == [
        ("__dlq.errors.delivery.count", b"0")
    ]
    large = Envelope(error_message="m" * 99_999, error_stack="s" * 99_999)
    copies = dict(foreign_headers(large, spring=True, kafka=True))
    assert len(copies["kafka_dlt-exception-message"] or b"") == MESSAGE_CAP
    assert len(copies["kafka_dlt-exception-stacktrace"] or b"") == STACK_CAP
    assert len(copies["__dlq.errors.message"] or b"") == MESSAGE_CAP


def test_a_copy_of_ours_is_replaced_and_one_that_came_with_the_record_stays() -> None:
    """What stands in front of our headers was the record's own before it was first parked."""
    own = [("kafka_dlt-original-topic", b"elsewhere"), ("__dlq.errors.offset", b"7")]
    first = write_headers(FAILED, own, spring=True, kafka=True)
    assert named(first, "kafka_dlt-original-topic") == [b"elsewhere", b"orders"]

    healed = FAILED._replace(error_message=None, attempt=5)
    again = write_headers(healed, first, spring=True, kafka=True)

    assert named(again, "kafka_dlt-original-topic") == [b"elsewhere", b"orders"]
    assert named(again, "__dlq.errors.offset") == [b"7", b"41927"]
    assert named(again, "__dlq.errors.delivery.count") == [b"5"]
    assert named(again, "kafka_dlt-exception-message") == []
    assert named(again, "__dlq.errors.message") == []


def test_copies_are_touched_only_while_their_option_is_on() -> None:
    """Without it, a header of that name is as foreign as any other."""
    parked = write_headers(FAILED, (), spring=True, kafka=True)
    spring_only = write_headers(FAILED._replace(attempt=9), parked, spring=True)

    assert named(spring_only, "__dlq.errors.delivery.count") == [b"4"]
    assert named(spring_only, "kafka_dlt-original-topic") == [b"orders"]
    assert named(write_headers(FAILED, parked), "kafka_dlt-original-topic") == [b"orders"]


def test_a_name_under_another_tool_s_prefix_that_we_never_write_stays() -> None:
    """Spring's cause class, put there by a bridge behind our headers."""
    parked = [*write_headers(FAILED, ()), ("kafka_dlt-exception-cause-fqcn", b"X")]

    assert named(write_headers(FAILED, parked, spring=True), "kafka_dlt-exception-cause-fqcn") == [
        b"X"
    ]


@pytest.mark.parametrize(
    ("code", "expected"), [(0, []), (1, [b"CreateTime"]), (2, [b"LogAppendTime"])]
)
def test_the_timestamp_type_is_the_origin_s(code: int, expected: list[bytes]) -> None:
    """Taken from the record when it is first parked, kept when it comes out of a tier."""
    first = write_headers(FAILED, (), spring=True, timestamp_type=code)
    later = write_headers(FAILED, first, spring=True, timestamp_type=1)

    assert named(first, "kafka_dlt-original-timestamp-type") == expected
    assert named(later, "kafka_dlt-original-timestamp-type") == expected
