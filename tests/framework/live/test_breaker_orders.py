"""Circuit breakers and the run's address: who may ask, what workers are told, what is kept."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from ackfloor.control import ControlRequest
from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.rule import Forced
from ackfloor.core.messages.events import BreakerClosed, BreakerOpened
from ackfloor.core.records.outcomes import ACKED, Failed
from ackfloor.core.records.record import Failure
from ackfloor.core.scheduling.breaker_control import LEFT_S
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.errors import ConfigError
from ackfloor.live.breaker_orders import (
    Action,
    ForcedBreaker,
    ForcedBreakers,
    RunBreakers,
    WorkerBreakers,
)
from ackfloor.live.breaker_requests import BreakerControl
from ackfloor.live.frames import Answer
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.requests import Change
from ackfloor.runtime.supervision.channel import Kind
from tests.framework.core.worlds import HeldWorld

TOKEN = "t" * 43
GOOD = {"action": "open", "handler": "bill", "for_s": 1800, "reason": "the bank is away"}
PATIENCE_S = 120.0


class Run:
    """A run that does what it is asked, or raises."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.raises: Exception | None = None
        self.control = BreakerControl(TOKEN, self.take, anywhere=False)

    def take(
        self, action: Action, handler: str, for_s: float | None, reason: str, wait_s: float
    ) -> Change:
        self.asked.append((action, handler, for_s, reason))
        if self.raises:
            raise self.raises
        return Change((), (0,), {2: "it has no handler bill"}, (1,), 0, ())

    def ask(self, body: object, token: str = TOKEN, client: str = "127.0.0.1") -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.control(ControlRequest(client, f"Bearer {token}", raw))


def test_who_has_the_token_may() -> None:
    """From this machine; which workers took it is told as JSON can hold it."""
    run = Run()
    workers = {"applied": [0], "refused": {"2": "it has no handler bill"}, "silent": [1]}
    assert run.ask(GOOD) == (200, {**GOOD, "workers": workers})
    assert run.ask({"action": "auto", "handler": "bill"})[0] == 200
    assert run.asked == [
        (Action.OPEN, "bill", 1800, "the bank is away"),
        (Action.AUTO, "bill", None, ""),
    ]
    assert run.ask(GOOD, token="u" * 43)[0] == 401
    assert run.ask(GOOD, client="10.0.0.9")[0] == 403
    run.raises = ConfigError("HANDLER", "x", "no handler", "write another")
    assert run.ask(GOOD) == (422, {"error": "HANDLER='x': no handler; write another"})
    run.raises = TimeoutError("still starting")
    assert run.ask(GOOD) == (503, {"error": "still starting"})
    assert len(run.asked) == 4


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff", b"[" * 60_000, [], {}, {**GOOD, "more": 1}, {**GOOD, "action": "shut"},
        {**GOOD, "action": ["open"]}, {"action": "open"}, {**GOOD, "handler": 1},
        {**GOOD, "reason": None}, {**GOOD, "reason": "x" * (LONGEST_REASON + 1)},
        {**GOOD, "for_s": 0}, {**GOOD, "for_s": -1}, {**GOOD, "for_s": True},
        {**GOOD, "for_s": "30m"}, {**GOOD, "for_s": 1e9}, {**GOOD, "for_s": inf},
        {**GOOD, "for_s": float("nan")},
    ],
    ids=lambda body: str(body)[:60],
)  # fmt: skip
def test_what_is_no_request_is_refused(body: object) -> None:
    """With what would be one; nobody is asked."""
    run = Run()
    status, told = run.ask(body)
    assert status == 400
    assert told["error"]
    assert run.asked == []


