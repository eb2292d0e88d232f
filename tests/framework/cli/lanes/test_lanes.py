"""`ackfloor lanes`: what an operator reads of blocked lanes, what moves them, and exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
from typer.testing import CliRunner, Result

from ackfloor.cli.lanes import lane_commands
from ackfloor.cli.main import cli
from ackfloor.cli.retry import retry_commands
from ackfloor.core.messages.lane_order import Action
from ackfloor.core.scheduling import lane_orders
from ackfloor.core.state.snapshot import BlockedLanes
from ackfloor.core.values.setting_error import SettingError
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.lane_requests import PATH, LaneRequests
from ackfloor.live.run_control import PATH as CONFIG_PATH
from ackfloor.live.token import token_path
from ackfloor.live.worker_orders import Answers, Tree
from ackfloor.operations import ActionLog, ActionNote, ActionState
from ackfloor.operations.run_client import ControlFailed
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from tests.framework.core.scheduling.test_lane_orders import BOOM
from tests.framework.core.worlds import START_MS
from tests.framework.live.test_lane_requests import Run
from tests.monitoring.samples import handler, partition, snapshot

TOKEN = "s3cret" * 8
#: As it is before `notes` puts its own in its place.
WRITE = ActionLog.write


class AtAddress(Protocol):
    """A run that answers."""

    listen: str


class Stage:
    """A run at an address, whose workers have blocked lanes in memory."""

    def __init__(self, *blocked: tuple[bytes, ...]) -> None:
        self.run = Run(*blocked)
        self.metrics = RunMetrics("billing", len(blocked), now_ms=lambda: START_MS + 4_000)
        # A run that takes requests takes them for its settings as well.
        for path in (PATH, CONFIG_PATH):
            self.metrics.control(path, LaneRequests(TOKEN, self.take, anywhere=False))
        self.show()
        self.listen = self.metrics.start("127.0.0.1:0")

    def take(self, order: Tree, wait_s: float) -> Answers:
        answers = self.run.take(order, wait_s)
        self.show()
        return answers

    def show(self) -> None:
        """Workers report how they are."""
        for number, world in enumerate(self.run.workers):
            worker = WorkerMetrics()
            bill = handler(blocked=world.blocked, quarantined=BlockedLanes())
            parts = (replace(partition(), topic="orders", handler="bill"),)
            report = snapshot(handlers=(bill,), partitions=parts)
            worker.snapshot(replace(report, taken_ms=START_MS + 4_000))
            self.metrics.update(number, worker.report())


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Stage, Stage]]:
    """Two runs of one group: the first has two workers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    both = Stage((b"a", b"b"), (b"b",)), Stage((b"c",))
    yield both
    for stage in both:
        stage.metrics.stop()


def done(command: str, *arguments: str, on: Sequence[AtAddress], token: bool = True) -> Result:
    """The command, run to its end."""
    listen = [text for stage in on for text in ("--listen", stage.listen)]
    more = ["--token-file", "token"] if token else []
    words = [*command.split(), *arguments, *listen, *more]
    return CliRunner().invoke(cli, words, env={"COLUMNS": "250"})


def test_the_blocked_lanes_of_all_runs_are_listed(stages: tuple[Stage, Stage]) -> None:
    """Which record, why, until when, and how many wait behind it."""
    listed = done("lanes ls", "-o", "json", on=stages, token=False)
    rows = json.loads(listed.stdout)
    assert rows[0] == {
        "record": "orders/0/0", "handler": "bill", "key": "a", "state": "blocked",
        "head": "waiting", "attempt": 1, "error": "shop.Boom: no stock for 4711",
        "blocked_s": 4.0, "at_least": False, "next_try_s": 6.0, "behind": 2,
        "worker": 0, "run": stages[0].listen,
    }  # fmt: skip
    assert sorted(row["key"] for row in rows) == ["a", "b", "b", "c"]
    none = done("lanes ls", "nobody", "-o", "json", on=stages, token=False)
    assert json.loads(none.stdout) == []
    table = done("lanes ls", "bill", on=stages[:1], token=False).stdout
    assert "no stock for 4711" in table
    assert "orders/0/1" in table


def test_lanes_that_are_not_named_are_counted(stages: tuple[Stage, Stage]) -> None:
    """A run names the longest blocked ones."""
    worker, _ = stages[0].run.workers
    report = WorkerMetrics()
    report.snapshot(snapshot(handlers=(handler(blocked=replace(worker.blocked, count=70)),)))
    stages[0].metrics.update(0, report.report())
    listed = done("lanes ls", on=stages[:1], token=False)
    assert "worker 0: 68 more lanes of bill are blocked" in listed.stderr


