"""Orders about waiting records: what runs are asked, and what their answers come to."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import pytest

from ackfloor.live.retry_requests import MOST, PATH
from ackfloor.operations import (
    ActionState,
    ChosenWaiting,
    ControlFailed,
    Ending,
    RetryAction,
    RetryMove,
    Runs,
    runs,
)

TIER = "orders--billing--retry-10m"
CHOSEN = ChosenWaiting({0: array("q", [3, 4]), 1: array("q", [7])}, gone=1, left=2)


class Asked:
    """Two runs: what they are asked, and what they answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bodies: list[tuple[str, Mapping[str, Any]]] = []
        self.away: set[str] = set()
        #: After so many answers in all, nobody answers any more.
        self.answers = 100
        self.silent: list[int] = []
        self.counts = {"a:1": 2, "b:1": 1}
        monkeypatch.setattr(runs, "post", self.post)

    def post(self, run: str, token: str, path: str, body: Mapping[str, Any], _trust: object) -> Any:
        """As a run answers."""
        assert (token, path) == (f"token of {run}", PATH)
        self.bodies.append((run, body))
        self.answers -= 1
        if run in self.away or self.answers < 0:
            raise ControlFailed(f"no run answers at {run}")
        return {"count": self.counts[run], "workers": {"silent": self.silent}}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the runs are asked."""
    return Asked(monkeypatch)


BOTH = Runs({run: f"token of {run}" for run in ("a:1", "b:1")})


def test_judging_counts_and_acting_acts(asked: Asked) -> None:
    """The same places both times; what was named and is not open was not reached."""
    move = RetryMove(RetryAction.BURY, TIER, CHOSEN, {"places": []})
    assert (move.name, move.target, move.group, move.meant) == ("retry bury", TIER, "billing", 4)
    would = move.judge(BOTH)
    assert (would.dry_run, would.done, would.meant, would.missing, would.left) == (True, 3, 4, 1, 2)
    ending = Ending()
    did = move.act(BOTH, ending)
    assert (did.dry_run, did.whole, ending.whole) == (False, False, False)
    assert ending.counts == {"done": 3, "meant": 4}
    places = {"0": [3, 4], "1": [7]}
    assert asked.bodies == [
        (run, {"action": action, "topic": TIER, "places": places})
        for action in (RetryAction.COUNT, RetryAction.BURY)
        for run in ("a:1", "b:1")
    ]


def test_it_is_whole_where_all_runs_answered_for_all(asked: Asked) -> None:
    """Not where one is away or has no token, nor where a worker is silent."""
    move = RetryMove(RetryAction.PROMOTE, TIER, ChosenWaiting({0: array("q", [1, 2, 3])}))
    assert move.act(BOTH, Ending()).whole
    assert not move.act(Runs(BOTH.tokens, {"c:1": "no token"}), Ending()).whole
    asked.silent = [1]
    silent = move.act(BOTH, Ending())
    assert (silent.whole, silent.silent) == (False, {("a:1", 1), ("b:1", 1)})
    asked.silent, asked.away = [], {"b:1"}
    away = move.act(BOTH, Ending())
    assert (away.whole, away.done, away.refused) == (False, 2, {"b:1": "no run answers at b:1"})


def test_one_request_has_so_many_places(asked: Asked) -> None:
    """Of several partitions, in their order; none is sent without a place."""
    chosen = ChosenWaiting({0: array("q", range(MOST - 1)), 1: array("q", range(3))})
    alone = Runs({"a:1": "token of a:1"})
    RetryMove(RetryAction.PROMOTE, TIER, chosen).act(alone, Ending())
    first, second = (body["places"] for _, body in asked.bodies)
    assert (len(first["0"]), first["1"], second) == (MOST - 1, [0], {"1": [1, 2]})
    asked.bodies.clear()
    none = RetryMove(RetryAction.PROMOTE, TIER, ChosenWaiting()).act(alone, Ending())
    assert (asked.bodies, none.whole, none.done) == ([], True, 0)


MANY = ChosenWaiting({0: array("q", range(2 * MOST + 1))})


def test_what_was_done_before_the_only_run_went_away_is_noted(asked: Asked) -> None:
    """It is a part, and no failure: those records are on their way."""
    asked.counts, asked.answers = {"a:1": MOST}, 1
    ending = Ending()
    did = RetryMove(RetryAction.BURY, TIER, MANY).act(Runs({"a:1": "token of a:1"}), ending)
    assert (did.done, did.whole) == (MOST, False)
    assert did.refused == {"a:1": "no run answers at a:1"}
    assert ending.state is ActionState.PARTIAL
    assert ending.counts == {"done": MOST, "meant": 2 * MOST + 1}
    assert len(asked.bodies) == 2
    asked.answers = 0
    with pytest.raises(ControlFailed):
        RetryMove(RetryAction.BURY, TIER, MANY).act(Runs({"a:1": "token of a:1"}), Ending())


def test_a_run_that_failed_is_not_asked_for_the_rest(asked: Asked) -> None:
    """Each part would wait for it again; the other one does its own."""
    asked.away = {"b:1"}
    did = RetryMove(RetryAction.BURY, TIER, MANY).act(BOTH, Ending())
    assert [run for run, _ in asked.bodies] == ["a:1", "b:1", "a:1", "a:1"]
    assert (did.done, did.refused) == (6, {"b:1": "no run answers at b:1"})
