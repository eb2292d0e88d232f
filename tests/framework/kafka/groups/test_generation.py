"""What the client tells of its membership, and bytes that it might tell one day."""

from __future__ import annotations

import struct

import pytest

from ackfloor.kafka.groups.generation import admitted


def told(generation: int) -> bytes:
    """As the client of today writes it."""
    return b"CGMDv2:" + struct.pack("<i", generation) + b"group\0member\0\1"


OTHERS = [b"", b"CGMDv2:", b"CGMDv2:\1\0", b"CGMDv3:" + bytes(9), None]


@pytest.mark.parametrize(
    ("generation", "expected"), [(-1, False), (0, False), (1, True), (9, True)]
)
def test_a_member_has_a_generation(generation: int, expected: bool) -> None:
    """Before the group has admitted it, it has none."""
    assert admitted(told(generation)) is expected


@pytest.mark.parametrize("metadata", OTHERS)
def test_another_form_tells_nothing(metadata: object) -> None:
    """Of another client: not known, so not admitted."""
    assert not admitted(metadata)
