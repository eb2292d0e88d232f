"""The worker's side: every event is counted, and the report carries it all."""

from __future__ import annotations

import json
from dataclasses import asdict
from threading import Thread
from typing import get_args

import pytest

from ackfloor.observe import (
    BatchFailed,
    BreakerClosed,
    BreakerOpened,
    BreakerSnapshot,
    CommitFailed,
    CopySettled,
    DeliveryTimedOut,
    Event,
    HandlerHeld,
    KeyFreed,
    KeyNotQuarantined,
    KeyQuarantined,
    LateAnswers,
    MetadataIgnored,
    PartitionsAssigned,
    PartitionsRevoked,
    PositionsCommitted,
    PublishFailed,
    QuarantinesTakenOver,
    Reason,
    RecordDeadLettered,
    RecordDiscarded,
    RecordHopped,
    RecordParked,
    RecordsAcked,
    RecordsDeleted,
    RecordsLost,
    RecordsReceived,
    RecordsRewound,
    RecordsSkipped,
    RecordWithheld,
    RedeliveriesStarted,
    ReplaysEnded,
    StrayExit,
    SuspectCleared,
    SuspectStarted,
    TopicPartition,
    TrialEnded,
)
from ackfloor_monitoring.metrics.worker_metrics import MOST_ERRORS, WorkerMetrics
from ackfloor_monitoring.metrics.worker_report import Report, ReportRefused, as_tree
from tests.monitoring.samples import NOW_MS, SNAPSHOT, failed, handler, snapshot

