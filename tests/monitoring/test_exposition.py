"""What Prometheus scrapes: the golden text, and the merge of several workers."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

import ackfloor
from ackfloor.observe import (
    BreakerSnapshot,
    Event,
    Fault,
    PartitionsAssigned,
    PauseReason,
    Progress,
    Reason,
    RecordsAcked,
    SettingsState,
)
from ackfloor_monitoring.metrics.merging import RunCollector
from ackfloor_monitoring.metrics.metric_definitions import METRICS, RUN_WIDE
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from tests.monitoring.samples import (
    NOW_MS,
    OPEN,
    SNAPSHOT,
    failed,
    handler,
    partition,
    snapshot,
)
from tests.monitoring.test_worker import COUNTED

GOLDEN = Path(__file__).with_name("exposition.txt")
CLOSED = BreakerSnapshot(allowed=64, withheld_most=12_500)
RELOADED = SettingsState(reloads=2, failures=1, reloaded_ms=NOW_MS - 5000)
SEEN = (
    Progress("billing", "orders", 0, "source", start=0, end=10, floor=3, runs=((5, 7),)),
    Progress("billing", "orders", 1, "source", start=0, end=4),
    Progress("billing", "orders--billing--retry-1s", 0, "retry", start=0, end=8, floor=6),
    Progress(
        "billing",
        "orders--billing--dlq",
        0,
        "dlq",
        start=2,
        end=9,
        disposed=3,
        oldest_ms=NOW_MS - 500,
    ),
)
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def worker(events: list[Event], state: ackfloor.observe.Snapshot | None = SNAPSHOT) -> bytes:
    """The report of a worker that was told these events."""
    metrics = WorkerMetrics(now_s=lambda: NOW_MS / 1000 - 60)
    metrics.observe(events)
    if state is not None:
        metrics.snapshot(state)
    return metrics.report()


def scrape(run: RunMetrics) -> str:
    """The text a scrape gets."""
    return generate_latest(run._registry).decode()


def samples(text: str) -> Samples:
    """Every sample of an exposition, by name and sorted labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float | None:
    """One sample of group `billing`, None where it is absent."""
    key = (f"ackfloor_{name}", tuple(sorted({"group": "billing", **labels}.items())))
    return samples(text).get(key)


@pytest.fixture
def run() -> RunMetrics:
    """A run of two workers."""
    return RunMetrics("billing", 2, now_ms=lambda: NOW_MS, monotonic=lambda: 7.0)


def test_each_fault_has_its_records_and_its_beginning(run: RunMetrics) -> None:
    """By topic and cause; those that are not shown are counted."""
    faults = (
        Fault("parking", "orders--billing--dlq", "gone", NOW_MS - 5_000, "missing", 96),
        Fault("kafka", "orders", "not allowed", NOW_MS, "denied"),
    )
    run.update(0, worker([], snapshot(faults=faults, more_faults=3)))
    text = scrape(run)
    missing = {"kind": "parking", "subject": "orders--billing--dlq", "cause": "missing"}
    assert value(text, "fault_messages", worker="0", **missing) == 96
    since_s = value(text, "fault_since_timestamp_seconds", worker="0", **missing)
    assert since_s == NOW_MS / 1000 - 5
    denied = {"kind": "kafka", "subject": "orders", "cause": "denied"}
    assert value(text, "fault_messages", worker="0", **denied) == 0
    assert value(text, "faults_in_force", worker="0") == 5


