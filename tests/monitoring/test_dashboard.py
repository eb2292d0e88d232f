"""The dashboard: it is what its rows say, and shows nothing that does not exist."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import ackfloor_monitoring
from ackfloor_monitoring.dashboards.grafana import dashboard, render
from ackfloor_monitoring.metrics.metric_definitions import METRICS
from ackfloor_monitoring.metrics.watch_definitions import WATCH_METRICS
from tests.monitoring.alerts.test_rules import needs_promtool
from tests.monitoring.promql import asked, labels_in, series_in, with_values

FILE = Path(ackfloor_monitoring.__file__).with_name("dashboards") / "ackfloor.json"
SPECS = {spec.name: spec for spec in (*METRICS, *WATCH_METRICS)}
BOARD = dashboard()
LABELS = {label for spec in SPECS.values() for label in spec.labels}
LABELS |= {"instance", "job", "pod", "worker", "le"}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels, those of folded rows included."""
    rows = board["panels"]
    return [panel for row in rows for panel in (row, *row.get("panels", ()))]


def test_the_file_is_what_the_rows_give() -> None:
    """Nobody has changed it by hand, or forgot to write it anew."""
    assert FILE.read_text() == render(), "run: make docs"


def test_it_uses_only_what_exists() -> None:
    """Metrics under the names they are scraped by, and labels that they have."""
    known = set(SPECS)
    known |= {f"{name}_bucket" for name, spec in SPECS.items() if spec.buckets}
    variables = [v["query"]["query"] for v in BOARD["templating"]["list"][1:]]
    expressions = [*asked(BOARD), *(re.sub(r", \w+\)$", ")", v) for v in variables)]
    assert len(asked(BOARD)) > 50
    for expression in expressions:
        assert series_in(expression)
        assert series_in(expression) <= known, expression
        assert labels_in(expression) <= LABELS, expression
    legends = " ".join(t["legendFormat"] for p in panels(BOARD) for t in p.get("targets", ()))
    assert set(re.findall(r"{{(\w+)}}", legends)) <= LABELS
    chosen = {variable["name"] for variable in BOARD["templating"]["list"]}
    assert set(re.findall(r"\$(?!__)(\w+)", "".join(asked(BOARD)))) <= chosen


def test_every_panel_explains_itself_and_has_room() -> None:
    """A title, a sentence, a number of its own, and no other panel over it."""
    all_panels = panels(BOARD)
    assert len({panel["id"] for panel in all_panels}) == len(all_panels)
    shown = [panel for panel in all_panels if panel["type"] != "row"]
    assert all(panel["title"] and panel["description"].endswith(".") for panel in shown)
    for one, other in combinations(all_panels, 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart or above, (one["title"], other["title"])
        assert a["x"] + a["w"] <= 24


@needs_promtool
def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    """As rules, which it checks without data; tests/e2e/test_prometheus.py asks a server."""
    rules = [
        {"record": f"asked:{n}", "expr": with_values(expression)}
        for n, expression in enumerate(asked(BOARD))
    ]
    file = tmp_path / "asked.yml"
    file.write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
