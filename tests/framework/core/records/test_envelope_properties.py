"""Envelope: what holds for any record and any envelope, however often it is parked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.records.envelope import (
    HEADERS,
    PREFIX,
    Envelope,
    Reason,
    read_envelope,
    write_headers,
)
from ackfloor.core.records.record import Headers

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
    edited=texts,
    truncated=texts,
    unreadable=st.just(()),
)


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
    assert read_envelope(written) == envelope._replace(unreadable=())
