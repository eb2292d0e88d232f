"""Targets: headers, keys and values of records that anybody can write into our topics."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import strategies as st

from ackfloor.core.records.envelope import (
    HEADERS,
    PREFIX,
    Envelope,
    read_envelope,
    shed,
    write_headers,
)
from ackfloor.core.records.record import Headers
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dead_letter_views import (
    changed_lines,
    dead_letter_rows,
    dead_letter_text,
    fields_of,
    group_rows,
)
from ackfloor.dead_letters.commands.json_lines import dead_letter_line
from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter
from ackfloor.dead_letters.rules.cause_groups import CauseGroups
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter, failed_at_ms
from ackfloor.dead_letters.rules.dispositions import (
    Disposed,
    Disposition,
    DispositionNote,
    disposition_key,
)
from ackfloor.dead_letters.rules.redrive_edit import edited
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState, read_job
from ackfloor.dead_letters.rules.redrive_rules import (
    DeadLetter,
    Order,
    redriven_headers,
    target_partition,
    why_left,
)
from ackfloor.dead_letters.rules.redrive_rules import Target as Where
from tests.fuzz.target import Target, halves, joined, text_of

RULES = Redaction(key="hash", fields=("card",), headers=("auth*",), patterns=(r"\d{6}",))
_FOREIGN = [
    b"kafka_dlt-original-topic", b"kafka_dlt-original-partition", b"kafka_dlt-exception-fqcn",
    b"kafka_dlt-original-timestamp-type", b"__dlq.errors.topic", b"__dlq.errors.offset",
    b"__connect.errors.exception.class.name", b"source_topic", b"traceparent",
]  # fmt: skip


def headers_of(data: bytes) -> Headers:
    """Any bytes as a record's headers."""
    return [(text_of(name), value) for name, value in halves(data)]


def check_headers(data: bytes) -> None:
    """Never an error; what is read is written and read again as it was; own headers stay."""
    headers = headers_of(data)
    told = read_envelope(headers)
    assert set(told.unreadable) <= set(HEADERS)
    own = [header for header in headers if not header[0].startswith(PREFIX)]
    written = write_headers(told, own)
    assert written[: len(own)] == own
    again = read_envelope(written)
    assert read_envelope(write_headers(again, written)) == again
    if told.error_message == again.error_message and told.error_stack == again.error_stack:
        assert again == told._replace(unreadable=())
    both = write_headers(told, headers, spring=True, kafka=True, timestamp_type=1)
    assert write_headers(told, both, spring=True, kafka=True, timestamp_type=2) == both
    less: Envelope | None = told
    while less is not None:
        less = shed(less)


def check_letters(data: bytes) -> None:
    """Whatever lies in a dead-letter topic is grouped, listed, shown, exported and sent on."""
    *pairs, (key, value) = halves(data)
    headers = [(text_of(name), each) for name, each in pairs]
    letter = DeadLetter("d", 1, 7, key, value, headers, len(data) - 1)
    found = StoredDeadLetter(letter, disposed=False)
    groups = CauseGroups()
    groups.add(letter)
    [group] = groups.largest_first()
    told = letter.envelope
    assert (group.handler, group.message) == (told.handler or "", told.error_message or "")
    assert group.last_ms == failed_at_ms(letter, told)
    for rules in (Redaction(), RULES):
        group_rows(groups.largest_first(), rules)
        shown = [dead_letter_text(found, rules), json.dumps(fields_of(found, rules))]
        shown += [
            json.dumps(dead_letter_rows([found], rules)),
            *changed_lines(letter, letter, rules),
        ]
        assert "\x1b" not in "".join(shown), "a terminal would obey it"
        line = dead_letter_line(found, rules)
        assert json.loads(line)["offset"] == 7
        assert line.isascii()
        assert line.count("\n") == 1
    order = Order("d", "t", "job", "me")
    if why_left(letter, order, Disposed()) is None:
        other = edited(letter, lambda each: replace(each, value=b"other"), "ann", 4)
        sent = redriven_headers(other, 5)
        told = read_envelope(sent)
        assert told.replays == letter.envelope.replays + 1
        assert told.attempt == 0
        own = [header for header in headers if not header[0].startswith(PREFIX)]
        kept = [header for header in sent if not header[0].startswith(PREFIX)]
        assert [header for header in kept if header in own] == kept or told.origin_topic is not None
        for to in ("retry", "source", "t"):
            place = target_partition(letter, Where("t", 3, to))
            assert place is None or 0 <= place < 3
    for wanted in (
        DeadLetterFilter(key="k", least_attempts=1),
        DeadLetterFilter(error="E", since_ms=1),
    ):
        assert wanted.matches(letter) in {True, False}


