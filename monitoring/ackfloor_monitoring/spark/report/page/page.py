"""The report as one HTML file that needs no network: style, script, plotly and data inside.

The page forbids itself to fetch anything (its content security policy), so it can be mailed and
opened anywhere.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from importlib import import_module
from pathlib import Path
from typing import Any

from ackfloor import MissingExtra
from ackfloor_monitoring.spark.report.answer import Report
from ackfloor_monitoring.spark.report.formatting import (
    count,
    for_people,
    in_short,
    moment,
    percent,
    period,
    title,
)
from ackfloor_monitoring.spark.report.page import retry_sections, sections
from ackfloor_monitoring.spark.report.page.charts import Figures
from ackfloor_monitoring.spark.report.page.markup import text

_HERE = Path(__file__).parent
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_SECTIONS = (
    ("when", "When", sections.when),
    ("causes", "Causes", sections.causes),
    ("new", "New", sections.new),
    ("funnel", "Retries", retry_sections.funnel),
    ("times", "Times", retry_sections.times),
    ("hot", "Hot keys", sections.hot),
    ("traffic", "Traffic", retry_sections.traffic),
    ("handlers", "Handlers", retry_sections.handlers),
    ("replays", "Replays", retry_sections.replays),
    ("notes", "How to read", sections.notes),
)


def html_page(report: Report) -> str:
    """The whole page.

    Raises:
        MissingExtra: plotly is not installed.
    """
    report = for_people(report)
    figures: Figures = {}
    sections = "".join(make(report, figures) for _, _, make in _SECTIONS)
    links = "".join(f'<a href="#{name}">{text(says)}</a>' for name, says, _ in _SECTIONS)
    heading = text(title(report))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{heading}</title>
<style>{_read("page.css")}</style>
</head>
<body>
<header><h1>{heading}</h1>
<p class="period">{text(period(report))}</p></header>
<nav>{links}</nav>
<main>
{_summary(report)}
{sections}
</main>
<footer>Made {text(moment(report.made_at))} UTC by ackfloor from {text(report.table)}.</footer>
<script type="text/plain" id="plotly">{_packed(plotly_script())}</script>
<script>const FIGURES = {_json(figures)};
{_read("page.js")}</script>
</body>
</html>
"""


def plotly_script() -> str:
    """Plotly's JavaScript, as its Python package carries it."""
    try:
        offline: Any = import_module("plotly.offline")
    except ImportError:
        raise MissingExtra("spark", "the report's charts (package plotly)") from None
    script: str = offline.get_plotlyjs()
    return script


def _packed(script: str) -> str:
    """A script as the page carries it: as it is it would be five megabytes."""
    return b64encode(zlib.compress(script.encode(), 9)).decode()


def _summary(report: Report) -> str:
    totals = report.totals
    tiles = [
        ("messages failed", totals.messages, ""),
        ("recovered, at most", totals.recovered, "good"),
        ("dead letters", totals.dead, "bad"),
        ("still waiting for a retry", totals.waiting, "open"),
    ]
    # Commits may be known, but of no group that failed.
    of_none = totals.unknown and not (totals.recovered or totals.waiting)
    if of_none or not report.commits_known:
        tiles = [tile for tile in tiles if tile[2] not in ("good", "open")]
    if totals.unknown:
        tiles.append(("recovered or waiting: unknown", totals.unknown, ""))
    shown = "".join(
        f'<div class="tile {kind}"><b>{count(number)}</b><span>{name}'
        f"{_share(number, totals.messages) if kind else ''}</span></div>"
        for name, number, kind in tiles
    )
    sentences = "".join(f"<p>{text(sentence)}</p>" for sentence in in_short(report))
    return f'<div class="tiles">{shown}</div>\n<div class="short">{sentences}</div>'


def _share(number: int, total: int) -> str:
    return f"<br>{text(percent(number / total))}" if total else ""


def _json(figures: Figures) -> str:
    # Inside a script element: nothing in it may end that, or begin a comment.
    return json.dumps(figures, ensure_ascii=True).replace("<", "\\u003c")


def _read(name: str) -> str:
    return (_HERE / name).read_text("utf-8")
