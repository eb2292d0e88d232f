"""`ackfloor spark replay`: shows before it sends, sends once, and says what it did not send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ackfloor.errors import RedriveRefused
from ackfloor.redrive import JobState, RedriveJob, Tally, Wanted, select
from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.redrive_selection import Chosen
from ackfloor_monitoring.spark.spark_errors import TableRefused, WhereRefused
from ackfloor_monitoring.spark.table import store
from tests.monitoring.spark.failure_rows import dead, frame
from tests.redrive_stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
# The package has the command of this name where the module would be.
command = import_module("ackfloor_monitoring.spark.cli.replay")


@pytest.fixture
def stage(bootstrap_servers: str) -> Stage:
    """Ten dead letters on a broker."""
    stage = Stage(bootstrap_servers)
    stage.bury([(b"k", b"v", [])] * 10)
    return stage


@pytest.fixture
def chosen(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Chosen:
    """They are what any condition means; Spark is not asked."""
    chosen = Chosen(stage.dlq, {stage.job().topics.dlq_id: dict(select(stage.places))})
    monkeypatch.setattr(command, "_choose", lambda _table, _where: [chosen])
    return chosen


def replay(stage: Stage, *arguments: str, table: str = "t", where: str = "true") -> Result:
    """Run the command."""
    given = ["--table", table, "--bootstrap-servers", stage.servers, "--where", where, *arguments]
    return CliRunner().invoke(spark_app, ["replay", *given])


def test_it_shows_first_and_sends_once(stage: Stage, chosen: Chosen) -> None:
    """A dry run, no confirmation, a part, the rest, and again."""
    dry = replay(stage, "--dry-run")
    assert (dry.exit_code, stage.read(stage.tier)) == (0, [])
    assert f"{stage.dlq} to {stage.tier}: 10 would be sent" in dry.stdout
    assert "bill, exhausted, shop.Boom" in dry.stdout
    unasked = replay(stage)
    assert (unasked.exit_code, stage.read(stage.tier)) == (2, [])
    assert "10 dead letters would be sent: confirm with --yes" in unasked.stderr
    some = replay(stage, "--yes", "--max", "4", "--rate", "6000/m", "-o", "json")
    assert some.exit_code == 0
    [told] = json.loads(some.stdout)
    assert told.pop("job")
    assert told == {
        "dlq": stage.dlq, "target": stage.tier, "sent": 4, "left": {}, "stopped": "",
        "remaining": 0, "resume": None,
    }  # fmt: skip
    rest = replay(stage, "--yes")
    assert (rest.exit_code, stage.sent_once()) == (0, 10)
    assert "6 sent" in rest.stdout
    assert "4  left out: replayed, discarded or archived before" in rest.stdout
    [again] = json.loads(replay(stage, "--dry-run", "-o", "json").stdout)
    assert (again["would_send"], again["left"]) == (0, {"disposed": 10})


def test_what_is_not_sent_is_said(stage: Stage, chosen: Chosen) -> None:
    """Rows of an earlier topic of that name: the rest is sent, and the exit code is 5, then 1."""
    chosen.offsets["older"] = dict(select([(0, 3)]))
    done = replay(stage, "--yes", "--to", stage.source)
    assert (done.exit_code, len(stage.read(stage.source))) == (5, 10)
    assert "1  left out: not in the topic" in done.stdout
    assert replay(stage, "--yes").exit_code == 1


def test_a_maximum_is_one_of_all_topics(
    stage: Stage, chosen: Chosen, monkeypatch: pytest.MonkeyPatch, bootstrap_servers: str
) -> None:
    """The second dead-letter topic gets what the first has left of it."""
    other = Stage(bootstrap_servers)
    other.bury([(b"k", b"v", [])] * 3)
    second = Chosen(other.dlq, {"": dict(select(other.places))})
    second.offsets = {other.job().topics.dlq_id: second.offsets[""]}
    monkeypatch.setattr(command, "_choose", lambda _table, _where: [chosen, second])
    done = replay(stage, "--yes", "--max", "11", "-o", "json")
    assert [part["sent"] for part in json.loads(done.stdout)] == [10, 1]


def test_a_job_that_was_ended_is_resumed_by_its_name(
    stage: Stage, chosen: Chosen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it was asked for and what is left of its maximum; it is one job then, and done."""
    asked_for: list[str] = []

    def choose(_table: str, where: str) -> list[Chosen]:
        asked_for.append(where)
        return [chosen]

    monkeypatch.setattr(command, "_choose", choose)
    run = RedriveJob.run

    def killed(self: RedriveJob, wanted: Wanted, **more: Any) -> Tally:
        self.order = replace(self.order, rate_per_s=8.0)  # four in a transaction
        done: list[int] = []
        more["stopping"] = lambda: bool(done)
        more["progress"] = lambda tally: done.append(tally.sent) if tally.sent else None
        return run(self, wanted, **more)

    monkeypatch.setattr(RedriveJob, "run", killed)
    first = replay(stage, "--yes", "--max", "9", "-o", "json", where="offset >= 0")
    [told] = json.loads(first.stdout)
    assert (told["sent"], told["remaining"]) == (4, 5)
    table = Path("t").resolve()
    assert told["resume"] == f"ackfloor spark replay --table {table} --resume {told['job']} --yes"
    monkeypatch.setattr(RedriveJob, "run", run)
    given = ["--table", "t", "--bootstrap-servers", stage.servers, "--resume", told["job"]]
    done = CliRunner().invoke(spark_app, ["replay", *given, "--yes", "-o", "json"])
    assert (done.exception, json.loads(done.stdout)[0]["sent"]) == (None, 5)
    assert asked_for == ["offset >= 0"] * 2
    assert stage.sent_once() == 9
    job = stage.job()
    assert job.active() is None
    [note] = job.jobs()
    assert (note.job, note.state, note.done) == (told["job"], JobState.DONE, 9)
    over = CliRunner().invoke(spark_app, ["replay", *given, "--yes"])
    assert "the job has sent its 9" in str(over.exception)


