"""docs/notebooks/failure_history.py runs as it is, on a month of failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ackfloor_monitoring.spark.report.build import Since, build_report
from ackfloor_monitoring.spark.table import store
from benchmarks.failures.month import Month
from benchmarks.failures.rows import write_parquet
from tests.structure.sources import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
NOTEBOOK = REPOSITORY / "docs" / "notebooks" / "failure_history.py"


def test_the_example_runs_on_a_month(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In one session, cell after cell; it shows the numbers of the report."""
    write_parquet(Month(300, seed=3), tmp_path / "month")
    table = str(tmp_path / "failures")
    store.open_table(spark, table)
    store.append(spark.read.parquet(str(tmp_path / "month")), table)
    monkeypatch.setenv("ACKFLOOR_SPARK_TABLE", table)
    monkeypatch.delenv("ACKFLOOR_BOOTSTRAP_SERVERS", raising=False)
    text = NOTEBOOK.read_text("utf-8")
    assert text.count("\n# %%") > 8
    exec(compile(text, str(NOTEBOOK), "exec"), {"__name__": "__main__"})
    shown = capfd.readouterr().out
    rows = [" ".join(line.replace("|", " ").split()) for line in shown.splitlines()]
    failures = store.read_failures(spark, table)
    now = failures.agg({"ingested_at": "max"}).collect()[0][0]
    report = build_report(failures, None, table="month", since=Since(), made_at=now.astimezone())
    largest = report.failure_groups[0]
    assert any(
        row.startswith(f"{largest.handler} {largest.error_type} {largest.failures} ")
        for row in rows
    ), shown
    step = report.funnel[0]
    expected = (
        f"{step.group} {step.handler} {step.attempt} {step.failed} {step.recovered} {step.dead}"
    )
    assert any(row.startswith(expected) for row in rows), shown
    assert any(row.startswith("dead letters: ") for row in rows)
