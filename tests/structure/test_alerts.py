"""Alerts, runbooks and metrics know of each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ackfloor_monitoring
from ackfloor_monitoring.metrics.metric_definitions import METRICS
from ackfloor_monitoring.metrics.watch_definitions import WATCH_METRICS
from tests.monitoring.promql import labels_in, series_in
from tests.structure.sources import REPOSITORY

FOLDER = Path(ackfloor_monitoring.__file__).with_name("alerts")
RULES = "\n".join(file.read_text() for file in sorted(FOLDER.glob("*.yml")))
RECORDED = set(re.findall(r"^ +- record: (\S+)$", RULES, re.MULTILINE))
#: Alert -> its rule as text.
ALERTS = {
    match[1]: match[0]
    for match in re.finditer(r"^ +- alert: (\w+)\n(?:(?! +- |#).*\n)*", RULES, re.MULTILINE)
}
RUNBOOKS = (REPOSITORY / "docs" / "guide" / "runbooks.md").read_text()
#: Heading -> its section.
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", RUNBOOKS, re.MULTILINE))
SPECS = {spec.name: spec for spec in (*METRICS, *WATCH_METRICS)}
#: What a scrape, a histogram and the rules of alerts add.
ADDED = {"instance", "job", "pod", "worker", "le"}


def test_alerts_and_runbooks_are_the_same() -> None:
    """No alert without its section, no section without its alert."""
    assert list(ALERTS) == re.findall(r"- alert: (\w+)", RULES)
    assert set(SECTIONS) == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_whole(alert: str) -> None:
    """A severity we explain, a summary, a description, and the way to its runbook."""
    rule = ALERTS[alert]
    assert re.search(r"severity: (critical|warning)\n", rule)
    assert " summary: " in rule
    assert " description: " in rule
    assert f" runbook: docs/guide/runbooks.md#{alert.lower()}\n" in rule


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_says_where_to_look(alert: str) -> None:
    """It has a command, and what metrics it names exist."""
    section = SECTIONS[alert]
    named = set(re.findall(r"`(ackfloor_\w+)`", section))
    assert "```sh\n" in section
    assert named <= set(SPECS)


def test_rules_use_only_what_exists() -> None:
    """Metrics by the names they are scraped under, what other rules record, labels they have."""
    text = re.sub(r"^ *#.*$", "", RULES, flags=re.MULTILINE)
    expressions = re.sub(r"^ +(annotations|labels):\n(?: {10,}.*\n)+", "", text, flags=re.MULTILINE)
    used = series_in(expressions)
    known = RECORDED | set(SPECS)
    known |= {f"{name}_bucket" for name, spec in SPECS.items() if spec.buckets}
    assert used <= known
    assert used >= RECORDED
    labels = {label for spec in SPECS.values() for label in spec.labels}
    assert labels_in(expressions) <= labels | ADDED
