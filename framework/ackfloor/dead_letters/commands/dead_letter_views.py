"""How dead letters are shown: rows for a table or as JSON, one of them in full, and an edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ackfloor.cli.shared.times import moment
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.envelope import DID_NOT_FAIL
from ackfloor.core.records.outcomes import CONSUME_TIMEOUT
from ackfloor.core.values.printable import plain
from ackfloor.dead_letters.commands.json_lines import envelope_facts
from ackfloor.dead_letters.rules.cause_groups import CauseGroup
from ackfloor.dead_letters.rules.dead_letter_filter import failed_at_ms
from ackfloor.dead_letters.rules.dispositions import Disposition
from ackfloor.dead_letters.rules.payload_lines import differing_lines, payload_lines
from ackfloor.dead_letters.rules.redrive_rules import own_headers

if TYPE_CHECKING:
    from ackfloor.core.records.redaction import Redaction
    from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter
    from ackfloor.dead_letters.rules.dispositions import DispositionNote
    from ackfloor.dead_letters.rules.redrive_rules import DeadLetter

_MOST_PAYLOAD = 4_000
#: Of an edit, so many lines are shown.
_MOST_LINES = 40
#: What is said of an edit that leaves each field as it is.
ONLY_SPACE = "only white space between its parts is changed"
#: A handler that timed out raised nothing.
NO_STACK = (
    "no stack: the handler did not answer before its deadline, and raised nothing. While a record "
    "like this one runs, `ackfloor inflight --trace` shows the line where it hangs."
)
#: Shown under the name that `dlq groups` uses.
_LABELS = {"error_fingerprint": "cause"}
#: How it was done, beside the column `disposed` of a table.
_TITLES = {
    "disposed_at": "at",
    "disposed_by": "by",
    "disposed_job": "job",
    "disposed_target": "target",
}
#: Columns that narrow tables of groups and of dead letters leave out, the first one first.
OPTIONAL_GROUP_COLUMNS = ("message", "first", "topic", "error", "last", "releases")
OPTIONAL_COLUMNS = (
    *("bytes", "replays", "attempt", "key", "error", "release", "failed", "due"),
    *("target", "job", "at", "reason", "by", "disposed"),
)


def group_rows(
    groups: Sequence[CauseGroup], rules: Redaction, *, by_key: bool = False
) -> list[dict[str, Any]]:
    """Groups as rows; `by_key`: with the key of each."""
    return [
        {
            "topic": group.topic,
            "handler": group.handler,
            **({"key": text_of(rules.of_key(group.key))} if by_key else {}),
            "error": group.error_type or group.cause,
            "count": group.count,
            "first": moment(group.first_ms),
            "last": moment(group.last_ms),
            "releases": group.releases_in_order(),
            "latest": f"{group.topic}/{group.partition}/{group.offset}",
            "cause": group.cause,
            "message": rules.of_text(group.message),
        }
        for group in groups
    ]


def releases_shown(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of groups for a table: of many releases the first and the last, of none no column."""
    if not any(row["releases"] for row in rows):
        return [{name: row[name] for name in row if name != "releases"} for row in rows]
    return [{**row, "releases": _first_and_last(row["releases"])} for row in rows]


def _first_and_last(releases: Sequence[str]) -> str:
    if len(releases) <= 2:
        return ", ".join(releases)
    return f"{releases[0]} … {releases[-1]} ({len(releases)})"


def dead_letter_rows(
    dead_letters: Sequence[StoredDeadLetter], rules: Redaction
) -> list[dict[str, Any]]:
    """Dead letters as rows, each with what was done with it as far as its note is known."""
    return [
        {**record_row(each.dead_letter, rules), "disposed": each.disposed, **_done(each.note)}
        for each in dead_letters
    ]


def _done(note: DispositionNote | None) -> dict[str, str | None]:
    if note is None:
        return dict.fromkeys(("disposition", *_TITLES))
    return {
        "disposition": note.disposition.value,
        "disposed_at": moment(note.at_ms),
        "disposed_by": note.by,
        "disposed_job": note.job,
        "disposed_target": note.target or None,
    }


