"""What `ackfloor doctor` asks runs: readiness, notes and the versions of all workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ackfloor
from ackfloor.cli.main import cli
from ackfloor.cli.setup.run_checks import of_run
from ackfloor.observe import Fault
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor_monitoring.metrics import worker_metrics
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from tests.monitoring.samples import NOW_MS, snapshot

FAULT = Fault("parking", "orders--billing--dlq", "the topic is missing", NOW_MS, "missing")


class Run:
    """A run of two workers at an address."""

    def __init__(self) -> None:
        self.metrics = RunMetrics("billing", 2, now_ms=lambda: NOW_MS + 1_000)
        self.listen = self.metrics.start("127.0.0.1:0")

    def show(self, number: int, *faults: Fault) -> None:
        """A worker reports."""
        worker = WorkerMetrics()
        worker.snapshot(snapshot(handlers=(), faults=faults))
        self.metrics.update(number, worker.report())


@pytest.fixture
def run() -> Iterator[Run]:
    """A run both of whose workers have reported."""
    made = Run()
    made.show(0)
    made.show(1)
    yield made
    made.metrics.stop()


def checked(run: Run, group: str | None = None) -> list[tuple[str, str]]:
    """State and detail of each check."""
    return [(each.state, each.detail) for each in of_run(run.listen, None, group, named=True)]


def test_a_run_in_which_all_is_well(run: Run) -> None:
    """Its group, its workers and their version."""
    assert checked(run, "billing") == [
        ("ok", "group billing, workers 2, ready"),
        ("ok", f"ackfloor {ackfloor.__version__} in all workers that have reported"),
    ]


def test_why_a_run_is_not_ready_is_told_once_for_all_its_workers(run: Run) -> None:
    """With what may be known besides: a reason fails the check, a note is a warning."""
    run.show(0, FAULT)
    run.show(1, FAULT)
    worker = WorkerMetrics()
    worker.snapshot(snapshot(faults=(FAULT,)))
    run.metrics.update(1, worker.report())
    found = checked(run)
    assert ("fail", "worker 0, 1: orders--billing--dlq: the topic is missing") in found
    unnamed = [
        each for each in of_run(run.listen, None, None, named=False) if "missing" in each.detail
    ]
    assert [each.state for each in unnamed] == ["warn"]
    notes = [detail for state, detail in found if state == "warn"]
    assert any("3 lanes are blocked" in note for note in notes)


def test_a_worker_that_waits_for_a_dead_process_leads_to_the_log(run: Run) -> None:
    """`status` leads here: to lead back there would be a circle."""
    run.metrics.worker_gone(1)
    worker = WorkerMetrics()
    worker.snapshot(snapshot(handlers=(), partitions=()))
    run.metrics.update(1, worker.report())
    (found,) = (each for each in of_run(run.listen, None, None, named=True) if each.fix)
    assert found.detail.startswith(
        "worker 1: has no assignment from the group; 1 process before it ended, the last one 0 s "
    )
    assert found.fix == "the run's log says why"


def test_a_worker_of_another_version_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade in place a worker that was replaced is newer than its run."""
    monkeypatch.setattr(worker_metrics, "__version__", "9.9.9")
    run.show(1)
    [(_, text)] = [each for each in checked(run) if each[0] == "warn"]
    here = ackfloor.__version__
    assert text == f"ackfloor {here} is installed here; run: {here}, worker 1: 9.9.9"


def test_workers_without_a_report_are_told(run: Run) -> None:
    """How many there are."""
    run.metrics.worker_gone(1)
    assert ("warn", "workers without a report: 1") in checked(run, "billing")


def test_of_a_run_of_another_group_nothing_more_is_told(run: Run) -> None:
    """Its faults are not this app's. It fails where it was named; else it was met by chance."""
    run.show(0, FAULT)
    said = "it is a run of group billing, and this app's group is mailing"
    for named, state in ((False, "not tried"), (True, "fail")):
        (only,) = of_run(run.listen, None, "mailing", named=named)
        assert (only.state, only.detail) == (state, said)
        assert only.fix.startswith(
            "name the run of mailing with --listen HOST:PORT, or set its address as listen in "
            "[apps.mailing.app]"
        )


def test_the_doctor_asks_the_run_also_where_no_broker_answers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says stands beside the checks of the cluster, and the exit code is the broker's."""
    monkeypatch.chdir(tmp_path)
    given = ["doctor", "-o", "json", "--connect-timeout", "1s", "--listen", run.listen]
    done = CliRunner().invoke(cli, [*given, "--bootstrap-servers", "127.0.0.1:1"])
    assert done.exit_code == Exit.KAFKA_UNREACHABLE
    found = [each for each in json.loads(done.stdout) if each["check"] == f"run {run.listen}"]
    assert [each["state"] for each in found] == ["ok", "ok"]


def test_a_run_that_does_not_answer(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was named that is a failed check; else it was not tried, and the fix says how."""
    run.metrics.stop()
    monkeypatch.chdir(tmp_path)
    [named] = of_run(run.listen, None, None, named=True)
    assert named.state == "fail"
    assert f"no run answers at {run.listen}" in named.detail
    [other] = of_run(run.listen, None, None, named=False)
    assert other.state == "not tried"
    assert "--listen HOST:PORT" in other.fix
    refused = CliRunner().invoke(cli, ["doctor", "--listen", "nowhere"])
    assert getattr(refused.exception, "exit_code", None) == Exit.USAGE
