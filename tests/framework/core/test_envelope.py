"""Envelope: headers survive any record, never grow, and shed in order."""

from __future__ import annotations

import struct
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core import envelope as names
from ackfloor.core.envelope import (
    HEADERS,
    MESSAGE_CAP,
    PREFIX,
    STACK_CAP,
    Envelope,
    Reason,
    fingerprint,
    foreign_headers,
    read_envelope,
    shed,
    write_headers,
)
from ackfloor.core.model import Headers

FULL = Envelope(
    origin_topic="orders",
    origin_partition=3,
    origin_offset=41_927,
    origin_timestamp_ms=1_700_000_000_000,
    group="billing",
    handler="bill",
    attempt=4,
    failures=3,
    timeouts=1,
    reason=Reason.EXHAUSTED,
    error_type="shop.InvalidOrder",
    error_message="no such näme",
    error_stack="Traceback\n  File",
    error_fingerprint="0123456789abcdef",
    first_failed_at_ms=1_700_000_001_000,
    failed_at_ms=1_700_000_009_000,
    not_before_ms=1_700_000_010_000,
    retry_at_ms=1_700_000_020_000,
    duration_ms=250,
    release="v1.2",
    worker="host-0",
    replays=2,
    truncated="stack",
)
#: Any header a record may have: odd names, no value, bytes that are no text, names of others.
strange = st.tuples(
    st.text(max_size=8)
    | st.sampled_from(["traceparent", "kafka_dlt-original-topic", "__dlq.errors.group", ""]),
    st.none() | st.binary(max_size=8),
).filter(lambda header: not header[0].startswith(PREFIX))
ours = st.tuples(
    st.sampled_from([*HEADERS, "ackfloor.later"]),
    st.none() | st.binary(max_size=24) | st.integers().map(lambda n: str(n).encode()),
)
texts = st.none() | st.text(max_size=40)
times = st.none() | st.integers(-1, 10**15)
counts = st.integers(0, 10**6)
envelopes = st.builds(
    Envelope,
    origin_topic=texts,
    origin_partition=st.none() | st.integers(0, 2**31 - 1),
    origin_offset=st.none() | st.integers(0, 10**17),
    origin_timestamp_ms=times,
    group=texts,
    handler=texts,
    attempt=counts,
    failures=counts,
    timeouts=counts,
    reason=st.none() | st.sampled_from(Reason),
    error_type=texts,
    error_message=texts,
    error_stack=texts,
    error_fingerprint=texts,
    first_failed_at_ms=times,
    failed_at_ms=times,
    not_before_ms=times,
    retry_at_ms=times,
    duration_ms=st.none() | counts,
    release=texts,
    worker=texts,
    replays=counts,
    truncated=texts,
)


def named(headers: Headers, name: str) -> list[bytes | None]:
    """All values of one name."""
    return [value for found, value in headers if found == name]


def test_the_headers_are_those_of_the_contract() -> None:
    """Names are part of the public surface: readers and Spark jobs depend on them."""
    assert [name.removeprefix(PREFIX) for name in HEADERS] == [
        "origin.topic",
        "origin.partition",
        "origin.offset",
        "origin.timestamp",
        "group",
        "handler",
        "attempt",
        "failures",
        "timeouts",
        "reason",
        "error.type",
        "error.message",
        "error.stack",
        "error.fingerprint",
        "first_failed_at",
        "failed_at",
        "not_before",
        "retry_at",
        "duration_ms",
        "release",
        "worker",
        "replays",
        "truncated",
    ]
    constants = [value for name, value in vars(names).items() if name.isupper()]
    assert all(name in constants for name in HEADERS)
    assert [reason.value for reason in Reason] == [
        "timeout",
        "error",
        "retry",
        "dead_letter",
        "decode",
        "exhausted",
        "crash",
    ]


def test_every_field_is_written_as_text_and_read_back() -> None:
    """One header a field, in a fixed order, UTF-8."""
    written = write_headers(FULL, ())

    assert tuple(name for name, _ in written) == HEADERS
    assert named(written, "ackfloor.attempt") == [b"4"]
    assert named(written, "ackfloor.reason") == [b"exhausted"]
    assert named(written, "ackfloor.error.message") == ["no such näme".encode()]
    assert named(written, "ackfloor.not_before") == [b"1700000010000"]
    assert read_envelope(written) == FULL
    assert len(HEADERS) == len(fields(Envelope)) - 1


def test_what_is_absent_is_not_written() -> None:
    """Only the counts of deliveries are always there; `replays` once there were some."""
    written = write_headers(Envelope(), ())

    assert written == [
        ("ackfloor.attempt", b"0"),
        ("ackfloor.failures", b"0"),
        ("ackfloor.timeouts", b"0"),
    ]
    assert read_envelope(written) == Envelope()
    assert read_envelope(None) == read_envelope(()) == Envelope()


