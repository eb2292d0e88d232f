"""`ackfloor handlers`: what pauses and resumes handlers, what people read of them, exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ackfloor.cli.handlers.handler_list import COLUMNS
from ackfloor.cli.main import cli
from ackfloor.core.values.setting_error import SettingError
from ackfloor.errors import ConfigError
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.pause_orders import PATH, PauseAction, PauseControl
from ackfloor.live.requests import Change
from ackfloor.live.token import token_path
from ackfloor.observe import BlockedLanes, BreakerSnapshot, RateSnapshot
from ackfloor.operations import ActionNote, ActionState
from ackfloor.operations.run_client import ControlFailed
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.settings import Settings
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from tests.monitoring.samples import NOW_MS, handler, snapshot

TOKEN = "s3cret" * 8


class Stage:
    """A run at an address, with the handlers `bill` and `pay`, and what it was asked for."""

    def __init__(self, *workers: int) -> None:
        self.metrics = RunMetrics("billing", len(workers), now_ms=lambda: NOW_MS + 1_000)
        self.metrics.control(PATH, PauseControl(TOKEN, self.order, anywhere=False))
        self.workers = workers
        self.asked: list[tuple[PauseAction, str, float | None, str]] = []
        self.refused: dict[int, str] = {}
        self.silent: tuple[int, ...] = ()
        for number in workers:
            self.show(number)
        self.listen = self.metrics.start("127.0.0.1:0")

    def show(self, number: int, **bill: object) -> None:
        """A worker reports how its handlers are."""
        worker = WorkerMetrics()
        pay = handler(name="pay", ordering="unordered", blocked=BlockedLanes(), running=0)
        worker.snapshot(snapshot(handlers=(handler(**bill), pay)))
        self.metrics.update(number, worker.report())

    def order(
        self, action: PauseAction, handler: str, for_s: float | None, reason: str, wait_s: float
    ) -> Change:
        if handler not in {"bill", "pay"}:
            raise ConfigError("HANDLER", handler, "no handler of this run", "write another")
        self.asked.append((action, handler, for_s, reason))
        applied = tuple(n for n in self.workers if n not in {*self.refused, *self.silent})
        return Change((), applied, self.refused, self.silent, 0, ())


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Stage, Stage]]:
    """Two runs of one group: the first has two workers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    both = Stage(0, 1), Stage(0)
    yield both
    for stage in both:
        stage.metrics.stop()


def done(
    command: str, *arguments: str, on: tuple[Stage, ...], env: dict[str, str] | None = None
) -> Result:
    """The command, run to its end."""
    listen = [text for stage in on for text in ("--listen", stage.listen)]
    token = [] if command in {"handlers ls", "inflight"} else ["--token-file", "token"]
    words = [*command.split(), *arguments, *listen, *token]
    return CliRunner().invoke(cli, words, env={"COLUMNS": "250", **(env or {})})


def test_a_handler_is_paused_in_all_workers_of_all_runs(stages: tuple[Stage, Stage]) -> None:
    """For a time and with a reason, or until it is resumed; each run is named with its workers."""
    first, second = stages
    paused = done("handlers pause", "bill", "--for", "30m", "--reason", "a\nmigration", on=stages)
    assert (paused.exit_code, paused.stderr) == (Exit.OK, "")
    assert paused.stdout == (
        f"{first.listen}: bill: paused for 30m by worker 0, 1\n"
        f"{second.listen}: bill: paused for 30m by worker 0\n"
    )
    resumed = done("handlers resume", "bill", on=stages)
    assert resumed.stdout.startswith(f"{first.listen}: bill: resumed by worker 0, 1\n")
    expected = [(PauseAction.PAUSE, "bill", 1800, "a migration")]
    assert first.asked == second.asked == [*expected, (PauseAction.RESUME, "bill", None, "")]


def test_programs_read_the_same(stages: tuple[Stage, Stage]) -> None:
    """With everything that was asked, and who did it."""
    first, second = stages
    second.silent = (0,)
    paused = done("handlers pause", "pay", "-o", "json", on=stages)
    assert paused.exit_code == Exit.PARTIAL
    assert json.loads(paused.stdout) == {
        "action": "pause", "handler": "pay", "for_s": None, "reason": "",
        "applied": {first.listen: [0, 1], second.listen: []}, "refused": {},
        "silent": [f"{second.listen} worker 0"], "unknown": {},
    }  # fmt: skip