B = ("orders", "bill")
COUNTED: list[tuple[Event, dict[str, dict[tuple[str, ...], int]]]] = [
    (
        RecordsReceived("orders", 0, "bill", 5, 1_000, from_tier=False),
        {
            "messages_received_total": {(*B, "source"): 5},
            "received_bytes_total": {(*B, "source"): 1_000},
        },
    ),
    (
        RecordsReceived("orders", 0, "bill", 2, 10, from_tier=True),
        {
            "messages_received_total": {(*B, "retry"): 2},
            "received_bytes_total": {(*B, "retry"): 10},
        },
    ),
    (
        RecordsAcked("orders", "bill", [0.1, 0.2], [0.0, 0.0], [1.0, 1.0]),
        {"messages_acked_total": {B: 2}},
    ),
    (failed("KeyError"), {"messages_failed_total": {(*B, "KeyError"): 1}}),
    (DeliveryTimedOut("orders", 0, 7, "bill", 1, 0.01), {"messages_timed_out_total": {B: 1}}),
    (
        RedeliveriesStarted("orders", "bill", [2, 2, 10, 11, 300], [0.0] * 5),
        {"messages_retried_total": {(*B, "2"): 2, (*B, "10"): 1, (*B, ">10"): 2}},
    ),
    (
        ReplaysEnded("orders", "bill", 40, 2),
        {"messages_replayed_total": {(*B, "handled"): 40, (*B, "failed"): 2}},
    ),
    (
        RecordParked(
            "orders", 0, 7, "bill", 1, Reason.TIMEOUT, "orders--billing--retry-1s", 1, 0.02
        ),
        {"messages_parked_total": {(*B, "timeout"): 1}},
    ),
    (
        RecordDeadLettered("orders", 0, 7, "bill", 7, Reason.EXHAUSTED, "KeyError"),
        {"messages_dead_lettered_total": {(*B, "exhausted", "KeyError"): 1}},
    ),
    (
        RecordDiscarded("orders", 0, 7, "bill", "a test order"),
        {"messages_discarded_total": {B: 1}},
    ),
    (
        RecordHopped("orders", "bill", "orders--billing--retry-5s"),
        {"messages_hopped_total": {B: 1}},
    ),
    (LateAnswers("orders", "bill", 4), {"late_answers_total": {B: 4}}),
    (
        PublishFailed("orders", 0, 7, "bill", "orders--billing--retry-1s", "away", 1.0),
        {"publish_failures_total": {(*B, "retry"): 1}},
    ),
    (
        PublishFailed("orders", 0, 7, "bill", "orders--billing--dlq", "away", 1.0),
        {"publish_failures_total": {(*B, "dlq"): 1}},
    ),
    (PositionsCommitted(3), {"commits_total": {(): 3}}),
    (
        CommitFailed("orders", 0, "refused: the group has position 7 afterwards"),
        {"commit_failures_total": {("orders", "unconfirmed"): 1}},
    ),
    (
        CommitFailed("orders", 0, "GROUP_AUTHORIZATION_FAILED: Broker: no"),
        {"commit_failures_total": {("orders", "GROUP_AUTHORIZATION_FAILED"): 1}},
    ),
    (
        CommitFailed("orders", 0, "_TIMED_OUT: Local: Timed out"),
        {"commit_failures_total": {("orders", "TIMED_OUT"): 1}},
    ),
    (
        PartitionsAssigned((TopicPartition("orders", 0),)),
        {"rebalances_total": {("assigned",): 1}},
    ),
    (
        PartitionsRevoked((TopicPartition("orders", 0),), lost=False, open_count=3),
        {"rebalances_total": {("revoked",): 1}, "messages_released_total": {(): 3}},
    ),
    (
        PartitionsRevoked((TopicPartition("orders", 0),), lost=True, open_count=0),
        {"rebalances_total": {("lost",): 1}, "messages_released_total": {(): 0}},
    ),
    (RecordsLost("orders", 0, 90), {"lost_to_retention_total": {("orders",): 90}}),
    (
        RecordsDeleted("orders--billing--retry-1s", 60, 5),
        {"lost_to_deletion_total": {("orders--billing--retry-1s",): 60}},
    ),
    (
        RecordsSkipped("orders", 0, "bill", 40),
        {"messages_skipped_total": {("orders", "bill"): 40}},
    ),
    (
        RecordsRewound("orders", 0, "bill", 30, 6_000),
        {"messages_rewound_total": {("orders", "bill"): 30}},
    ),
    (
        MetadataIgnored("orders", 0, 7, "its checksum does not match"),
        {"commit_metadata_ignored_total": {("orders",): 1}},
    ),
    (HandlerHeld("bill", 5.0, "the bank is away"), {"handler_holds_total": {("bill",): 1}}),
    (
        BatchFailed("orders", "bill", 100, "OSError", "the bank is away"),
        {"batch_failures_total": {B: 1}},
    ),
    (
        BreakerOpened("bill", 50, "OSError", "the bank is away"),
        {"breaker_opened_total": {("bill",): 1}, "guard_trips_total": {("bill",): 1}},
    ),
    (
        BreakerClosed("bill", 61.0),
        {
            "breaker_closed_total": {("bill", "recovered"): 1},
            "guard_resets_total": {("bill",): 1},
        },
    ),
    (
        BreakerClosed("bill", 3_600.0, "gave in"),
        {
            "breaker_closed_total": {("bill", "gave_in"): 1},
            "guard_resets_total": {("bill",): 1},
        },
    ),
    (
        TrialEnded("orders", 0, 7, "bill"),
        {
            "breaker_trials_total": {("bill", "handled"): 1},
            "guard_probes_total": {("bill", "handled"): 1},
        },
    ),
    (
        TrialEnded("orders", 0, 7, "bill", "OSError"),
        {
            "breaker_trials_total": {("bill", "failed"): 1},
            "guard_probes_total": {("bill", "failed"): 1},
        },
    ),
    (
        RecordWithheld("orders", 0, 7, "bill", 1, "orders--billing--retry-1s"),
        {"messages_withheld_total": {B: 1}, "messages_put_back_total": {B: 1}},
    ),
    (
        SuspectStarted("orders", 0, 5, "bill", 1, False, "orders"),
        {"crash_suspects_total": {("orders", "bill", "started"): 1}},
    ),
    (
        SuspectStarted("orders", 0, 5, "bill", 2, True, "orders"),
        {"crash_suspects_total": {("orders", "bill", "started_alone"): 1}},
    ),
    (
        SuspectCleared("orders", "bill"),
        {"crash_suspects_total": {("orders", "bill", "cleared"): 1}},
    ),
    (StrayExit("SystemExit"), {"stray_exits_total": {(): 1}}),
    (CopySettled("orders", 0, "bill"), {"messages_copies_settled_total": {B: 1}}),
    (
        KeyNotQuarantined("orders", 0, "bill", "full"),
        {"keys_not_quarantined_total": {("orders", "bill", "full"): 1}},
    ),
    (
        KeyQuarantined("orders", 0, "bill", 41),
        {"key_quarantines_total": {("orders", "bill", "begun"): 1}},
    ),
    (
        KeyFreed("orders", 0, "bill", 41, 12.0),
        {"key_quarantines_total": {("orders", "bill", "ended"): 1}},
    ),
    (
        QuarantinesTakenOver("orders", 0, "bill", 3),
        {"key_quarantines_total": {("orders", "bill", "taken_over"): 3}},
    ),
]


def sent(metrics: WorkerMetrics) -> Report:
    """What the supervisor would read."""
    return Report.from_bytes(metrics.report())


def counters(report: Report) -> dict[str, dict[tuple[str, ...], int]]:
    """The counters that have series, without their prefix."""
    return {
        name.removeprefix("ackfloor_"): dict(rows) for name, rows in report.counters.items() if rows
    }