def test_what_can_not_be_resumed_is_said(stage: Stage, chosen: Chosen) -> None:
    """No such job, one of another command, and options beside it."""
    assert stage.job(limit=1, asked={"places": []}).run(stage.everything()).sent == 1
    given = ["replay", "--table", "t", "--bootstrap-servers", stage.servers, "--yes", "--resume"]
    for job, why in (("nope", "no such job"), ("job", "not a job of `spark replay`")):
        refused = CliRunner().invoke(spark_app, [*given, job])
        assert isinstance(refused.exception, RedriveRefused)
        assert why in str(refused.exception)
    both = replay(stage, "--resume", "job")
    assert (both.exit_code, "the job says what is meant" in both.stderr) == (2, True)
    neither = CliRunner().invoke(spark_app, given[:-1])
    assert (neither.exit_code, "say which dead letters" in neither.stderr) == (2, True)


def test_what_is_wrong_gets_a_sentence(
    stage: Stage, chosen: Chosen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is sent."""
    missing = replay(stage, "--to", "nowhere", "--yes")
    assert isinstance(missing.exception, RedriveRefused)
    assert "--to='nowhere': the topic does not exist" in str(missing.exception)
    rate = replay(stage, "--rate", "50")
    assert (rate.exit_code, '"50/s"' in rate.stderr) == (2, True)
    monkeypatch.setattr(command, "_choose", lambda _table, _where: [])
    nothing = replay(stage, "--yes", where="handler = 'x'")
    assert (nothing.exit_code, "no dead letter meets" in nothing.stderr) == (0, True)
    assert stage.read(stage.tier) == []


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(400)
def test_it_chooses_from_the_table(
    stage: Stage, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A Delta table, a condition that can't be evaluated, and no table."""

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("ackfloor_monitoring.spark.setup.session.spark_session", session)
    topic_id = stage.job().topics.dlq_id
    rows = [dead(o, p, topic=stage.dlq, topic_id=topic_id) for p, o in stage.places]
    table = str(tmp_path / "failures")
    store.open_table(spark, table)
    store.append(frame(spark, rows), table)
    dry = replay(stage, "--dry-run", "-o", "json", table=table, where="offset < 3")
    assert json.loads(dry.stdout)[0]["would_send"] == 6
    refused = replay(stage, "--yes", table=table, where="reson = 1")
    assert isinstance(refused.exception, WhereRefused)
    missing = replay(stage, "--yes", table=table + "-not")
    assert isinstance(missing.exception, TableRefused)
