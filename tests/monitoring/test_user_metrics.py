"""The user's own metrics: read in each process, summed over all, and bounded."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterable
from threading import Event

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, Info, Summary
from prometheus_client.metrics_core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from ackfloor_monitoring.metrics import user_metrics
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.user_families import (
    MOST_NOTES,
    MOST_SERIES,
    FamiliesRefused,
    from_text,
)
from ackfloor_monitoring.metrics.user_metrics import UserMetrics, registry_text
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from tests.monitoring.test_exposition import samples, scrape


class Shop:
    """The user's metrics in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.bills = Counter("shop_bills", "Bills.", ["country"], registry=self.registry)
        self.seconds = Histogram("shop_seconds", "Time.", buckets=[0.1, 1], registry=self.registry)
        self.stock = Gauge("shop_stock", "Parcels.", registry=self.registry)

    def sold(self, country: str, seconds: float, stock: int) -> None:
        """One bill."""
        self.bills.labels(country).inc()
        self.seconds.observe(seconds)
        self.stock.set(stock)

    def text(self) -> str:
        """What this process says as one of a handler's own."""
        return registry_text(self.registry)


def text_of(*registries: CollectorRegistry) -> str:
    """What a worker says that has the first registry, and processes with the others."""
    user = UserMetrics(registries[0])
    for pid, registry in enumerate(registries[1:]):
        user.process_reported(pid, registry_text(registry))
    user.collect()
    return user.text


def report(text: str) -> bytes:
    """A worker's report with this text."""
    user = UserMetrics(CollectorRegistry())
    user.text = text
    return WorkerMetrics(user=user).report()


@pytest.fixture
def run() -> RunMetrics:
    """A run of two workers."""
    return RunMetrics("billing", 2)


def shown(run: RunMetrics) -> dict[str, float]:
    """The user's samples on the page, as they are written there."""
    found = {}
    for (name, labels), value in samples(scrape(run)).items():
        if not name.startswith("ackfloor_"):
            told = ",".join(f"{label}={text}" for label, text in labels)
            found[f"{name}{{{told}}}" if told else name] = value
    return found


def notes(run: RunMetrics) -> dict[str, str]:
    """What `/readyz` says of metrics."""
    tree = json.loads(run._readyz(None).body)  # type: ignore[arg-type]
    said = [note["message"] for note in tree["notes"] if note["check"] == "metrics"]
    return dict(line.split(" is not, or not all, on /metrics: ") for line in said)


def test_counters_and_histograms_are_summed_and_gauges_told_apart(run: RunMetrics) -> None:
    """Over two workers, of which one has a handler with two processes of its own."""
    first, second, child, sibling = Shop(), Shop(), Shop(), Shop()
    first.sold("nl", 0.05, 7)
    second.sold("nl", 0.5, 8)
    child.sold("nl", 5, 9)
    child.sold("be", 0.5, 10)
    run.update(0, report(text_of(first.registry)))
    run.update(1, report(text_of(second.registry, child.registry, sibling.registry)))
    assert shown(run) == {
        "shop_bills_total{country=nl}": 3,
        "shop_bills_total{country=be}": 1,
        "shop_seconds_bucket{le=0.1}": 1,
        "shop_seconds_bucket{le=1.0}": 3,
        "shop_seconds_bucket{le=+Inf}": 4,
        "shop_seconds_count": 4,
        "shop_seconds_sum": 6.05,
        "shop_stock{worker=0}": 7,
        "shop_stock{worker=1}": 8,
        "shop_stock{process=0,worker=1}": 10,
        "shop_stock{process=1,worker=1}": 0,
    }
    text = scrape(run)
    assert "# HELP shop_bills_total Bills.\n# TYPE shop_bills_total counter" in text
    assert "# TYPE shop_seconds histogram" in text
    assert notes(run) == {}


def test_a_sum_never_falls_when_a_worker_ends(run: RunMetrics) -> None:
    """Or Prometheus would take each end for a restart and count everything once more."""
    old, other, fresh = Shop(), Shop(), Shop()
    for shop in (old, other):
        shop.sold("nl", 0.5, 1)
    run.update(0, report(text_of(old.registry)))
    run.update(1, report(text_of(other.registry)))
    run.worker_gone(0)
    assert shown(run)["shop_bills_total{country=nl}"] == 2
    assert "shop_stock{worker=0}" not in shown(run)
    fresh.sold("nl", 0.5, 1)
    run.update(0, report(text_of(fresh.registry)))
    assert shown(run)["shop_bills_total{country=nl}"] == 3
    run.worker_gone(0)
    run.worker_gone(1)
    assert shown(run)["shop_bills_total{country=nl}"] == 3
    assert shown(run)["shop_seconds_count"] == 3