def check_dispositions(data: bytes) -> None:
    """A record of that topic hides what it names or nothing; a note is read back as written."""
    for key, value in halves(data):
        disposed = Disposed("id")
        disposed.note(key, value)
        disposed.note(None, value)
        hidden = len(disposed)
        assert hidden in {0, 1}
        if hidden:
            partition, offset = map(int, key.split(b"/"))
            assert disposed.hides(partition, offset)
        note = read_job(key, value)
        assert disposed.jobs.latest_first() == ([] if note is None else [note])
        if note is not None:
            assert read_job(note.key, note.to_bytes()) == note


def _pair(note: JobNote) -> tuple[bytes, bytes]:
    return note.key, note.to_bytes()


_names = st.sampled_from([*(name.encode() for name in HEADERS), *_FOREIGN, b"tenant", b""])
_values = (
    st.none()
    | st.binary(max_size=12)
    | st.integers(-(10**20), 10**20).map(lambda number: b"%d" % number)
    | st.sampled_from([b"exhausted", b"shop.Bad", "nä\x1b[31m".encode(), b"CreateTime", b"headers"])
    | st.sampled_from([b"m" * 3_000, "ä".encode() * 9_000])
)
_headers = st.lists(st.tuples(_names, _values), max_size=12)
_payloads = st.none() | st.binary(max_size=20) | st.sampled_from(
    [b'{"card": {"card": [1]}, "n": "123456789"}', b"[" * 3_000, b"\xff", b"1e999", b'"\\ud800"']
)  # fmt: skip
_topic_ids = st.sampled_from(["id", "", "other"])
_dispositions = st.builds(
    lambda partition, offset, what, topic_id: (
        disposition_key(partition, offset),
        DispositionNote(what, 5, "me", "job", "t", topic_id).to_bytes(),
    ),
    st.integers(0, 2**31), st.integers(0, 2**63), st.sampled_from(Disposition), _topic_ids,
)  # fmt: skip
_jobs = st.builds(
    lambda state, number: _pair(
        JobNote("j", "replayed", state, "me", "h", 1, "t", number, 2, 3, 4, 5, {"to": "t"})
    ),
    st.sampled_from(JobState),
    st.integers(0, 9),
)
_WORDS = [name.encode() + b"\x1f" for name in HEADERS] + [
    b"\x1e", b"\x1f", b"-1", b"9" * 19, b"\xff", b"\x1b[2J", b"null", b"1/2", b"job/",
    b'"at": "0001-01-01T00:00:00+23:59"', b"9999-12-31T23:59:59.999-23:59", b"1e400", b"\\ud800",
]  # fmt: skip

TARGETS = (
    Target("headers", check_headers, _headers.map(joined), _WORDS),
    Target(
        "letters",
        check_letters,
        st.builds(lambda own, *last: joined([*own, last]), _headers, st.binary(), _payloads),
        _WORDS,
    ),
    Target(
        "dispositions",
        check_dispositions,
        st.lists(_dispositions | _jobs, max_size=3).map(joined),
        _WORDS,
    ),
)
