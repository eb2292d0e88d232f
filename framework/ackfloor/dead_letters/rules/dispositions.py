"""Dispositions: what was done with a dead letter, as records of a compacted topic.

A record of a dead-letter topic is never changed or deleted. What was done with it is written
beside it, into one compacted topic for each dead-letter topic:

    key    b"3/41927"      partition and offset of the dead letter
    value  {"disposition": "replayed", "at": "2026-11-21T17:30:00.000Z", "by": "ann@host",
            "job": "20261121-173000-5f2c", "target": "orders--billing--retry-1s",
            "topic_id": "Jq0bS6aTQ..."}

Notes of the jobs that wrote them are in the same topic, see `dead_letters/rules/redrive_jobs.py`,
payloads that are to be sent corrected, see `dead_letters/rules/kept_edits.py`, and what jobs are
about, see `dead_letters/rules/kept_selections.py`.

Invariants. What has a disposition is hidden until somebody asks for it, and sent nowhere again.
The last record of a key counts, and one without a value takes the disposition back. `topic_id`
says which dead-letter topic was meant: of one that was deleted and created anew under its name,
the same offsets are other records. An unknown disposition is from a newer version and
hides as well; a value that can't be read at all hides nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ackfloor.core.acks.offset_set import OffsetSet
from ackfloor.core.parking.topic_names import dispositions_topic, parse_topic
from ackfloor.core.values.json_bytes import json_bytes
from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.rules.kept_edits import PREFIX as EDIT_PREFIX
from ackfloor.dead_letters.rules.kept_edits import KeptEdit, place_of_edit, read_edit
from ackfloor.dead_letters.rules.kept_selections import PREFIX as SELECTION_PREFIX
from ackfloor.dead_letters.rules.kept_selections import (
    KeptPart,
    PlaceOfPart,
    job_and_place,
    read_part,
)
from ackfloor.dead_letters.rules.redrive_jobs import PREFIX as JOB_PREFIX
from ackfloor.dead_letters.rules.redrive_jobs import Jobs, read_at, written_at

_KEY: Final = re.compile(rb"([0-9]{1,10})/([0-9]{1,19})")


class Disposition(StrEnum):
    """What was done with a dead letter."""

    REPLAYED = "replayed"
    DISCARDED = "discarded"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True)
class DispositionNote:
    """The value of a disposition record.

    Attributes:
        at_ms: when, in wall-clock milliseconds.
        by: who asked for it.
        job: the job that did it.
        target: the topic it was replayed to, or where it was archived; "" for a discarded one.
        topic_id: Kafka's id of the dead-letter topic, "" where it is not known.
    """

    disposition: Disposition
    at_ms: int
    by: str
    job: str
    target: str = ""
    topic_id: str = ""

    def to_bytes(self) -> bytes:
        """The record's value."""
        facts = {
            "disposition": self.disposition.value,
            "at": written_at(self.at_ms),
            "by": self.by,
            "job": self.job,
            "target": self.target,
            "topic_id": self.topic_id,
        }
        return json_bytes(facts)


def read_disposition(value: bytes | None) -> DispositionNote | None:
    """What a disposition record says; None where it is another record, or of a newer version."""
    try:
        facts = json.loads(value or b"")
        texts = [facts.get(name, "") for name in ("by", "job", "target", "topic_id")]
        if not all(isinstance(each, str) for each in texts):
            return None
        return DispositionNote(Disposition(facts["disposition"]), read_at(facts["at"]), *texts)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def disposition_key(partition: int, offset: int) -> bytes:
    """The key of the disposition of one dead letter."""
    return b"%d/%d" % (partition, offset)


def place_of_disposition(key: bytes | None) -> tuple[int, int] | None:
    """Partition and offset of the dead letter that a key names; None for any other key."""
    match = _KEY.fullmatch(key or b"")
    return None if match is None else (int(match[1]), int(match[2]))


