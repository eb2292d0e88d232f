"""The alert rules by Prometheus's own tool: each alert fires, and is over again."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import ackfloor_monitoring
from tests.monitoring.alerts import failures, progress, run, spark
from tests.monitoring.alerts.cases import Case

FOLDER = Path(ackfloor_monitoring.__file__).with_name("alerts")
RECORDS = FOLDER / "records.yml"
CASES: dict[str, list[Case]] = {
    "failures": failures.CASES,
    "progress": progress.CASES,
    "run": run.CASES,
    "spark": spark.CASES,
}
# `make test` names what it leaves out; .ci/run installs it, or fails.
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian's package prometheus): no alert rule was tried",
)


def promtool(*arguments: str | Path, cwd: Path) -> None:
    """Run it; what it finds wrong fails the test."""
    done = subprocess.run(
        ["promtool", *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def alerts(file: Path) -> list[str]:
    """The names of the alerts in a file of rules."""
    return re.findall(r"^ +- alert: (\w+)$", file.read_text(), re.MULTILINE)


def test_every_file_of_rules_has_its_cases_and_every_alert_is_in_one() -> None:
    """No alert is shipped untried."""
    files = {file.stem: file for file in FOLDER.glob("*.yml") if file != RECORDS}
    assert files.keys() == CASES.keys()
    for name, file in files.items():
        assert set(alerts(file)) == {case.alert for case in CASES[name]}


@needs_promtool
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    """Expressions, templates and durations; no rule is there twice."""
    promtool("check", "rules", "--lint-fatal", *sorted(FOLDER.glob("*.yml")), cwd=tmp_path)


@needs_promtool
@pytest.mark.parametrize("name", CASES)
def test_every_alert_fires_and_is_over_again(name: str, tmp_path: Path) -> None:
    """In its stories, at the minutes told, with the labels told, and never before."""
    stories = {
        "rule_files": [str(RECORDS), str(FOLDER / f"{name}.yml")],
        "evaluation_interval": "1m",
        # Else the order is any, and what is recorded may be a minute old.
        "group_eval_order": ["ackfloor-records", f"ackfloor-{name}"],
        "tests": [case.as_test() for case in CASES[name]],
    }
    # JSON is YAML.
    (tmp_path / "stories.yml").write_text(json.dumps(stories))
    promtool("test", "rules", "stories.yml", cwd=tmp_path)