def test_the_exposition_is_the_stored_one(run: RunMetrics) -> None:
    """One event of every kind and one snapshot give exactly the stored text, which parses back
    to the same families; ACKFLOOR_GOLDEN=write stores it anew."""
    run.update(0, worker([event for event, _ in COUNTED]))
    run.settings(RELOADED)
    run.progress(SEEN)
    text = scrape(run).replace(f'python="{platform.python_version()}"', 'python="P"')
    text = text.replace(f'version="{ackfloor.__version__}"', 'version="V"')
    if os.environ.get("ACKFLOOR_GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    names = {family.name for family in text_string_to_metric_families(text)}
    defined = {spec.name.removesuffix("_total") for spec in METRICS}
    absent = {
        "ackfloor_retry_next_due_timestamp_seconds",
        "ackfloor_breaker_since_timestamp_seconds",
        "ackfloor_fault_messages",
        "ackfloor_fault_since_timestamp_seconds",
    }
    assert names == defined - absent


def test_openmetrics_carries_the_same_samples(run: RunMetrics) -> None:
    """The other format is strict about units, counters and the end mark, and parses too."""
    run.update(0, worker([event for event, _ in COUNTED]))
    families = list(parse_openmetrics(generate_openmetrics(run._registry).decode()))
    units = {family.name: family.unit for family in families}
    assert units["ackfloor_handler_duration_seconds"] == "seconds"
    assert units["ackfloor_received_bytes"] == "bytes"
    both = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    assert both == samples(scrape(run))


def test_the_age_of_a_turn_is_that_of_its_report() -> None:
    """By the monotonic clock: what the wall clock does meanwhile is nothing to it."""
    clocks = {"wall_ms": NOW_MS, "monotonic_s": 7.0}
    run = RunMetrics(
        "billing", 2, now_ms=lambda: clocks["wall_ms"], monotonic=lambda: clocks["monotonic_s"]
    )
    run.update(0, worker([]))
    clocks.update(wall_ms=NOW_MS + 3_600_000, monotonic_s=9.5)
    run.update(1, worker([]))
    text = scrape(run)
    assert value(text, "loop_turn_age_seconds", worker="0") == 2.5
    assert value(text, "loop_turn_age_seconds", worker="1") == 0
    run.worker_gone(0)
    assert value(scrape(run), "loop_turn_age_seconds", worker="0") is None


def test_two_workers_are_told_apart(run: RunMetrics) -> None:
    """Both workers' counters stand side by side in one family, each with its number."""
    run.update(0, worker([RecordsAcked("orders", "bill", [0.1], [0.1], [0.1])]))
    run.update(1, worker([RecordsAcked("orders", "bill", [0.1] * 5, [0.1] * 5, [0.1] * 5)]))
    text = scrape(run)
    acked = {"topic": "orders", "handler": "bill"}
    assert value(text, "messages_acked_total", worker="0", **acked) == 1
    assert value(text, "messages_acked_total", worker="1", **acked) == 5
    assert value(text, "workers_reporting") == value(text, "workers_expected") == 2
    assert text.count("# TYPE ackfloor_messages_acked_total counter") == 1


def test_a_dead_worker_leaves_nothing_behind(run: RunMetrics) -> None:
    """All series of a worker that ended vanish; its successor starts from 0."""
    run.update(0, worker([failed("KeyError")]))
    run.update(1, worker([failed("KeyError")] * 9))
    run.worker_gone(1)
    text = scrape(run)
    assert {dict(labels).get("worker", "0") for _, labels in samples(text)} == {"0"}
    assert value(text, "workers_reporting") == 1
    assert value(text, "workers_ended_total") == 1
    run.update(1, worker([failed("KeyError")]))
    labels = {"topic": "orders", "handler": "bill", "error": "KeyError"}
    assert value(scrape(run), "messages_failed_total", worker="1", **labels) == 1


def test_a_revoked_partition_vanishes_with_the_next_report(run: RunMetrics) -> None:
    """No gauge of a partition outlives it: a stale floor would page somebody."""
    metrics = WorkerMetrics()
    metrics.snapshot(snapshot(partitions=(partition(), partition(partition=1))))
    run.update(0, metrics.report())
    place = {"worker": "0", "topic": "orders", "partition": "1"}
    assert value(scrape(run), "floor_position", **place) == 100
    metrics.snapshot(SNAPSHOT)
    run.update(0, metrics.report())
    text = scrape(run)
    assert 'partition="1"' not in text
    assert value(text, "floor_position", **(place | {"partition": "0"})) == 100


def test_progress_is_read_from_the_snapshot(run: RunMetrics) -> None:
    """Span, lag and the timestamps follow from the partition's own figures."""
    run.update(0, worker([]))
    text = scrape(run)
    place = {"worker": "0", "topic": "orders", "partition": "0"}
    expected = {
        "committed_position": 98,
        "read_position": 120,
        "highest_settled_offset": 109,
        "gap_messages": 8,
        "unacked_messages": 12,
        "ack_span_offsets": 10,
        "lag_messages": 22,
        "floor_last_advance_timestamp_seconds": NOW_MS / 1000 - 2,
        "oldest_unacked_timestamp_seconds": NOW_MS / 1000 - 1.5,
        "oldest_unacked_record_timestamp_seconds": NOW_MS / 1000 - 1.7,
    }
    assert {name: value(text, name, **place) for name in expected} == expected


def test_what_is_not_known_is_absent_not_zero(run: RunMetrics) -> None:
    """No commit yet, nothing open, nothing settled, end of the log unknown: no series."""
    empty = partition(
        committed=None,
        highest_settled=-1,
        high_watermark=None,
        oldest_open_ms=None,
        oldest_written_ms=None,
        open_count=0,
        gap_count=0,
    )
    run.update(0, worker([], snapshot(partitions=(empty,))))
    text = scrape(run)
    place = {"worker": "0", "topic": "orders", "partition": "0"}
    for name in (
        *("committed_position", "highest_settled_offset", "high_watermark_position"),
        *("oldest_unacked_timestamp_seconds", "oldest_unacked_record_timestamp_seconds"),
        "lag_messages",
    ):
        assert value(text, name, **place) is None
    assert value(text, "ack_span_offsets", **place) == 0


def test_a_retry_tier_shows_what_waits(run: RunMetrics) -> None:
    """A tier's partition stands under its own topic, with its waiting records and next due."""
    tier = partition(
        topic="orders--billing--retry-5s", tier_s=5.0, waiting=4, next_due_ms=NOW_MS + 500
    )
    run.update(0, worker([], snapshot(partitions=(tier,))))
    place = {"worker": "0", "topic": "orders--billing--retry-5s", "partition": "0"}
    text = scrape(run)
    assert value(text, "retry_waiting_messages", **place) == 4
    assert value(text, "retry_next_due_timestamp_seconds", **place) == NOW_MS / 1000 + 0.5


def test_paused_partitions_are_counted_by_their_reason(run: RunMetrics) -> None:
    """Every reason has its series, so that one that ends goes to 0."""
    states = (None, "worker", "worker", "handler")
    partitions = tuple(
        partition(partition=number, paused=reason is not None, pause_reason=reason)
        for number, reason in enumerate(states)
    )
    run.update(0, worker([], snapshot(partitions=partitions)))
    text = scrape(run)
    counts = {
        reason: value(text, "partitions_paused", worker="0", reason=reason)
        for reason in PauseReason
    }
    assert counts == dict.fromkeys(PauseReason, 0) | {"worker": 2, "handler": 1}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"breaker": replace(CLOSED, full=True)},
            {"handler_held": 0, "breaker_open": 0, "breaker_allowed": 64, "withheld_full": 1},
        ),
        (
            {"held_for_s": 0.5},
            {"handler_held": 1, "breaker_open": 0, "breaker_allowed": 64, "guard_tripped": 0},
        ),
        (
            # An operator's pause is as somebody wants it: `AckfloorHandlerPaused` is not about it.
            {"paused": True, "paused_for_s": 60.0, "paused_reason": "a migration"},
            {"handler_held": 0, "handler_paused": 1, "breaker_open": 0, "breaker_allowed": 64},
        ),
        (
            {"breaker": OPEN, "tripped": True},
            {
                "handler_held": 1,
                "breaker_open": 1,
                "guard_tripped": 1,
                "breaker_allowed": 1,
                "withheld_messages": 70,
                "withheld_messages_limit": 12_500,
                "withheld_full": 0,
                "breaker_since_timestamp_seconds": NOW_MS / 1000 - 90,
            },
        ),
        (
            {"breaker": replace(OPEN, state="slow_start", allowed=8, full=True), "tripped": True},
            {
                "handler_held": 1,
                "breaker_open": 1,
                "guard_tripped": 1,
                "breaker_allowed": 8,
                "withheld_full": 1,
                "breaker_since_timestamp_seconds": NOW_MS / 1000 - 90,
            },
        ),
    ],
)
def test_the_state_of_a_circuit_breaker_is_told(
    run: RunMetrics, changes: dict[str, Any], expected: dict[str, float | None]
) -> None:
    """Of each handler; since when, only while it is not closed."""
    calm = handler(name="ship", breaker=CLOSED)
    run.update(0, worker([], snapshot(handlers=(handler(**changes), calm))))
    text = scrape(run)
    since = "breaker_since_timestamp_seconds"
    expected = {since: None, **expected}
    assert {name: value(text, name, worker="0", handler="bill") for name in expected} == expected
    assert value(text, "breaker_open", worker="0", handler="ship") == 0
    assert value(text, since, worker="0", handler="ship") is None


