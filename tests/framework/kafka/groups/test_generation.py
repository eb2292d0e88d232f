"""What the client tells of its membership, and bytes that it might tell one day."""

from __future__ import annotations

import struct

import pytest

from ackfloor.kafka.groups.generation import admitted, fences_nothing


def told(generation: int, member: bytes = b"member") -> bytes:
    """As the client of today writes it."""
    return b"CGMDv2:" + struct.pack("<i", generation) + b"group\0" + member + b"\0\1"


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
    assert not fences_nothing(metadata)


@pytest.mark.parametrize(
    ("generation", "member", "expected"),
    [(-1, b"", True), (-1, b"member", True), (3, b"", True), (0, b"member", False)],
)
def test_who_is_no_member_any_more_is_not_fenced(
    generation: int, member: bytes, expected: bool
) -> None:
    """The client takes away the generation, the member id, or both."""
    assert fences_nothing(told(generation, member)) is expected
