"""Blocked lanes and the run's address: what may be asked, what workers do, what was not reached."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ackfloor.control import ControlRequest
from ackfloor.core.scheduling import lane_orders
from ackfloor.core.scheduling.lane_orders import LaneOrders
from ackfloor.live import lane_requests
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.lane_requests import MOST, LaneRequests, carry_out_lane_order
from ackfloor.live.worker_orders import Answers, Tree
from tests.framework.core.scheduling.test_lane_orders import BLOCKING, Lanes

TOKEN = "t" * 43
GOOD = {"action": "retry", "handler": "bill", "keys": ["a"]}


class Run:
    """A run with two workers: each has keys a, b and c, of which some are blocked."""

    def __init__(self, *blocked: tuple[bytes, ...]) -> None:
        self.workers = [Lanes(BLOCKING) for _ in blocked]
        for worker, keys in zip(self.workers, blocked, strict=True):
            worker.blocks(*keys)
            worker.offsets_started()
        self.reached = 0
        self.silent: tuple[int, ...] = ()
        self.control = LaneRequests(TOKEN, self.take, anywhere=False)

    def take(self, order: Tree, wait_s: float) -> Answers:
        """As the channel does: an order goes to each as JSON."""
        self.reached += 1
        assert wait_s > 0
        body = json.dumps(order)
        answers = {
            n: json.loads(json.dumps(self.answer(worker.engine.lane_orders, body, worker)))
            for n, worker in enumerate(self.workers)
            if n not in self.silent
        }
        return Answers(answers, self.silent)

    @staticmethod
    def answer(orders: LaneOrders, body: str, worker: Lanes) -> Tree:
        """What a worker answers."""
        return carry_out_lane_order(orders, json.loads(body), worker.now)

    def ask(self, body: object, token: str = TOKEN) -> tuple[int, Any]:
        """What a client is answered."""
        raw = json.dumps(body).encode()
        return self.control(ControlRequest("127.0.0.1", f"Bearer {token}", raw))


def test_all_workers_act_and_what_was_not_reached_is_named() -> None:
    """Each acts on its own lanes; a key that none has is missing."""
    run = Run((b"a", b"b"), (b"a",))
    body = {**GOOD, "keys": ["a", "b", "nobody"], "places": ["orders/0/1", "orders/9/1"]}
    assert run.ask(body) == (
        200,
        {
            "action": "retry",
            "handler": "bill",
            "dry_run": False,
            "done": 3,
            "freed": 0,
            "left": {},
            "missing": ["nobody", "orders/9/1"],
            "refused": {},
            "workers": {"answered": [0, 1], "silent": []},
        },
    )
    for worker in run.workers:
        worker.tick()
        assert worker.offsets_started()[0] == 0


def test_what_is_left_and_who_is_silent_is_said() -> None:
    """A head that is delivered again is left as it is; a worker that does not answer is named."""
    run = Run((b"a", b"b"), (b"a",))
    run.workers[0].tick(10)
    running = run.workers[0].start()
    run.silent = (1,)
    _, answer = run.ask({"action": "discard", "handler": "bill", "all": True, "reason": "old"})
    assert (answer["done"], answer["left"]) == (0, {"running": 1, "queued": 1})
    assert answer["workers"] == {"answered": [0], "silent": [1]}
    assert not running.closed


def test_a_key_that_is_no_text_is_given_in_base64() -> None:
    """Keys are bytes."""
    run = Run((b"a",))
    body = {"action": "delay", "handler": "bill", "keys_base64": ["YQ==", "/w=="], "delay_s": 60}
    _, answer = run.ask(body)
    assert (answer["done"], answer["missing"]) == (1, ["/w=="])
    [lane] = run.workers[0].blocked.oldest
    assert lane.next_try_ms == lane.since_ms + 60_000


def test_what_is_named_twice_is_meant_once() -> None:
    """By its text, in base64, and by its place: nothing of it is missing."""
    run = Run((b"a",))
    _, answer = run.ask({**GOOD, "keys": ["a", "a"], "keys_base64": ["YQ=="]})
    assert (answer["done"], answer["missing"]) == (1, [])


def test_workers_that_refuse_say_why() -> None:
    """A handler that retries in place has no retry topics."""
    run = Run((b"a",), ())
    _, answer = run.ask({**GOOD, "action": "park"})
    assert answer["done"] == 0
    assert answer["refused"].keys() == {"0", "1"}
    assert "on_failure='block'" in answer["refused"]["0"]


def test_a_trial_run_is_one() -> None:
    """It counts and names what is meant, and changes nothing."""
    run = Run((b"a", b"b"))
    before = run.workers[0].blocked
    _, answer = run.ask({"action": "discard", "handler": "bill", "all": True, "dry_run": True})
    assert (answer["done"], sorted(answer["places"])) == (2, ["orders/0/0", "orders/0/1"])
    _, answer = run.ask({**GOOD, "action": "dead_letter", "dry_run": True})
    assert (answer["done"], answer["dry_run"]) == (1, True)
    assert run.workers[0].blocked == before


def test_more_than_one_order_can_name_is_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one worker, or in all of them together: a part of the places would say nothing."""
    run = Run((b"a", b"b"), (b"a",))
    body = {"action": "retry", "handler": "bill", "all": True, "dry_run": True}
    assert len(run.ask(body)[1]["places"]) == 3
    monkeypatch.setattr(lane_requests, "MOST", 2)
    monkeypatch.setattr(lane_orders, "MOST_NAMED", 2)
    _, answer = run.ask(body)
    assert (answer["done"], answer["places"]) == (3, [])
    monkeypatch.setattr(lane_requests, "MOST", 3)
    monkeypatch.setattr(lane_orders, "MOST_NAMED", 1)
    _, answer = run.ask(body)
    assert (answer["done"], answer["places"]) == (3, [])