def test_the_loops_time_is_told_by_what_it_did(run: RunMetrics) -> None:
    """As counters, so that their rates are shares."""
    run.update(0, worker([]))
    text = scrape(run)
    shares = [value(text, "loop_seconds_total", worker="0", state=s) for s in ("poll", "work")]
    assert shares == [40.5, 19.25]


def test_the_policy_in_force_is_told(run: RunMetrics) -> None:
    """One series for each handler; where the policy changes, it is another one."""
    run.update(0, worker([]))
    labels = {"worker": "0", "handler": "bill", "ordering": "key"}
    told = {"on_failure": "block", "delays": "1s 1m30s", "max_redeliveries": "6"}
    assert value(scrape(run), "policy_info", **labels, **told) == 1
    run.update(0, worker([], snapshot(handlers=(handler(max_redeliveries=None),))))
    text = scrape(run)
    assert value(text, "policy_info", **labels, **told) is None
    assert value(text, "policy_info", **labels, **told | {"max_redeliveries": "unlimited"}) == 1


@pytest.mark.parametrize("odd", ['quo"te', "back\\slash", "new\nline", "Ünïcode<locals>.E", ""])
def test_labels_from_outside_are_escaped(run: RunMetrics, odd: str) -> None:
    """Whatever an exception's class is called, the text parses back to that name."""
    run.update(0, worker([failed(odd)]))
    labels = {"worker": "0", "topic": "orders", "handler": "bill", "error": odd}
    assert value(scrape(run), "messages_failed_total", **labels) == 1


