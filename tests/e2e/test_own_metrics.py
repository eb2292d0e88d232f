"""The user's own metrics on the page of a whole run: two workers, processes, and a kill."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.stage import Stage, started
from tests.framework.cli.command import Running

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

BODY = """
from prometheus_client import Counter, Gauge, Histogram

app = App("GROUP")
BILLS = Counter("shop_bills", "Bills.")
SECONDS = Histogram("shop_seconds", "Time.", buckets=[10])
LATEST = Gauge("shop_latest_offset", "Offset.")
STARTS = Counter("shop_starts", "Processes that have imported the app.")
STARTS.inc()


@app.handler("TOPIC", executor="process", concurrency=2, process_max_records=40)
def bill(value: bytes, delivery: Delivery) -> None:
    BILLS.inc()
    SECONDS.observe(0.1)
    LATEST.set(delivery.offset)
    note(handled, delivery)
"""


def shown(run: Running, name: str) -> dict[str, float]:
    """The samples of one of the user's metrics, by their labels."""
    address = run.logged("metrics and health on ").rpartition(" ")[2]
    with urllib.request.urlopen(f"{address}/metrics?name[]={name}", timeout=60) as response:
        text = response.read().decode()
    return {
        ",".join(f"{label}={value}" for label, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_handlers_count_is_on_the_run_s_page(make_stage: Callable[..., Stage]) -> None:
    """Each record once, though four processes and their successors have counted; a worker that is
    killed takes nothing of it along, and its gauges end."""
    stage = make_stage(BODY, partitions=2, session_s=6)
    stage.produce(210)
    run = stage.run("--workers", "2")
    run.until(lambda: stage.records() == 210, "all records")
    handled = sum(stage.noted().values())
    run.until(lambda: shown(run, "shop_bills_total") == {"": handled}, "the sum of all processes")
    assert shown(run, "shop_seconds_count") == {"": handled}
    gauges = set(shown(run, "shop_latest_offset"))
    assert {"worker=0", "worker=1"} <= gauges
    assert any("process=" in labels for labels in gauges)
    starts = shown(run, "shop_starts_total")[""]
    assert starts >= 2 + 4

    run.until(lambda: stage.committed() == 210, "the commits")
    psutil.Process(started(run, 2)[0]).kill()
    run.until(lambda: shown(run, "shop_starts_total")[""] >= starts + 3, "the next worker")
    assert shown(run, "shop_bills_total") == {"": handled}