@pytest.mark.parametrize(("event", "expected"), COUNTED, ids=lambda value: type(value).__name__)
def test_each_event_counts_what_it_tells(
    event: Event, expected: dict[str, dict[tuple[str, ...], int]]
) -> None:
    """One event of each kind moves the counters it should and no other."""
    metrics = WorkerMetrics()
    metrics.observe([event])
    assert counters(sent(metrics)) == expected


def test_no_event_of_the_catalogue_is_forgotten() -> None:
    """Whatever the engine can tell has a method here and a case above."""
    catalogue = set(get_args(Event))
    assert set(WorkerMetrics()._counters) == catalogue
    assert {type(event) for event, _ in COUNTED} == catalogue


@pytest.mark.parametrize(
    ("event", "name", "labels", "total"),
    [
        (COUNTED[2][0], "handler_duration_seconds", (*B, "acked"), 0.3),
        (COUNTED[2][0], "ack_latency_seconds", B, 0.3),
        (COUNTED[2][0], "end_to_end_latency_seconds", B, 2.0),
        (failed("KeyError", duration_s=0.2), "handler_duration_seconds", (*B, "failed"), 0.2),
        (
            failed("ConsumeTimeout", Reason.TIMEOUT, 30.0),
            "handler_duration_seconds",
            (*B, "timed_out"),
            30.0,
        ),
        (DeliveryTimedOut("orders", 0, 7, "bill", 1, 0.01), "timeout_lateness_seconds", B, 0.01),
        (
            RedeliveriesStarted("orders", "bill", [2, 3], [0.1, 0.05]),
            "retry_lateness_seconds",
            B,
            0.15,
        ),
        (
            RecordParked("orders", 0, 7, "bill", 1, Reason.ERROR, "t", 1.0, 0.02),
            "park_delay_seconds",
            B,
            0.02,
        ),
    ],
)
def test_what_was_measured_is_in_its_histogram(
    event: Event, name: str, labels: tuple[str, ...], total: float
) -> None:
    """Durations and lateness land in the histogram and series that are theirs."""
    metrics = WorkerMetrics()
    metrics.observe([event])
    rows = {row[0]: row for row in sent(metrics).histograms[f"ackfloor_{name}"]}
    assert rows[labels][2] == pytest.approx(total)


@pytest.mark.parametrize("reason", [Reason.BEHIND, Reason.HELD])
def test_what_waits_behind_another_record_has_no_delay_since_a_failure(reason: Reason) -> None:
    """It is counted as parked, under its reason, and no failure of it is measured."""
    metrics = WorkerMetrics()
    metrics.observe([RecordParked("orders", 0, 7, "bill", 0, reason, "t", 1.0, 0.02)])
    report = sent(metrics)
    assert counters(report) == {"messages_parked_total": {(*B, reason.value): 1}}
    assert not report.histograms["ackfloor_park_delay_seconds"]


def test_the_wait_in_the_queue_is_measured_apart_from_the_handler() -> None:
    """Queue wait counts each handled record, at its own edges."""
    metrics = WorkerMetrics()
    metrics.observe([RecordsAcked("orders", "bill", [0.1] * 9, [2.0] * 9, [3.0] * 9)])
    report = sent(metrics)
    ((labels, counts, total),) = report.histograms["ackfloor_queue_wait_seconds"]
    edges = report.edges["ackfloor_queue_wait_seconds"]
    assert (labels, total) == (B, 18.0)
    assert counts[list(edges).index(2.5)] == sum(counts) == 9


def test_error_classes_are_capped_over_all_metrics() -> None:
    """After 50 classes every new one is `other`, for failures and dead letters alike."""
    metrics = WorkerMetrics()
    metrics.observe([failed(f"Error{n}") for n in range(MOST_ERRORS + 20)])
    metrics.observe([RecordDeadLettered("orders", 0, 7, "bill", 7, Reason.ERROR, "YetAnother")])
    told = counters(sent(metrics))
    assert len(told["messages_failed_total"]) == MOST_ERRORS + 1
    assert told["messages_failed_total"][*B, "other"] == 20
    assert told["messages_dead_lettered_total"] == {(*B, "error", "other"): 1}


def test_consume_timeouts_in_force_are_bucket_edges() -> None:
    """A snapshot's timeouts, also changed ones, become edges of the handler's duration."""
    metrics = WorkerMetrics()
    metrics.snapshot(SNAPSHOT)
    changed = (handler(consume_timeout_s=7.0), handler(name="free", consume_timeout_s=None))
    metrics.snapshot(snapshot(handlers=changed))
    edges = sent(metrics).edges["ackfloor_handler_duration_seconds"]
    assert {7.0, 45.0} <= set(edges)
    assert list(edges) == sorted(edges)