@given(envelopes, st.lists(strange))
def test_an_envelope_survives_being_written_and_read(envelope: Envelope, own: Headers) -> None:
    """Whatever else the record carries."""
    assert read_envelope(write_headers(envelope, own)) == envelope


@given(envelopes, envelopes, st.lists(strange), st.booleans(), st.booleans())
def test_a_record_s_own_headers_pass_through_every_park(
    first: Envelope, later: Envelope, own: Headers, spring: bool, kafka: bool
) -> None:
    """Byte-identical and in order, repeated names, nulls and other tools' names included."""
    written = write_headers(first, own, spring=spring, kafka=kafka, timestamp_type=1)
    assert written[: len(own)] == own

    again = write_headers(later, written, spring=spring, kafka=kafka, timestamp_type=2)
    assert again[: len(own)] == own


@given(envelopes, st.lists(strange), st.booleans(), st.booleans(), st.integers(1, 6))
def test_headers_never_grow_with_attempts(
    envelope: Envelope, own: Headers, spring: bool, kafka: bool, attempts: int
) -> None:
    """Ours and the copies for other tools are replaced, not repeated."""
    once = write_headers(envelope, own, spring=spring, kafka=kafka, timestamp_type=1)
    headers = once
    for _ in range(attempts):
        headers = write_headers(envelope, headers, spring=spring, kafka=kafka, timestamp_type=2)

    assert headers == once


@given(st.lists(strange | ours))
def test_reading_never_fails(headers: Headers) -> None:
    """A header that is no good is named and counts as absent; others' are not looked at."""
    envelope = read_envelope(headers)

    assert set(envelope.unreadable) <= {name for name, _ in headers} & set(HEADERS)
    written = write_headers(envelope, headers, spring=True, kafka=True, timestamp_type=1)
    assert read_envelope(written) == replace(envelope, unreadable=())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ackfloor.attempt", b"-1"),
        ("ackfloor.attempt", b"two"),
        ("ackfloor.attempt", b""),
        ("ackfloor.attempt", b"1.5"),
        ("ackfloor.attempt", b"+1"),
        ("ackfloor.attempt", b" 1"),
        ("ackfloor.attempt", b"9" * 5_000),
        ("ackfloor.attempt", "٣".encode()),
        ("ackfloor.attempt", None),
        ("ackfloor.attempt", "4"),
        ("ackfloor.origin.partition", str(2**31).encode()),
        ("ackfloor.origin.offset", b"9" * 19),
        ("ackfloor.not_before", b"-"),
        ("ackfloor.not_before", b"9" * 400),
        ("ackfloor.reason", b"tired"),
        ("ackfloor.reason", b"\xff"),
        ("ackfloor.origin.topic", b"\xff\xfe"),
        ("ackfloor.error.message", None),
    ],
)
def test_what_can_t_be_read_is_named_and_absent(name: str, value: Any) -> None:
    """A wrong type, a wrong range or no text: the default, and the header's name."""
    assert read_envelope([(name, value)]) == Envelope(unreadable=(name,))


def test_of_a_repeated_header_the_last_one_counts() -> None:
    """Also where the last one is no good, or where an earlier one was not."""
    good, bad = ("ackfloor.attempt", b"3"), ("ackfloor.attempt", b"x")

    assert read_envelope([good, ("ackfloor.attempt", b"5")]).attempt == 5
    assert read_envelope([bad, good]) == Envelope(attempt=3)
    assert read_envelope([good, bad, bad]) == Envelope(unreadable=("ackfloor.attempt",))


def test_headers_of_others_and_of_a_later_release_are_ignored() -> None:
    """A name under our prefix that we don't know is dropped when we write, never misread."""
    headers = [("ackfloor.later", b"1"), ("attempt", b"9"), ("Ackfloor.attempt", b"8")]

    assert read_envelope(headers) == Envelope()
    assert write_headers(Envelope(), headers)[:2] == headers[1:]
    assert named(write_headers(Envelope(), headers), "ackfloor.later") == []


def test_numbers_may_be_before_the_epoch() -> None:
    """A record without a timestamp has -1."""
    assert read_envelope([("ackfloor.origin.timestamp", b"-1")]).origin_timestamp_ms == -1


