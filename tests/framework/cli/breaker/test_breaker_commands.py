"""`ackfloor breaker`: what people and programs read of circuit breakers, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ackfloor.cli.breaker.breaker_show import COLUMNS
from ackfloor.cli.main import cli
from ackfloor.control import Control
from ackfloor.core.values.setting_error import SettingError
from ackfloor.errors import ConfigError
from ackfloor.live.breaker_orders import Action
from ackfloor.live.breaker_requests import PATH, BreakerControl
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.requests import Change
from ackfloor.live.token import TokenFile, token_path
from ackfloor.observe import BreakerSnapshot
from ackfloor.operations import ActionNote, ActionState
from ackfloor.operations.run_client import ControlFailed
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from ackfloor_monitoring.serving.http_server import PageServer, Request, Response
from tests.monitoring.samples import NOW_MS, handler, snapshot

TAKEN = Change((), (0, 1), {}, (), 0, ())
CLOSED = BreakerSnapshot(allowed=64, withheld_most=12_500, failing=3, error="Boom: x")
OPEN = BreakerSnapshot(
    state="slow_start",
    since_ms=NOW_MS - 60_000,
    failing=50,
    error="bank.client.BankDown: no route",
    allowed=4,
    next_trial_s=1.5,
    withheld=1_200,
    withheld_most=12_500,
)
FORCED = replace(
    CLOSED, forced="closed", forced_reason="let them go", forced_for_s=600.0, error="", failing=0
)


# Looking.


@pytest.fixture
def listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a run of six workers: two alike, one open, one forced, one that starts."""
    monkeypatch.chdir(tmp_path)
    run = RunMetrics("billing", 6, now_ms=lambda: NOW_MS + 1_000)
    off = handler(name="pay", breaker=BreakerSnapshot(enabled=False, allowed=64))
    for number, breaker in enumerate((CLOSED, OPEN, CLOSED, FORCED)):
        worker = WorkerMetrics()
        worker.snapshot(snapshot(handlers=(handler(breaker=breaker), off)))
        run.update(number, worker.report())
    run.update(4, WorkerMetrics().report())
    yield run.start("127.0.0.1:0")
    run.stop()


def shown(*arguments: str) -> Result:
    """The command, run to its end."""
    return CliRunner().invoke(cli, ["breaker", "show", *arguments], env={"COLUMNS": "200"})


def test_breakers_that_are_alike_share_a_row(listen: str) -> None:
    """With the time since the run last looked taken off; who has not said anything is named."""
    done = shown("--listen", listen, "-o", "json")
    rows = json.loads(done.stdout)
    assert [(row["handler"], row["workers"], row["state"]) for row in rows] == [
        ("bill", [0, 2], "closed"),
        ("bill", [1], "slow_start"),
        ("bill", [3], "closed"),
        ("pay", [0, 1, 2, 3], "disabled"),
    ]
    assert tuple(rows[0]) == COLUMNS
    assert rows[1] == {
        "handler": "bill", "workers": [1], "state": "slow_start",
        "since": "2023-11-14T22:12:20Z", "failing": 50, "error": "bank.client.BankDown: no route",
        "allowed": 4, "beyond": 0, "concurrency": 64, "next_trial_s": 0.5, "withheld": 1_200,
        "withheld_most": 12_500, "full": False, "forced": "", "forced_reason": "",
        "forced_for_s": None,
    }  # fmt: skip
    assert (rows[2]["forced"], rows[2]["forced_for_s"]) == ("closed", 599.0)
    assert "worker 4 is starting" in done.stderr
    assert "workers without a report: 1" in done.stderr


def test_a_table_says_it_in_words(listen: str) -> None:
    """What is closed has no reason to give."""
    lines = list(filter(str.strip, shown("--listen", listen).stdout.splitlines()))
    [same, opened, forced, off] = lines[-4:]
    for text in ("bill", "0, 2", "closed", "64 of 64", "0 of 12,500"):
        assert text in same
    assert "Boom" not in same
    for text in (
        "slow start", "2023-11-14T22:12:20Z", "4 of 64", "1,200 of 12,500", "500ms",
        "50 failed in a row; …BankDown: no route",
    ):  # fmt: skip
        assert text in opened
    assert "closed for 9m59s: let them go" in forced
    assert "disabled" in off