def dispositions_shown(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of dead letters for a table: one column says what was done, those beside it how.

    Where nothing was done with any, none of them is there.
    """
    any_done = any(row["disposed"] for row in rows)
    shown = []
    for row in rows:
        others = {name: row[name] for name in row if name not in {"disposed", *_done(None)}}
        if any_done:
            # Of what a newer version has done, only that it has is known.
            others["disposed"] = row["disposition"] or row["disposed"]
            others |= {title: row[name] for name, title in _TITLES.items()}
        shown.append(others)
    return shown


def record_row(record: DeadLetter, rules: Redaction) -> dict[str, Any]:
    """A dead letter, or a record that waits in a retry topic, as a row."""
    envelope = record.envelope
    return {
        "place": record.place,
        # None: it waited behind one that failed.
        "failed": _failed(record),
        "handler": envelope.handler,
        "reason": envelope.reason,
        "error": envelope.error_type,
        # None: redriven, or of another tool, which does not say.
        "attempt": envelope.attempt or None,
        "replays": envelope.replays,
        "release": envelope.release,
        "key": text_of(rules.of_key(record.key)),
        "bytes": len(record.value or b""),
    }


def _failed(dead_letter: DeadLetter) -> str | None:
    envelope = dead_letter.envelope
    if envelope.reason in DID_NOT_FAIL:
        return None
    return moment(failed_at_ms(dead_letter, envelope))


def fields_of(found: StoredDeadLetter, rules: Redaction) -> dict[str, Any]:
    """The fields of one dead letter, for JSON."""
    dead_letter = found.dead_letter
    own = own_headers(dead_letter.headers)
    return {
        "topic": dead_letter.topic,
        "partition": dead_letter.partition,
        "offset": dead_letter.offset,
        "time": moment(dead_letter.timestamp_ms),
        "origin": dead_letter.origin,
        "disposed": found.disposed,
        "disposition": _disposition(found.note),
        "key": text_of(rules.of_key(dead_letter.key)),
        "payload": text_of(rules.of_payload(dead_letter.value)),
        "payload_bytes": None if dead_letter.value is None else len(dead_letter.value),
        "headers": [[name, text_of(value)] for name, value in rules.of_headers(_bytes(own))],
        "headers_readable": dead_letter.headers is not None,
        **envelope_facts(dead_letter.envelope, rules),
    }


def dead_letter_text(found: StoredDeadLetter, rules: Redaction) -> str:
    """One dead letter for people."""
    facts = fields_of(found, rules)
    payload, stack, headers = facts.pop("payload"), facts.pop("error_stack"), facts.pop("headers")
    del facts["disposition"]
    if found.note is not None:
        facts["disposed"] = _what_was_done(found.note)
    for part in ("origin_topic", "origin_partition", "origin_offset"):
        del facts[part]
    if found.dead_letter.envelope.reason in DID_NOT_FAIL:
        # No time makes it due: it is handled after the record in front of it.
        del facts["not_before_ms"], facts["retry_at_ms"]
    lines = []
    for name, value in facts.items():
        if value in (None, (), [], "") or (name == "attempt" and not value):
            continue
        is_time = name.endswith("_ms") and name != "duration_ms"
        label = _LABELS.get(name) or (name.removesuffix("_ms") if is_time else name)
        text = ", ".join(value) if isinstance(value, tuple) else str(value)
        lines.append(f"{label:<20} {moment(value) if is_time else plain(text)}")
    lines += [f"{'header':<20} {plain(name)}: {value}" for name, value in headers]
    if stack:
        lines += ["", *plain(stack.rstrip()).splitlines()]
    elif found.dead_letter.envelope.error_type == CONSUME_TIMEOUT:
        lines += ["", NO_STACK]
    if payload is not None:
        more = len(payload) - _MOST_PAYLOAD
        lines += ["", payload[:_MOST_PAYLOAD]]
        lines += [f"... and {more:,} characters more (--raw)"] if more > 0 else []
    return "\n".join(lines)


def _disposition(note: DispositionNote | None) -> dict[str, str] | None:
    if note is None:
        return None
    return {
        "disposition": note.disposition.value,
        "at": moment(note.at_ms),
        "by": note.by,
        "job": note.job,
        "target": note.target,
    }


def _what_was_done(note: DispositionNote) -> str:
    """What, to where, when, by whom, and the job to look up."""
    to = f" to {note.target}" if note.target else ""
    return f"{note.disposition}{to} at {moment(note.at_ms)} by {note.by}, job {note.job}"


def dead_letters_text(found: Sequence[StoredDeadLetter], rules: Redaction) -> str:
    """Dead letters for people; of several, each has its number and place above it."""
    texts = [dead_letter_text(each, rules) for each in found]
    if len(texts) == 1:
        return texts[0]
    places = [each.dead_letter.place for each in found]
    return "\n\n".join(
        f"{number} of {len(texts)}: {place}\n{text}"
        for number, (place, text) in enumerate(zip(places, texts, strict=True), 1)
    )


def what_came_of(found: StoredDeadLetter) -> str | None:
    """How to see what came of one that was replayed into a retry topic; None of others.

    Sent elsewhere it is a record with another place.
    """
    note, origin = found.note, plain(found.dead_letter.origin)
    if note is None or note.disposition is not Disposition.REPLAYED:
        return None
    target = parse_topic(note.target)
    if target is None or target.kind != "retry" or not origin or "?" in origin:
        return None
    return (
        f"what came of it: `ackfloor dlq show {origin}` shows whether it died again, "
        f"`ackfloor retry show {origin}` whether it waits"
    )


def text_of(value: bytes | None) -> str | None:
    """Bytes as people read them: text where they are printable text, else 0x and hexadecimal."""
    if value is None:
        return None
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return "0x" + value.hex()
    # Not character by character: a record may have megabytes.
    printable = text.replace("\n", "").replace("\t", "").isprintable()
    return text if printable else "0x" + value.hex()


def _bytes(
    headers: Sequence[tuple[str, str | bytes | None]],
) -> list[tuple[str, bytes | None]]:
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in headers]


def changed_lines(before: DeadLetter, after: DeadLetter, rules: Redaction) -> list[str]:
    """The lines that go, after a minus, and those that come, after a plus."""
    found = differing_lines(_lines(before, rules), _lines(after, rules), context=1)
    if not found:
        values = rules.of_payload(before.value), rules.of_payload(after.value)
        spaced = None not in values and values[0] != values[1]
        return [ONLY_SPACE if spaced else "what is changed is hidden by [redaction]"]
    more = len(found) - _MOST_LINES
    return found[:_MOST_LINES] + ([f"... and {more:,} lines more"] if more > 0 else [])


def _lines(dead_letter: DeadLetter, rules: Redaction) -> list[str]:
    own = own_headers(dead_letter.headers)
    headers = [f"header {name}: {text_of(value)}" for name, value in rules.of_headers(own)]
    payload = text_of(rules.of_payload(dead_letter.value))
    return [plain(line) for line in [*headers, *payload_lines(payload or "")]]
