"""`ackfloor policy show`: what a run goes by, and where its workers differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ackfloor import App
from ackfloor.cli.main import cli
from ackfloor.declare.registration import OnFailure
from ackfloor.operations.run_client import ControlFailed
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from tests.framework.runtime.live import live
from tests.monitoring.samples import NOW_MS, handler, snapshot


@pytest.fixture
def listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a run of four workers: one goes by another timeout, one is starting."""
    monkeypatch.chdir(tmp_path)
    run = RunMetrics("billing", 4, now_ms=lambda: NOW_MS)
    for number, timeout_s in enumerate((45.0, 45.0, None)):
        worker = WorkerMetrics()
        bill = handler(consume_timeout_s=timeout_s, delays_s=(1.0, 125.0), max_redeliveries=None)
        worker.snapshot(snapshot(handlers=(bill,)))
        run.update(number, worker.report())
    run.update(3, WorkerMetrics().report())
    yield run.start("127.0.0.1:0")
    run.stop()


def ended(*arguments: str) -> Result:
    """The command, run to its end."""
    return CliRunner().invoke(cli, ["policy", "show", *arguments])


def test_each_policy_in_force_is_a_row(listen: str) -> None:
    """With the workers that go by it; who has not said anything is told."""
    done = ended("--listen", listen, "-o", "json")
    rows = json.loads(done.stdout)
    assert [(row["handler"], row["consume_timeout"], row["workers"]) for row in rows] == [
        ("bill", "45s", [0, 1]),
        ("bill", "none", [2]),
    ]
    assert {(row["delays"], row["max_redeliveries"]) for row in rows} == {("1s 2m5s", "unlimited")}
    assert "worker 3 is starting" in done.stderr
    table = ended("--listen", listen).stdout
    assert "45s" in table
    assert "0, 1" in table


@pytest.mark.parametrize("on_failure", ["park", "block", "quarantine"])
def test_what_a_failure_does_is_told_as_the_handler_says_it(
    on_failure: OnFailure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the handler's rules, through a worker's snapshot, to the row."""
    monkeypatch.chdir(tmp_path)
    app, worker = App("billing"), WorkerMetrics()

    async def bill(value: bytes) -> None:
        """Nothing comes."""

    app.handler("orders", ordering="key", on_failure=on_failure)(bill)
    with live(app) as billing:
        billing.until(lambda: billing.watcher.latest is not None, "a snapshot")
        assert billing.watcher.latest is not None
        worker.snapshot(billing.watcher.latest)
    run = RunMetrics("billing", 1, now_ms=lambda: NOW_MS)
    run.update(0, worker.report())
    listen = run.start("127.0.0.1:0")
    try:
        (row,) = json.loads(ended("--listen", listen, "-o", "json").stdout)
    finally:
        run.stop()
    assert row["on_failure"] == on_failure
    assert row["after_dead_letter"] == ("continue" if on_failure == "quarantine" else "")


def test_without_a_run_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the address that it asked."""
    monkeypatch.chdir(tmp_path)
    failed = ended("--listen", "127.0.0.1:1")
    assert isinstance(failed.exception, ControlFailed)
    assert "no run answers at 127.0.0.1:1" in str(failed.exception)
