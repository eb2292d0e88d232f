"""Members come, go and are killed under load, in every protocol: `churn` says what it found.

Three changes of each protocol here; CHURN_CHANGES=50 for the proof in docs/reliability.md.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.e2e.churn import PROMISED_S, PROTOCOLS, churn
from tests.e2e.churn_account import Change, Facts, Line, find
from tests.e2e.commit_log import Commit, CommitLog

CHANGES = int(os.environ.get("CHURN_CHANGES", "3"))
SESSION_S = 3.0
#: On a busy machine a member takes long to start; what is promised is told, not asserted.
GENEROUS_S = 90.0


@pytest.mark.kafka
@pytest.mark.e2e
@pytest.mark.timeout(600 + 30 * CHANGES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_lost_or_settled_twice_however_members_come_and_go(
    protocol: str, tmp_path: Path, bootstrap_servers: str
) -> None:
    """Everything is handled, nothing that a commit held is handled again, partitions move on."""
    found = churn(tmp_path, bootstrap_servers, protocol, CHANGES, session_s=SESSION_S)
    sys.stdout.write(found.table())
    assert found.produced > 100
    assert sum(found.changes.values()) == CHANGES
    assert found.lost == []
    assert found.settled_again == []
    assert found.back == []
    assert found.gaps > 0, "no commit said anything that its floor did not"
    longest = max(max(silences) for silences in found.silence_s.values())
    assert longest < SESSION_S + PROMISED_S + GENEROUS_S


def history(*lines: Line) -> Facts:
    """A group of one partition whose two records were handled as the lines say."""
    return Facts("eager", "orders", 6.0, [Change("kill", 500.0, 2)], [2], list(lines))


def line(what: str, at_ms: float, offset: int) -> Line:
    """A start or an end of a record of orders/0."""
    return Line(what, at_ms, 1, "orders", 0, offset, (0, offset))


def test_the_proof_finds_a_lost_record() -> None:
    """One that was started and never ended is lost."""
    group = history(line("S", 1, 0), line("E", 2, 0), line("S", 1, 1))
    assert find(group, CommitLog()).lost == [(0, 1)]


@pytest.mark.parametrize("settled", ["floor", "gap set"])
def test_the_proof_finds_a_record_that_was_settled_and_came_again(settled: str) -> None:
    """By the last commit from before its second start, and by that one only."""
    times = [line("S", 1, 0), line("S", 1, 1), line("E", 2, 0), line("E", 2, 1)]
    group = history(*times, line("S", 900, 1), line("E", 901, 1))
    log = CommitLog()
    below = Commit("orders", 0, 0, "", 100)
    commit = Commit("orders", 0, 2 if settled == "floor" else 0, "", 800)
    log._above[below] = frozenset()
    log._above[commit] = frozenset({1} if settled == "gap set" else ())
    log.commits["orders", 0] = [below, commit]
    found = find(group, log)
    assert len(found.settled_again) == 1
    assert found.lost == []
    assert dict(found.again) == {"after a kill": 1}
    log.commits["orders", 0] = [below, Commit("orders", 0, 2, "", 950)]
    assert find(group, log).settled_again == []


def test_the_proof_finds_a_commit_that_goes_back() -> None:
    """A position below the one before."""
    log = CommitLog()
    log.commits["orders", 0] = [Commit("orders", 0, 2, "", 1), Commit("orders", 0, 1, "", 2)]
    assert find(history(), log).back == ["orders/0: 2 to 1"]
