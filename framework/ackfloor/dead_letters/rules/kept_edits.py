"""Kept edits: the payload that an operator has corrected by hand, until its dead letter is sent.

Nobody has it in a file, so the job that is to send it keeps it in the compacted topic of the
dispositions, before it sends anything: key `edit/` and the dead letter's place, value JSON. A job
that was killed is resumed with it, wherever that is.

Invariants. A dead letter has one kept edit at most: a newer one replaces it, and an older one never
replaces a newer one. Whatever disposes of the dead letter deletes its edit in the same transaction,
and a job that finds a dead letter gone deletes its edit at the job's end, so that it is kept no
longer than it is of use. It is as secret as the dead letter, and read by nobody who may not read
that one. One that can't be read is left out.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Final

from ackfloor.core.values.json_bytes import json_bytes

PREFIX: Final = b"edit/"
_KEY: Final = re.compile(rb"edit/([0-9]{1,10})/([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class KeptEdit:
    """One.

    Attributes:
        partition, offset: the place of the dead letter.
        job: the job that is to send it.
        by: who corrected it.
        at_ms: when, in wall-clock ms.
        value: the payload as it is to be sent.
        topic_id: Kafka's id of the dead-letter topic.
    """

    partition: int
    offset: int
    job: str
    by: str
    at_ms: int
    value: bytes
    topic_id: str

    @property
    def key(self) -> bytes:
        """The record's key."""
        return edit_key(self.partition, self.offset)

    def to_bytes(self) -> bytes:
        """The record's value."""
        return json_bytes(
            {
                "job": self.job,
                "by": self.by,
                "at_ms": self.at_ms,
                "value_base64": base64.b64encode(self.value).decode(),
                "topic_id": self.topic_id,
            }
        )


def gone_text(job: str) -> str:
    """Why a job that kept an edit can't go on."""
    return (
        f"job {job} keeps no edit any more: its dead letter was sent, discarded or archived since, "
        "or edited once more"
    )


def why_not(kept: KeptEdit, there: KeptEdit | None, *, resumes: bool) -> str:
    """Why a job may not send an edit, as long as its dead letter is open; "" where it may.

    Args:
        there: what is kept of that dead letter now.
        resumes: whether the job ran before, and so kept its edit then.
    """
    if there is not None and there.job == kept.job:
        return ""
    if resumes:
        return gone_text(kept.job)
    if there is not None and there.at_ms > kept.at_ms:
        return (
            f"{there.by} has edited {there.partition}/{there.offset} later, in job {there.job}: go "
            "on with that one, or edit it once more"
        )
    return ""


def edit_key(partition: int, offset: int) -> bytes:
    """The key under which the edit of a dead letter is kept."""
    return b"%s%d/%d" % (PREFIX, partition, offset)


def place_of_edit(key: bytes) -> tuple[int, int] | None:
    """Partition and offset of the dead letter whose edit has this key; None where it has none."""
    match = _KEY.fullmatch(key)
    return None if match is None else (int(match[1]), int(match[2]))


def read_edit(key: bytes, value: bytes) -> KeptEdit | None:
    """The edit that a record is; None where it is none, or is not readable."""
    place = place_of_edit(key)
    try:
        facts = json.loads(value)
        texts = [facts[name] for name in ("job", "by", "topic_id", "value_base64")]
        at_ms = facts["at_ms"]
        if place is None or type(at_ms) is not int or any(type(each) is not str for each in texts):
            return None
        job, by, topic_id, encoded = texts
        payload = base64.b64decode(encoded, validate=True)
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
    return KeptEdit(*place, job, by, at_ms, payload, topic_id)