def test_a_worker_that_has_only_started_has_no_gauges(run: RunMetrics) -> None:
    """Before the first snapshot a worker shows that it runs, and on what."""
    run.update(0, worker([PartitionsAssigned(())], None))
    text = scrape(run)
    assert value(text, "worker_start_timestamp_seconds", worker="0") == NOW_MS / 1000 - 60
    assert value(text, "buffer_messages", worker="0") is None


def test_an_unreadable_report_is_logged_once_and_changes_nothing(
    run: RunMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged report keeps the last good one and doesn't fill the log."""
    # Another test may have left a level of its own.
    caplog.set_level("WARNING", logger="ackfloor.monitoring")
    run.update(0, worker([failed("KeyError")]))
    before = scrape(run)
    run.update(0, b"damaged")
    run.update(0, b"damaged")
    assert scrape(run) == before
    assert [record.getMessage()[:23] for record in caplog.records] == ["worker 0 sends reports "]


def test_scrapes_while_workers_come_and_go_are_whole() -> None:
    """A scrape beside updates and deaths always parses, and a histogram's count always is its
    last bucket."""
    run = RunMetrics("billing", 4)
    done: list[bool] = []
    texts: list[str] = []

    def scraping() -> None:
        while not done or not texts:
            texts.append(scrape(run))

    thread = Thread(target=scraping)
    thread.start()
    report = worker([event for event, _ in COUNTED])
    for turn in range(200):
        run.update(turn % 4, report)
        if turn % 3 == 0:
            run.worker_gone((turn + 1) % 4)
    done.append(True)
    thread.join(timeout=60)
    assert not thread.is_alive()
    for text in texts[:20] + texts[-20:]:
        found = samples(text)
        for (name, labels), count in found.items():
            if name.endswith("_seconds_count"):
                last = tuple(sorted((*labels, ("le", "+Inf"))))
                assert found[name.removesuffix("count") + "bucket", last] == count


def test_a_registry_of_ones_own_can_hold_the_run() -> None:
    """An embedding app passes its registry; names[] of the run are known to it."""
    registry = CollectorRegistry()
    RunMetrics("billing", 1, registry=registry)
    assert registry.get_sample_value("ackfloor_workers_expected", {"group": "billing"}) == 1
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(RunCollector("other", 1, dict, lambda: 0))


def test_run_wide_metrics_carry_no_worker(run: RunMetrics) -> None:
    """What belongs to the run as a whole is one series."""
    run.update(0, worker([]))
    run.update(1, worker([]))
    run.settings(RELOADED)
    run.progress(SEEN)
    names = {spec.name for spec in RUN_WIDE}
    found = [(name, dict(labels)) for name, labels in samples(scrape(run)) if name in names]
    assert {name for name, _ in found} == names
    assert [labels for _, labels in found if "worker" in labels] == []


def test_settings_that_were_refused_are_seen_until_they_are_mended(run: RunMetrics) -> None:
    """By the run or by a worker; the time of the last success stays."""

    def reload_metrics() -> dict[str, float]:
        found = {name: value for (name, _), value in samples(scrape(run)).items()}
        return {
            name.removeprefix("ackfloor_config_"): value
            for name, value in found.items()
            if name.startswith("ackfloor_config_")
        }

    assert reload_metrics() == {
        "reloads_total": 0.0,
        "reload_failures_total": 0.0,
        "last_reload_successful": 1.0,
        "restart_needed": 0.0,
    }
    broken = replace(RELOADED, error="bad", needs_restart=("app.workers",))
    for state in (broken, replace(RELOADED, refused_by={0: "older code"})):
        run.settings(state)
        told = reload_metrics()
        assert told["last_reload_successful"] == 0.0
        assert told["last_reload_success_timestamp_seconds"] == NOW_MS / 1000 - 5
        assert told["restart_needed"] == len(state.needs_restart)
    run.settings(RELOADED)
    assert reload_metrics()["last_reload_successful"] == 1.0


def test_what_kafka_says_is_there_until_it_is_not_known(run: RunMetrics) -> None:
    """Lag from the commit, what of it is open, dead letters; nothing where a look has failed."""
    assert value(scrape(run), "kafka_look_timestamp_seconds") is None
    run.progress(SEEN)
    text = scrape(run)
    orders = {"topic": "orders", "partition": "0", "kind": "source"}
    letters = {"topic": "orders--billing--dlq", "partition": "0", "kind": "dlq"}
    assert value(text, "kafka_look_timestamp_seconds") == NOW_MS / 1000
    assert value(text, "kafka_lag_messages", **orders) == 7
    assert value(text, "kafka_open_messages", **orders) == 5
    assert value(text, "kafka_lag_messages", **letters) is None
    assert value(text, "kafka_open_messages", **letters) == 4
    oldest = "kafka_oldest_dead_letter_timestamp_seconds"
    place = {name: letters[name] for name in ("topic", "partition")}
    assert value(text, oldest, **place) == NOW_MS / 1000 - 0.5
    assert [name for name, _ in samples(text)].count(f"ackfloor_{oldest}") == 1
    # Without a commit nobody can tell.
    assert value(text, "kafka_lag_messages", **{**orders, "partition": "1"}) is None
    run.progress(None)
    assert "ackfloor_kafka_" not in scrape(run)


def test_a_failure_leads_to_its_trace_where_openmetrics_is_asked_for(run: RunMetrics) -> None:
    """The newest one of each error and of each outcome, in the bucket of its duration; the other
    format has none."""
    older, newer = "0af7651916cd43dd8448eb211c80319c", "ffff651916cd43dd8448eb211c80319c"
    failures = [
        failed("KeyError", duration_s=0.3, trace_id=older),
        failed("KeyError", duration_s=0.2, trace_id=newer),
        failed("KeyError", duration_s=700.0),
        failed("ConsumeTimeout", Reason.TIMEOUT, duration_s=9_000.0, trace_id=older),
    ]
    run.update(0, worker([*failures, RecordsAcked("orders", "bill", [0.2], [0.1], [0.1])]))
    families = parse_openmetrics(generate_openmetrics(run._registry).decode())
    found = {
        (s.name, s.labels.get("error") or s.labels["outcome"], s.labels.get("le")): (
            s.exemplar.labels["trace_id"],
            s.exemplar.value,
            float(s.exemplar.timestamp or 0),
        )
        for family in families
        for s in family.samples
        if s.exemplar is not None
    }
    at_s = NOW_MS / 1000 - 60
    assert found == {
        ("ackfloor_messages_failed_total", "KeyError", None): (newer, 1.0, at_s),
        ("ackfloor_messages_failed_total", "ConsumeTimeout", None): (older, 1.0, at_s),
        ("ackfloor_handler_duration_seconds_bucket", "failed", "0.25"): (newer, 0.2, at_s),
        ("ackfloor_handler_duration_seconds_bucket", "timed_out", "+Inf"): (older, 9_000.0, at_s),
    }
    assert older not in scrape(run)
