"""Grafana: the dashboard as it reads it, `ackfloor.json`, written from our rows (make docs).

A test compares the file with what this prints, and asks a real Prometheus every expression.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from ackfloor_monitoring.dashboards import trouble, work
from ackfloor_monitoring.dashboards.panels import Panel, Row, Target

ROWS = (
    *(work.SUMMARY, work.PROGRESS, work.THROUGHPUT, work.LATENCY),
    *(trouble.FAILURES, trouble.BREAKER, trouble.SATURATION, trouble.RUN, trouble.WATCH),
)
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_CHOSEN = 'job=~"$job", group=~"$group"'
#: What `panels` writes short, as first thing in braces.
_SELECTIONS = {
    "$h": f'{_CHOSEN}, topic=~"$topic", handler=~"$handler"',
    "$t": f'{_CHOSEN}, topic=~"$topic"',
    "$s": _CHOSEN,
}
_HEIGHT = {"stat": 4}
#: Variable -> the series it is chosen from, in the order in which one chooses.
_VARIABLES = {
    "job": "ackfloor_workers_expected",
    "group": 'ackfloor_workers_expected{job=~"$job"}',
    "topic": "ackfloor_topic_info{" + _CHOSEN + "}",
    "handler": "ackfloor_topic_info{" + _CHOSEN + "}",
}


def selected(expr: str) -> str:
    """An expression with its selections written out."""
    for short, long in _SELECTIONS.items():
        expr = expr.replace(f"{{{short}}}", f"{{{long}}}").replace(f"{{{short},", f"{{{long},")
    return expr


def dashboard() -> dict[str, Any]:
    """The whole of it."""
    return {
        "uid": "ackfloor",
        "title": "ackfloor",
        "description": "Floors, retries and dead letters of `ackfloor run`.",
        "tags": ["ackfloor", "kafka"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(_variables())},
        "annotations": {"list": [_firing()]},
        "panels": list(_placed()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
    for name, series in _VARIABLES.items():
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": f"label_values({series}, {name})", "refId": name},
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _firing() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"Ackfloor.*", alertstate="firing", group=~"$group"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{topic}} {{handler}}",
    }


def _placed() -> Iterator[dict[str, Any]]:
    """Rows and panels from the top, left to right."""
    number, y = 0, 0
    for row in ROWS:
        number += 1
        panels, below = _of_row(row, number, y + 1)
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.folded,
            "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
            "panels": panels if row.folded else [],
        }
        if not row.folded:
            yield from panels
        number, y = number + len(panels), below


def _of_row(row: Row, number: int, y: int) -> tuple[list[dict[str, Any]], int]:
    """Its panels, and where the next row begins."""
    placed: list[dict[str, Any]] = []
    x = 0
    for panel in row.panels:
        height = _HEIGHT.get(panel.kind, 8)
        if x + panel.width > _WIDTH:
            x, y = 0, y + height
        place = {"x": x, "y": y, "w": panel.width, "h": height}
        placed.append({"id": number + 1 + len(placed), "gridPos": place, **_panel(panel)})
        x += panel.width
    return placed, y + _HEIGHT.get(row.panels[-1].kind, 8)


def _panel(panel: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {"fillOpacity": 10, "showPoints": "never"}
    if panel.stacked:
        custom |= {"stacking": {"mode": "normal"}, "fillOpacity": 40}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        defaults["custom"] = custom
    if panel.red_from is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.red_from}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [_target(t, "ABCDEFGH"[i], panel) for i, t in enumerate(panel.targets)],
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background"}
    if panel.kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom"}}
    return {}


def _target(target: Target, ref_id: str, panel: Panel) -> dict[str, Any]:
    target_json = {
        "refId": ref_id,
        "datasource": _SOURCE,
        "expr": selected(target.expr),
        "legendFormat": target.legend or "__auto",
    }
    if panel.kind == "table":
        return {**target_json, "format": "table", "instant": True}
    return target_json


def render() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