def test_who_did_not_take_it_is_named(stages: tuple[Stage, Stage]) -> None:
    """With 5 where some did, and 1 where none did."""
    first, second = stages
    first.refused, second.silent = {1: "it has no handler bill"}, (0,)
    some = done("handlers pause", "bill", on=stages)
    assert some.exit_code == Exit.PARTIAL
    assert f"{first.listen} worker 1 did not take it: it has no handler bill" in some.stderr
    assert f"no answer yet from {second.listen} worker 0" in some.stderr
    assert some.stdout.endswith(f"{second.listen}: bill: paused by no worker yet\n")
    none = done("handlers resume", "bill", on=(second,))
    assert none.exit_code == Exit.FAILURE
    second.metrics.stop()
    first.refused = {}
    away = done("handlers pause", "bill", on=stages)
    assert away.exit_code == Exit.PARTIAL
    assert f"{second.listen} did not take it: no run answers" in away.stderr
    assert isinstance(done("handlers pause", "bill", on=(second,)).exception, ControlFailed)


def test_both_are_noted(stages: tuple[Stage, Stage], notes: list[ActionNote]) -> None:
    """With the reason, for how long, at which runs, and how many workers did it."""
    stages[1].silent = (0,)
    done("handlers pause", "bill", "--for", "30m", "--reason", "migration", on=stages)
    done("handlers resume", "bill", on=stages[:1])
    paused, resumed = notes
    assert (paused.action, paused.targets, paused.reason) == (
        "handlers pause", ("bill",), "migration",
    )  # fmt: skip
    assert paused.arguments == {"for_s": 1800.0, "runs": [stage.listen for stage in stages]}
    assert (paused.state, paused.counts) == (ActionState.PARTIAL, {"done": 2, "silent": 1})
    assert (resumed.action, resumed.state, resumed.counts) == (
        "handlers resume", ActionState.DONE, {"done": 2},
    )  # fmt: skip


