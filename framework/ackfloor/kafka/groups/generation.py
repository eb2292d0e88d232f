"""The generation of a member: tells a standby member from one that is still joining.

The client returns its group metadata as bytes (`Consumer.consumer_group_metadata`, made to be
passed to a producer): a tag; the generation, or the member epoch under KIP-848, as four bytes,
little-endian and signed, -1 until the group has admitted the member; then the group and the member
id, each with a zero behind it (librdkafka's `rd_kafka_consumer_group_metadata_write`). The client
offers no other way to read it.
"""

from __future__ import annotations

import struct

_TAG = b"CGMDv2:"
_GENERATION = struct.Struct("<i")
_NAMES = len(_TAG) + _GENERATION.size


def _read(metadata: object) -> tuple[int, bytes] | None:
    """The generation, and the names behind it; None where the bytes have another form."""
    if not isinstance(metadata, bytes) or not metadata.startswith(_TAG) or len(metadata) < _NAMES:
        return None
    (generation,) = _GENERATION.unpack_from(metadata, len(_TAG))
    return generation, metadata[_NAMES:]


def admitted(metadata: object) -> bool:
    """Whether the group has admitted the member; False if the bytes have another form."""
    found = _read(metadata)
    return found is not None and found[0] > 0


def fences_nothing(metadata: object) -> bool:
    """Whether it names no generation or no member, as when the group has thrown the member out.

    With neither, the group takes a transaction's offsets from anybody, although the partitions have
    another owner (Kafka's `ClassicGroup.validateOffsetCommit`, for clients older than KIP-447; seen
    with 4.3). False if the bytes have another form: then the group decides.
    """
    found = _read(metadata)
    if found is None:
        return False
    generation, names = found
    return generation < 0 or names.split(b"\0", 2)[1:2] == [b""]
