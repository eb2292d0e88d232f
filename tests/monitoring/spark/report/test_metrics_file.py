"""The report's figures as a file for Prometheus."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ackfloor_monitoring.metrics.watch_definitions import REPORT_METRICS
from ackfloor_monitoring.spark.report import metrics_file
from ackfloor_monitoring.spark.report.answer import Handler
from ackfloor_monitoring.spark.report.metrics_file import metrics_text
from tests.monitoring.spark.report.samples import EVIL, GROUPS, REPORT


def figures(text: str) -> dict[tuple[str, ...], float]:
    """Each sample, by its name and the values of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_figure_is_there_with_its_labels() -> None:
    """No more and no fewer; a name that tries to be markup is a label."""
    handlers = (*REPORT.handlers, Handler("mail", EVIL, 0, 2, 0, None))
    text = metrics_text(replace(REPORT, handlers=handlers))
    found = {
        (sample.name, tuple(sorted(sample.labels)))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {(spec.name, tuple(sorted(spec.labels))) for spec in REPORT_METRICS}
    values = figures(text)
    assert values["ackfloor_spark_report_timestamp_seconds",] == REPORT.made_at.timestamp()
    assert (
        values["ackfloor_spark_report_last_failure_timestamp_seconds",] == REPORT.last.timestamp()
    )
    assert values["ackfloor_spark_report_records",] == 60
    outcomes = ("recovered", "dead", "waiting", "unknown")
    assert [values["ackfloor_spark_report_messages", each] for each in outcomes] == [
        getattr(REPORT.totals, each) for each in outcomes
    ]
    assert values["ackfloor_spark_report_failures", "billing", "bill"] == 50
    assert values["ackfloor_spark_report_new_causes", "billing", "bill"] == len(GROUPS) - 1
    assert values["ackfloor_spark_report_new_causes", "mail", EVIL] == 0, "and not absent"


def test_a_thousand_handlers_are_not_a_thousand_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of most failures keep their names; nothing is lost of the rest."""
    monkeypatch.setattr(metrics_file, "MOST_HANDLERS", 2)
    handlers = tuple(Handler("g", f"h{number}", 0, number, 0, None) for number in range(5))
    values = figures(metrics_text(replace(REPORT, handlers=handlers, new=())))
    failures = {key[1:]: value for key, value in values.items() if "report_failures" in key[0]}
    assert failures == {("g", "h4"): 4, ("g", "h3"): 3, ("other", "other"): 3}