def test_a_run_that_has_ended_keeps_no_other_from_pausing(
    stages: tuple[Stage, Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token is gone with it: the others are asked all the same, and it is named."""
    first, second = stages
    monkeypatch.setenv("ACKFLOOR_STATE_DIR", str(tmp_path))
    own = token_path(first.listen, None)
    own.write_text(TOKEN)
    own.chmod(0o600)
    words = ["handlers", "pause", "bill", "--listen", first.listen, "--listen", second.listen]
    paused = CliRunner().invoke(cli, words)
    assert paused.exit_code == Exit.PARTIAL
    assert paused.stdout == f"{first.listen}: bill: paused by worker 0, 1\n"
    assert paused.stderr.startswith(f"{second.listen} did not take it: ")


def test_a_run_whose_workers_have_not_started_keeps_it(tmp_path: Path) -> None:
    """Nobody could take it, so nothing has failed."""
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    stage = Stage()
    words = ["handlers", "pause", "bill", "--listen", stage.listen]
    paused = CliRunner().invoke(cli, [*words, "--token-file", str(tmp_path / "token")])
    stage.metrics.stop()
    assert (paused.exit_code, paused.stderr) == (Exit.OK, "")
    assert paused.stdout == f"{stage.listen}: bill: paused by no worker yet\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["pause", "bill", "--for", "30"], "--for='30': a bare number has no unit"),
        (["pause", "bill", "--for", "0s"], "--for='0s': no time at all"),
        (["pause", "bill", "--reason", "x" * (LONGEST_REASON + 1)], "--reason="),
    ],
)
def test_bad_input_is_refused(
    stages: tuple[Stage, Stage], arguments: list[str], error: str
) -> None:
    """With the option, and what to write; nobody is asked."""
    failed = done(f"handlers {arguments[0]}", *arguments[1:], on=stages)
    assert isinstance(failed.exception, SettingError)
    assert str(failed.exception).startswith(error)
    assert stages[0].asked == []


def test_an_unknown_handler_is_the_runs_to_refuse(stages: tuple[Stage, Stage]) -> None:
    """It alone knows its handlers; of several runs each says so for itself."""
    failed = done("handlers pause", "bil", on=stages[:1])
    assert isinstance(failed.exception, ControlFailed)
    assert "HANDLER='bil': no handler of this run" in str(failed.exception)
    both = done("handlers pause", "bil", on=stages)
    assert both.exit_code == Exit.FAILURE
    assert both.stderr.count("HANDLER='bil'") == 2


OPEN = BreakerSnapshot(state="slow_start", allowed=2, withheld_most=10)


def test_handlers_are_listed(stages: tuple[Stage, Stage]) -> None:
    """Of all workers of a run together, with the time since the run last looked taken off."""
    first, second = stages
    first.show(0, paused=True, paused_for_s=61.0, paused_reason="a migration", breaker=OPEN)
    second.show(0, paused=True, paused_for_s=None, paused_reason="", held_for_s=5.0,
                held_reason="the bank is away")  # fmt: skip
    rows = json.loads(done("handlers ls", "-o", "json", on=stages).stdout)
    assert [(row["handler"], row["run"]) for row in rows] == sorted(
        (name, stage.listen) for name in ("bill", "pay") for stage in stages
    )
    of_run = {row["run"]: row for row in rows if row["handler"] == "bill"}
    assert tuple(of_run[first.listen]) == COLUMNS
    assert of_run[first.listen] == {
        "handler": "bill", "workers": [0, 1], "ordering": "key", "concurrency": 64, "running": 4,
        "queued": 10, "on_failure": "block", "blocked_lanes": 6, "quarantined_keys": 4,
        "breaker": ["closed", "slow_start"],
        "rate": "100/s", "rate_here_per_s": 50.0, "rate_waiting": 6, "paused_in": [0],
        "paused_for_s": 60.0, "paused_until": "2023-11-14T22:14:21Z",
        "paused_reason": "a migration", "held_for_s": 0.0, "held_reason": "", "run": first.listen,
    }  # fmt: skip
    paused = of_run[second.listen]
    assert (paused["paused_in"], paused["paused_for_s"], paused["held_for_s"]) == ([0], None, 4.0)
    table = done("handlers ls", on=stages).stdout
    for text in (
        "for 1m in worker 0 alone", "a migration", "closed, slow start",
        "until resumed; itself for 4s", "the bank is away", "100/s (50/s here, 6 wait)",
    ):  # fmt: skip
        assert text in table


def test_inflight_points_at_paused_handlers(stages: tuple[Stage, Stage]) -> None:
    """Nothing of theirs is in flight, and that is why."""
    first = stages[0]
    for number in (0, 1):
        first.show(number, paused=True, paused_for_s=None, paused_reason="a migration")
    told = done("inflight", on=(first,)).stderr
    expected = "bill: an operator paused it until resumed: a migration; see `ackfloor handlers ls`"
    assert expected in told.splitlines()
    assert "pay: an operator" not in told


def test_an_older_run_tells_nothing_of_pauses() -> None:
    """Its handlers are listed all the same."""
    from ackfloor.cli.handlers.handler_list import handler_rows

    bill = {
        "name": "bill", "ordering": "key", "concurrency": 8, "running": 1, "queued": 0,
        "held_for_s": 0.0, "held_reason": "",
    }  # fmt: skip
    state = {"now_ms": 2, "workers": {"0": {"taken_ms": 1, "handlers": [bill]}, "1": None}}
    [row] = handler_rows(state, "run")
    assert (row["workers"], row["paused_in"], row["blocked_lanes"]) == ([0], [], 0)
    assert (row["on_failure"], row["quarantined_keys"]) == ("", 0)
    assert (row["rate"], row["rate_here_per_s"], row["rate_waiting"]) == ("", None, 0)


def test_a_rate_is_told_with_what_of_it_is_here(stages: tuple[Stage, Stage]) -> None:
    """Of workers without a partition nothing; both while a change of it is under way."""
    first = stages[0]
    first.show(0, rate=RateSnapshot(100.0, 0.0))
    first.show(1, rate=RateSnapshot(100.0, 0.0))
    assert "100/s (none here)" in done("handlers ls", on=(first,)).stdout
    first.show(1, rate=RateSnapshot(0.5, 0.25, 7))
    assert "100/s, 30/m (15/m here, 7 wait)" in done("handlers ls", on=(first,)).stdout
    first.show(0, rate=RateSnapshot())
    first.show(1, rate=RateSnapshot())
    [row, *_] = json.loads(done("handlers ls", "-o", "json", on=(first,)).stdout)
    assert (row["rate"], row["rate_here_per_s"]) == ("", None)


# Variables.


def test_options_have_variables_beside_the_section_of_settings(
    stages: tuple[Stage, Stage],
) -> None:
    """`ACKFLOOR_HANDLERS__...` are settings, and no misspelt options; nor the other way round."""
    first = stages[0]
    env = {"ACKFLOOR_HANDLERS_PAUSE_FOR": "5m", "ACKFLOOR_HANDLERS__BILL__CONCURRENCY": "4"}
    assert done("handlers pause", "bill", on=(first,), env=env).exit_code == Exit.OK
    assert first.asked == [(PauseAction.PAUSE, "bill", 300, "")]
    assert Settings.load(environment=env).handlers["bill"].concurrency == 4
    misspelt = {"ACKFLOOR_HANDLERS_PAUSE_FRO": "5m"}
    failed = done("handlers pause", "bill", on=(first,), env=misspelt)
    assert "ACKFLOOR_HANDLERS_PAUSE_FOR" in str(failed.exception)


@pytest.mark.parametrize("name", ["ACKFLOOR_HANDLERS_BILL__CONCURRENCY", "ACKFLOOR_HANDLERS_BILL"])
def test_a_misspelt_setting_of_a_handler_is_no_option(name: str) -> None:
    """It is refused as before there were such options."""
    with pytest.raises(ConfigError, match="no such setting"):
        Settings.load(environment={name: "4"})
