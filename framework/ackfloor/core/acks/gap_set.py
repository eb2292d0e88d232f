"""Gap sets: the acks above the floor, stored as text in a commit's metadata, to skip on restart.

Theory. Kafka stores one position per partition and group, and beside it a short text that it
hands back untouched. The position is the floor; the text says which offsets above it are
settled, so that after a crash they are skipped and not handled again. A wrong text loses records
(an offset taken for settled is never read again); a missing one only repeats them. So a text is
verified before it is used, and one that fails is treated as absent.

    "af1" codec base85(crc32 floor topic leader_epoch payload)

* `af1`: this tool, version 1. Another prefix is foreign or newer.
* codec: one letter, `r` runs or `b` bitset; `R` and `B` are the same, deflated.
* crc32 (4 bytes) over codec, topic, partition and all that follows: without it a flipped bit
  decodes to another legal gap set in four cases of five.
* floor, a varint: must be the committed position, so that a text is never read against another.
* topic, 4 bytes: hash of the topic's id; a topic that was deleted and created anew under its
  old name has another one. 0 is unknown.
* leader_epoch + 1, a varint: that of the highest settled record. A record that comes back with
  a newer one was written after the log was truncated, so it is not the one that was settled.
* payload: the runs [start, end) in ascending order. Runs: pairs of varints, the distance from
  the end of the one before (the first: from the floor) and the length. Bitset: bit n, from the
  most significant of the first byte on, is offset floor + n. The floor itself is in it where
  an earlier worker settled it and this one has not read it yet.

The shortest form is written. Where none fits into the limit, as many of the lowest runs as do.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from ackfloor.core.records.record import StartPosition

PREFIX = "af"
VERSION = "1"
#: Most characters of a commit's metadata. A broker refuses more than its
#: `offset.metadata.max.bytes`, 4,096 by default.
LONGEST = 4_000
#: What no compressed payload may exceed once it is inflated, in bytes.
LARGEST_PAYLOAD = 1 << 20
#: A span this wide is never written as a bitset, in offsets.
WIDEST_BITSET = 1 << 19
#: Below this many characters the first form is good enough: no other is tried.
SHORT = 200
#: No offset of a log is larger.
LARGEST_OFFSET = (1 << 63) - 1

Runs = Sequence[tuple[int, int]]

_ONES = re.compile("1+")


class MetadataRefused(Exception):
    """A commit's metadata that can't be trusted; the message says why."""


@dataclass(frozen=True, slots=True)
class GapSet:
    """What a commit stores beside its position.

    Attributes:
        floor: the committed position.
        runs: settled offsets above the floor, as ascending runs [start, end).
        topic_hash: `topic_hash(topic id)`, 0 where the id was not known.
        leader_epoch: of the highest settled record, -1 where it has none.
    """

    floor: int
    runs: Runs = ()
    topic_hash: int = 0
    leader_epoch: int = -1


def topic_hash(topic_id: str) -> int:
    """The part of a topic's id that fits into metadata; 0 for an unknown (empty) id.

    librdkafka prints ids in base64's first alphabet, Kafka and its Java clients in the one for
    addresses: both are the same id. What is hashed is librdkafka's form.
    """
    same = topic_id.replace("-", "+").replace("_", "/")
    return zlib.crc32(same.encode()) or 1 if topic_id else 0


def encode(gaps: GapSet, topic: str, partition: int, limit: int = LONGEST) -> tuple[str, int]:
    """Write a gap set in its shortest form, and say how long the whole of it is.

    Returns:
        The text, of at most `limit` characters, and the length that all runs would have taken.
        A text with fewer runs holds the lowest ones. Where not even the frame fits: "".
    """
    text = _shortest(gaps, gaps.runs, topic, partition)
    whole = len(text)
    if whole <= limit:
        return text, whole
    fits, low, high = "", 0, len(gaps.runs)
    while low < high:
        middle = (low + high) // 2
        text = _shortest(gaps, gaps.runs[:middle], topic, partition)
        if len(text) <= limit:
            fits, low = text, middle + 1
        else:
            high = middle
    return fits, whole


def decode(text: str, topic: str, partition: int) -> GapSet:
    """Read a commit's metadata.

    Raises:
        MetadataRefused: it is foreign, newer, damaged, or of another partition.
    """
    if not text.startswith(PREFIX):
        raise MetadataRefused("it was written by another tool")
    if text[2:3] != VERSION:
        raise MetadataRefused(f"its version is {text[2:3]!r}, this ackfloor reads {VERSION!r}")
    codec = text[3:4]
    if not codec or codec not in "rRbB":
        raise MetadataRefused(f"its codec is {codec!r}")
    try:
        body = base64.b85decode(text[4:])
    except ValueError:
        raise MetadataRefused("it is not base85") from None
    if base64.b85encode(body).decode() != text[4:]:
        raise MetadataRefused("its last characters are not as they were written")
    if len(body) < 4 or int.from_bytes(body[:4]) != _checksum(codec, topic, partition, body[4:]):
        raise MetadataRefused("its checksum does not match: damaged, or of another partition")
    # The checksum matched: this code, or one like it, wrote the rest.
    floor, at = _varint(body, 4)
    hashed = int.from_bytes(body[at : at + 4])
    epoch, at = _varint(body, at + 4)
    payload = body[at:] if codec.islower() else _inflated(body[at:])
    runs = _read_runs(payload, floor) if codec in "rR" else _read_bitset(payload, floor)
    return GapSet(floor, runs, hashed, epoch - 1)


def gap_set_of(start: StartPosition) -> GapSet:
    """The gap set in the commit that a partition starts from.

    Raises:
        MetadataRefused: the text is not valid, or not of this position and this log.
    """
    gaps = decode(start.metadata, start.topic, start.partition)
    committed = start.position - start.lost
    if gaps.floor != committed:
        raise MetadataRefused(f"it belongs to position {gaps.floor}, not {committed}")
    if gaps.topic_hash and start.topic_id and gaps.topic_hash != topic_hash(start.topic_id):
        raise MetadataRefused("it belongs to an earlier topic of this name")
    if gaps.runs and start.log_end is not None and gaps.runs[-1][1] > start.log_end:
        raise MetadataRefused(f"it names offsets beyond the log's end, {start.log_end}")
    return gaps


# Writing.


def _shortest(gaps: GapSet, runs: Runs, topic: str, partition: int) -> str:
    """The shortest of the four forms; the first is mostly short enough."""
    plain = _written_runs(runs, gaps.floor)
    best = _framed("r", plain, gaps, topic, partition)
    if len(best) <= SHORT:
        return best
    payloads = [("R", zlib.compress(plain))]
    if runs[-1][1] - gaps.floor <= WIDEST_BITSET:
        bits = _written_bitset(runs, gaps.floor)
        payloads += [("b", bits), ("B", zlib.compress(bits))]
    codec, payload = min(payloads, key=lambda form: len(form[1]))
    if len(payload) >= len(plain):
        return best
    return _framed(codec, payload, gaps, topic, partition)


def _framed(codec: str, payload: bytes, gaps: GapSet, topic: str, partition: int) -> str:
    rest = bytearray()
    _put_varint(rest, gaps.floor)
    rest += gaps.topic_hash.to_bytes(4)
    _put_varint(rest, gaps.leader_epoch + 1)
    rest += payload
    crc = _checksum(codec, topic, partition, rest)
    return PREFIX + VERSION + codec + base64.b85encode(crc.to_bytes(4) + rest).decode()


def _checksum(codec: str, topic: str, partition: int, rest: bytes | bytearray) -> int:
    return zlib.crc32(rest, zlib.crc32(f"{codec} {topic} {partition} ".encode()))


def _written_runs(runs: Runs, floor: int) -> bytes:
    out = bytearray()
    at = floor
    for start, end in runs:
        _put_varint(out, start - at)
        _put_varint(out, end - start)
        at = end
    return bytes(out)


def _written_bitset(runs: Runs, floor: int) -> bytes:
    digits: list[str] = []
    at = floor
    for start, end in runs:
        digits += ("0" * (start - at), "1" * (end - start))
        at = end
    text = "".join(digits)
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8)


def _put_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


# Reading. The checksum matched, but a forged text must not break anything either.


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    number = shift = 0
    while at < len(data) and shift < 63:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
    raise MetadataRefused("a number in it has no end")


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, LARGEST_PAYLOAD)
    except zlib.error:
        raise MetadataRefused("it can't be inflated") from None
    if not inflater.eof:
        raise MetadataRefused(f"it inflates to more than {LARGEST_PAYLOAD} bytes, or to no end")
    return inflated


def _read_runs(payload: bytes, floor: int) -> Runs:
    runs: list[tuple[int, int]] = []
    at, end = 0, floor
    while at < len(payload):
        distance, at = _varint(payload, at)
        length, at = _varint(payload, at)
        start = end + distance
        end = start + length
        if not length or (runs and not distance) or end > LARGEST_OFFSET:
            raise MetadataRefused("its runs are not in order")
        runs.append((start, end))
    return tuple(runs)


def _read_bitset(payload: bytes, floor: int) -> Runs:
    # Alternating bits of a megabyte deflate to a few characters and would be four million runs.
    if len(payload) > WIDEST_BITSET // 8:
        raise MetadataRefused("its bitset is wider than any that is written")
    digits = bin(int.from_bytes(b"\1" + payload))[3:]
    runs = tuple((floor + m.start(), floor + m.end()) for m in _ONES.finditer(digits))
    if runs and runs[-1][1] > LARGEST_OFFSET:
        raise MetadataRefused("its bitset goes beyond the last offset there is")
    return runs