def test_a_run_that_has_none_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody there; and one from before there were any."""
    monkeypatch.chdir(tmp_path)
    failed = shown("--listen", "127.0.0.1:1")
    assert isinstance(failed.exception, ControlFailed)
    assert "no run answers at 127.0.0.1:1" in str(failed.exception)
    worker = {"taken_ms": 1, "handlers": [{"name": "bill"}]}
    tree = {"now_ms": 2, "workers_expected": 1, "workers": {"0": worker}}

    def old(_request: Request) -> Response:
        return Response.of_json(tree)

    server = PageServer({"/state": old})
    failed = shown("--listen", server.start("127.0.0.1:0"))
    server.stop()
    assert isinstance(failed.exception, ControlFailed)
    assert "older ackfloor" in str(failed.exception)


# Forcing.


class Run:
    """A run's address with a token, and what becomes of an operator's word there."""

    def __init__(self) -> None:
        self.becomes: Change | Exception = TAKEN
        self.asked: list[tuple[Any, ...]] = []
        self.controls: dict[str, Control] = {}
        self.server = PageServer({}, self.controls)
        self.listen = self.server.start("127.0.0.1:0")
        self.token = TokenFile(token_path(self.listen, None), keep=False)
        self.controls[PATH] = BreakerControl(self.token.token, self.force, anywhere=False)

    def force(
        self, action: Action, handler: str, for_s: float | None, reason: str, wait_s: float
    ) -> Change:
        self.asked.append((action, handler, for_s, reason))
        if isinstance(self.becomes, Exception):
            raise self.becomes
        return self.becomes

    def breaker(self, *arguments: str) -> Result:
        """Run the command."""
        given = {"ACKFLOOR_RUN_LISTEN": self.listen}
        return CliRunner().invoke(cli, ["breaker", *arguments], env=given)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run whose token is where it belongs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACKFLOOR_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    run = Run()
    yield run
    run.server.stop()


def test_each_command_is_told_to_people_and_to_programs(run: Run) -> None:
    """For how long and why goes along; the token is found by the address."""
    done = run.breaker("open", "bill", "--for", "1h30m", "--reason", "the bank is away")
    assert (done.exit_code, done.stdout) == (
        Exit.OK,
        "bill: kept open for 1h30m by worker 0, 1\n",
    )
    assert run.breaker("close", "bill", "--reason", " \n").exit_code == Exit.OK
    assert run.asked.pop() == (Action.CLOSE, "bill", None, "")
    assert run.breaker("open", "bill", "--reason", "bank\nclosed ").exit_code == Exit.OK
    assert run.asked.pop() == (Action.OPEN, "bill", None, "bank closed")
    assert run.breaker("close", "bill").stdout == "bill: kept closed by worker 0, 1\n"
    assert run.breaker("auto", "bill").stdout == "bill: returned to automatic by worker 0, 1\n"
    told = json.loads(run.breaker("close", "bill", "--for", "5m", "-o", "json").stdout)
    assert told == {
        "handler": "bill", "action": "close", "for_s": 300.0, "reason": "",
        "workers": {"applied": [0, 1], "refused": {}, "silent": []},
    }  # fmt: skip
    assert run.asked == [
        (Action.OPEN, "bill", 5400.0, "the bank is away"),
        (Action.CLOSE, "bill", None, ""),
        (Action.AUTO, "bill", None, ""),
        (Action.CLOSE, "bill", 300.0, ""),
    ]


def test_what_is_forced_is_noted(run: Run, notes: list[ActionNote]) -> None:
    """With the reason; a refusal has no workers to count."""
    run.breaker("open", "bill", "--for", "30m", "--reason", "bank closed")
    run.becomes = replace(TAKEN, applied=(0,), silent=(1,))
    run.breaker("auto", "bill")
    run.becomes = ConfigError("HANDLER", "bil", "no handler of this run", "write it")
    run.breaker("close", "bil")
    opened, auto, refused = notes
    assert (opened.action, opened.reason, opened.targets) == (
        "breaker open", "bank closed", ("bill",),
    )  # fmt: skip
    assert opened.arguments["for_s"] == 1800.0
    assert (opened.state, opened.counts) == (ActionState.DONE, {"done": 2})
    assert (auto.state, auto.counts) == (ActionState.PARTIAL, {"done": 1, "silent": 1})
    assert (refused.state, "no handler of this run" in refused.error) == (ActionState.FAILED, True)


def test_workers_that_were_not_reached_are_exit_5(run: Run) -> None:
    """Named, on standard error; the others are named all the same."""
    run.becomes = replace(TAKEN, applied=(0,), refused={1: "it has no handler bill"}, silent=(2, 3))
    done = run.breaker("open", "bill")
    assert done.exit_code == Exit.PARTIAL
    assert "by worker 0\n" in done.stdout
    assert "worker 1 did not take it: it has no handler bill" in done.stderr
    assert "no answer yet from worker 2, 3" in done.stderr
    run.becomes = replace(TAKEN, applied=(), silent=(0,))
    done = run.breaker("auto", "bill", "-o", "json")
    assert done.exit_code == Exit.PARTIAL
    assert json.loads(done.stdout)["workers"]["silent"] == [0]


def test_an_unknown_handler_is_told_as_the_run_says_it(run: Run) -> None:
    """With those that there are."""
    run.becomes = ConfigError("HANDLER", "bil", "no handler of this run; there is bill", "write it")
    done = run.breaker("open", "bil")
    assert isinstance(done.exception, ControlFailed)
    assert done.exception.exit_code == Exit.FAILURE
    assert "refused (422): HANDLER='bil': no handler of this run; there is bill" in str(
        done.exception
    )


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--for", "0s"), "--for"),
        (("--for", "30"), "--for"),
        (("--for", "366d"), "--for"),
        (("--reason", "x" * (LONGEST_REASON + 1)), "--reason"),
    ],
)
def test_a_value_that_can_not_be_meant_is_refused(
    run: Run, arguments: tuple[str, ...], field: str
) -> None:
    """Before anybody is asked; with what to write instead."""
    done = run.breaker("open", "bill", *arguments)
    assert isinstance(done.exception, SettingError)
    assert (done.exception.field, bool(done.exception.fix)) == (field, True)
    assert run.asked == []
    assert run.breaker("auto", "bill", "--for", "5m").exit_code == Exit.USAGE


def test_more_that_run_than_are_allowed_are_explained() -> None:
    """They started before the breaker opened, and end by themselves."""
    run = RunMetrics("billing", 1, now_ms=lambda: NOW_MS)
    worker = WorkerMetrics()
    opened = BreakerSnapshot(state="open", since_ms=NOW_MS, allowed=1, withheld_most=100)
    worker.snapshot(snapshot(handlers=(handler(breaker=opened, running=8, concurrency=8),)))
    run.update(0, worker.report())
    listen = run.start("127.0.0.1:0")
    try:
        done = shown("--listen", listen)
        assert "1 of 8, 8 run" in done.stdout
        assert "bill: more run than are allowed: they started before that" in done.stderr
        [row] = json.loads(shown("--listen", listen, "-o", "json").stdout)
        assert (row["allowed"], row["beyond"]) == (1, 7)
    finally:
        run.stop()