def test_nor_when_a_handler_s_process_is_replaced() -> None:
    """What it had counted stays in its worker's sum; its gauge ends, its number is given again."""
    user, run = UserMetrics(CollectorRegistry()), RunMetrics("billing", 1)
    for pid in (11, 12, 13):
        shop = Shop()
        shop.sold("nl", 0.5, pid)
        user.process_reported(pid, shop.text())
        if pid != 13:
            user.process_ended(pid)
    user.collect()
    run.update(0, report(user.text))
    assert shown(run)["shop_bills_total{country=nl}"] == 3
    assert shown(run)["shop_seconds_sum"] == 1.5
    gauges = {name for name in shown(run) if name.startswith("shop_stock")}
    assert gauges == {"shop_stock{process=0,worker=0}"}


def test_summaries_are_summed_and_other_types_told_apart(run: RunMetrics) -> None:
    """Each type that the library has keeps its own."""
    for worker in (0, 1):
        registry = CollectorRegistry()
        Summary("shop_size", "Sizes.", registry=registry).observe(3)
        Info("shop_build", "Build.", registry=registry).info({"version": str(worker)})
        run.update(worker, report(text_of(registry)))
    assert shown(run) == {
        "shop_size_count": 2,
        "shop_size_sum": 6,
        "shop_build_info{version=0,worker=0}": 1,
        "shop_build_info{version=1,worker=1}": 1,
    }


def test_what_does_not_fit_is_left_out_with_a_note(
    run: RunMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    """Names of ours, labels that the run sets, quantiles, another type, other buckets."""
    one, other = CollectorRegistry(), CollectorRegistry()
    Counter("ackfloor_mine", "Ours.", registry=one).inc()
    Gauge("shop_stock", "Parcels.", ["worker"], registry=one).labels("x").set(1)
    Gauge("shop_both", "Here a gauge.", registry=one).set(1)
    Counter("shop_both", "There a counter.", registry=other).inc()
    Histogram("shop_seconds", "Time.", buckets=[1], registry=one).observe(2)
    Histogram("shop_seconds", "Time.", buckets=[2], registry=other).observe(2)
    Counter("shop_bills", "Bills, of the worker where they were.", ["worker"], registry=one).labels(
        "x"
    ).inc()

    class Quantiles(Collector):
        def collect(self) -> Iterable[Metric]:
            family = SummaryMetricFamily("shop_size", "Sizes.", count_value=1, sum_value=2)
            family.add_sample("shop_size", {"quantile": "0.5"}, 1)
            yield family

    one.register(Quantiles())
    caplog.set_level("WARNING", logger="ackfloor.monitoring")
    run.update(0, report(text_of(one)))
    run.update(1, report(text_of(other)))
    assert shown(run) == {
        "shop_both{worker=0}": 1,
        "shop_bills_total{worker=x}": 1,
        "shop_seconds_bucket{le=1.0}": 0,
        "shop_seconds_bucket{le=+Inf}": 1,
        "shop_seconds_count": 1,
        "shop_seconds_sum": 2,
    }
    assert notes(run) == {
        "ackfloor_mine": "names that begin with ackfloor_ are the run's own",
        "shop_both": "it is a gauge and, elsewhere in the run, a counter",
        "shop_seconds": "its buckets are not the same in all processes of the run",
        "shop_size": "quantiles of several processes make no sum; use a histogram",
        "shop_stock": "a gauge gets the labels worker and process from the run",
    }
    logged = [record.getMessage().split()[1] for record in caplog.records]
    assert sorted(logged) == ["ackfloor_mine", "shop_size", "shop_stock"]


def test_the_number_of_series_is_bounded(run: RunMetrics) -> None:
    """A label that takes ever new values costs the newest series, and the others stay."""
    registry = CollectorRegistry()
    first = Counter("shop_first", "First.", registry=registry)
    keys = Counter("shop_keys", "One for each key.", ["key"], registry=registry)
    for key in range(MOST_SERIES + 500):
        keys.labels(str(key)).inc()
    Counter("shop_last", "No room.", registry=registry).inc()
    first.inc(5)
    run.update(0, report(text_of(registry, registry)))
    found = shown(run)
    assert len(found) == MOST_SERIES
    assert (found["shop_first_total"], found["shop_keys_total{key=0}"]) == (10, 2)
    assert "series beyond 2,000" in notes(run)["shop_keys"]
    assert "shop_last" in notes(run)
    run.worker_gone(0)
    assert shown(run) == found


def test_what_the_library_registers_itself_is_not_shown(run: RunMetrics) -> None:
    """Memory and collections of a process are neither the user's nor a sum."""
    assert "process_" in "".join(metric.name for metric in REGISTRY.collect())
    user = UserMetrics()
    user.collect()
    run.update(0, report(user.text))
    assert [name for name in shown(run) if name.startswith(("process_", "python_"))] == []


def test_a_collector_that_fails_costs_the_others_nothing(run: RunMetrics) -> None:
    """What came before it is shown, and the note says what it raised."""

    class Failing(Collector):
        def describe(self) -> Iterable[Metric]:
            return ()

        def collect(self) -> Iterable[Metric]:
            raise ConnectionError("no database")

    shop = Shop()
    shop.sold("nl", 0.5, 1)
    shop.registry.register(Failing())
    run.update(0, report(text_of(shop.registry)))
    assert shown(run)["shop_bills_total{country=nl}"] == 1
    (why,) = notes(run).values()
    assert "ConnectionError: no database" in why


def test_a_collector_that_hangs_does_not_hold_up_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner thread takes what is there; the registry is read on another thread."""
    asked, go_on = Event(), Event()

    class Hanging(Collector):
        def describe(self) -> Iterable[Metric]:
            return ()

        def collect(self) -> Iterable[Metric]:
            asked.set()
            assert go_on.wait(60)
            yield GaugeMetricFamily("shop_stock", "Parcels.", value=1)

    monkeypatch.setattr(user_metrics, "EVERY_S", 0.01)
    registry = CollectorRegistry()
    registry.register(Hanging())
    user = UserMetrics(registry)
    user.start()
    assert asked.wait(60)
    assert user.text == ""
    WorkerMetrics(user=user).report()
    go_on.set()
    for _ in range(6_000):
        if user.text:
            break
        Event().wait(0.01)
    assert "shop_stock" in user.text


def test_its_thread_ends_when_the_run_ends() -> None:
    """At once, though something still has the metrics: nothing waits for a garbage collection."""
    user = UserMetrics(CollectorRegistry())
    found: list[threading.Thread] = []

    def run() -> None:
        before = set(threading.enumerate())
        user.start()
        found.extend(set(threading.enumerate()) - before)

    worker = threading.Thread(target=run)
    worker.start()
    worker.join(60)
    (thread,) = found
    thread.join(60)
    assert not thread.is_alive()
    assert user.text == ""


def test_its_thread_ends_with_a_worker_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker inside a program is started again on the same thread, and leaves nothing there."""
    monkeypatch.setattr(user_metrics, "EVERY_S", 0.01)
    before = set(threading.enumerate())
    user = UserMetrics(CollectorRegistry())
    user.start()
    (thread,) = set(threading.enumerate()) - before
    metrics = WorkerMetrics(user=user)
    thread.join(0.1)
    assert thread.is_alive()
    assert metrics.report()
    del user, metrics
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "text",
    [
        "damaged",
        "[1, 2]",
        '[[["shop", "counter", "", "", [[[["a", "b"]], [["_total", "", "x"]]]]]], {}]',
        '[[["shop", "odd", "", "", []]], {}]',
    ],
)
def test_a_process_that_reports_nonsense_is_refused(text: str, run: RunMetrics) -> None:
    """It is the user's own process: neither its worker nor the page fails for it."""
    with pytest.raises(FamiliesRefused):
        from_text(text)
    shop = Shop()
    shop.sold("nl", 0.5, 1)
    user = UserMetrics(shop.registry)
    user.process_reported(7, text)
    user.collect()
    run.update(0, report(user.text))
    run.update(1, report(text))
    assert shown(run)["shop_bills_total{country=nl}"] == 1
    assert "can't be read" in notes(run)["process"]
    assert "no metrics" in notes(run)["report"]


