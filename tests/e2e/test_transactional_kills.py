"""Failure matrix row 1, after the park and before its commit: workers killed while they park.

Three in each mode here; PARK_KILLS=200 for the proof.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.e2e.park_kills import park_kills

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("PARK_KILLS", "3"))


def test_transactional_parking_neither_loses_nor_doubles(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """Whatever the instant: each record is once in the retry topic and once in the DLQ."""
    found = park_kills(tmp_path, bootstrap_servers, "transactional", KILLS, seed=KILLS)
    sys.stdout.write(found.table())
    assert found.lost == {"retry topic": 0, "DLQ": 0}, found.table()
    assert found.doubled == {"retry topic": 0, "DLQ": 0}, found.table()


def test_parking_at_least_once_does_not_lose(tmp_path: Path, bootstrap_servers: str) -> None:
    """What was parked and not committed is parked again; how much is told, and bounded."""
    found = park_kills(tmp_path, bootstrap_servers, "at_least_once", KILLS, seed=KILLS)
    sys.stdout.write(found.table())
    assert found.lost == {"retry topic": 0, "DLQ": 0}, found.table()
    # A kill repeats at most what was parked since the last commit: a fraction of a life's records.
    assert max(found.doubled.values()) < found.produced, found.table()
