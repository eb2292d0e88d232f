"""Gap sets as text: whatever is written comes back, and nothing else is believed."""

from __future__ import annotations

import base64
import random
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ackfloor.core.acks import gap_set as gapset
from ackfloor.core.acks.gap_set import (
    LARGEST_OFFSET,
    LONGEST,
    GapSet,
    MetadataRefused,
    decode,
    encode,
    gap_set_of,
    topic_hash,
)
from ackfloor.core.records.record import StartPosition


@st.composite
def gap_sets(draw: st.DrawFn) -> GapSet:
    """Any floor, any runs above it."""
    floor = draw(st.integers(0, 1 << 50))
    steps = draw(st.lists(st.tuples(st.integers(1, 4_000), st.integers(1, 4_000)), max_size=150))
    runs, end = [], floor - draw(st.integers(0, 1)) * (steps[0][0] if steps else 0)
    for distance, length in steps:
        runs.append((end + distance, end + distance + length))
        end += distance + length
    return GapSet(
        floor, tuple(runs), draw(st.integers(0, (1 << 32) - 1)), draw(st.integers(-1, 1 << 31))
    )


def scattered(span: int, open_count: int, floor: int = 1_000) -> GapSet:
    """What is settled when some offsets of a span, anywhere in it, are open."""
    open_ = sorted(random.Random(7).sample(range(1, span), open_count - 1))
    runs, at = [], 1
    for offset in [*open_, span]:
        if offset > at:
            runs.append((floor + at, floor + offset))
        at = offset + 1
    return GapSet(floor, tuple(runs), 77, 3)


@given(gap_sets(), st.text(max_size=30), st.integers(0, 10_000))
@example(GapSet(0), "t", 0)
@example(GapSet(LARGEST_OFFSET - 2, ((LARGEST_OFFSET - 1, LARGEST_OFFSET),)), "t", 0)
def test_what_is_written_comes_back(gaps: GapSet, topic: str, partition: int) -> None:
    """Whole, in any form, where the limit allows it."""
    text, whole = encode(gaps, topic, partition, 1_000_000)
    assert len(text) == whole
    assert text.isascii()
    assert text.isprintable()
    assert decode(text, topic, partition) == gaps


@given(gap_sets(), st.integers(0, 400))
def test_what_does_not_fit_is_cut_from_above(gaps: GapSet, limit: int) -> None:
    """The lowest runs are kept: they are the ones that the floor reaches first."""
    text, whole = encode(gaps, "t", 0, limit)
    assert len(text) <= limit
    if not text:
        assert len(encode(GapSet(gaps.floor, (), gaps.topic_hash, gaps.leader_epoch), "t", 0)[0])
        return
    kept = decode(text, "t", 0)
    assert kept.runs == gaps.runs[: len(kept.runs)]
    assert (whole <= limit) == (kept == gaps)


@pytest.mark.parametrize(
    ("span", "open_count", "codec"),
    [
        (10_000, 1, "r"),
        (100_000, 64, "R"),
        (10_000, 5_000, "b"),
        (20_000, 1_000, "B"),
        (100_000_000, 2, "r"),
    ],
)
def test_the_smallest_form_is_written(span: int, open_count: int, codec: str) -> None:
    """Each of the four is the smallest somewhere, and never is another one smaller."""
    gaps = scattered(span, open_count)
    text, whole = encode(gaps, "t", 0, 1_000_000)
    assert text[3] == codec
    assert decode(text, "t", 0) == gaps
    plain = gapset._written_runs(gaps.runs, gaps.floor)
    forms = [len(plain)]
    if whole > gapset.SHORT:
        bits = gapset._written_bitset(gaps.runs, gaps.floor)
        forms += [len(bits), len(zlib.compress(bits)), len(zlib.compress(plain))]
    frame = len(gapset._framed("r", b"", gaps, "t", 0))
    assert whole <= frame + (min(forms) * 5 + 3) // 4 + 1


def test_what_can_not_be_deflated_is_written_as_it_is() -> None:
    """Random distances over a span too wide for a bitset: no other form is smaller."""
    pick = random.Random(3)
    runs, end = [], 0
    for _ in range(30):
        start = end + pick.randrange(1 << 14, 1 << 20)
        end = start + pick.randrange(1 << 14, 1 << 20)
        runs.append((start, end))
    gaps = GapSet(0, tuple(runs))
    text, _ = encode(gaps, "t", 0)
    assert len(text) > gapset.SHORT
    assert text[3] == "r"
    assert decode(text, "t", 0) == gaps


def test_ten_thousand_acks_behind_one_stuck_record_take_a_few_characters() -> None:
    """The case the whole thing is for."""
    assert len(encode(GapSet(500, ((501, 10_501),), 9, 0), "orders", 3)[0]) < 40


def test_a_thousand_open_records_over_a_full_span_fit() -> None:
    """The default limits of a partition: a span of 100,000 with 1,000 records open in it."""
    assert encode(scattered(100_000, 1_000), "orders", 3)[1] <= LONGEST


