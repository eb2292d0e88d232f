"""The generation of a member: tells a standby member from one that is still joining.

The client returns its group metadata as bytes (`Consumer.consumer_group_metadata`, made to be
passed to a producer): a tag, then the generation, or the member epoch under KIP-848, as four bytes,
little-endian and signed; -1 until the group has admitted the member (librdkafka's
`rd_kafka_consumer_group_metadata_write`). The client offers no other way to read it.
"""

from __future__ import annotations

import struct

_TAG = b"CGMDv2:"
_GENERATION = struct.Struct("<i")


def admitted(metadata: object) -> bool:
    """Whether the group has admitted the member; False if the bytes have another form."""
    if not isinstance(metadata, bytes) or not metadata.startswith(_TAG):
        return False
    if len(metadata) < len(_TAG) + _GENERATION.size:
        return False
    return bool(_GENERATION.unpack_from(metadata, len(_TAG))[0] > 0)
