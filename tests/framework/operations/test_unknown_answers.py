"""Runs that got an order and have not answered: they are told apart from those that refused it."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.operations import (
    ActionLog,
    ActionState,
    BreakerAction,
    ChosenWaiting,
    Ending,
    HandlerBreaker,
    HandlerPause,
    LaneAction,
    LaneMove,
    PauseAction,
    RetryAction,
    RetryMove,
    Runs,
    SettingChange,
    runs,
)
from ackfloor.operations.run_client import ControlFailed, NotKnown
from ackfloor.runtime.supervision.exit_codes import Exit

#: How each run of a test answers: an answer, or what it raises.
Answers: TypeAlias = Mapping[str, object]
Order: TypeAlias = HandlerBreaker | HandlerPause | LaneMove | RetryMove | SettingChange

WORKERS = {"applied": [0], "refused": {}, "silent": []}
ANSWER = {
    "workers": WORKERS, "done": 1, "count": 1, "left": {}, "refused": {}, "missing": [],
    "changed": [], "ends": 0, "overdue": [],
}  # fmt: skip
CHOSEN = ChosenWaiting({0: array("q", [3])})
ORDERS = (
    HandlerPause(PauseAction.PAUSE, "bill"),
    HandlerBreaker(BreakerAction.OPEN, "bill"),
    LaneMove(LaneAction.RETRY, "bill", {"all": True}),
    RetryMove(RetryAction.PROMOTE, "orders--billing--retry-10m", CHOSEN),
    SettingChange("handlers.bill.rate", "5/s"),
)


def acted(order: Order, answers: Answers, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Ending]:
    """What came of an order to these runs, and how its note ends."""

    def post(run: str, *_: object) -> object:
        answer = answers[run]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(runs, "post", post)
    ending = Ending()
    return order.act(Runs(dict.fromkeys(answers, "token")), ending), ending


@pytest.mark.parametrize("order", ORDERS, ids=lambda each: each.name)
def test_a_run_that_has_not_answered_is_a_field_of_its_own(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has refused nothing; what another run did is a part."""
    answers = {"a:1": ANSWER, "b:1": NotKnown("b:1 has not answered"), "c:1": ControlFailed("no")}
    outcome, ending = acted(order, answers, monkeypatch)
    assert (outcome.unknown, outcome.refused) == ({"b:1": "b:1 has not answered"}, {"c:1": "no"})
    assert not outcome.whole
    assert (ending.counts["done"], ending.counts["unknown"]) == (1, 1)
    assert ending.state is ActionState.PARTIAL


@pytest.mark.parametrize("order", ORDERS, ids=lambda each: each.name)
def test_without_a_run_that_did_it_nobody_knows(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no failure: whoever reads the note looks before they ask again."""
    answers = {"a:1": ControlFailed("no"), "b:1": NotKnown("b:1 has not answered")}
    outcome, ending = acted(order, answers, monkeypatch)
    assert (outcome.whole, list(outcome.unknown)) == (False, ["b:1"])
    assert ending.state is ActionState.UNKNOWN
    refused = {"a:1": ControlFailed("no"), "b:1": ControlFailed("no")}
    _, ending = acted(order, refused, monkeypatch)
    assert ending.state is ActionState.FAILED


def test_a_run_that_has_not_answered_is_not_asked_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records that it may have are not sent to it in another request."""
    monkeypatch.setattr("ackfloor.operations.retry_moves.MOST", 1)
    asked: list[str] = []

    def post(run: str, *_: object) -> object:
        asked.append(run)
        if run == "b:1":
            raise NotKnown("b:1 has not answered")
        return ANSWER

    monkeypatch.setattr(runs, "post", post)
    chosen = ChosenWaiting({0: array("q", [3, 4])})
    move = RetryMove(RetryAction.PROMOTE, "orders--billing--retry-10m", chosen)
    outcome = move.act(Runs(dict.fromkeys(("a:1", "b:1"), "token")), Ending())
    assert (asked, outcome.done, list(outcome.unknown)) == (["a:1", "b:1", "a:1"], 2, ["b:1"])


def test_the_only_run_that_stops_answering_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it did is told, and that the rest is not known."""
    monkeypatch.setattr("ackfloor.operations.retry_moves.MOST", 1)
    left = iter([ANSWER])

    def post(run: str, *_: object) -> object:
        if (answer := next(left, None)) is None:
            raise NotKnown(f"{run} has not answered")
        return answer

    monkeypatch.setattr(runs, "post", post)
    chosen = ChosenWaiting({0: array("q", [3, 4])})
    ending = Ending()
    outcome = RetryMove(RetryAction.BURY, "orders--billing--retry-10m", chosen).act(
        Runs({"a:1": "token"}), ending
    )
    assert (outcome.done, outcome.refused) == (1, {})
    assert outcome.unknown == {"a:1": "a:1 has not answered"}
    assert (ending.state, ending.counts["unknown"]) == (ActionState.PARTIAL, 1)


@pytest.mark.parametrize(
    "command", ["lanes retry bill --all --yes", "handlers pause bill"], ids=lambda each: each[:5]
)
def test_commands_name_it_once_and_exit_with_5(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `post` says names the run, and the command that shows what it has done."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ActionLog, "write", lambda _log, _note: None)
    (tmp_path / "token").write_text("s3cret" * 8)
    (tmp_path / "token").chmod(0o600)

    def post(run: str, *_: object) -> object:
        if run == "127.0.0.1:2":
            raise NotKnown(f"the run at {run} has not answered")
        return ANSWER

    monkeypatch.setattr(runs, "post", post)
    listen = ("--listen", "127.0.0.1:1", "--listen", "127.0.0.1:2", "--token-file", "token")
    words = [*command.split(), *listen]
    told = CliRunner().invoke(cli, words)
    assert (told.exit_code, told.stderr) == (
        Exit.PARTIAL, "the run at 127.0.0.1:2 has not answered\n",
    )  # fmt: skip
    read = CliRunner().invoke(cli, [*words, "-o", "json"])
    found = json.loads(read.stdout)
    assert (list(found["unknown"]), found["refused"]) == (["127.0.0.1:2"], {})