class Supervised:
    """The supervisor's side, with workers that answer when a test says so."""

    def __init__(self, *running: int) -> None:
        self.breakers = RunBreakers(lambda: ["bill", "pay"])
        self.running = set(running)
        self.told: list[tuple[int, Kind, bytes]] = []
        self.deaf: set[int] = set()
        self.newest = 0
        for worker in running:
            self.breakers.started(worker, self.tell)

    def tell(self, worker: int, kind: Kind, body: bytes) -> bool:
        if kind is Kind.BREAKERS:
            self.newest = ForcedBreakers.from_bytes(body).number
        if worker not in self.deaf:
            self.told.append((worker, kind, body))
        return worker not in self.deaf

    def sent_to(self, worker: int) -> list[ForcedBreakers]:
        """The editions that a worker has been told."""
        told = [each for each in self.told if each[:2] == (worker, Kind.BREAKERS)]
        return [ForcedBreakers.from_bytes(body) for _, _, body in told]

    def answer(self, worker: int, number: int, refused: str = "") -> None:
        body = Answer(number, refused).to_bytes()
        self.breakers.received(worker, Kind.BREAKERS_TAKEN, body)

    def force(
        self, action: Action, *, handler: str = "bill", for_s: float | None = None,
        wait_s: float = 30.0, meanwhile: Callable[[], None] = lambda: None,
    ) -> Change:  # fmt: skip
        """Ask, with the supervisor's loop going on meanwhile; all who run take it, unless said."""
        result: list[Change | BaseException] = []

        def ask() -> None:
            try:
                result.append(self.breakers.force(action, handler, for_s, "why", wait_s))
            except BaseException as exc:  # noqa: BLE001 -- raised again below
                result.append(exc)

        asking, before = threading.Thread(target=ask), self.newest
        asking.start()
        until_s = time.monotonic() + PATIENCE_S
        while self.newest == before and not result:
            assert time.monotonic() < until_s
            self.breakers.step(self.running, self.tell)
            time.sleep(0.001)
        meanwhile()
        while not result:
            assert time.monotonic() < until_s
            self.breakers.step(self.running, self.tell)
            time.sleep(0.001)
        asking.join()
        if isinstance(result[0], BaseException):
            raise result[0]
        return result[0]


def test_all_running_workers_are_told_and_counted() -> None:
    """What a worker answers to another edition, or one that was not asked, is no answer."""
    run = Supervised(0, 1)
    assert run.told == [], "nothing is in force"

    def answer() -> None:
        run.answer(7, 1)
        run.answer(0, 0)
        run.answer(0, 1)
        run.answer(1, 1, "it has no handler bill")

    change = run.force(Action.OPEN, meanwhile=answer)
    assert (change.applied, change.refused, change.silent) == (
        (0,),
        {1: "it has no handler bill"},
        (),
    )
    assert (
        run.sent_to(0)
        == run.sent_to(1)
        == [ForcedBreakers(1, {"bill": ForcedBreaker(Forced.OPEN, inf, "why")})]
    )


def test_a_worker_that_does_not_answer_is_named() -> None:
    """After the time that was given; one that has gone meanwhile is not waited for."""
    run = Supervised(0, 1, 2)

    def answer() -> None:
        run.answer(0, 1)
        run.breakers.left(2)

    change = run.force(Action.CLOSE, wait_s=0.5, meanwhile=answer)
    assert (change.applied, change.silent) == ((0,), (1,))


def test_an_unknown_handler_is_refused_with_the_known_ones() -> None:
    """And nobody is told anything."""
    run = Supervised(0)
    with pytest.raises(ConfigError, match=r"HANDLER='bil': no handler .* there are bill and pay;"):
        run.force(Action.OPEN, handler="bil")
    assert run.told == []


def test_a_worker_that_starts_later_is_told_what_is_in_force() -> None:
    """Of each handler the last word; not what was taken back, nor what is over."""
    run = Supervised()
    run.force(Action.OPEN)
    run.force(Action.CLOSE, handler="pay", for_s=0.05)
    run.force(Action.CLOSE, for_s=3600)
    time.sleep(0.06)
    run.breakers.started(0, run.tell)
    run.breakers.step(set(), run.tell)
    [breakers] = run.sent_to(0)
    live = {
        name: forced for name, forced in breakers.of.items() if forced.until_s > time.monotonic()
    }
    assert {name: forced.forced for name, forced in live.items()} == {"bill": Forced.CLOSED}
    assert 3590 < live["bill"].until_s - time.monotonic() < 3600
    run.force(Action.AUTO)
    assert run.sent_to(0)[-1].of == {}
    run.breakers.started(1, run.tell)
    run.breakers.step(set(), run.tell)
    assert run.sent_to(1) == []


