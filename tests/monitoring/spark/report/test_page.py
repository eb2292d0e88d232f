"""The page: one file that fetches nothing, in which names are never markup."""

from __future__ import annotations

import json
import re
import sys
import zlib
from base64 import b64decode
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from ackfloor import MissingExtra
from ackfloor_monitoring.spark.report import formatting
from ackfloor_monitoring.spark.report.page import charts, page, sections
from ackfloor_monitoring.spark.report.page.page import html_page
from tests.monitoring.spark.report.samples import (
    EVIL,
    FAR,
    REPLAYED_UNKNOWN,
    REPORT,
    TOTALS,
    UNKNOWN,
)
from tests.monitoring.spark.report.worst_report import WORST


class Page(HTMLParser):
    """What a browser would find: elements, what they refer to, ids, text, scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.refers_to: list[str] = []
        self.ids: list[str] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.elements.append(tag)
        given = dict(attrs)
        self.refers_to += [v for name in ("href", "src") if (v := given.get(name)) is not None]
        self.ids += [v for v in (given.get("id"),) if v is not None]

    def handle_data(self, data: str) -> None:
        """Text, or a script whole."""
        if self.elements[-1:] == ["script"]:
            self.scripts.append(data)
        else:
            self.text += data


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Page:
    """The page without plotly's own script, which is five megabytes of somebody else's text."""
    monkeypatch.setattr(page, "plotly_script", lambda: "PLOTLY")
    return Page(html_page(REPORT))


def test_it_fetches_nothing(made: Page) -> None:
    """Every reference is to a place in the page, and the browser is told to fetch nothing."""
    assert made.refers_to
    assert all(ref.startswith("#") and ref[1:] in made.ids for ref in made.refers_to)
    assert not {"link", "img", "iframe", "object"} & set(made.elements)
    assert "default-src 'none'" in page._POLICY
    assert len(made.ids) == len(set(made.ids))


def test_names_from_records_are_text(made: Page) -> None:
    """A key, a handler and a message that look like markup are shown, and end no script."""
    assert made.elements.count("script") == 2
    assert EVIL.replace("\x1b", "\\x1b") in made.text
    (script,) = [s for s in made.scripts if "FIGURES" in s]
    assert "<" not in script.split(";\n")[0]


def test_every_chart_has_its_place(made: Page) -> None:
    """The script draws into elements that are there, and the data are JSON."""
    (script,) = [s for s in made.scripts if "FIGURES" in s]
    match = re.match(r"const FIGURES = (.*);\n", script)
    assert match is not None
    figures = json.loads(match[1])
    assert set(figures) <= set(made.ids)
    assert {"by-handler", "by-reason", "funnel-0", "spread", "keys"} == set(figures)


def test_numbers_are_on_the_page(made: Page) -> None:
    """Tiles, sentences, tables."""
    for told in (
        "20 messages failed at least once: at most 12 recovered (60 %), 5 dead letters (25 %)",
        "14 causes are new since 3 Mar 2026 00:00",
        "failure 2, wait 5s, 10m",
        "11 (55 %)",
        "1d 1h",
        "0.00045",
        "Of 6 replayed dead letters 5 recovered.",
        "3 more causes",
        "1 of 2",
    ):
        assert told in made.text.replace("\u00a0", " ")


def test_what_waits_behind_another_record_is_told_where_there_is_any() -> None:
    """As its own kind of record, with the reasons that its header has."""
    told = sections.notes(replace(REPORT, totals=replace(TOTALS, behind=1_234)), {})
    assert "6 replays. 1,234 did not fail: they wait, or were given up, behind" in told
    assert "did not fail" not in sections.notes(REPORT, {})


def test_records_with_a_wrong_clock_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three at the top, all that are known at the foot; names in them are text."""
    monkeypatch.setattr(page, "plotly_script", lambda: "PLOTLY")
    told = Page(html_page(FAR)).text.replace("\u00a0", " ")
    assert told.count("13 records with a time far from all others, in no chart and no time") == 2
    assert (
        "1 Jan 2090 00:00 in " + EVIL.replace("\x1b", "\\x1b") + "/0/0 (written 10 Mar 2026" in told
    )
    assert told.count("30 Dec 2089") == 2
    assert told.count("29 Dec 2089") == 1
    assert "; and 10 more." in told
    assert "; and 3 more." in told
    assert "far from all others" not in Page(html_page(REPORT)).text


