"""A rate for the group in the simulation: kept whoever comes and goes, and a lapse is seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ackfloor.core.queues.handler_rate import HandlerRate
from tests.simulation.plan import Act, Fault, HandlerPlan, Plan, RecordPlan
from tests.simulation.untraced import untraced
from tests.simulation.world import play

#: A worker dies, one leaves and one joins, and partitions move, while records wait.
MOVES = (
    Fault("rebalance", 3.0),
    Fault("crash", 6.0),
    Fault("join", 9.0),
    Fault("leave", 13.0),
    Fault("rebalance", 17.0, 2.0),
)


@pytest.fixture(autouse=True)
def without_coverage() -> Iterator[None]:
    """Whole runs are played here."""
    with untraced():
        yield


def backlog(*, fails: bool = False) -> Plan:
    """A run of three workers with a minute's records of two handlers, and moves meanwhile."""
    handlers = (
        HandlerPlan("async", rate_per_s=5),
        HandlerPlan("thread", "key", "block", rate_per_s=2, concurrency=16),
    )
    acts = (Act("fail"), Act("ok")) if fails else (Act("ok", 0.01),)
    records = tuple(
        RecordPlan(n, n % 2, n % 4, b"k%d" % (n % 9), 0.0, acts) for n in range(120)
    )  # fmt: skip
    return Plan(9, handlers, records, MOVES, partitions=4, workers=3, drain_s=0.5)


@pytest.mark.parametrize("fails", [False, True])
def test_it_is_kept_while_workers_come_and_go(fails: bool) -> None:
    """And all is handled: nothing waits for ever."""
    result = play(backlog(fails=fails))
    assert result.broken is None
    assert result.checks["rate"] >= 120


def test_that_it_is_not_kept_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing takes a token, the watch says so."""
    monkeypatch.setattr(HandlerRate, "gave", lambda *_: None)
    broken = play(backlog()).broken
    assert broken is not None
    assert broken.rule == "rate"
