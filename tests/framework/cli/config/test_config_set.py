"""`ackfloor config set`: what people and programs read of a change, and its exit codes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ackfloor.cli.config.config_set import MOST_SHOWN
from ackfloor.cli.config.config_show import config_app
from ackfloor.cli.shared.run_address import NoToken
from ackfloor.control import Control
from ackfloor.live.frames import Overdue
from ackfloor.live.requests import Change
from ackfloor.live.run_control import PATH, ConfigControl
from ackfloor.live.token import TokenFile, token_path
from ackfloor.operations import ActionNote, ActionState
from ackfloor.operations.run_client import ControlFailed, NoAddress
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.settings.live_settings import Changed
from ackfloor_monitoring.serving.http_server import PageServer, Response

DONE = Change(
    (Changed("handlers.bill.concurrency", "4", "3", "config set"),),
    (0, 1),
    {},
    (),
    0,
    (),
    "billing",
)
NAME, VALUE = "handlers.bill.concurrency", "3"


class Run:
    """A run's address with a token, and what becomes of a change there."""

    def __init__(self, folder: Path) -> None:
        self.becomes = DONE
        self.asked: list[tuple[Any, bool]] = []
        self.controls: dict[str, Control] = {}
        state = Response.of_json({"group": "billing", "workers": {}})
        self.server = PageServer({"/state": lambda _query: state}, self.controls)
        self.listen = self.server.start("127.0.0.1:0")
        self.folder = folder
        self.token = TokenFile(token_path(self.listen, None), keep=False)
        self.controls[PATH] = ConfigControl(self.token.token, self.change, anywhere=False)

    def change(self, values: Any, *, dry_run: bool, wait_s: float) -> Change:
        self.asked.append((values, dry_run))
        return self.becomes

    def set(self, *arguments: str, **given: str) -> Result:
        """Run the command."""
        given.setdefault("ACKFLOOR_RUN_LISTEN", self.listen)
        return CliRunner().invoke(config_app, ["set", NAME, VALUE, *arguments], env=given)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run whose token is where it belongs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACKFLOOR_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    run = Run(tmp_path)
    yield run
    run.server.stop()


def refused(result: Result) -> str:
    """The one line that a refusal is told with; exit 1."""
    assert isinstance(result.exception, ControlFailed)
    assert (result.exception.exit_code, result.stdout) == (Exit.FAILURE, "")
    return str(result.exception)


def test_a_change_is_told_to_people_and_to_programs(run: Run) -> None:
    """The token is found by the address."""
    result = run.set()
    assert result.exit_code == Exit.OK
    assert (
        result.stdout
        == "handlers.bill.concurrency  4 -> 3\napplied by worker 0, 1 of group billing\n"
    )
    told = json.loads(run.set("-o", "json").stdout)
    assert (told["group"], told["changed"][0]["after"]) == ("billing", "3")
    assert run.asked == [({NAME: VALUE}, False)] * 2


def test_a_dry_run_names_the_records(run: Run) -> None:
    """As many as fit; a change itself only counts them."""
    overdue = tuple(Overdue("bill", "orders", 1, n, 2, 61.5) for n in range(MOST_SHOWN + 1))
    run.becomes = replace(DONE, ends=30, overdue=overdue)
    lines = run.set("--dry-run").stdout.splitlines()
    assert lines[1:4] == [
        "would be applied by worker 0, 1 of group billing",
        "30 records in flight would be parked at once",
        "  orders/1/0  attempt 2  bill  running for 61.5 s",
    ]
    assert (len(lines), lines[-1]) == (3 + MOST_SHOWN + 1, "  and 10 more")
    assert run.asked == [({NAME: VALUE}, True)]
    assert len(run.set().stdout.splitlines()) == 3
    run.becomes = replace(DONE, ends=1, overdue=overdue[:1])
    assert run.set().stdout.splitlines()[-1] == "1 record in flight was parked at once"


def test_a_change_is_noted(run: Run, notes: list[ActionNote]) -> None:
    """As it was and is, with the reason; a dry run is none, and a refusal holds no value."""
    run.set("--dry-run")
    run.becomes = replace(DONE, ends=30)
    run.set("--reason", "fewer at once")
    run.set("--token-file", str(TokenFile(run.folder / "other", keep=False).path))
    changed, refused = notes
    assert (changed.action, changed.targets, changed.reason) == (
        "config set", (NAME,), "fewer at once",
    )  # fmt: skip
    assert changed.arguments == {"runs": [run.listen], "before": "4", "after": "3"}
    assert (changed.state, changed.counts) == (ActionState.DONE, {"done": 2, "parked": 30})
    assert (refused.state, refused.arguments) == (ActionState.FAILED, {"runs": [run.listen]})
    assert "not the token of this run" in refused.error
    assert run.token.token not in f"{notes}"