def test_heads_are_moved_in_all_workers_of_all_runs(stages: tuple[Stage, Stage]) -> None:
    """By key; what no worker has is named, and the exit code says so."""
    wanted = ("--key", "b", "--key", "c", "--key", "nobody", "--yes")
    moved = done("lanes retry", "bill", *wanted, on=stages)
    assert moved.exit_code == Exit.PARTIAL
    assert moved.stdout == "bill: tried now: the heads of 3 lanes\n"
    assert "blocked or quarantined in no worker that answered: nobody" in moved.stderr
    first = stages[0].run.workers[0]
    first.tick()
    assert first.offsets_started() == [1, 4, 7]


def test_all_lanes_of_a_handler_are_moved(stages: tuple[Stage, Stage]) -> None:
    """Said explicitly; the answer as JSON has everything."""
    moved = done(
        "lanes discard", "bill", "--all", "--reason", "tests", "-y", "-o", "json", on=stages
    )
    assert moved.exit_code == Exit.OK
    assert json.loads(moved.stdout) == {
        "action": "discard", "handler": "bill", "dry_run": False, "done": 4, "freed": 0,
        "left": {}, "missing": [], "refused": {}, "silent": [], "unknown": {}, "places": [],
    }  # fmt: skip
    assert json.loads(done("lanes ls", "-o", "json", on=stages, token=False).stdout) == []