@given(st.text(min_size=1), st.integers(0, 4))
def test_large_texts_are_cut_between_characters(text: str, pad: int) -> None:
    """A message keeps its head and a stack its tail, within their caps and still UTF-8."""
    long = "x" * pad + text * (STACK_CAP // len(text) + 1)
    written = write_headers(Envelope(error_message=long, error_stack=long), ())
    (message,), (stack,) = (
        named(written, name) for name in ("ackfloor.error.message", "ackfloor.error.stack")
    )
    whole = long.encode("utf-8", "replace")

    assert message is not None
    assert stack is not None
    assert MESSAGE_CAP - 3 <= len(message) <= MESSAGE_CAP
    assert STACK_CAP - 3 <= len(stack) <= STACK_CAP
    assert whole.startswith(message)
    assert whole.endswith(stack)
    assert read_envelope(written).unreadable == ()


def test_a_text_at_its_cap_is_whole() -> None:
    """The cap itself still fits."""
    envelope = Envelope(error_message="m" * MESSAGE_CAP, error_stack="s" * STACK_CAP)

    assert read_envelope(write_headers(envelope, ())) == envelope


def test_a_lone_surrogate_does_not_stop_a_park() -> None:
    """An exception's text may hold what UTF-8 can't."""
    written = write_headers(Envelope(error_message="bad \udc80 name"), ())

    assert named(written, "ackfloor.error.message") == [b"bad ? name"]


def test_too_large_sheds_the_stack_then_the_message_then_nothing() -> None:
    """`truncated` names what is gone; who has nothing left to shed stays open."""
    whole = replace(FULL, truncated=None)
    first = shed(whole)
    assert first == replace(whole, error_stack=None, truncated="stack")
    second = shed(first)
    assert second == replace(whole, error_stack=None, error_message=None, truncated="stack,message")
    assert shed(second) is None


def test_truncated_names_only_what_was_dropped() -> None:
    """A message that had no stack beside it."""
    assert shed(Envelope(error_message="m")) == Envelope(truncated="message")
    assert shed(Envelope(error_stack="s")) == Envelope(truncated="stack")
    assert shed(Envelope(error_stack="s", truncated="stack")) == Envelope(truncated="stack")
    assert shed(Envelope()) is None


def test_a_fingerprint_is_the_type_and_the_place() -> None:
    """Stable between runs; other outer frames make no difference, another place or type does."""
    frames = [("orders.py", "bill"), ("tax.py", "rate")]
    mark = fingerprint("ValueError", frames)

    assert mark == "2b2d9806a8d89c0f"
    assert fingerprint("ValueError", [("worker.py", "main"), ("tax.py", "rate")]) == mark
    assert fingerprint("KeyError", frames) != mark
    assert fingerprint("ValueError", frames[:1]) != mark
    assert fingerprint("ValueError", ()) != mark
    assert len(fingerprint("Bad\udc80", ())) == 16


def test_spring_s_names_carry_numbers_as_big_endian_binary() -> None:
    """As its DeadLetterPublishingRecoverer writes them."""
    assert foreign_headers(FULL, spring=True, kafka=False, timestamp_type=1) == [
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
    assert foreign_headers(FULL, spring=False, kafka=True) == [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"41927"),
        ("__dlq.errors.group", b"billing"),
        ("__dlq.errors.delivery.count", b"4"),
        ("__dlq.errors.message", "no such näme".encode()),
    ]


def test_other_tools_names_are_optional_capped_and_absent_where_ours_are() -> None:
    """Neither unless asked for; a shed stack is shed from its copy as well."""
    assert foreign_headers(FULL, spring=False, kafka=False) == []
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
    first = write_headers(FULL, own, spring=True, kafka=True)
    assert named(first, "kafka_dlt-original-topic") == [b"elsewhere", b"orders"]

    healed = replace(FULL, error_message=None, attempt=5)
    again = write_headers(healed, first, spring=True, kafka=True)

    assert named(again, "kafka_dlt-original-topic") == [b"elsewhere", b"orders"]
    assert named(again, "__dlq.errors.offset") == [b"7", b"41927"]
    assert named(again, "__dlq.errors.delivery.count") == [b"5"]
    assert named(again, "kafka_dlt-exception-message") == []
    assert named(again, "__dlq.errors.message") == []


def test_copies_are_touched_only_while_their_option_is_on() -> None:
    """Without it, a header of that name is as foreign as any other."""
    parked = write_headers(FULL, (), spring=True, kafka=True)
    spring_only = write_headers(replace(FULL, attempt=9), parked, spring=True)

    assert named(spring_only, "__dlq.errors.delivery.count") == [b"4"]
    assert named(spring_only, "kafka_dlt-original-topic") == [b"orders"]
    assert named(write_headers(FULL, parked), "kafka_dlt-original-topic") == [b"orders"]


def test_a_name_under_another_tool_s_prefix_that_we_never_write_stays() -> None:
    """Spring's cause class, put there by a bridge behind our headers."""
    parked = [*write_headers(FULL, ()), ("kafka_dlt-exception-cause-fqcn", b"X")]

    assert named(write_headers(FULL, parked, spring=True), "kafka_dlt-exception-cause-fqcn") == [
        b"X"
    ]


@pytest.mark.parametrize(
    ("code", "expected"), [(0, []), (1, [b"CreateTime"]), (2, [b"LogAppendTime"])]
)
def test_the_timestamp_type_is_the_origin_s(code: int, expected: list[bytes]) -> None:
    """Taken from the record when it is first parked, kept when it comes out of a tier."""
    first = write_headers(FULL, (), spring=True, timestamp_type=code)
    later = write_headers(FULL, first, spring=True, timestamp_type=1)

    assert named(first, "kafka_dlt-original-timestamp-type") == expected
    assert named(later, "kafka_dlt-original-timestamp-type") == expected