def test_what_is_drawn_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trend is one shape; of many handlers and attempts a chart has those with most."""
    monkeypatch.setattr(page, "plotly_script", lambda: "PLOTLY")
    group = replace(REPORT.failure_groups[0], trend=(1,) * 97)
    many = replace(
        REPORT,
        failure_groups=(group,) * 300,
        times=tuple(replace(REPORT.times[0], handler=f"h{n}", dead_messages=n) for n in range(99)),
        funnel=tuple(replace(REPORT.funnel[0], attempt=n) for n in range(1, 200)),
    )
    made = Page(html_page(many))
    assert made.elements.count("path") == 300 + len(REPORT.new)
    assert "rect" not in made.elements
    drawn = charts.times(many)
    assert names_beside(drawn) == [f"billing / h{n}" for n in range(87, 99)]
    assert {line["y"][0] for line in drawn["data"]} == set(range(12))
    assert all(len(bar["y"]) == charts.MOST_STEPS for bar in charts.funnel(many.funnel)["data"])
    assert made.text.count("failure 40") == 1
    assert "more in the JSON." in made.text


def test_a_history_of_the_worst_names_stays_a_page() -> None:
    """All of them as long as they get, in what takes most bytes, and as many as there can be."""
    html = html_page(WORST)
    assert len(html.encode()) < 5_000_000
    # What 500 causes of ordinary names need is there.
    causes = tuple(replace(each, error_type="shop.errors.Boom") for each in REPORT.new[:1] * 500)
    ordinary = Page(html_page(replace(REPORT, failure_groups=causes, new=())))
    assert ordinary.elements.count("path") == 500


def test_what_is_longer_than_a_name_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the page; two of them stay two, and the JSON has them whole."""
    monkeypatch.setattr(page, "plotly_script", lambda: "PLOTLY")
    long = tuple(replace(REPORT.failure_groups[1], error_type="E" * 60_000 + end) for end in "ab")
    report = replace(REPORT, failure_groups=long, groups=tuple(f"g{n}" for n in range(500)))
    made = Page(html_page(report))
    assert "E" * 300 not in made.text
    assert len(set(re.findall(r"EEE… \(60,001 characters, \w{6}\)", made.text))) == 2
    assert "Failures of g0, g1, g2, g3, g4, g5, g6, g7 and 492 more groups" in made.text
    assert "E" * 60_000 + "a" in report.to_json()
    topic = "t" * 249
    sample = replace(REPORT.failure_groups[1].sample, topic=topic)
    kept = replace(REPORT, failure_groups=(replace(long[0], sample=sample),))
    assert topic in Page(html_page(kept)).text


def test_what_can_not_be_seen_is_shown() -> None:
    """Directions, marks in a heap, a name of spaces; letters with their marks stay as they are."""
    heap = "Z" + "\u0301" * 60
    assert formatting.visible(heap) == heap[:5] + "\\u0301" * 56
    assert formatting.visible("\u202eexe") == "\\u202eexe"
    hindi = "\u0939\u093f\u0928\u094d\u0926\u0940 Vi\u1ec7t e\u0301\u0323"
    assert formatting.visible(hindi) == hindi
    (blank,) = formatting.for_people(replace(REPORT, groups=(" ",))).groups
    assert blank == '" "'


def test_dates_have_their_year(made: Page) -> None:
    """A table may hold years."""
    assert "1 Mar 2026 00:00" in made.text


def test_what_is_not_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without commits nothing is called recovered, and the page says what to do."""
    monkeypatch.setattr(page, "plotly_script", lambda: "PLOTLY")
    told = Page(html_page(UNKNOWN)).text.replace("\u00a0", " ")
    assert "15 recovered or still wait (75 %)" in told
    assert "--bootstrap-servers" in told
    assert "Nothing new since release 1.1 first failed" in told
    assert "Nothing was replayed." in told


def test_without_commits_no_number_stands_for_what_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither at the top nor in a table: a question mark, and the note says why."""
    monkeypatch.setattr(page, "plotly_script", lambda: "PLOTLY")
    told = Page(html_page(REPLAYED_UNKNOWN)).text.replace("\u00a0", " ")
    assert "Of 6 replayed dead letters 1 died again; of 5 it is not known" in told
    assert "? of 2" in told
    assert "recovered or waiting: unknown" in told
    assert "recovered, at most" not in told
    assert "still waiting for a retry" not in told
    assert "0.0 %" not in told