def test_a_worker_without_room_is_told_later() -> None:
    """The newest edition, which says it all; it answers earlier requests as well."""
    run = Supervised(0)
    run.deaf = {0}

    def later() -> None:
        run.force(Action.CLOSE, handler="pay", wait_s=0.1)
        assert run.sent_to(0) == []
        run.deaf.clear()
        run.breakers.step(run.running, run.tell)
        run.answer(0, 2)

    assert run.force(Action.OPEN, meanwhile=later).applied == (0,)
    [breakers] = run.sent_to(0)
    assert (breakers.number, breakers.of.keys()) == (2, {"bill", "pay"})


def test_a_run_that_is_still_starting_says_so() -> None:
    """Nobody turns its loop; later it does nothing about what was given up."""
    run = Supervised()
    with pytest.raises(TimeoutError, match="takes no requests yet"):
        run.breakers.force(Action.OPEN, "bill", None, "", -0.9)
    run.breakers.started(0, run.tell)
    run.breakers.step({0}, run.tell)
    assert run.told == []


def test_who_takes_a_workers_place_is_told_what_was_open_there() -> None:
    """First of all, and again if it dies before it has said anything itself; no other worker."""
    run = Supervised(0, 1)
    opened = b'{"bill": [50, "Boom: x"]}'
    run.breakers.received(0, Kind.BREAKERS_OPEN, opened)
    run.force(Action.OPEN, handler="pay", meanwhile=lambda: (run.answer(0, 1), run.answer(1, 1)))
    for _ in range(2):
        run.told.clear()
        for worker in (0, 1):
            run.breakers.gone(worker)
            run.breakers.started(worker, run.tell)
        assert [(worker, kind) for worker, kind, _ in run.told] == [
            (0, Kind.RESUME),
            (0, Kind.BREAKERS),
            (1, Kind.BREAKERS),
        ]
        assert run.told[0][2] == opened
    run.breakers.received(0, Kind.BREAKERS_OPEN, b"{}")
    run.told.clear()
    run.breakers.started(0, run.tell)
    assert json.loads(run.told[0][2]) == {}


# In a worker.

RULES = HandlerRules("bill", concurrency=8, breaker=CircuitBreaker(5))
BOOM = Failed(Failure("Boom", "the bank is away"))


class Station:
    """A worker's side on an engine, and what it has told its supervisor."""

    def __init__(self, rules: HandlerRules = RULES) -> None:
        self.world = HeldWorld(rules)
        self.circuit = self.world.engine.state.handlers["bill"].circuit
        self.told: list[dict[str, Any]] = []
        self.room = True
        self.breakers = WorkerBreakers(self.world.engine, self._send)

    def _send(self, kind: Kind, body: bytes) -> bool:
        assert kind is Kind.BREAKERS_OPEN
        if self.room:
            self.told.append(json.loads(body))
        return self.room

    def take(self, number: int, **breakers: ForcedBreaker) -> Answer:
        answer = self.breakers.take(ForcedBreakers(number, breakers).to_bytes(), self.world.now)
        self.world.take()
        return Answer.from_bytes(answer)

    def work(self, count: int = 30) -> None:
        """Records of one partition come."""
        self.world.assign()
        self.world.read(range(count))

    def fail(self, count: int) -> None:
        """Handlers raise, one after the other."""
        for _ in range(count):
            delivery = self.world.start()
            self.world.now_s += 0.01
            self.world.finish(delivery, BOOM)
            self.world.engine.judge([], self.world.now)
            self.world.tick()


def test_a_worker_does_what_it_is_told_and_answers() -> None:
    """Open, closed, left to itself; a handler that it has not is a refusal, of that one only."""
    station = Station()
    station.work()
    assert station.take(1, bill=ForcedBreaker(Forced.OPEN, inf, "why")) == Answer(1)
    assert (station.world.held, station.circuit.forced) == (True, Forced.OPEN)
    assert station.circuit.forced_reason == "why"
    until_s = station.world.now_s + 60
    assert station.take(2, bill=ForcedBreaker(Forced.CLOSED, until_s)) == Answer(2)
    assert (station.world.held, station.circuit.forced) == (False, Forced.CLOSED)
    assert station.circuit.forced_until_s == until_s
    answer = station.take(3, bill=ForcedBreaker(Forced.CLOSED), pay=ForcedBreaker(Forced.OPEN))
    assert answer == Answer(3, "it has no handler pay")
    assert station.circuit.forced_until_s == inf
    assert station.take(4) == Answer(4)
    assert station.circuit.forced is None


