"""Kept selections: the places of the dead letters that a job is about, until it has done them all.

A filter that is noted selects the same again only where it is asked of the same facts. What the
console selects by a filter is asked of its index: that has parts of a dead letter, redacted, and
what it has no room for is not meant. So such a job keeps the places themselves in the compacted
topic of the dispositions, before it writes anything else: key `selection/`, the partition and the
first offset of a part, and the job's name; value JSON. A job that was killed is resumed with it,
wherever that is.

Invariants. It says where dead letters are and nothing that they hold. The job deletes it when it
has done what it was asked for. Of an earlier topic of the name it selects nothing. What can't be
read is left out, and a selection with a part that can't be read is none at all.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from ackfloor.core.values.json_bytes import json_bytes

PREFIX: Final = b"selection/"
_KEY: Final = re.compile(rb"selection/([0-9]{1,10})/([0-9]{1,19})/(.+)", re.DOTALL)
#: Offsets of one record: it stays far below what a topic takes.
PART: Final = 50_000
_PACKED: Final = "distances_base64"
#: Characters of each distance between two offsets, with the space behind it.
_LONGEST_DISTANCE: Final = 20


class PlaceOfPart(NamedTuple):
    """Which part of a selection a record is."""

    partition: int
    first: int


class KeptPart(NamedTuple):
    """A part of a job's selection, as its record has it.

    Attributes:
        topic_id: Kafka's id of the dead-letter topic.
        in_all: how many parts the selection has.
        packed: its offsets.
    """

    topic_id: str
    in_all: int
    packed: bytes


#: As `redrive_rules.Wanted`, which is made of more than this.
Selection = Mapping[int, "array[int]"]
#: The parts of one job's selection.
Parts = Mapping[PlaceOfPart, KeptPart]


def parts_of(wanted: Selection, topic_id: str) -> dict[PlaceOfPart, KeptPart]:
    """A selection in parts; each partition's offsets are ascending."""
    slices = [
        (partition, offsets[start : start + PART])
        for partition, offsets in wanted.items()
        for start in range(0, len(offsets), PART)
    ]
    return {
        PlaceOfPart(partition, some[0]): KeptPart(topic_id, len(slices), _packed(some))
        for partition, some in slices
    }


def selection_of(parts: Parts) -> Selection | None:
    """What the parts select; None where one is missing, or is not readable."""
    if not parts or any(each.in_all != len(parts) for each in parts.values()):
        return None
    found: dict[int, array[int]] = {}
    try:
        for place, part in sorted(parts.items()):
            found.setdefault(place.partition, array("q")).extend(_unpacked(place.first, part))
    except (OverflowError, ValueError, zlib.error):
        return None
    ascending = all(a < b for offsets in found.values() for a, b in pairwise(offsets))
    return found if ascending else None


def part_key(job: str, place: PlaceOfPart) -> bytes:
    """The key of a part's record."""
    return b"%s%d/%d/%s" % (PREFIX, *place, job.encode("utf-8", "replace"))


def job_and_place(key: bytes) -> tuple[str, PlaceOfPart] | None:
    """Whose selection a key is of, and which part; None for any other key."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    job = match[3].decode("utf-8", "replace")
    return job, PlaceOfPart(int(match[1]), int(match[2]))


def part_bytes(part: KeptPart) -> bytes:
    """The value of a part's record."""
    return json_bytes(
        {
            "topic_id": part.topic_id,
            "parts": part.in_all,
            _PACKED: base64.b64encode(part.packed).decode(),
        }
    )


def read_part(value: bytes) -> KeptPart | None:
    """The part that a record is; None where it is not readable. Its offsets are read later."""
    try:
        facts = json.loads(value)
        topic_id, count, encoded = (facts[each] for each in ("topic_id", "parts", _PACKED))
        if type(topic_id) is not str or type(count) is not int or type(encoded) is not str:
            return None
        return KeptPart(topic_id, count, base64.b64decode(encoded, validate=True))
    except (KeyError, RecursionError, TypeError, ValueError):
        return None


def _packed(offsets: array[int]) -> bytes:
    """Most dead letters of a cause lie side by side: their distances are nearly nothing, packed."""
    distances = (later - earlier for earlier, later in pairwise(offsets))
    return zlib.compress(" ".join(map(str, distances)).encode())


def _unpacked(first: int, part: KeptPart) -> Iterator[int]:
    """Its offsets; raises ValueError or zlib.error for what nobody of ours has written."""
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(part.packed, PART * _LONGEST_DISTANCE)
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise ValueError("longer than a part is")
    return accumulate(map(int, text.split()), initial=first)


def missing_text(job: str) -> str:
    """Why a job that kept a selection can't go on."""
    return (
        f"job {job} keeps no selection any more: it has done what it was asked for, or the topic "
        "was deleted and created anew since; ask for the same again"
    )
