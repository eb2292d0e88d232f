"""The ack strip: every mark says what is true of the offsets it stands for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.acks.ack_strip import OPEN, PARTLY, RUNNING, SETTLED, WIDTH, ack_strip


def test_a_mark_is_an_offset_where_there_is_room() -> None:
    """The floor is the first; an offset with a handler at work is marked as such."""
    assert ack_strip(10, [(11, 13), (14, 15)], 17) == "·██·█··"
    assert ack_strip(10, [(11, 13), (14, 15)], 17, running=[10, 16, 17, 3]) == "▸██·█·▸"
    assert ack_strip(10, [], 10) == ack_strip(10, [], 4) == ""


def test_a_long_span_is_drawn_in_a_line() -> None:
    """Marks that stand for many offsets say whether all, some or none are settled."""
    strip = ack_strip(0, [(100, 250), (300, 1_000)], 1_000, running=[5], width=10)
    assert strip == "▸█▒███████"
    assert len(ack_strip(0, [], 10**12)) == WIDTH


@given(
    st.integers(0, 50),
    st.integers(0, 60),
    st.sets(st.integers(0, 120)),
    st.sets(st.integers(0, 120)),
    st.integers(1, 20),
)
def test_marks_agree_with_a_naive_look(
    floor: int, span: int, settled: set[int], running: set[int], width: int
) -> None:
    """Over any gap set: together the marks cover the span, and each is right."""
    runs = [(offset, offset + 1) for offset in sorted(settled)]
    strip = ack_strip(floor, runs, floor + span, running, width)
    assert len(strip) == min(span, width)
    for n, mark in enumerate(strip):
        part = range(floor + n * span // len(strip), floor + (n + 1) * span // len(strip))
        done = sum(offset in settled for offset in part)
        quiet = SETTLED if done == len(part) else PARTLY if done else OPEN
        assert mark == (RUNNING if running & set(part) else quiet)