def test_an_edition_about_others_leaves_a_breaker_alone() -> None:
    """Trials that have begun go on."""
    station = Station()
    station.work()
    forced = ForcedBreaker(Forced.OPEN, inf, "why")
    station.take(1, bill=forced)
    station.world.tick()
    delivery = station.world.start()
    station.circuit.breaker.allowed = 4
    station.take(2, bill=forced, pay=ForcedBreaker(Forced.OPEN))
    assert station.circuit.breaker.allowed == 4
    station.world.finish(delivery, ACKED)
    assert len(station.world.told(BreakerOpened)) == 1


def test_a_word_ends_when_its_time_is_over() -> None:
    """The breaker begins with the state it has: it closes by trials that succeed."""
    station = Station()
    station.work()
    station.take(1, bill=ForcedBreaker(Forced.OPEN, station.world.now_s + 60))
    station.world.tick(61)
    assert (station.circuit.forced, station.circuit.breaker.is_open) == (None, True)
    for _ in range(3):
        station.world.finish(station.world.start(), ACKED)
        station.world.tick(0.01)
    assert not station.circuit.breaker.is_open
    assert station.take(2) == Answer(2)


def test_a_worker_tells_what_is_open_by_no_operators_word() -> None:
    """Once for each change, as soon as there is room."""
    station = Station()
    station.work()
    station.breakers.tell()
    station.fail(4)
    station.breakers.tell()
    assert station.told == []
    station.room = False
    station.fail(1)
    station.breakers.tell()
    station.room = True
    station.fail(3)
    station.breakers.tell()
    station.breakers.tell()
    assert station.told == [{"bill": [5, "Boom: the bank is away"]}]
    station.take(1, bill=ForcedBreaker(Forced.OPEN))
    station.breakers.tell()
    station.take(2)
    station.breakers.tell()
    station.take(3, bill=ForcedBreaker(Forced.CLOSED))
    station.breakers.tell()
    assert [each.keys() for each in station.told] == [{"bill"}, set(), {"bill"}, set()]


RESUMED = json.dumps({"bill": [50, "Boom: x"], "pay": [9, "Boom: y"]}).encode()


def test_a_worker_begins_with_what_was_open_before() -> None:
    """Before it has a partition: of the first records it reads, one is tried."""
    station = Station()
    station.breakers.resume(RESUMED, station.world.now)
    station.world.tick(30)
    station.work()
    station.world.tick()
    assert (station.world.held, station.world.queued()) == (True, 1)
    assert station.world.told(BreakerOpened) == [BreakerOpened("bill", 50, "Boom", "x")]
    station.breakers.tell()
    assert station.told == [], "the supervisor knows"
    for _ in range(3):
        station.world.finish(station.world.start(), ACKED)
        station.world.tick(0.01)
    assert [each.why for each in station.world.told(BreakerClosed)] == ["recovered"]
    station.breakers.tell()
    assert station.told == [{}]


def test_what_was_open_before_does_not_stay_so_without_partitions() -> None:
    """Nothing can be tried then; nor does the loop wake up for it all the time."""
    station = Station()
    station.breakers.resume(RESUMED, station.world.now)
    station.world.tick(LEFT_S - 1)
    assert station.circuit.breaker.is_open
    assert station.world.engine.next_due_s(station.world.now) > station.world.now_s + 0.5
    station.world.tick(1)
    assert [each.why for each in station.world.told(BreakerClosed)] == ["left"]


def test_a_breaker_that_is_disabled_since_does_not_begin_open() -> None:
    """The settings may have changed meanwhile; the supervisor is told."""
    station = Station(HandlerRules("bill", breaker=CircuitBreaker(enabled=False)))
    station.breakers.resume(RESUMED, station.world.now)
    assert not station.circuit.breaker.is_open
    station.breakers.tell()
    assert station.told == [{}]


def test_forced_open_without_partitions_the_worker_rests() -> None:
    """It stays open, and is tried when there is something to try."""
    station = Station()
    station.take(1, bill=ForcedBreaker(Forced.OPEN))
    station.world.tick(3600)
    assert station.circuit.breaker.is_open
    assert station.world.engine.next_due_s(station.world.now) > station.world.now_s + 0.5
    station.work()
    station.world.tick()
    assert station.world.queued() == 1
