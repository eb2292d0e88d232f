"""Targets: what chooses dead letters and what edits them: options, notes of jobs, edited lines."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import typer
from hypothesis import strategies as st

from ackfloor.core.records.envelope import Envelope, write_headers
from ackfloor.core.records.redaction import Redaction
from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.commands.dead_letter_archive import DeadLetterArchive
from ackfloor.dead_letters.commands.dlq_replay import Replay
from ackfloor.dead_letters.commands.edit_input import EditedLines
from ackfloor.dead_letters.commands.filter_options import filter_of_options
from ackfloor.dead_letters.commands.json_lines import dead_letter_line
from ackfloor.dead_letters.commands.selection import Places, place_of
from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.redrive_edit import edited
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import RedriveRefused
from ackfloor.redrive import parse_rate
from tests.fuzz.target import Target, halves, joined, scratch, text_of

_NAMES = ("handler", "error", "reason", "key", "header", "attempts", "since", "until")
_LETTER = DeadLetter(
    "d", 0, 3, b"k", b'{"n": 1}', write_headers(Envelope("t", 1, 2, attempt=3), [("h", b"1")]), 9
)
_LINE = dead_letter_line(StoredDeadLetter(_LETTER, disposed=False), Redaction())
_TOLD = Replay(
    Places("d"), DeadLetterFilter(key="k", least_attempts=2), "retry", 5, 5, {0: 9}
).to_dict()


def check_options(data: bytes) -> None:
    """Options make a filter that survives being written into a note, or are refused in words."""
    pairs = halves(data)
    given = {text_of(name): text_of(value or b"") for name, value in pairs}
    with suppress(typer.BadParameter):
        wanted = filter_of_options(**{name: given[name] for name in _NAMES if name in given})
        assert DeadLetterFilter.from_dict(json.loads(json.dumps(wanted.to_dict()))) == wanted
        assert wanted.matches(_LETTER) in {True, False}
    for text in given.values():
        with suppress(typer.BadParameter):
            topic, partition, offset = place_of(text)
            assert Places.of([text]).texts() == [f"{topic}/{partition}/{offset}"]
        with suppress(SettingError):
            assert parse_rate(text) > 0


def check_notes(data: bytes) -> None:
    """What a job was asked for is asked for again, or it can't be resumed and that is said."""
    try:
        asked = json.loads(data)
    except (ValueError, RecursionError):
        return
    note = JobNote("j", "replayed", JobState.STOPPED, "me", "h", 1, "t", 0, 0, 0, 0, 0,
                   asked if isinstance(asked, dict) else {})  # fmt: skip
    with suppress(RedriveRefused):
        again = Replay.of("d", note)
        assert again.places.topic == "d"
        assert again.wanted.matches(_LETTER) in {True, False}
        assert Replay.of("d", replace(note, asked=json.loads(json.dumps(again.to_dict())))) == again


@cache
def _file() -> Path:
    return scratch("edited.jsonl")


def check_edits(data: bytes) -> None:
    """A file of edited lines edits value and headers, or is refused; so is one of an archive."""
    path = _file()
    path.write_bytes(data)
    with suppress(RedriveRefused, SettingError):
        lines = EditedLines(path, "d")
        if 3 in lines.wanted().get(0, ()):
            made = edited(_LETTER, lines, "ann", 1)
            assert (made.key, made.offset) == (_LETTER.key, _LETTER.offset)
            assert made is _LETTER or made.envelope.edited is not None
    with suppress(RedriveRefused), DeadLetterArchive(path, "d", Redaction()) as archive:
        archive.keep([_LETTER])
        assert path.read_bytes().endswith(b"\n")


_said = st.sampled_from(
    ["7", "3+", "1-3", "3-1", "24h", "2026-10-20T14:30+02:00", "tenant=acme", "=", "h", "d/0/3",
     "50/s", "0/s", "0001-01-01T00:00:00+14:00", "9999-12-31", "365d"]
)  # fmt: skip
_options = st.dictionaries(st.sampled_from(_NAMES), _said | st.text(max_size=9), max_size=4)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | _said,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


def _with(tree: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """A tree with some of its values replaced."""
    changes = st.dictionaries(st.sampled_from([*tree, "more"]), _json, max_size=2)
    return changes.map(lambda change: json.dumps({**tree, **change}).encode())


_edits = st.lists(_with(json.loads(_LINE)), min_size=1, max_size=2).map(b"\n".join)
_filters = _with(DeadLetterFilter("h", "e", "r", "k", (("a", "b"),), 1, 2, 3, 4).to_dict()).map(
    lambda filter_: json.dumps({**_TOLD, "filter": json.loads(filter_)}).encode()
)
_WORDS = [
    b"null", b"true", b"-1", b"9" * 5_000, b"1e999", b"NaN", b'"\\ud800"', b"[]", b"{}", b"\n",
    b'"value_base64": "/w=="', b'"headers": []', b'"topic": "d"', b"[" * 3_000, b"\x1e", b"\x1f",
    "٣".encode(), b"+", b"/s", b"0001-01-01",
]  # fmt: skip

TARGETS = (
    Target(
        "options",
        check_options,
        _options.map(lambda tree: joined([(k.encode(), v.encode()) for k, v in tree.items()])),
        [*_WORDS, *(name.encode() + b"\x1f" for name in _NAMES)],
    ),
    Target("notes", check_notes, _with(_TOLD) | _filters, _WORDS),
    Target("edits", check_edits, _edits, _WORDS),
)
