"""The log of faults: when one begins, that it lasts, and when it is over."""

from __future__ import annotations

import pytest

from ackfloor import App
from ackfloor.core.messages.fault_causes import Identity
from ackfloor.core.state.faults import MOST
from ackfloor.core.state.snapshot import Fault
from ackfloor.runtime.logging.fault_log import SAY_AGAIN_S, FaultLog
from tests.framework.runtime.live import live, register

NOW_MS = 1_700_000_000_000
DLQ = Fault("parking", "orders--g--dlq", "3 records can't be parked", NOW_MS, "missing", 3)
TIER = Fault("kafka", "orders--g--retry-1s", "not allowed", NOW_MS - 4_000, "denied")
OTHER = Fault("abandoned", "bill", "1 still runs", NOW_MS)


def test_each_fault_is_one_line_when_it_begins_and_one_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two at once are both told; what lasts is told again after a while, with its number."""
    log = FaultLog()
    log.log_changes([DLQ, TIER, OTHER], 10.0, NOW_MS)
    log.log_changes([DLQ, TIER, OTHER], 11.0, NOW_MS + 1_000)
    assert [record.getMessage() for record in caplog.records] == [
        "orders--g--dlq: 3 records can't be parked",
        "orders--g--retry-1s: not allowed (for 4 s)",
    ]
    caplog.clear()
    log.log_changes([TIER], 12.0, NOW_MS + 2_000)
    assert [record.getMessage() for record in caplog.records] == [
        "orders--g--dlq: the fault is over after 2 s (missing)"
    ]
    caplog.clear()
    log.log_changes([TIER], 10.0 + SAY_AGAIN_S, NOW_MS + 60_000)
    assert [record.getMessage() for record in caplog.records] == [
        "orders--g--retry-1s: not allowed (for 64 s)"
    ]


def test_a_fault_that_records_begin_to_wait_for_is_the_same_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Named by the brokers first, and then by a record: nothing has ended or begun."""
    log = FaultLog()
    log.log_changes([Fault("kafka", DLQ.subject, "gone", NOW_MS, "missing")], 10.0, NOW_MS)
    log.log_changes([DLQ], 11.0, NOW_MS)
    assert len(caplog.records) == 1


def test_a_fault_that_a_snapshot_has_no_room_for_is_not_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Older ones are shown before it, and it is told of until it ends all the same."""
    app = App("g")
    register(app, "async", "orders", lambda _: iter(()))
    with live(app) as worker:
        faults = worker.loop.engine.faults

        def told(text: str) -> bool:
            return any(text in record.getMessage() for record in caplog.records)

        faults.wait("parking", "young", Identity("young", "missing"), "gone", NOW_MS)
        worker.until(lambda: told("young: 1 record can't be parked"))
        for number in range(MOST):
            old = f"old-{number}"
            faults.wait("parking", old, Identity(old, "missing"), "gone", NOW_MS - 1)
        # What a restart may cure is shown however many topics are broken.
        faults.put("own", "bill", "it stands still", NOW_MS)
        worker.until(lambda: told(f"old-{MOST - 1}: 1 record"))
        assert worker.watcher.latest is not None
        assert worker.watcher.latest.more_faults == 1
        assert "own" in {fault.kind for fault in worker.watcher.latest.faults}
        assert not told("is over")
        faults.clear("parking", "young")
        worker.until(lambda: told("young: the fault is over"))
        assert not told("old-0: the fault is over")
