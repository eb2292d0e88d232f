"""A real Prometheus server scrapes a real run, one of whose workers is killed meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ackfloor_monitoring
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor_monitoring.dashboards.grafana import dashboard
from ackfloor_monitoring.metrics import metric_definitions as d
from ackfloor_monitoring.metrics.gauges import (
    BREAKER_SINCE,
    FAULT_MESSAGES,
    FAULT_SINCE,
    LANES_BLOCKED_SINCE,
    QUARANTINED_SINCE,
    RATE_LIMIT,
)
from ackfloor_monitoring.metrics.metric_spec import Kind
from ackfloor_monitoring.metrics.watch_definitions import WATCH_METRICS
from tests.e2e.prometheus import Prometheus, needs_prometheus
from tests.e2e.stage import Stage, page, ready, started
from tests.monitoring.promql import asked, series_in, with_values

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, needs_prometheus]

RULES = Path(ackfloor_monitoring.__file__).with_name("alerts")
APP = """
from ackfloor import DeadLetter, Discard, Pause, Retry

app = App("GROUP")
paused = []
# Short, so that a wait of its own hops and hops; and long enough to be seen waiting.
retry = RetryPolicy(initial_delay="1s", multiplier=30, max_delay="30s", max_redeliveries=2)


@app.handler("TOPIC", consume_timeout="500ms", max_extend="1h", retry=retry, breaker=None)
async def bill(value: bytes, delivery: Delivery) -> None:
    if value == b"discard":
        raise Discard("not ours")
    if value == b"dead":
        raise DeadLetter("no such order")
    if value == b"hop" and delivery.attempt == 1:
        raise Retry(after="25s", reason="come back later")
    if value == b"pause" and not paused:
        paused.append(True)
        raise Pause("50ms")
    if value == b"late" and delivery.attempt == 1:
        await asyncio.sleep(30)
    if value == b"gate":
        delivery.extend("1h")
        while not opened("gate"):
            await asyncio.sleep(0.01)
    if value == b"fail":
        raise KeyError("always")
    note(handled, delivery)
"""
TRACE = "0af7651916cd43dd8448eb211c80319c"
#: What takes a crash in the right moment, a circuit breaker that opens, a batch that fails, a
#: foreign commit, a topic that is broken, an exit of a task of the user's, or a rate.
RARE = {
    *(FAULT_MESSAGES, FAULT_SINCE, d.STRAY_EXITS),
    *(BREAKER_SINCE.spec, d.BREAKER_CLOSED, d.BREAKER_TRIALS, d.WITHHELD, d.BATCH_FAILURES),
    *(LANES_BLOCKED_SINCE.spec, QUARANTINED_SINCE.spec),
    RATE_LIMIT.spec,
    *(d.NOT_QUARANTINED, d.QUARANTINES),
    d.COPIES_SETTLED,
    *(d.PUT_BACK, d.GUARD_RESETS, d.GUARD_PROBES),
    *(d.SKIPPED, d.REWOUND, d.METADATA_IGNORED, d.SUSPECTS),
}


#: What the dashboard has and this run has nothing of, or not for long.
NOT_NOW = {spec.name for spec in (*RARE, *WATCH_METRICS)}
NOT_NOW.add("ackfloor_retry_next_due_timestamp_seconds")


def expected() -> set[str]:
    """The names under which everything that is not rare is scraped."""
    specs = [spec for spec in d.METRICS if spec not in RARE]
    histograms = {s.name for s in specs if s.kind is Kind.HISTOGRAM}
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    return {spec.name for spec in specs} - histograms | parts


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[[str], Prometheus]]:
    """Starts servers; they are gone when the test is over."""
    servers: list[Prometheus] = []

    def start(target: str) -> Prometheus:
        servers.append(Prometheus(tmp_path, target, RULES))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_prometheus_sees_all_of_a_run_whose_worker_dies(
    make_stage: Callable[..., Stage], prometheus: Callable[[str], Prometheus]
) -> None:
    """Every metric arrives, every rule evaluates, and after a kill the numbers are right again."""
    stage = make_stage(APP, partitions=4, session_s=6)
    run = stage.run("--workers", "2", ACKFLOOR_APP__LOOK_INTERVAL="1s")
    run.until(ready(run), "ready")
    address = run.logged("metrics and health on ").rpartition("//")[2]
    server = prometheus(address)
    run.until(server.ready, "prometheus answers")
    for value in (b"gate", b"discard", b"dead", b"hop", b"pause", b"late"):
        stage.produce(1, value)
    traced = ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode())
    stage.produce(1, b"fail", headers=[traced])
    stage.produce(200)
    # Read again and accepted: its time is one of the metrics.
    run.signal(signal.SIGHUP)
    missing: set[str] = set()

    def all_seen() -> bool:
        missing.clear()
        missing.update(expected() - server.names())
        return not missing

    try:
        run.until(all_seen, "every metric")
    finally:
        assert missing == set()

    # From what fails one gets to its trace.
    for series in ("ackfloor_messages_failed_total", "ackfloor_handler_duration_seconds_bucket"):
        run.until(lambda s=series: server.traces(s) == {TRACE}, f"the trace at {series}")
    expressions = [with_values(e) for e in asked(dashboard()) if not series_in(e) & NOT_NOW]
    assert len(expressions) > 50
    for expression in expressions:
        run.until(lambda e=expression: server.series(e), f"a picture of {expression}")

    os.kill(started(run, 2)[0], signal.SIGKILL)
    run.until(lambda: server.value("ackfloor_workers_ended_total") == 1, "the end is counted")
    run.until(lambda: server.value("ackfloor_workers_reporting") == 2, "the replacement reports")
    stage.open_gate()
    stage.produce(100)
    source = f'{{topic="{stage.topic}"}}'
    # Each partition by one worker alone, and all of them to their ends.
    run.until(
        lambda: (
            server.value(f"count(ackfloor_committed_position{source})") == 4
            and server.value(f"sum(ackfloor_committed_position{source})") == 307
        ),
        "everything committed",
    )
    # And so does Kafka, whom the run asks.
    run.until(
        lambda: (
            server.value(f"sum(ackfloor_kafka_open_messages{source})") == 0
            and server.value(f"sum(ackfloor_kafka_lag_messages{source})") == 0
        ),
        "Kafka says the same",
    )
    letters = 'sum(ackfloor_kafka_open_messages{kind="dlq"})'
    run.until(lambda: (server.value(letters) or 0) >= 1, "a dead letter")
    rules = server.rules()
    run.until(lambda: all(r["health"] != "unknown" for r in server.rules()), "all evaluated")
    assert [r for r in server.rules() if r["health"] != "ok" or r.get("lastError")] == []
    assert {r["name"] for r in rules} >= {"AckfloorFloorStalled", "ackfloor:lag:messages"}
    assert page(run, "/livez")[0] == 200
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
