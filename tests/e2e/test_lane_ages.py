"""For how long a lane waits, as an operator sees it before and after a worker is killed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from ackfloor.core.records.envelope import read_envelope
from tests.e2e.stage import Stage, page, ready
from tests.e2e.test_blocked_lanes import BLOCKING
from tests.e2e.test_quarantined_keys import QUARANTINING
from tests.framework.cli.command import Running
from tests.framework.kafka.wire import committed_records

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]


def _lane(run: Running, kind: str) -> dict[str, Any] | None:
    """The one lane that waits and has a record behind it; None before it does."""
    _, state = page(run, "/state")
    handlers = [each for worker in state["workers"].values() for each in (worker or {})["handlers"]]
    found = [lane for each in handlers for lane in each[kind]["oldest"]]
    lane: dict[str, Any]
    for lane in found:
        if lane["head"] == "waiting" and lane["behind"] == 1:
            return lane
    return None


def _begins(stage: Stage, kind: str) -> tuple[Running, dict[str, Any]]:
    """A run that has the lane."""
    run = stage.run()
    run.until(ready(run), "ready")
    run.until(lambda: _lane(run, kind) is not None, f"a lane is {kind}")
    lane = _lane(run, kind)
    assert lane is not None
    return run, lane


def _with_one_bad(make_stage: Callable[..., Stage], app: str) -> Stage:
    """Its records are there before a worker is, and the first of a key fails."""
    stage = make_stage(app, partitions=1)
    for value, key in ((b"good", b"k1"), (b"bad", b"k0"), (b"good", b"k0")):
        stage.produce(1, value, key)
    return stage


def _is_killed(stage: Stage, run: Running) -> None:
    """The whole run, at once, when it has committed what it handled."""
    run.until(lambda: stage.committed() >= 1, "the other key's record is settled")
    run.signal(signal.SIGKILL)
    run.wait()


def test_a_quarantined_key_keeps_its_age(make_stage: Callable[..., Stage]) -> None:
    """It is that of the first failure, which the parked record carries."""
    stage = _with_one_bad(make_stage, QUARANTINING)
    run, before = _begins(stage, "quarantined")
    _is_killed(stage, run)
    _, after = _begins(stage, "quarantined")
    tier = f"{stage.topic}--{stage.group}--retry-10m"
    failed = [read_envelope(each.headers()) for each in committed_records(stage.servers, tier)]
    first_ms = {each.first_failed_at_ms for each in failed if each.failures}
    assert {after["since_ms"]} == first_ms
    assert not before["at_least"]
    assert after["at_least"]


def test_a_blocked_lane_says_that_it_may_be_older(make_stage: Callable[..., Stage]) -> None:
    """What is tried again in place leaves no trace in Kafka."""
    stage = _with_one_bad(make_stage, BLOCKING)
    run, before = _begins(stage, "blocked")
    _is_killed(stage, run)
    _, after = _begins(stage, "blocked")
    assert not before["at_least"]
    assert after["at_least"]
    assert after["since_ms"] > before["since_ms"]
