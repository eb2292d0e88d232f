"""Fault causes: which errors are one fault, and how to fix it.

A broken topic refuses each of its records with the same error, and is one thing to fix. So a fault
is known by its subject (mostly a topic) and its cause, and `identify` alone decides which cause an
error has. The client has several names for one cause: a missing topic is unknown to the broker, or
to the client itself, by which notices first.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MISSING = "missing"
DENIED = "denied"
TOO_LARGE = "too_large"
UNCONFIRMED = "unconfirmed"
#: The subject where a whole transaction failed and no single topic is the cause.
TRANSACTION = "transaction"

#: The fix where no better one is known.
LOOK_CLOSER = "`ackfloor doctor` looks closer"

#: How the text of an error begins that the client or the broker has a name for.
_NAME = re.compile(r"_?([A-Z][A-Z0-9_]*):")
_CAUSES = {
    "UNKNOWN_TOPIC": MISSING,
    "UNKNOWN_PARTITION": MISSING,
    "UNKNOWN_TOPIC_OR_PART": MISSING,
    "UNKNOWN_TOPIC_ID": MISSING,
    "TOPIC_AUTHORIZATION_FAILED": DENIED,
    "GROUP_AUTHORIZATION_FAILED": DENIED,
    "MSG_SIZE_TOO_LARGE": TOO_LARGE,
    "RECORD_LIST_TOO_LARGE": TOO_LARGE,
    "MSG_TIMED_OUT": UNCONFIRMED,
    "TIMED_OUT": UNCONFIRMED,
    "REQUEST_TIMED_OUT": UNCONFIRMED,
}


class Identity(NamedTuple):
    """What a fault is known by."""

    subject: str
    cause: str


class Trouble(NamedTuple):
    """A problem that the brokers report.

    Attributes:
        fix: what to do; empty where it is not known.
        unwritable: nothing can be written to the topic until then.
    """

    cause: str
    why: str
    fix: str = ""
    unwritable: bool = False

    @property
    def text(self) -> str:
        """Cause and fix in one line."""
        return f"{self.why}; {self.fix}" if self.fix else self.why


def identify(subject: str, error: str) -> Identity:
    """Which fault an error is of."""
    named = _NAME.match(error)
    if named is None:
        return Identity(subject, UNCONFIRMED)
    return Identity(subject, _CAUSES.get(named[1], named[1].lower()))


def mend_writing(topic: str, cause: str) -> str:
    """What to do where nothing can be written to a topic."""
    if topic == TRANSACTION:
        # The group, the transactional id or a topic that was read: the error itself says which.
        return LOOK_CLOSER
    if cause == MISSING:
        return "`ackfloor topics apply` makes the topic"
    if cause == DENIED:
        return f"grant WRITE on topic {topic}"
    if cause == TOO_LARGE:
        return f"raise max.message.bytes of topic {topic}"
    return LOOK_CLOSER