def test_counters_that_alerts_watch_exist_before_their_first_increase() -> None:
    """From the first snapshot on failures are at 0, so that `increase()` sees the first one."""
    metrics = WorkerMetrics()
    metrics.snapshot(SNAPSHOT)
    metrics.observe([CommitFailed("orders", 0, "refused")])
    metrics.snapshot(SNAPSHOT)
    told = counters(sent(metrics))
    assert told["publish_failures_total"] == {(*B, "retry"): 0, (*B, "dlq"): 0}
    assert told["commit_failures_total"] == {("orders", "unconfirmed"): 1}
    assert told["breaker_opened_total"] == told["guard_trips_total"] == {("bill",): 0}


def test_joined_says_whether_the_group_gave_an_assignment() -> None:
    """An empty assignment is one; partitions taken without warning end it."""
    metrics = WorkerMetrics()
    assert not sent(metrics).joined
    metrics.observe([PartitionsAssigned(())])
    assert sent(metrics).joined
    metrics.observe([PartitionsRevoked((), lost=False, open_count=0)])
    assert sent(metrics).joined
    metrics.observe([PartitionsRevoked((), lost=True, open_count=0)])
    assert not sent(metrics).joined


def test_a_snapshot_survives_the_pipe() -> None:
    """The supervisor reads the very snapshot the worker took."""
    metrics = WorkerMetrics(now_s=lambda: 12.5)
    assert sent(metrics).snapshot is None
    metrics.snapshot(SNAPSHOT)
    report = sent(metrics)
    assert report.snapshot == SNAPSHOT
    assert report.started_s == 12.5


def test_the_state_of_a_circuit_breaker_survives_the_pipe() -> None:
    """Every field of it, also those that are not known or not set; `/state` names them."""
    forced = BreakerSnapshot(
        *(True, "slow_start", NOW_MS, 50, "OSError: away", 8, 0.25, 7, 12_500, True),
        *("open", "the bank moves", 1_800.5),
    )
    for breaker in (BreakerSnapshot(), forced):
        metrics = WorkerMetrics()
        metrics.snapshot(snapshot(handlers=(handler(breaker=breaker),)))
        told = sent(metrics).snapshot
        assert told is not None
        assert told.handlers[0].breaker == breaker
        assert as_tree(told)["handlers"][0]["breaker"] == asdict(breaker)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80\x04K\x01.", b"[]", b"{}", b'"x"', b'{"shape": "of another version"}'],
)
def test_what_is_no_report_is_refused(data: bytes) -> None:
    """Foreign bytes, pickles and other versions are refused by name, not misread."""
    with pytest.raises(ReportRefused):
        Report.from_bytes(data)


def test_a_report_with_a_damaged_snapshot_is_refused() -> None:
    """A row with a missing column is not taken for a shorter snapshot."""
    metrics = WorkerMetrics()
    metrics.snapshot(SNAPSHOT)
    parts = json.loads(metrics.report())
    parts["snapshot"].pop()
    with pytest.raises(ReportRefused, match="not a report"):
        Report.from_bytes(json.dumps(parts).encode())


def test_state_has_the_names_of_the_fields() -> None:
    """What people read is the snapshot, field by field, nested parts included."""
    tree = as_tree(SNAPSHOT)
    assert tree["partitions"][0]["floor"] == 100
    assert tree["handlers"][0]["oldest"][0] == {
        "topic": "orders",
        "partition": 0,
        "offset": 100,
        "attempt": 1,
        "running_s": 1.25,
        "left_s": 43.75,
        "stack": ["/shop/orders.py:41 bill"],
        "behind": 19,
    }
    assert json.loads(json.dumps(tree))["handlers"] == tree["handlers"]


def test_reports_taken_while_events_come_are_consistent() -> None:
    """A report from another thread never shows half a batch, nor fails over a new series."""
    metrics = WorkerMetrics()
    reports: list[Report] = []

    def read() -> None:
        while not reports or reports[-1].counters["ackfloor_commits_total"] != [((), 300)]:
            reports.append(sent(metrics))

    reader = Thread(target=read)
    reader.start()
    for n in range(300):
        acked = RecordsAcked(f"topic{n}", "bill", [0.1] * 50, [0.1] * 50, [0.1] * 50)
        metrics.observe([acked, PositionsCommitted(1)])
    reader.join(timeout=60)
    assert not reader.is_alive()
    for report in reports:
        commits = dict(report.counters["ackfloor_commits_total"]).get((), 0)
        acked = dict(report.counters["ackfloor_messages_acked_total"])
        seen = sum(sum(row[1]) for row in report.histograms["ackfloor_handler_duration_seconds"])
        assert sum(acked.values()) == seen == commits * 50
