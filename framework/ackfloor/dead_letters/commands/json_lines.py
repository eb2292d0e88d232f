"""Dead letters as lines of JSON, complete but for what `[redaction]` takes away."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from ackfloor.dead_letters.rules.redrive_edit import shown_mark
from ackfloor.dead_letters.rules.redrive_rules import own_headers

if TYPE_CHECKING:
    from ackfloor.core.records.envelope import Envelope
    from ackfloor.core.records.redaction import Redaction
    from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter
    from ackfloor.dead_letters.rules.dispositions import DispositionNote

#: What was done with a dead letter; None where nothing was, or nobody asked.
DISPOSITION: Final = (
    *("disposition", "disposed_at_ms", "disposed_by", "disposed_job", "disposed_target"),
)


def dead_letter_line(found: StoredDeadLetter, rules: Redaction) -> str:
    """One dead letter as a line, its newline included."""
    # ASCII, so that it is the same in every locale, and nothing that a terminal would obey.
    return json.dumps(dead_letter_facts(found, rules)) + "\n"


def dead_letter_facts(found: StoredDeadLetter, rules: Redaction) -> dict[str, Any]:
    """The fields of one dead letter's line.

    Key, value and the values of headers are text; one that is not UTF-8 is base64, under its name
    and `_base64`. `headers` are the record's own; ours have fields of their own.
    """
    dead_letter = found.dead_letter
    own = own_headers(dead_letter.headers)
    return {
        "topic": dead_letter.topic,
        "partition": dead_letter.partition,
        "offset": dead_letter.offset,
        "timestamp_ms": dead_letter.timestamp_ms,
        "disposed": found.disposed,
        **_disposition_facts(found.note),
        **_text_or_base64("key", rules.of_key(dead_letter.key)),
        **_text_or_base64("value", rules.of_payload(dead_letter.value)),
        "headers": [{"name": n, **_text_or_base64("value", v)} for n, v in rules.of_headers(own)],
        "headers_readable": dead_letter.headers is not None,
        **envelope_facts(dead_letter.envelope, rules),
    }


def _disposition_facts(note: DispositionNote | None) -> dict[str, Any]:
    """What was done with a dead letter, under the names of `DISPOSITION`."""
    if note is None:
        return dict.fromkeys(DISPOSITION)
    facts = (note.disposition.value, note.at_ms, note.by, note.job, note.target or None)
    return dict(zip(DISPOSITION, facts, strict=True))


def envelope_facts(envelope: Envelope, rules: Redaction) -> dict[str, Any]:
    """What our headers say, as far as the rules leave it."""
    facts = envelope._asdict()
    for name in ("error_message", "error_stack"):
        facts[name] = rules.of_text(facts[name])
    facts["edited"] = shown_mark(envelope.edited, rules)
    return facts


def _text_or_base64(name: str, value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
