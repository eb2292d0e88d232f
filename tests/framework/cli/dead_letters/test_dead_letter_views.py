"""How one dead letter reads for people."""

from __future__ import annotations

from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dead_letter_views import dead_letter_text
from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter


def test_what_can_not_be_read_of_a_letter_is_told_in_words() -> None:
    """Names with commas between them, and a question mark for a part of the origin."""
    headers = [
        ("ackfloor.origin.topic", b"orders"),
        ("ackfloor.origin.partition", b"three"),
        ("ackfloor.origin.offset", b"41927"),
        ("ackfloor.attempt", b"many"),
    ]
    letter = DeadLetter("orders--billing--dlq", 0, 7, None, b"v", headers, 1)
    text = dead_letter_text(StoredDeadLetter(letter, disposed=False), Redaction())
    told = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
    assert told["origin"] == "orders/?/41927"
    assert told["unreadable"] == "ackfloor.origin.partition, ackfloor.attempt"
