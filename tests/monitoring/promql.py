"""What an expression of PromQL names: series and labels, found by how they are written."""

from __future__ import annotations

import re
from typing import Any

_SERIES = re.compile(r"\backfloor[_:][\w:]*")
_IN_BRACES = re.compile(r"\{([^{}]*)\}")
_IN_CLAUSES = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right) *\(([^()]*)\)")


def series_in(expression: str) -> set[str]:
    """The names of our series, recorded ones included."""
    return set(_SERIES.findall(expression))


def labels_in(expression: str) -> set[str]:
    """The labels that it asks for or groups by."""
    matched = re.findall(r"(\w+) *[=!]~?", " ".join(_IN_BRACES.findall(expression)))
    listed = re.findall(r"\w+", " ".join(_IN_CLAUSES.findall(expression)))
    return {*matched, *listed}


def asked(dashboard: dict[str, Any]) -> list[str]:
    """The expressions of a dashboard's panels, those of folded rows included."""
    panels = [p for row in dashboard["panels"] for p in (row, *row.get("panels", ()))]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def with_values(expression: str) -> str:
    """An expression of a dashboard as Grafana would send it: all chosen, ten minutes back."""
    expression = expression.replace("$__rate_interval", "10m").replace("$__range", "10m")
    return re.sub(r"\$\w+", ".*", expression)
