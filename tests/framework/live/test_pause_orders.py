"""Paused handlers and the run's address: who may ask, what workers are sent, what is kept."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from ackfloor.control import ControlRequest
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.errors import ConfigError
from ackfloor.live.frames import Answer
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.pause_orders import PauseAction, PauseControl, RunPauses, WorkerPauses
from ackfloor.live.requests import Change
from ackfloor.runtime.supervision.channel import Kind
from tests.framework.core.worlds import HeldWorld

TOKEN = "t" * 43
GOOD = {"action": "pause", "handler": "bill", "for_s": 1800, "reason": "a migration"}
PATIENCE_S = 120.0


class Run:
    """A run whose workers take and answer what the supervisor sends; it may leave some out."""

    def __init__(self, *workers: int) -> None:
        self.pauses = RunPauses(lambda: ["bill", "pay"])
        self.control = PauseControl(TOKEN, self.pauses.order, anywhere=False)
        self.workers: dict[int, HeldWorld] = {}
        self.sent: list[tuple[int, Any]] = []
        self.deaf: set[int] = set()
        for worker in workers:
            self.start(worker)

    def start(self, number: int) -> HeldWorld:
        """A worker process starts, with a record for its handler."""
        world = self.workers[number] = HeldWorld(HandlerRules("bill"))
        # The clock of the worker and that of the run are one.
        world.now_s = time.monotonic()
        self.pauses.gone(number)
        self.pauses.started(number, self.tell)
        world.assign()
        world.read([0])
        return world

    def tell(self, worker: int, kind: Kind, body: bytes) -> bool:
        assert kind is Kind.PAUSES
        if worker in self.deaf:
            return False
        self.sent.append((worker, json.loads(body)))
        world = self.workers[worker]
        world.now_s = time.monotonic()
        answer = WorkerPauses(world.engine).take(body, world.now)
        world.take()
        self.pauses.received(worker, Kind.PAUSES_TAKEN, answer)
        return True

    def step(self) -> None:
        """The supervisor's loop makes a turn."""
        self.pauses.step(set(self.workers), self.tell)

    def ask(self, **asked: object) -> tuple[int, Any]:
        """Ask at the run's address, with its loop going on meanwhile."""
        body = json.dumps({**GOOD, **asked}).encode()
        return self.during(
            lambda: self.control(ControlRequest("127.0.0.1", f"Bearer {TOKEN}", body))
        )

    def during(self, ask: Callable[[], Any]) -> Any:
        result: list[Any] = []

        def keep() -> None:
            try:
                result.append(ask())
            except BaseException as exc:  # noqa: BLE001 -- raised again below
                result.append(exc)

        asking = threading.Thread(target=keep)
        asking.start()
        until_s = time.monotonic() + PATIENCE_S
        while asking.is_alive():
            assert time.monotonic() < until_s
            self.step()
            asking.join(0.001)
        if isinstance(result[0], BaseException):
            raise result[0]
        return result[0]

    def paused(self) -> list[bool]:
        """Whether each worker starts nothing."""
        return [not world.startable() for world in self.workers.values()]


def test_all_workers_pause_a_handler_and_resume_it(caplog: pytest.LogCaptureFixture) -> None:
    """The answer says which; the run's log says for how long, and why."""
    run = Run(0, 1)
    caplog.set_level(logging.INFO, "ackfloor.run")
    workers = {"applied": [0, 1], "refused": {}, "silent": []}
    assert run.ask(reason="a \n migration") == (200, {**GOOD, "workers": workers})
    assert run.paused() == [True, True]
    status, told = run.ask(action="resume", for_s=None, reason="")
    assert (status, told["action"], told["workers"]) == (200, "resume", workers)
    assert run.paused() == [False, False]
    run.ask(for_s=None, reason="")
    assert [record.getMessage() for record in caplog.records] == [
        "handler bill: an operator paused it for 30m (a migration)",
        "handler bill: an operator resumed it",
        "handler bill: an operator paused it until it is resumed (no reason given)",
    ]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"action": "stop"}, 400),
        ({"action": ["pause"]}, 400),
        ({"for_s": 0}, 400),
        ({"for_s": True}, 400),
        ({"handler": 1}, 400),
        ({"reason": "x" * (LONGEST_REASON + 1)}, 400),
        ({"more": 1}, 400),
        ({"handler": "bil"}, 422),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_can_not_be_done_is_refused(asked: dict[str, object], status: int) -> None:
    """With the reason; no worker is sent anything."""
    run = Run(0)
    found, told = run.ask(**asked)
    assert (found, bool(told["error"])) == (status, True)
    assert run.sent == []
    if status == 422:
        assert "there are bill and pay" in told["error"]