def test_nothing_is_asked_without_the_token() -> None:
    """As for settings."""
    run = Run(())
    assert run.ask(GOOD, token="u" * 43)[0] == 401
    assert run.reached == 0


@pytest.mark.parametrize(
    "body",
    [
        [], {}, {**GOOD, "more": 1}, {**GOOD, "action": "settle"}, {**GOOD, "action": ["retry"]},
        {**GOOD, "handler": 1}, {**GOOD, "handler": "\ud800"}, {**GOOD, "keys": "a"},
        {**GOOD, "keys": [1]}, {**GOOD, "keys": ["\ud800"]}, {**GOOD, "keys": []},
        {**GOOD, "all": True}, {"action": "retry", "handler": "bill"},
        {"action": "retry", "handler": "bill", "all": 1}, {**GOOD, "keys_base64": ["?"]},
        {**GOOD, "keys_base64": ["\u00fc"]}, {**GOOD, "places": ["orders/0"]},
        {**GOOD, "places": ["/0/1"]}, {**GOOD, "places": ["orders/-1/1"]},
        {**GOOD, "places": ["orders/0/\u00b2"]}, {**GOOD, "places": ["orders/0/1/2"]},
        {**GOOD, "keys": [str(n) for n in range(MOST + 1)]}, {**GOOD, "action": "delay"},
        {**GOOD, "action": "delay", "delay_s": -1}, {**GOOD, "action": "delay", "delay_s": True},
        {**GOOD, "action": "delay", "delay_s": float("nan")}, {**GOOD, "dry_run": 1},
        {**GOOD, "reason": 1}, {**GOOD, "reason": "x" * (LONGEST_REASON + 1)},
        {**GOOD, "reason": "\ud800"}, {**GOOD, "followers": True},
        {**GOOD, "action": "dead_letter", "followers": 1},
        {**GOOD, "action": "dead_letter", "followers": "no"},
    ],
    ids=lambda body: str(body)[:60].encode("ascii", "backslashreplace").decode(),
)  # fmt: skip
def test_what_is_no_request_is_refused(body: object) -> None:
    """With what would be one; no worker is asked."""
    run = Run(())
    status, answer = run.ask(body)
    assert status == 400
    assert answer["error"]
    assert run.reached == 0