def test_commits_of_no_group_that_failed_say_nothing_of_what_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No 0 stands beside the messages of which nothing is known; of some groups it does."""
    monkeypatch.setattr(page, "plotly_script", lambda: "PLOTLY")
    none = replace(UNKNOWN, totals=replace(UNKNOWN.totals, recovered=0, waiting=0, unknown=15))
    for report, says in ((none, False), (replace(none, totals=TOTALS), True)):
        told = Page(html_page(replace(report, commits_known=True))).text.replace("\u00a0", " ")
        assert ("recovered, at most" in told) is says
        assert ("still waiting for a retry" in told) is says


def test_rare_series_are_summed_up() -> None:
    """A chart has eight series; the rest is one of them, and no failure is left out."""
    figure = charts.over_time(REPORT, lambda bucket: bucket.handler or "")
    assert [bar["name"] for bar in figure["data"]][-1] == "other"
    assert len(figure["data"]) == 8
    drawn = sum(sum(bar["y"]) for bar in figure["data"])
    assert drawn == sum(bucket.failures for bucket in REPORT.over_time)


def test_a_handler_may_be_called_as_the_rest_is() -> None:
    """No failure is drawn twice."""
    named = tuple(
        replace(each, handler="other" if each.handler == "h10" else each.handler)
        for each in REPORT.over_time
    )
    figure = charts.over_time(replace(REPORT, over_time=named), lambda each: each.handler or "")
    drawn = sum(sum(bar["y"]) for bar in figure["data"])
    assert drawn == sum(bucket.failures for bucket in REPORT.over_time)
    assert [bar["name"] for bar in figure["data"]].count("other") == 2


def names_beside(figure: charts.Figure) -> list[str]:
    """What stands beside the rows of a chart."""
    names: list[str] = figure["layout"]["yaxis"]["ticktext"]
    return names


def test_names_beside_a_chart_are_as_plotly_shows_them() -> None:
    """It knows no entity of a quote; names that are cut alike are rows of their own."""
    long = replace(REPORT.hot_keys[0], key="k" * 90)
    keys = (replace(long, key='"a" & <b>\n'), long, replace(long, key="k" * 30 + "j" + "k" * 59))
    figure = charts.hot_keys(replace(REPORT, hot_keys=keys))
    first, *others = names_beside(figure)
    assert first.startswith('"a" &amp; &lt;b&gt; in orders')
    assert others[0] == others[1]
    assert figure["data"][0]["y"] == [0, 1, 2]
    assert {len(name) for name in others} == {44}
    assert {len(name) for name in figure["onPhone"][1:]} == {22}


@pytest.mark.parametrize("spread", [(0.0,), (0.02,), (183.0,), (1.0, 86_400.0), (7e9,), (1, 7e9)])
def test_an_axis_of_seconds_has_marks_around_what_is_drawn(spread: tuple[float, ...]) -> None:
    """So that even a single point can be read off."""
    timed = replace(REPORT.times[0], to_recover_s=None, to_death_s=(spread * 3)[:3])
    axis = charts.times(replace(REPORT, times=(timed,)))["layout"]["xaxis"]
    assert 2 <= len(axis["tickvals"]) <= 8
    assert len(axis["tickvals"]) == len(axis["ticktext"])
    begin, end = (10**value for value in axis["range"])
    assert begin < min(axis["tickvals"])
    assert end > max(spread)
    assert min(axis["tickvals"]) <= max(min(spread), 0.001)


def test_without_any_time_no_axis_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table says that nothing has come to its end."""
    monkeypatch.setattr(page, "plotly_script", lambda: "PLOTLY")
    timed = replace(REPORT.times[0], to_recover_s=None, to_death_s=None)
    assert "spread" not in Page(html_page(replace(REPORT, times=(timed,)))).ids


def test_each_stretch_of_time_has_a_bar_of_its_own() -> None:
    """Also where it is five seconds long."""
    begin = REPORT.buckets[0]
    seconds = tuple(begin + timedelta(seconds=5 * n) for n in range(20))
    figure = charts.over_time(replace(REPORT, buckets=seconds), lambda each: each.handler or "")
    assert len(set(figure["data"][0]["x"])) == 20


def test_the_funnel_adds_up() -> None:
    """Each bar is as long as the messages that failed that often."""
    figure = charts.funnel(REPORT.funnel)
    lengths = [sum(bar["x"][at] for bar in figure["data"]) for at in range(len(REPORT.funnel))]
    assert lengths == [step.failed for step in REPORT.funnel]


def test_plotly_is_inside() -> None:
    """The real script is in the page, packed; nothing in it can end the element it stands in."""
    packed = next(each for each in Page(html_page(REPORT)).scripts if "FIGURES" not in each)
    assert re.fullmatch("[A-Za-z0-9+/=]+", packed)
    assert zlib.decompress(b64decode(packed)).decode() == page.plotly_script()
    assert "newPlot" in page.plotly_script()


def test_without_plotly_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says what to install."""
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(MissingExtra, match=re.escape("ackfloor[spark]")):
        html_page(replace(REPORT))
