"""What a notebook imports of the report, as docs/spark-report.md names it."""

from __future__ import annotations

import re
from importlib import import_module

from ackfloor_monitoring.spark.report import build
from tests.structure.sources import REPOSITORY


def test_the_import_of_the_page_works() -> None:
    """It gives what `build` defines."""
    page = (REPOSITORY / "docs" / "spark-report.md").read_text("utf-8")
    [(package, names)] = re.findall(r"`from (\S+) import ([^`]+)`", page)
    given = [getattr(import_module(package), name) for name in names.split(", ")]
    assert given == [build.Since, build.build_report]
