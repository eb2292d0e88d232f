"""A worker that is stopped for longer than its session and goes on overwrites nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.e2e.churn import Churn
from tests.e2e.churn_account import find
from tests.e2e.commit_log import read_commits

SESSION_S = 3.0


@pytest.mark.kafka
@pytest.mark.e2e
@pytest.mark.parametrize("protocol", ["cooperative", "broker"])
def test_a_worker_that_was_stopped_beyond_its_session_is_fenced_and_works_again(
    protocol: str, tmp_path: Path, bootstrap_servers: str
) -> None:
    """SIGSTOP, SIGCONT: no commit goes back, nothing is lost, the process joins again by itself."""
    group = Churn(tmp_path, bootstrap_servers, protocol, 1, SESSION_S)
    try:
        group.prepare()
        with group.load(100.0):
            group.join()
            group.join()
            group.until(lambda: group.moved_since(0), "the start")
            until_s = time.time() * 1000 + 2000
            group.until(lambda: group.moved_since(until_s), "a share for both")
            zombie = group.members[0]
            zombie.send_signal(signal.SIGSTOP)
            try:
                time.sleep(SESSION_S)
                gone_ms = time.time() * 1000
                group.until(lambda: group.moved_since(gone_ms), "work without it")
            finally:
                zombie.send_signal(signal.SIGCONT)
            woken_ms = time.time() * 1000
            # It has partitions again when it starts what was written after it woke.
            group.until(
                lambda: any(
                    line.pid == zombie.pid and line.at_ms > woken_ms + 1500
                    for line in group.ledger()
                ),
                "its work",
            )
        group.until(group.settled, "the last commit")
        found = find(group.facts(), read_commits(bootstrap_servers, group.group))
    finally:
        group.close()
    assert zombie.returncode == -signal.SIGKILL, "it ended before the test did"
    assert found.lost == []
    assert found.back == []