def test_all_is_what_was_confirmed(
    stages: tuple[Stage, Stage], notes: list[ActionNote], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has failed since nobody has seen, and is left; so much is said of what is gone."""
    worker, other = stages[0].run.workers

    def agree(question: str, _would: str) -> None:
        assert "the heads of 3 lanes of bill would be discarded" in question.lower()
        # Somebody else drops the head of `a`, and the record behind it fails as well.
        assert worker.does(Action.DISCARD, b"a").done == 1
        behind = worker.start()
        worker.finish(behind, BOOM)
        worker.leave(behind)

    monkeypatch.setattr(lane_commands, "confirm", agree)
    moved = done("lanes discard", "bill", "--all", "--reason", "tests", on=stages[:1])
    assert (moved.exit_code, moved.stdout) == (
        Exit.PARTIAL, "bill: discarded: the heads of 2 lanes\n",
    )  # fmt: skip
    assert [each.offset for each in worker.blocked.oldest] == [3]
    assert other.blocked.count == 0
    assert notes[-1].arguments["all"] is True


def test_a_wait_under_way_is_changed(stages: tuple[Stage, Stage]) -> None:
    """By the place that `lanes ls` prints."""
    moved = done("lanes delay", "bill", "1h", "orders/0/0", "--yes", on=stages[:1])
    assert (moved.exit_code, moved.stderr) == (Exit.OK, "")
    rows = json.loads(done("lanes ls", "-o", "json", on=stages, token=False).stdout)
    assert {row["next_try_s"] for row in rows if row["key"] == "a"} == {3_596.0}


def test_each_order_is_noted(stages: tuple[Stage, Stage], notes: list[ActionNote]) -> None:
    """Once for all runs, with what was named, why, and how many were reached or were not."""
    wanted = ("--key", "b", "--key", "nobody", "--reason", "the bank  is back", "--yes")
    done("lanes retry", "bill", *wanted, on=stages)
    done("lanes discard", "bill", "--all", "--reason", "tests", "--yes", on=stages)
    retry, discard = notes
    runs = [stage.listen for stage in stages]
    assert (retry.action, retry.targets, retry.reason) == (
        "lanes retry", ("bill",), "the bank is back",
    )  # fmt: skip
    assert retry.arguments == {"keys": ["b", "nobody"], "runs": runs}
    assert (retry.state, retry.counts) == (ActionState.PARTIAL, {"done": 2, "missing": 1})
    assert (discard.action, discard.reason) == ("lanes discard", "tests")
    assert discard.arguments == {"all": True, "runs": runs}
    assert TOKEN not in f"{notes}"


def test_what_is_no_action_is_not_noted(
    stages: tuple[Stage, Stage], notes: list[ActionNote]
) -> None:
    """A list, a dry run, and an order that nobody confirmed."""
    done("lanes ls", on=stages, token=False)
    done("lanes dead-letter", "bill", "--all", "--dry-run", on=stages)
    done("lanes dead-letter", "bill", "--all", on=stages)
    assert notes == []


def test_what_fails_is_noted_as_well(stages: tuple[Stage, Stage], notes: list[ActionNote]) -> None:
    """With the error that the operator saw."""
    failed = done("lanes retry", "nobody", "--all", "--yes", on=stages[:1])
    [note] = notes
    assert note.state is ActionState.FAILED
    assert failed.exit_code == Exit.FAILURE


def test_what_can_not_be_noted_is_done_and_said(
    stages: tuple[Stage, Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The incident goes first: no broker is needed to act on a run."""
    monkeypatch.setattr(ActionLog, "write", WRITE)
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    moved = done("lanes retry", "bill", "--all", "--yes", on=stages[:1])
    assert (moved.exit_code, moved.stdout) == (Exit.OK, "bill: tried now: the heads of 3 lanes\n")
    assert moved.stderr == (
        "warning: this action is not noted in ackfloor--actions: no broker takes a connection "
        "(127.0.0.1:1: Connection refused): set ACKFLOOR_BOOTSTRAP_SERVERS\n"
    )


def test_a_dry_run_says_what_it_would_be(stages: tuple[Stage, Stage]) -> None:
    """And changes nothing; without it, and without a terminal, --yes is needed."""
    dry = done("lanes dead-letter", "bill", "--all", "--dry-run", on=stages)
    assert dry.stdout == (
        "bill: would be on the way to the dead-letter topic: the heads of 4 lanes\n"
    )
    asked = done("lanes dead-letter", "bill", "--all", on=stages)
    assert asked.exit_code == Exit.USAGE
    assert "confirm with --yes" in asked.stderr
    assert len(json.loads(done("lanes ls", "-o", "json", on=stages, token=False).stdout)) == 4


def test_what_is_left_refused_or_silent_is_said(stages: tuple[Stage, Stage]) -> None:
    """Each with its reason; nothing done is a failure."""
    first, second = stages
    refused = done("lanes park", "bill", "--all", "--yes", on=(first,))
    assert refused.exit_code == Exit.FAILURE
    assert "worker 1 refused: handler bill retries in place" in refused.stderr
    second.run.workers[0].tick(10)
    running = second.run.workers[0].start()
    first.run.silent = (1,)
    moved = done("lanes dead-letter", "bill", "--all", "--yes", on=stages)
    assert moved.exit_code == Exit.PARTIAL
    assert "1 is being delivered: left as it is" in moved.stderr
    assert f"no answer from {first.listen} worker 1" in moved.stderr
    assert not running.closed
    told = done("lanes delay", "bill", "1m", "--all", "-y", "-o", "json", on=(first,))
    assert json.loads(told.stdout)["left"] == {"dead_lettering": 2}


def test_a_run_that_does_not_answer_is_named(stages: tuple[Stage, Stage]) -> None:
    """The others act all the same; alone it is the failure."""
    stages[1].metrics.stop()
    moved = done("lanes retry", "bill", "--all", "--yes", on=stages)
    assert moved.exit_code == Exit.PARTIAL
    assert moved.stderr.startswith(f"no run answers at {stages[1].listen}: ")
    failed = done("lanes retry", "bill", "--all", "--yes", on=stages[1:])
    assert isinstance(failed.exception, ControlFailed)


def test_a_run_that_has_ended_keeps_no_other_from_acting(
    stages: tuple[Stage, Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token is gone with it: the others are asked all the same, and it is named."""
    first, second = stages
    monkeypatch.setenv("ACKFLOOR_STATE_DIR", str(tmp_path))
    own = token_path(first.listen, None)
    own.write_text(TOKEN)
    own.chmod(0o600)
    moved = done("lanes retry", "bill", "--all", "--yes", on=stages, token=False)
    assert moved.exit_code == Exit.PARTIAL
    assert moved.stdout == "bill: tried now: the heads of 3 lanes\n"
    assert moved.stderr.startswith(f"{second.listen} refused: ")
    own.unlink()
    none = done("lanes retry", "bill", "--all", "--yes", on=stages, token=False)
    assert isinstance(none.exception, ControlFailed)
    assert first.run.reached == second.run.reached + 1 == 1


def test_a_run_that_refuses_is_named_once(stages: tuple[Stage, Stage]) -> None:
    """What a run says of its refusal begins with its address."""
    Path("token").write_text("another" * 8)
    refused = done("lanes retry", "bill", "--all", "--yes", on=stages)
    assert refused.exit_code == Exit.FAILURE
    assert refused.stderr.count("refused") == 2


def test_a_handler_that_no_run_has_is_said_to_be_unknown(stages: tuple[Stage, Stage]) -> None:
    """A misspelt name is no proof that nothing is blocked."""
    listed = done("lanes ls", "bil", on=stages, token=False)
    assert listed.stderr == "no handler bil: there is bill\n"
    assert done("lanes ls", "bill", on=stages, token=False).stderr == ""


def test_an_order_that_is_too_large_says_so(
    stages: tuple[Stage, Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is for the next order."""
    monkeypatch.setattr(lane_orders, "MOST_WRITES", 1)
    moved = done("lanes dead-letter", "bill", "--all", "--yes", on=stages)
    assert moved.exit_code == Exit.PARTIAL
    assert "1 is more than one order writes: give the order again" in moved.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["retry", "bill"], "--all=False: no lane is named"),
        (["retry", "bill", "--all", "--key", "a"], "--all=True: lanes are named as well"),
        (["retry", "bill", "orders/0"], "TOPIC/PARTITION/OFFSET='orders/0': names no record"),
        (["retry", "bill", "--key-base64", "?"], "--key-base64='?': not base64"),
        (["delay", "bill", "10", "--all"], "DURATION='10': a bare number has no unit"),
        (["discard", "bill", "--all", "--reason", " "], "--reason="),
        (["discard", "bill", "--all", "--reason", "x" * (LONGEST_REASON + 1)], "--reason="),
    ],
)
def test_bad_input_is_refused(
    stages: tuple[Stage, Stage], arguments: list[str], error: str
) -> None:
    """With the option, and what to write."""
    failed = done("lanes", *arguments, on=stages)
    assert isinstance(failed.exception, SettingError)
    assert str(failed.exception).startswith(error)
    assert stages[0].run.reached == 0


