"""Tests of a group share a worker: otherwise each worker starts a Spark or a broker of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.structure.sources import REPOSITORY

TESTS = """
import os
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", range(6))
@pytest.mark.xdist_group("shared")
def test_in_a_group(number):
    with Path("grouped").open("a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def test_a_group_runs_in_one_worker(tmp_path: Path) -> None:
    """All six of them, where six tests by themselves are dealt out to both."""
    (tmp_path / "test_shared.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup"]
    command += ["-c", str(REPOSITORY / "pyproject.toml"), "--rootdir", str(tmp_path)]
    command += ["-p", "tests.groups", "-p", "no:cacheprovider", "test_shared.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    grouped = (tmp_path / "grouped").read_text().split()
    assert (len(grouped), len(set(grouped))) == (6, 1)
