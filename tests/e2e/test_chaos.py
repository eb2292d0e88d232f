"""A short soak: a minute and a half, start and end included, on three brokers, with the oracle.

What is drawn is in tests/soak; `make soak` is the long one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(420)]

ROOT = Path(__file__).parents[2]
#: How long records are produced; the brokers' start and the end come on top.
MINUTES = os.environ.get("ACKFLOOR_TEST_CHAOS_MINUTES", "0.8")
SEED = os.environ.get("ACKFLOOR_TEST_CHAOS_SEED", "1")


def test_nothing_is_lost_in_chaos(tmp_path: Path) -> None:
    """Workers, brokers, network, topics, settings: every rule of the oracle holds."""
    command = [sys.executable, "-m", "tests.soak", "--minutes", MINUTES, "--seed", SEED]
    command += ["--no-plot", "--out", str(tmp_path), "--pause", "1", "3", "--rate", "120"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        # What is started here keeps its logs and ledger in the test's folder.
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-4_000:]
    result = json.loads((tmp_path / f"seed-{SEED}-result.json").read_text())
    assert result["findings"] == {}
    # A run that did little would prove little.
    assert result["records"] > 1_000
    assert len({fault["kind"] for fault in result["faults"] if not fault["failed"]}) >= 5
