"""From a broker with the worst of records to the page: stored, counted, named, and never markup."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ackfloor_monitoring.spark.report.build import Since
from ackfloor_monitoring.spark.report.job import failure_history
from ackfloor_monitoring.spark.report.page import page
from ackfloor_monitoring.spark.report.page.page import html_page
from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.table.ingest import Ingest, IngestPlan
from tests.framework.kafka.wire import options
from tests.monitoring.spark.report.hostile_history import CLOCKS, DAYS, PATTERN, produce
from tests.monitoring.spark.report.test_page import Page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark"),
]


def test_the_worst_history_is_a_page(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record is counted, wrong clocks are named and in no chart, and no name is markup."""
    monkeypatch.setattr(page, "plotly_script", lambda: "PLOTLY")
    produced = produce(bootstrap_servers, 300, round(time.time() * 1000))
    table = str(tmp_path / "t<b>&" / "failures")
    plan = IngestPlan(table, kafka_options(bootstrap_servers), PATTERN, once=True)
    assert Ingest(spark, plan).run().records == produced
    now = datetime.now(UTC)
    made = failure_history(
        spark, table, group=None, since=Since(), clients=options(bootstrap_servers), made_at=now
    )
    assert made.totals.records == produced
    # A number that is no time is unreadable, and the time of its record counts.
    assert made.far_records >= 4 * (len(CLOCKS) - 1)
    assert DAYS - 1 <= (made.last - made.first).days <= DAYS
    html = html_page(made)
    assert len(html.encode()) < 3_000_000
    shown = Page(html)
    assert {"img", "iframe", "base", "link", "textarea"}.isdisjoint(shown.elements)
    assert [shown.elements.count(each) for each in ("script", "style", "title")] == [2, 1, 1]
    assert all(ref.startswith("#") for ref in shown.refers_to)
    assert f"{made.far_records} records with a time far from all others" in shown.text
    assert "31 Dec 9999" in shown.text
