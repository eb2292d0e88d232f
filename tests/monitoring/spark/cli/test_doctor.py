"""`ackfloor spark doctor` with a session of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

RUN = "from ackfloor_monitoring.spark.cli import spark_app; spark_app()"


@pytest.mark.spark
def test_the_doctor_finds_everything_here_but_a_broker() -> None:
    """Nothing listens on port 9: that alone is bad, is told in a sentence, and exits with 1."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, "doctor", "-o", "json", "--bootstrap-servers", "localhost:9"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env=os.environ | {"COLUMNS": "200"},
    )
    findings = {each["check"]: each for each in json.loads(done.stdout)}
    assert {check for check, each in findings.items() if each["state"] != "ok"} == {"brokers"}
    assert "no Kafka broker answered" in findings["brokers"]["fix"]
    assert "local[" in findings["session"]["detail"]
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
