"""Orders about waiting records: what runs are asked, and what their answers come to."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import pytest

from ackfloor.live.retry_requests import MOST, PATH
from ackfloor.operations import (
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
        self.silent: list[int] = []
        self.counts = {"a:1": 2, "b:1": 1}
        monkeypatch.setattr(runs, "post", self.post)

    def post(self, run: str, token: str, path: str, body: Mapping[str, Any]) -> Any:
        """As a run answers."""
        assert (token, path) == (f"token of {run}", PATH)
        self.bodies.append((run, body))
        if run in self.away:
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
