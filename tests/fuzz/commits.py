"""Target: the metadata of commits, which any tool with the right to commit can write."""

from __future__ import annotations

import base64
import zlib

from hypothesis import strategies as st

from ackfloor.core.acks.gap_set import (
    LARGEST_OFFSET,
    WIDEST_BITSET,
    GapSet,
    MetadataRefused,
    decode,
    encode,
    gap_set_of,
    topic_hash,
)
from ackfloor.core.records.record import StartPosition
from tests.fuzz.target import Target, text_of

#: What the runs of one text may take in memory at most.
MOST_RUNS = 600_000


def check_commits(data: bytes) -> None:
    """As it came, and with a checksum that holds, so that what is behind it is reached too."""
    _check(text_of(data))
    codec, rest = text_of(data[:1]), data[1:]
    crc = zlib.crc32(rest, zlib.crc32(f"{codec} t 0 ".encode()))
    _check(f"af1{codec}" + base64.b85encode(crc.to_bytes(4) + rest).decode())


def _check(text: str) -> None:
    """Refused, or a gap set in order that is the same when it is written and read again."""
    try:
        gaps = decode(text, "t", 0)
    except MetadataRefused:
        return
    assert 0 <= gaps.floor <= LARGEST_OFFSET
    assert len(gaps.runs) <= MOST_RUNS
    end = gaps.floor - 1
    for start, after in gaps.runs:
        assert end < start < after <= LARGEST_OFFSET
        end = after
    if len(gaps.runs) < 2_000:
        again, _ = encode(gaps, "t", 0, 10_000_000)
        assert decode(again, "t", 0) == gaps
    start_at = StartPosition("t", 0, gaps.floor, metadata=text, topic_id="id", log_end=end)
    try:
        assert gap_set_of(start_at) == gaps
    except MetadataRefused:
        assert gaps.topic_hash not in {0, topic_hash("id")}


def _framed(gaps: GapSet) -> bytes:
    """A gap set without its frame: the codec's letter, and what the checksum is over."""
    text, _ = encode(gaps, "t", 0, 10_000_000)
    return text[3].encode() + base64.b85decode(text[4:])[4:]


def _written(gaps: GapSet) -> bytes:
    return encode(gaps, "t", 0)[0].encode()


def _runs(floor: int, steps: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    runs, at = [], floor
    for distance, length in steps:
        runs.append((at + distance, at + distance + length))
        at += distance + length
    return tuple(runs)


_gaps = st.builds(
    lambda floor, steps, hashed, epoch: GapSet(floor, _runs(floor, steps), hashed, epoch),
    st.integers(0, 2**40) | st.integers(LARGEST_OFFSET - 50, LARGEST_OFFSET),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 300)), max_size=120),
    st.integers(0, 2**32 - 1),
    st.integers(-1, 2**31),
).filter(lambda gaps: not gaps.runs or gaps.runs[-1][1] <= LARGEST_OFFSET)
_bits = st.binary(max_size=40).map(lambda bits: b"b\x05\0\0\0\0\0" + bits)
_long = st.integers(1, WIDEST_BITSET).map(
    lambda size: b"B\x05\0\0\0\0\0" + zlib.compress(b"\xaa" * size)
)

TARGETS = (
    Target(
        "commits",
        check_commits,
        _gaps.map(_framed) | _bits | _long | _gaps.map(_written),
        [b"r", b"R", b"b", b"B", b"\xff" * 9, b"\x80", b"\0", b"af1", b"af2"],
    ),
)
