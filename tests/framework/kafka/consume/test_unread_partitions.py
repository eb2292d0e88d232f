"""What is not read for now is one line, and one more when it is read again."""

from __future__ import annotations

import logging

import pytest

from ackfloor.kafka.consume.unread_partitions import SAY_AGAIN_S, UnreadPartitions

ORDERS = [("orders", number) for number in range(3)]
RETRIES = [("orders--g--retry-1s", number) for number in range(3)]


class Clock:
    """Monotonic seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """The time of `unread`."""
    return Clock()


@pytest.fixture
def unread(clock: Clock, caplog: pytest.LogCaptureFixture) -> UnreadPartitions:
    """Everything is read."""
    caplog.set_level(logging.INFO)
    return UnreadPartitions(clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was logged."""
    return [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "ackfloor.kafka"]


def test_each_has_a_line_when_it_is_not_read_and_one_when_it_is(
    unread: UnreadPartitions, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """One for all that begin together, with how long it took."""
    unread.left_out([*ORDERS, *RETRIES], "no leader")
    clock.now_s += 12.0
    unread.begun([*ORDERS, *RETRIES[1:], ("other", 0)])
    clock.now_s += 30.0
    unread.begun(RETRIES)
    unread.begun(RETRIES)
    assert lines(caplog) == [
        (
            "WARNING",
            (
                "not read for now, and asked for again: orders: 0-2; retry topic of orders (1s): "
                "0-2 (no leader)"
            ),
        ),
        ("INFO", "now read, after 12 s: orders: 0-2; retry topic of orders (1s): 1-2"),
        ("INFO", "now read, after 42 s: retry topic of orders (1s): 0"),
    ]
    assert not unread


def test_what_lasts_is_a_line_a_minute(
    unread: UnreadPartitions, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is asked for."""
    for _ in range(100):
        unread.left_out(RETRIES, "no leader")
        clock.now_s += 1.0
    assert len(lines(caplog)) == 2
    unread.begun(RETRIES)
    assert lines(caplog)[2] == ("INFO", "now read, after 100 s: retry topic of orders (1s): 0-2")


def test_what_comes_and_goes_is_two_lines_a_minute(
    unread: UnreadPartitions, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """And the next ones say how often it did."""
    for _ in range(int(SAY_AGAIN_S) + 1):
        unread.left_out(RETRIES, "no leader")
        clock.now_s += 0.5
        unread.begun(RETRIES)
        clock.now_s += 0.5
    text = "retry topic of orders (1s): 0-2"
    often = "; 59 times more since this was logged last"
    assert lines(caplog) == [
        ("WARNING", f"not read for now, and asked for again: {text} (no leader)"),
        ("INFO", f"now read, after 0 s: {text}"),
        ("WARNING", f"not read for now, and asked for again: {text} (no leader{often})"),
        ("INFO", f"now read, after 0 s: {text}"),
    ]


def test_what_was_taken_away_is_not_read_again_here(
    unread: UnreadPartitions, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """It may come back an hour later, and nothing held it up then."""
    unread.left_out(ORDERS, "no leader")
    unread.keep(lambda place: place[1] == 1)
    clock.now_s += 3600.0
    unread.begun(ORDERS)
    assert lines(caplog)[1:] == [("INFO", "now read, after 3600 s: orders: 1")]
