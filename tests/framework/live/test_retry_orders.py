"""Waiting records and the run's address: who may ask, what workers are told, who has answered."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from ackfloor.control import ControlRequest
from ackfloor.live.retry_orders import (
    Action,
    carry_out_retry_order,
    retry_order,
)
from ackfloor.live.retry_requests import MOST, RetryRequests
from ackfloor.live.worker_orders import Answers, Tree, WorkerOrders, answer_order
from ackfloor.runtime.supervision.channel import Kind
from tests.framework.core.worlds import START_MS, TIER, World

TOKEN = "t" * 43
GOOD = {"action": "promote", "topic": TIER, "places": {"0": [1, 2]}}


class Run:
    """A run that does what it is asked, or raises."""

    def __init__(self) -> None:
        self.asked: list[Tree] = []
        self.raises: Exception | None = None
        self.control = RetryRequests(TOKEN, self.take, anywhere=False)

    def take(self, order: Tree, wait_s: float) -> Answers:
        assert wait_s > 0
        self.asked.append(order)
        if self.raises:
            raise self.raises
        return Answers({0: {"count": 2}}, (1,))

    def ask(self, body: object, token: str = TOKEN, client: str = "127.0.0.1") -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.control(ControlRequest(client, f"Bearer {token}", raw))


def test_who_has_the_token_may() -> None:
    """From this machine; what came of it is told as JSON can hold it."""
    run = Run()
    assert run.ask(GOOD) == (
        200,
        {"action": "promote", "count": 2, "workers": {"answered": [0], "silent": [1]}},
    )
    assert run.asked == [GOOD]
    assert run.ask(GOOD, token="u" * 43)[0] == 401
    assert run.ask(GOOD, client="10.0.0.9")[0] == 403
    run.raises = TimeoutError("still starting")
    assert run.ask(GOOD) == (503, {"error": "still starting"})
    assert len(run.asked) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff", b"[" * 60_000, [], {}, {**GOOD, "more": 1}, {**GOOD, "action": "settle"},
        {**GOOD, "action": ["promote"]}, {**GOOD, "topic": 1}, {**GOOD, "places": [1]},
        {**GOOD, "places": {}}, {**GOOD, "places": {"0": []}}, {**GOOD, "places": {"-1": [1]}},
        {**GOOD, "places": {"0": 1}}, {**GOOD, "places": {"0": [True]}},
        {**GOOD, "places": {"0": [-1]}}, {**GOOD, "places": {"0": [2**63]}},
        {**GOOD, "places": {"0": list(range(MOST + 1))}}, {**GOOD, "places": {"9" * 10: [1]}},
    ],
    ids=lambda body: str(body)[:40],
)  # fmt: skip
def test_what_is_no_request_is_refused(body: object) -> None:
    """With what would be one; nobody is asked."""
    run = Run()
    status, told = run.ask(body)
    assert status == 400
    assert told["error"]
    assert run.asked == []


class Asking:
    """A request in a thread of its own, and a supervisor whose loop is turned by hand."""

    def __init__(self, *workers: int, wait_s: float = 60.0) -> None:
        self.orders = WorkerOrders(Kind.RETRY_NOW)
        self.sent: list[tuple[int, Tree]] = []
        self.results: list[Answers] = []
        self.thread = threading.Thread(
            target=lambda: self.results.append(self.orders.ask(GOOD, wait_s))
        )
        self.thread.start()
        until_s = time.monotonic() + 60
        while len(self.sent) < len(workers):
            assert time.monotonic() < until_s
            self.orders.step(workers, self.tell)

    def tell(self, worker: int, kind: Kind, body: bytes) -> bool:
        assert kind is Kind.RETRY_NOW
        self.sent.append((worker, json.loads(body)))
        return True

    def answer(self, worker: int, count: int, number: int | None = None) -> None:
        number = self.sent[0][1]["number"] if number is None else number
        self.orders.received(worker, json.dumps({"number": number, "count": count}).encode())

    def result(self) -> Answers:
        self.thread.join(60)
        [result] = self.results
        return result


def test_all_running_workers_are_asked_and_counted() -> None:
    """An answer to another word, or of a worker that was not asked, is none."""
    asking = Asking(0, 1)
    assert {worker for worker, _ in asking.sent} == {0, 1}
    assert asking.sent[0][1] == {**GOOD, "number": 1}
    asking.answer(0, 50, number=99)
    asking.answer(7, 50)
    asking.answer(0, 1)
    asking.answer(1, 2)
    assert asking.result() == Answers({0: {"count": 1}, 1: {"count": 2}}, ())


def test_a_worker_that_leaves_is_not_waited_for() -> None:
    """What it did before is counted."""
    asking = Asking(0, 1)
    asking.answer(0, 2)
    asking.orders.left(0)
    asking.orders.left(1)
    assert asking.result() == Answers({0: {"count": 2}}, ())


def test_a_worker_that_says_nothing_is_named() -> None:
    """After the time that was given."""
    asking = Asking(0, 1, wait_s=3.0)
    asking.answer(0, 2)
    until_s = time.monotonic() + 60
    while not asking.results:
        assert time.monotonic() < until_s
        asking.orders.step((0, 1), asking.tell)
    assert asking.result() == Answers({0: {"count": 2}}, (1,))


def test_a_run_that_is_still_starting_says_so() -> None:
    """Nobody turns its loop; later it does nothing about what was given up."""
    orders = WorkerOrders(Kind.RETRY_NOW)
    with pytest.raises(TimeoutError, match="still starting"):
        orders.ask(GOOD, -0.9)
    told: list[int] = []
    orders.step((0,), lambda worker, _kind, _body: bool(told.append(worker)))
    assert told == []


def test_a_worker_does_what_it_is_told() -> None:
    """Count, promote, bury: each answers how many waited."""
    world = World()
    world.assign(topic=TIER)
    world.redeliver(range(3), due_ms=START_MS + 1_500)
    for action, offsets, count in (
        (Action.COUNT, (0, 1, 9), 2),
        (Action.PROMOTE, (0,), 1),
        (Action.BURY, (1, 2), 2),
    ):
        order = {**retry_order(action, TIER, {0: offsets}), "number": 7}
        answer = answer_order(
            json.dumps(order).encode(),
            lambda asked: carry_out_retry_order(world.engine.promotions, asked, world.now),
        )
        assert json.loads(answer) == {"number": 7, "count": count}
    world.tick()
    assert (len(world.ready), len(world.writes)) == (1, 2)
