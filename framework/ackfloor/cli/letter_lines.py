"""Dead letters as lines of JSON: nothing is lost but what `[redaction]` takes away."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ackfloor.core.envelope import PREFIX

if TYPE_CHECKING:
    from ackfloor.core.redaction import Redaction
    from ackfloor.core.redrive import DeadLetter
    from ackfloor.kafka.letter_box import Letter


def letter_line(found: Letter, rules: Redaction) -> str:
    """One dead letter as a line, its newline included."""
    # ASCII, so that it is the same in every locale, and nothing that a terminal would obey.
    return json.dumps(letter_facts(found, rules)) + "\n"


def letter_facts(found: Letter, rules: Redaction) -> dict[str, Any]:
    """What a line says of one dead letter.

    Key, value and the values of headers stand there as text; one that is not UTF-8 as base64,
    under its name and `_base64`. The headers are the record's own; what ours say has names.
    """
    letter = found.letter
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp_ms": letter.timestamp_ms,
        "disposed": found.disposed,
        **_said("key", rules.of_key(letter.key)),
        **_said("value", rules.of_payload(letter.value)),
        "headers": [{"name": n, **_said("value", v)} for n, v in own_headers(letter, rules)],
        "headers_readable": letter.headers is not None,
        **envelope_facts(letter, rules),
    }


def envelope_facts(letter: DeadLetter, rules: Redaction) -> dict[str, Any]:
    """What our headers say of a dead letter, by name."""
    facts = asdict(letter.envelope)
    for name in ("error_message", "error_stack"):
        facts[name] = rules.of_text(facts[name])
    return facts


def own_headers(letter: DeadLetter, rules: Redaction) -> list[tuple[str, bytes | None]]:
    """A dead letter's headers without those of ackfloor."""
    headers = letter.headers or ()
    return rules.of_headers([each for each in headers if not each[0].startswith(PREFIX)])


def _said(name: str, value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