def dispositions_topic_of(dlq: str) -> str:
    """The topic with the dispositions of a dead-letter topic, which may be another tool's.

    Raises:
        SettingError: the name is that of one of our own topics, but of no dead-letter topic, or
            its dispositions could be taken for another's.
    """
    parsed = parse_topic(dlq)
    if parsed is not None and parsed.kind == "dlq":
        return dispositions_topic(parsed.topic, parsed.group)
    if parsed is not None:
        raise SettingError(
            "topic", dlq, f"a {parsed.kind} topic is no dead-letter topic", "name one that is"
        )
    # Two parts where ours have three, so it is free unless the name has "--" itself.
    name = f"{dlq}--dispositions"
    if parse_topic(name) is not None:
        raise SettingError(
            "topic", dlq, f"{name} would hold the dispositions of another topic", "rename it"
        )
    return name


@dataclass(slots=True)
class Disposed:
    """Which dead letters of one topic have a disposition; fed with the records, in order.

    Attributes:
        topic_id: of the dead-letter topic as it is now; "" where it is not known.
        unreadable: records that are neither dispositions, nor notes of jobs, nor what they keep.
        jobs: the notes of the jobs.
        edits: partition and offset of a dead letter -> its kept edit.
        selections: job -> the parts of the selection that it keeps.
    """

    topic_id: str = ""
    unreadable: int = 0
    jobs: Jobs = field(default_factory=Jobs)
    edits: dict[tuple[int, int], KeptEdit] = field(default_factory=dict)
    selections: dict[str, dict[PlaceOfPart, KeptPart]] = field(default_factory=dict)
    _offsets: dict[int, OffsetSet] = field(default_factory=dict)

    def note(self, key: bytes | None, value: bytes | None) -> None:
        """Note one record of the dispositions topic."""
        place = place_of_disposition(key)
        if place is None:
            self._note_other(key or b"", value)
            return
        partition, offset = place
        if value is None:
            self._of(partition).discard(offset)
            return
        topic_id = _topic_id_of(value)
        if topic_id is None:
            self.unreadable += 1
        elif not topic_id or not self.topic_id or topic_id == self.topic_id:
            self._of(partition).add(offset)

    def hides(self, partition: int, offset: int) -> bool:
        """Whether this dead letter has a disposition."""
        offsets = self._offsets.get(partition)
        return offsets is not None and offset in offsets

    def count_from(self, partition: int, offset: int) -> int:
        """How many of a partition's dead letters from this offset on have a disposition."""
        return self._of(partition).count_from(offset)

    def first_without(self, partition: int, offset: int) -> int:
        """The first offset of a partition, from this one on, that has no disposition."""
        return self._of(partition).first_missing(offset)

    def __len__(self) -> int:
        return sum(map(len, self._offsets.values()))

    def _note_other(self, key: bytes, value: bytes | None) -> None:
        if key.startswith(JOB_PREFIX):
            self.jobs.note(key, value)
        elif key.startswith(EDIT_PREFIX):
            self._note_edit(key, value)
        elif key.startswith(SELECTION_PREFIX):
            self._note_part(key, value)
        else:
            self.unreadable += 1

    def _note_edit(self, key: bytes, value: bytes | None) -> None:
        place = place_of_edit(key)
        found = None if value is None else read_edit(key, value)
        if place is None or (value is not None and found is None):
            self.unreadable += 1
        elif found is None:
            self.edits.pop(place, None)
        elif not self.topic_id or found.topic_id == self.topic_id:
            self.edits[place] = found

    def _note_part(self, key: bytes, value: bytes | None) -> None:
        named = job_and_place(key)
        part = None if value is None else read_part(value)
        if named is None or (value is not None and part is None):
            self.unreadable += 1
            return
        job, place = named
        if part is None:
            kept = self.selections.get(job, {})
            kept.pop(place, None)
            if not kept:
                self.selections.pop(job, None)
        elif not self.topic_id or part.topic_id == self.topic_id:
            self.selections.setdefault(job, {})[place] = part

    def _of(self, partition: int) -> OffsetSet:
        return self._offsets.setdefault(partition, OffsetSet())


def _topic_id_of(value: bytes) -> str | None:
    """The topic id of a disposition, "" where it says none; None where this is no disposition."""
    try:
        facts = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("disposition"), str):
        return None
    topic_id = facts.get("topic_id")
    return topic_id if isinstance(topic_id, str) else ""
