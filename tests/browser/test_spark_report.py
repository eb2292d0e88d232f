"""The page of `ackfloor spark report` on the worst that records can hold, in a real browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from ackfloor_monitoring.spark.report.answer import Report
from ackfloor_monitoring.spark.report.page.page import html_page
from tests.browser.window import NARROW, WIDE, Look, Window
from tests.monitoring.spark.report.samples import REPORT
from tests.monitoring.spark.report.worst_report import WORST

#: Charts of which something lies beside the drawing, where it would not be seen.
CUT_OFF = """() => [...document.querySelectorAll(".chart")].flatMap((chart) => {
  const room = chart.getBoundingClientRect();
  return [...chart.querySelectorAll("text")].filter((each) => {
    const at = each.getBoundingClientRect();
    return at.width && (at.left < room.left - 1 || at.right > room.right + 1);
  }).map((each) => `${chart.id}: ${each.textContent}`);
})"""
#: Marks of axes that lie on one another.
ON_ONE_ANOTHER = """() => [...document.querySelectorAll(".xaxislayer-above, .yaxislayer-above")]
  .flatMap((axis) => {
    const marks = [...axis.querySelectorAll(".xtick, .ytick")];
    const at = marks.map((each) => each.getBoundingClientRect());
    const meet = (a, b) =>
      a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    return marks.slice(1).filter((_, n) => meet(at[n], at[n + 1])).map((each) => each.textContent);
  })"""


def opened(look: Look, folder: Path, report: Report, width: int, scheme: str) -> Window:
    """A window on the report's file, with its charts drawn."""
    file = folder / "failures.html"
    file.write_text(html_page(report), "utf-8")
    taste: dict[str, Any] = {"color_scheme": scheme}
    window = look(f"file://{folder}", width=width, **taste)
    window.page.on("dialog", lambda dialog: window.complaints.append(dialog.message))
    window.open("/failures.html")
    expect(window.page.locator(".chart").last.locator(".main-svg").first).to_be_visible()
    return window


@pytest.mark.parametrize(
    ("report", "width", "scheme"),
    [(WORST, WIDE, "light"), (WORST, NARROW, "dark"), (REPORT, NARROW, "light")],
)
def test_nothing_runs_and_nothing_is_wider_than_the_window(
    look: Look, tmp_path: Path, report: Report, width: int, scheme: str
) -> None:
    """Also where all is unfolded: no script of a name ran, nothing was fetched, all is drawn."""
    window = opened(look, tmp_path, report, width, scheme)
    page = window.page
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate(ON_ONE_ANOTHER) == []
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    assert window.overflow_px() <= 0
    assert page.evaluate("window.ran") is None
    charts = page.locator(".chart")
    assert charts.locator(".main-svg").count() >= charts.count() > 0
    assert page.evaluate("[...document.querySelectorAll('a')].every((a) => a.hash)")
    assert not page.locator("iframe, img, base, link, main style, main script").count()
    window.clean()


def test_a_phone_that_is_turned_has_longer_names_beside_its_charts(
    look: Look, tmp_path: Path
) -> None:
    """And shorter ones again."""
    keys = tuple(replace(each, key="k" * 90) for each in REPORT.hot_keys)
    window = opened(look, tmp_path, replace(REPORT, hot_keys=keys), NARROW, "light")
    first = window.page.locator("#keys .ytick text").first
    short = first.text_content() or ""
    window.page.set_viewport_size({"width": WIDE, "height": 800})
    expect(first).not_to_have_text(short)
    window.page.set_viewport_size({"width": NARROW, "height": 800})
    expect(first).to_have_text(short)


def test_without_what_unpacks_the_charts_the_page_says_so(look: Look, tmp_path: Path) -> None:
    """A browser of before 2023: the tables are there."""
    file = tmp_path / "failures.html"
    file.write_text(html_page(REPORT).replace("new DecompressionStream", "new Unheard"), "utf-8")
    window = look(f"file://{tmp_path}")
    window.open("/failures.html")
    expect(window.page.locator(".chart").first).to_contain_text("can't draw the chart")
    assert any("Unheard" in each for each in window.complaints)
