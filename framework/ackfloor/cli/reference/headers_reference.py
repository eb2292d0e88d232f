"""The reference of the headers of parked records as Markdown.

    python -m ackfloor.cli.reference.headers_reference > docs/reference/headers.md

Names, order and caps come from `core.records.envelope`; the meanings are written here, because the
core has no text for people. A header without a meaning here raises KeyError, and a test compares
the file with what this prints.
"""

from __future__ import annotations

import sys
from typing import Final

from ackfloor.core.records import envelope
from ackfloor.core.records.envelope import HEADERS, MESSAGE_CAP, STACK_CAP, Envelope, Reason

_HEAD: Final = """\
# Headers

<!-- Written by `python -m ackfloor.cli.reference.headers_reference`. -->

A record in a retry topic or in the dead-letter topic has the key, the value and the headers it
came with, byte for byte, in their order, repeated names included. Ours follow them, all under the
prefix `ackfloor.`, all UTF-8 text: numbers in decimal digits, times in milliseconds since the
epoch. They carry the first origin and the last error, so they do not grow with attempts.

A header that does not apply is left out. Reading never fails: a header of ours that can't be read
counts as absent.

In a handler, `delivery.headers` shows all of them on a redelivery; `delivery.attempt`,
`delivery.origin` and `delivery.idempotency_key` are made from them.

A record that was redriven to its source topic carries some of them there as well:
`ackfloor.idempotency_key` and `ackfloor.replays` count there, where `ackfloor.origin.topic` is that
topic. So do not write a record's `ackfloor.` headers into a new record of the same topic.
"""

_TEXT, _NUMBER, _TIME = "text", "number", "time (ms)"
_MEANING: Final = {
    envelope.ORIGIN_TOPIC: (_TEXT, "The topic of the first delivery."),
    envelope.ORIGIN_PARTITION: (_NUMBER, "Its partition there."),
    envelope.ORIGIN_OFFSET: (
        _NUMBER,
        "Its offset there. The three name a record until its topic is created anew.",
    ),
    envelope.ORIGIN_TIMESTAMP: (_TIME, "The timestamp it had there; -1 where it had none."),
    envelope.GROUP: (_TEXT, "The consumer group that parked it."),
    envelope.HANDLER: (_TEXT, "The handler's name."),
    envelope.ATTEMPT: (_NUMBER, "Deliveries made so far; with 2, the next one is the third."),
    envelope.FAILURES: (_NUMBER, "How many of them failed in another way than by a timeout."),
    envelope.TIMEOUTS: (_NUMBER, "How many of them outlived their consume timeout."),
    envelope.REASON: (_TEXT, "Why it was parked or dead-lettered, see below."),
    envelope.ERROR_TYPE: (
        _TEXT,
        "The class of the last error; `ConsumeTimeout`, `Retry`, `DeadLetter` for those endings.",
    ),
    envelope.ERROR_MESSAGE: (_TEXT, f"Its text, at most the first {MESSAGE_CAP:,} bytes."),
    envelope.ERROR_STACK: (_TEXT, f"Its traceback, at most the last {STACK_CAP:,} bytes."),
    envelope.ERROR_FINGERPRINT: (
        _TEXT,
        "16 hex digits of its class and its innermost frame in your code: errors that are alike.",
    ),
    envelope.FIRST_FAILED_AT: (_TIME, "When the first delivery failed."),
    envelope.FAILED_AT: (_TIME, "When the last delivery failed."),
    envelope.NOT_BEFORE: (_TIME, "Retry topics only: when this wait ends."),
    envelope.RETRY_AT: (
        _TIME,
        "When a record that waits for `Retry(after=...)` is due; `not_before` is this hop's end.",
    ),
    envelope.DURATION_MS: ("number (ms)", "How long the last handler call took."),
    envelope.RELEASE: (_TEXT, "The setting `app.release` of the worker, if it was set."),
    envelope.WORKER: (
        _TEXT,
        "Broadcast mode only: host and number of the worker that gave the record up.",
    ),
    envelope.REPLAYS: (
        _NUMBER,
        "How often it was redriven from the dead-letter topic; absent if it never was.",
    ),
    envelope.EDITED: (
        _TEXT,
        (
            "Set if an operator corrected payload or headers before a redrive: the SHA-256 of the "
            "original payload (hex), the time of the last correction (ms) and who made it, "
            "separated by spaces."
        ),
    ),
    envelope.IDEMPOTENCY_KEY: (
        _TEXT,
        (
            "What names the record over all its deliveries, as `delivery.idempotency_key` has it: "
            "`Jq0bS6aTQs2aGUqzyx4zZw/3/41927`, the topic's id, partition and offset, with `@` and "
            "the leader epoch where that is above 0."
        ),
    ),
    envelope.TRUNCATED: (
        _TEXT,
        (
            "What did not fit into the topic's largest record: `stack`, or `stack,message`; "
            "`headers` where the record's own could not be read, for a name that is not UTF-8."
        ),
    ),
}
_REASONS: Final = {
    Reason.TIMEOUT: "No answer within the consume timeout.",
    Reason.ERROR: "The handler raised an exception.",
    Reason.RETRY: "The handler asked for it: `raise Retry(...)` or `delivery.retry(...)`.",
    Reason.DEAD_LETTER: "`raise DeadLetter(...)`, `delivery.dead_letter(...)`, or an exception "
    "listed in `dead_letter_on`.",
    Reason.DECODE: "The value is not what the handler's annotation asks for.",
    Reason.EXHAUSTED: "The policy's redeliveries are used up; `error.type` says the last cause.",
    Reason.CRASH: "Three worker processes died with the record in flight, the last with no other; "
    "or the process of a process handler died with it.",
    Reason.BEHIND: "It did not fail: its key is in quarantine, and it waits behind one that did.",
    Reason.HELD: "It is in the dead-letter topic, and its key stays quarantined until an operator "
    'frees it, or it is redriven and handled (`after_dead_letter="hold"`).',
}
_FOREIGN_HEAD: Final = """\
## Names of other tools

With the setting `app.foreign_headers` the same facts are also written under names that other
tools read, behind ours. `spring` adds those of Spring Kafka (numbers big-endian binary, as
there), `kafka` those of Kafka's own dead-letter queue (text).
"""


def render() -> str:
    """The whole page."""
    rows = [f"| `{name}` | {_MEANING[name][0]} | {_MEANING[name][1]} |" for name in HEADERS]
    reasons = [f"| `{reason.value}` | {_REASONS[reason]} |" for reason in Reason]
    parts = [
        _HEAD,
        "\n".join(["| header | form | meaning |", "|---|---|---|", *rows]) + "\n",
        "## `ackfloor.reason`\n",
        "\n".join(["| reason | meaning |", "|---|---|", *reasons]) + "\n",
        _FOREIGN_HEAD,
        _foreign(spring=True),
        _foreign(spring=False),
    ]
    return "\n".join(parts)


def meaning_of(header: str) -> str:
    """What a header of ours says, in one sentence or two."""
    return _MEANING[header][1]


def _foreign(*, spring: bool) -> str:
    full = Envelope("t", 0, 0, 0, "g", "h", 1, error_type="e", error_message="m", error_stack="s")
    written = envelope.foreign_headers(full, spring=spring, kafka=not spring, timestamp_type=1)
    names = "\n".join(f"- `{name}`" for name, _ in written)
    return f"`{'spring' if spring else 'kafka'}`:\n\n{names}\n"


if __name__ == "__main__":
    sys.stdout.write(render())