def test_a_worker_that_starts_later_or_again_begins_paused() -> None:
    """Before it has a partition; one that is resumed is none of them, nor one that is over."""
    run = Run(0)
    run.ask(for_s=None)
    run.ask(handler="pay", for_s=0.02)
    for number in (0, 1):
        run.start(number)
    run.step()
    assert run.paused() == [True, True]
    until_s = time.monotonic() + PATIENCE_S
    run.start(2)
    while "pay" in run.sent[-1][1]["paused"]:
        assert time.monotonic() < until_s
        run.start(2)
    assert run.sent[-1] == (2, {"number": 2, "paused": {"bill": [None, "a migration"]}})
    run.ask(action="resume")
    before = len(run.sent)
    run.start(3)
    assert len(run.sent) == before
    assert run.paused() == [False] * 4


def test_a_worker_that_lacks_the_handler_or_is_silent_is_named() -> None:
    """A run with another version of the app, or a worker that is stopped; it pauses later."""
    run = Run(0, 1)
    run.deaf = {1}
    change: Change = run.during(lambda: run.pauses.order(PauseAction.PAUSE, "pay", None, "", 0.2))
    assert (change.applied, change.silent) == ((), (1,))
    assert change.refused == {0: "it has no handler pay"}
    run.during(lambda: run.pauses.order(PauseAction.PAUSE, "bill", None, "", 0.2))
    assert run.paused() == [True, False]
    run.deaf.clear()
    run.step()
    assert run.paused() == [True, True]


def test_a_pause_that_is_over_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The workers have ended it by themselves, by the same clock and without a further frame."""
    run = Run(0)
    run.ask(for_s=0.05)
    caplog.clear()
    before, until_s = len(run.sent), time.monotonic() + PATIENCE_S
    while not caplog.records:
        assert time.monotonic() < until_s
        run.step()
    run.step()
    over = ["handler bill: the operator's pause is over; it goes on"]
    assert [record.getMessage() for record in caplog.records] == over
    world = run.workers[0]
    world.now_s = time.monotonic()
    world.tick()
    assert (world.startable(), len(run.sent)) == (True, before)


def test_a_run_that_is_still_starting_says_so() -> None:
    """Nobody turns its loop."""
    with pytest.raises(TimeoutError, match="takes no requests yet"):
        Run().pauses.order(PauseAction.PAUSE, "bill", None, "", -0.9)


def test_an_unknown_handler_is_an_error_of_the_request() -> None:
    """As for a program that asks."""
    run = Run(0)
    with pytest.raises(ConfigError, match=r"HANDLER='bil': no handler of this run"):
        run.during(lambda: run.pauses.order(PauseAction.PAUSE, "bil", None, "", 5.0))


# In a worker.


def take(world: HeldWorld, number: int, **paused: tuple[float | None, str]) -> Answer:
    """A worker takes one version."""
    body = json.dumps({"number": number, "paused": paused}).encode()
    answer = Answer.from_bytes(WorkerPauses(world.engine).take(body, world.now))
    world.take()
    return answer


def test_a_version_about_other_handlers_leaves_a_pause_alone() -> None:
    """One that has ended here does not begin again, and one that goes on is not ended."""
    world = HeldWorld(HandlerRules("bill"))
    handler = world.engine.state.handlers["bill"]
    until_s = world.now_s + 60
    assert take(world, 1, bill=(until_s, "a migration")) == Answer(1)
    world.engine.hold("bill", 10.0, "away", world.now)
    assert take(world, 2, bill=(until_s, "a migration"), pay=(None, "")).refused
    assert (handler.paused_until_s, handler.asked_until_s) == (until_s, world.now_s + 10)
    world.tick(61)
    assert take(world, 3, bill=(until_s, "a migration")) == Answer(3)
    assert (handler.paused_until_s, handler.held_until_s) == (0.0, 0.0)
    assert take(world, 4, bill=(None, "again")) == Answer(4)
    assert (handler.paused_until_s, handler.paused_reason) == (inf, "again")
    assert take(world, 5) == Answer(5)
    assert (handler.paused_until_s, handler.paused_reason) == (0.0, "")