def test_notes_are_bounded() -> None:
    """A thousand names that are refused are not a thousand notes, nor a thousand lines."""
    registry = CollectorRegistry()
    for number in range(100):
        Counter(f"ackfloor_{number}", "Ours.", registry=registry).inc()
    assert len(from_text(text_of(registry))[1]) == MOST_NOTES


def test_one_of_them_can_be_asked_for(run: RunMetrics) -> None:
    """`name[]` chooses among the user's metrics as among the run's."""
    shop = Shop()
    shop.sold("nl", 0.5, 1)
    run.update(0, report(text_of(shop.registry)))
    address = run.start("127.0.0.1:0")
    try:
        probe = (
            "import sys, urllib.request as r; "
            "sys.stdout.write(r.urlopen(sys.argv[1], timeout=60).read().decode())"
        )
        query = "name[]=shop_bills_total&name[]=ackfloor_workers_expected"
        told = subprocess.run(
            [sys.executable, "-c", probe, f"http://{address}/metrics?{query}"],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
    finally:
        run.stop()
    assert {name for name, _ in samples(told)} == {"shop_bills_total", "ackfloor_workers_expected"}


def test_a_process_without_metrics_does_not_load_the_library() -> None:
    """The report of a handler's process costs those who have none nothing."""
    probe = (
        "import sys; from ackfloor_monitoring.process_report import process_report; "
        "print(repr(process_report()), 'prometheus_client' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=120
    )
    assert told.stdout.split() == ["''", "False"]