@pytest.mark.parametrize("open_count", [1, 64, 1_000, 5_000])
def test_one_flipped_bit_anywhere_is_noticed(open_count: int) -> None:
    """At every position of the text: floor only, never another gap set, never another error."""
    text, _ = encode(scattered(10_000, open_count), "orders", 3, LONGEST)
    step = max(1, len(text) // 300)
    for at in [*range(8), *range(8, len(text), step)]:
        for bit in range(7):
            flipped = text[:at] + chr(ord(text[at]) ^ (1 << bit)) + text[at + 1 :]
            with pytest.raises(MetadataRefused):
                decode(flipped, "orders", 3)


def test_any_part_of_a_text_is_refused() -> None:
    """A text that was cut short, wherever."""
    text, _ = encode(scattered(2_000, 40), "orders", 3)
    for length in range(len(text)):
        with pytest.raises(MetadataRefused):
            decode(text[:length], "orders", 3)


@given(st.text(max_size=100) | st.text("0123456789abcdefABCDEF", max_size=60).map("af1r".__add__))
def test_no_text_at_all_breaks_it(text: str) -> None:
    """Whatever another tool writes there."""
    with pytest.raises(MetadataRefused):
        decode(text, "orders", 3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "another tool"),
        ("NONE", "another tool"),
        ("bGFzdA==", "another tool"),
        ("af", "version is ''"),
        ("af2r0000", "version is '2'"),
        ("af1", "codec is ''"),
        ("af1z0000", "codec is 'z'"),
        ("af1r~~~~~", "not base85"),
        ('af1r"', "not base85"),
        ("af1r00", "checksum"),
    ],
)
def test_a_refusal_says_why(text: str, why: str) -> None:
    """For the one warning in the log."""
    with pytest.raises(MetadataRefused, match=why):
        decode(text, "orders", 3)


def test_a_text_counts_for_its_own_partition_only() -> None:
    """A commit that was copied to another partition or topic proves nothing there."""
    text, _ = encode(GapSet(5, ((7, 9),)), "orders", 3)
    for topic, partition in (("orders", 2), ("order", 3), ("orders 3", 3)):
        with pytest.raises(MetadataRefused, match="checksum"):
            decode(text, topic, partition)


def forged(codec: str, rest: bytes) -> str:
    """A text with a checksum that holds."""
    crc = gapset._checksum(codec, "t", 0, rest)
    return "af1" + codec + base64.b85encode(crc.to_bytes(4) + rest).decode()


HEAD = b"\x05" + bytes(4) + b"\x01"


@pytest.mark.parametrize(
    ("codec", "rest", "why"),
    [
        ("r", b"", "no end"),
        ("r", b"\x85", "no end"),
        ("r", HEAD + b"\x80\x80", "no end"),
        ("r", HEAD + b"\x01", "no end"),
        ("r", HEAD + b"\xff" * 12, "no end"),
        ("r", HEAD + b"\x01\x01\x00\x01", "not in order"),
        ("r", HEAD + b"\x01\x00", "not in order"),
        ("r", HEAD + b"\x01" + b"\xff" * 8 + b"\x7f", "not in order"),
        ("R", HEAD + b"no zlib", "inflated"),
        ("R", HEAD + zlib.compress(b"\x01\x01")[:-3], "no end"),
        ("B", HEAD + zlib.compress(bytes((1 << 20) + 1)), "more than"),
        ("B", HEAD + zlib.compress(b"\xaa" * (gapset.WIDEST_BITSET // 8 + 1)), "wider than any"),
        ("b", b"\xff" * 8 + b"\x7f" + HEAD[1:] + b"\x80", "beyond the last offset"),
    ],
)
def test_a_forged_text_breaks_nothing(codec: str, rest: bytes, why: str) -> None:
    """Even with a checksum that holds: an error that is caught, and bounded memory."""
    with pytest.raises(MetadataRefused, match=why):
        decode(forged(codec, rest), "t", 0)


def start(text: str, position: int = 100, **given: object) -> StartPosition:
    """A partition that starts from a commit."""
    return StartPosition("orders", 3, position, metadata=text)._replace(**given)


def test_a_gap_set_is_believed_where_everything_fits() -> None:
    """Position, topic id and log end are those it was written for."""
    gaps = GapSet(100, ((101, 103), (110, 120)), topic_hash("id-1"), 4)
    text, _ = encode(gaps, "orders", 3)
    assert gap_set_of(start(text)) == gaps
    assert gap_set_of(start(text, topic_id="id-1", log_end=120)) == gaps
    for other, why in (
        (start(text, 99), "belongs to position 100, not 99"),
        (start(text, topic_id="id-2"), "earlier topic"),
        (start(text, log_end=119), "beyond the log's end, 119"),
    ):
        with pytest.raises(MetadataRefused, match=why):
            gap_set_of(other)


def test_an_unknown_topic_id_is_no_reason_for_doubt() -> None:
    """A broker that would not tell it then, or does not now."""
    text, _ = encode(GapSet(100, ((101, 103),), 0), "orders", 3)
    assert gap_set_of(start(text, topic_id="id-1")).runs == ((101, 103),)
    assert topic_hash("") == 0
    assert topic_hash("id-1") != 0
    # as librdkafka prints it, and as Kafka does
    assert topic_hash("aB+/cd==") == topic_hash("aB-_cd==")
