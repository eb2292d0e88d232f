"""The figures of the last hour: what is kept of them, and how they are drawn."""

from __future__ import annotations

import pytest

from ackfloor_monitoring.console.reads.history import HEIGHT, MOST, WIDTH, History, drawn


def history(*figures: dict[str, int]) -> History:
    """Points a second apart."""
    made = History()
    for number, each in enumerate(figures):
        made.add(number * 1000, each)
    return made


def test_a_line_goes_from_the_first_point_to_the_last() -> None:
    """0 is the bottom, the most of the hour the top."""
    [plot] = history({"lag": 0}, {"lag": 5}, {"lag": 10}).plots()
    assert plot.path == f"M0 {HEIGHT}L{WIDTH // 2} {HEIGHT // 2}L{WIDTH} 0"
    assert (plot.title, plot.newest, plot.most) == ("Behind", 10, 10)


def test_what_is_always_0_is_a_line_at_the_bottom() -> None:
    """And not a division by it."""
    [plot] = history({"dead": 0}, {"dead": 0}).plots()
    assert plot.path == f"M0 {HEIGHT}L{WIDTH} {HEIGHT}"


def test_what_was_not_known_is_a_gap() -> None:
    """Not a 0, which would be good news."""
    plots = history({"lag": 4}, {"lag": 4}, {}, {"lag": 4, "dead": 1}, {"lag": 4}).plots()
    assert [each.title for each in plots] == ["Behind", "Dead letters"]
    assert plots[0].path == f"M0 0L{WIDTH // 4} 0M{3 * WIDTH // 4} 0L{WIDTH} 0"
    assert plots[1].newest is None


@pytest.mark.parametrize("figures", [[], [{"lag": 4}]])
def test_a_plot_takes_two_points(figures: list[dict[str, int]]) -> None:
    """Before that there is nothing to draw."""
    made = history(*figures)
    assert made.since_ms is None
    assert made.plots() == []


def test_an_hour_is_kept() -> None:
    """The oldest points go."""
    made = history(*({"lag": number} for number in range(MOST + 10)))
    assert made.since_ms == 10_000
    [plot] = made.plots()
    assert plot.path.startswith("M0 ")
    assert plot.most == MOST + 9


def test_a_level_line_is_short() -> None:
    """Only its ends are said, however long it is."""
    assert drawn([(x, 7) for x in range(100)]) == "M0 7L99 7"
    assert drawn([(0, 7), (1, 7), (2, 3), (3, 3), (4, 3)]) == "M0 7L1 7L2 3L4 3"
    assert drawn([None, (1, 7), None, (3, 7), (4, 7)]) == "M1 7M3 7L4 7"
