"""Envelope: headers survive any record, never grow, and shed in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.records import envelope as names
from ackfloor.core.records.envelope import (
    HEADERS,
    MESSAGE_CAP,
    PREFIX,
    STACK_CAP,
    Envelope,
    Reason,
    fingerprint,
    read_envelope,
    read_number,
    read_text,
    shed,
    write_headers,
)
from ackfloor.core.records.record import Headers

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
    edited="00ff",
    idempotency_key="Jq0bS6aTQs2aGUqzyx4zZw/3/41927",
    truncated="stack",
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
        "edited",
        "idempotency_key",
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
        "behind",
        "held",
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
    assert len(HEADERS) == len(Envelope._fields) - 1


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
    whole = FULL._replace(truncated=None)
    first = shed(whole)
    assert first == whole._replace(error_stack=None, truncated="stack")
    second = shed(first)
    assert second == whole._replace(error_stack=None, error_message=None, truncated="stack,message")
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


@pytest.mark.parametrize(
    ("value", "number", "text"),
    [
        (None, None, None),
        (b"", None, ""),
        (b"41927", 41_927, "41927"),
        (b"-1", -1, "-1"),
        (b"forty", None, "forty"),
        (b"\xff1", None, None),
    ],
)
def test_one_header_is_read_alone(
    value: bytes | None, number: int | None, text: str | None
) -> None:
    """What is none of the kind asked for is as if it were not there."""
    assert read_number(value) == number
    assert read_text(value) == text