def test_other_commands_point_at_blocked_lanes(stages: tuple[Stage, Stage]) -> None:
    """`inflight` finds nothing in flight; `/readyz` stays ready, and has a note."""
    shown = done("inflight", on=stages[:1], token=False)
    assert "bill: 3 blocked lanes, 6 records behind: see `ackfloor lanes ls`" in shown.stderr


def test_retry_moves_them_too(stages: tuple[Stage, Stage]) -> None:
    """`retry promote` and `retry bury` take records of a source topic that block their lane."""
    moved = done("retry promote", "orders/0/0", "--yes", on=stages[:1])
    assert moved.stdout == "bill: tried now: the heads of 1 lane\n"
    moved = done("retry bury", "orders/0/1", "--yes", on=stages[:1])
    assert moved.exit_code == Exit.OK
    stages[0].run.workers[0].take()
    assert len(stages[0].run.workers[0].writes) == 1
    both = done("retry promote", "orders/0/2", "orders/0/0", "--yes", on=stages)
    assert (both.exit_code, both.stderr) == (Exit.OK, ""), "the second run has one of them"
    beside = done("retry promote", "orders/0/2", "--yes", on=stages[:1])
    assert (beside.exit_code, "orders/0/2" in beside.stderr) == (Exit.FAILURE, True)
    stages[1].metrics.stop()
    one = done("retry bury", "orders/0/0", "--yes", on=stages)
    assert one.exit_code == Exit.PARTIAL
    assert f"no run answers at {stages[1].listen}" in one.stderr
    whole = done("retry promote", "orders", "--yes", on=stages[:1])
    assert (whole.exit_code, "is no retry topic" in whole.stderr) == (Exit.USAGE, True)
    wanted = done("retry promote", "orders/0/0", "--error", "X", "--yes", on=stages[:1])
    assert wanted.exit_code == Exit.USAGE
    other = done("retry bury", "payments/0/0", "--yes", on=stages[:1])
    assert isinstance(other.exception, ControlFailed)


def test_retry_ls_says_that_more_are_blocked_than_it_counts(
    stages: tuple[Stage, Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run names the longest blocked ones; a number without a word would be too low."""

    class NoTopics:
        def names(self, _group: str | None) -> list[str]:
            return []

    monkeypatch.setattr(retry_commands, "_open", lambda _: (NoTopics(), None))
    worker, _ = stages[0].run.workers
    report = WorkerMetrics()
    report.snapshot(snapshot(handlers=(handler(blocked=replace(worker.blocked, count=70)),)))
    stages[0].metrics.update(0, report.report())
    listed = done("retry ls", "-o", "json", on=stages[:1], token=False)
    assert [row["delay"] for row in json.loads(listed.stdout)] == ["in place"]
    assert "worker 0: 68 more lanes of bill are blocked" in listed.stderr
