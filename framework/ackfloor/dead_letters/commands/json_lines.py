"""Dead letters as lines of JSON: nothing is lost but what `[redaction]` takes away."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ackfloor.core.records.envelope import PREFIX

if TYPE_CHECKING:
    from ackfloor.core.records.redaction import Redaction
    from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter


def dead_letter_line(found: StoredDeadLetter, rules: Redaction) -> str:
    """One dead letter as a line, its newline included."""
    # ASCII, so that it is the same in every locale, and nothing that a terminal would obey.
    return json.dumps(dead_letter_facts(found, rules)) + "\n"


def dead_letter_facts(found: StoredDeadLetter, rules: Redaction) -> dict[str, Any]:
    """What a line says of one dead letter.

    Key, value and the values of headers stand there as text; one that is not UTF-8 as base64,
    under its name and `_base64`. The headers are the record's own; what ours say has names.
    """
    letter, told = found.letter, asdict(found.letter.envelope)
    for name in ("error_message", "error_stack"):
        told[name] = rules.of_text(told[name])
    own = [(name, value) for name, value in letter.headers or () if not name.startswith(PREFIX)]
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp_ms": letter.timestamp_ms,
        "disposed": found.disposed,
        **_said("key", rules.of_key(letter.key)),
        **_said("value", rules.of_payload(letter.value)),
        "headers": [{"name": n, **_said("value", v)} for n, v in rules.of_headers(own)],
        "headers_readable": letter.headers is not None,
        **told,
    }


def _said(name: str, value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