def test_a_value_it_has_already_is_no_change(run: Run) -> None:
    """And no failure."""
    run.becomes = replace(DONE, changed=())
    result = run.set()
    assert (result.exit_code, result.stdout.splitlines()[0]) == (
        Exit.OK,
        "nothing changes: the setting already has this value",
    )


def test_workers_that_did_not_take_it_are_exit_5(run: Run) -> None:
    """Named, on standard error."""
    run.becomes = replace(DONE, applied=(0,), refused={1: "older code"})
    result = run.set()
    assert result.exit_code == Exit.PARTIAL
    assert "worker 1 did not take it: older code" in result.stderr
    run.becomes = replace(DONE, applied=(), silent=(0, 1))
    result = run.set()
    assert result.exit_code == Exit.PARTIAL
    assert "no answer yet from worker 0, 1" in result.stderr


def test_who_can_not_be_asked_is_exit_1(run: Run, tmp_path: Path) -> None:
    """Nobody there, no controls, no token, the token of another run."""
    other = TokenFile(tmp_path / "other", keep=False)
    told = refused(run.set("--token-file", str(other.path)))
    assert told.startswith(f"{run.listen} refused (401): not the token of this run; its log says")
    token = str(run.token.path)
    with socket.socket() as deaf:
        # Bound, so that nobody else takes the port, and not listening.
        deaf.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{deaf.getsockname()[1]}"
        assert "no run answers at" in refused(run.set("--listen", nobody, "--token-file", token))
        assert "control_token_file" in refused(run.set("--listen", nobody))
    for listen in ("9600", "localhost", "localhost:http", ":1", "x:99999"):
        for more in (["--token-file", token], []):
            result = run.set("--listen", listen, *more)
            assert isinstance(result.exception, NoAddress)
            assert (result.exception.exit_code, result.stdout) == (Exit.USAGE, "")
            assert "write host:port" in str(result.exception)
    run.token.remove()
    assert "--token-file" in refused(run.set())
    wrong = run.set("--token-file", token)
    assert isinstance(wrong.exception, NoToken)
    assert (wrong.exception.exit_code, wrong.stdout) == (Exit.USAGE, "")
    assert str(wrong.exception).startswith(f"--token-file='{token}': No such file or directory")


@pytest.mark.parametrize("has_token", [True, False])
def test_a_run_without_controls_needs_no_token(run: Run, has_token: bool) -> None:
    """Such as a worker inside a web service: what to do is said, and not where a token would be."""
    run.controls.clear()
    if not has_token:
        run.token.remove()
    assert refused(run.set()).startswith(
        f"{run.listen} takes no requests: it is a worker inside a web service (app.running()), or"
    )


def test_the_settings_file_may_name_address_and_token(run: Run, tmp_path: Path) -> None:
    """As it does for the run."""
    named = tmp_path / "named.token"
    named.write_text(run.token.token)
    named.chmod(0o600)
    (tmp_path / "ackfloor.toml").write_text(
        f'[app]\nlisten = "{run.listen}"\ncontrol_token_file = "{named}"\n'
    )
    run.token.remove()
    result = CliRunner().invoke(config_app, ["set", NAME, VALUE])
    assert result.exit_code == Exit.OK, result.output


def test_the_app_may_be_named_where_the_file_has_several(run: Run, tmp_path: Path) -> None:
    """By flag or variable: then its section has the address, and its run is asked."""
    (tmp_path / "ackfloor.toml").write_text(
        '[app]\nlisten = "127.0.0.1:1"\n'
        f'[apps.billing.app]\nlisten = "{run.listen}"\n'
        f'[apps.refunds.app]\nlisten = "{run.listen}"\n'
    )
    for result in (
        CliRunner().invoke(config_app, ["set", NAME, VALUE, "--group", "billing"]),
        CliRunner().invoke(config_app, ["set", NAME, VALUE], env={"ACKFLOOR_GROUP": "billing"}),
    ):
        assert result.exit_code == Exit.OK, result.output
    run.asked.clear()
    told = refused(CliRunner().invoke(config_app, ["set", NAME, VALUE, "--group", "refunds"]))
    assert f"the run at {run.listen} is of group 'billing', not 'refunds'" in told
    assert "listen in [apps.refunds.app]" in told
    assert run.asked == []
    assert "of group 'billing'" in refused(run.set("--group", "refunds"))
