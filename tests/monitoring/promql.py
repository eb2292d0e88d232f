"""What an expression of PromQL names: series and labels, found by how they are written."""

from __future__ import annotations

import re

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
