"""Blocked lanes under real executors: an operator moves heads at any moment, and none is lost."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import inf

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.rule import Forced
from ackfloor.core.messages.events import RecordDiscarded
from ackfloor.core.messages.lane_order import Action, LaneOrder
from tests.framework.runtime.live import EVERY_KIND, KINDS, Gate, Live, live, register
from tests.framework.runtime.test_batches import batch_app

#: So short at first that a head becomes due in the turn in which it is moved; in the end longer
#: than a turn on a busy machine, where a head would be due, or run, whenever an operator looks.
SOON = RetryPolicy("3ms", 1.2, "100ms", None)
KEYS = [b"k%d" % n for n in range(8)]
RECORDS = 400
EVERY = pytest.mark.parametrize("kind", EVERY_KIND)
ACTIONS = [Action.RETRY] * 4 + [Action.DELAY] * 2 + [Action.DEAD_LETTER, Action.DISCARD]


class Work:
    """What a handler has done: a third of the records fails until they are mended."""

    def __init__(self) -> None:
        self.mended = False
        self.handled: dict[bytes | None, list[int]] = defaultdict(list)

    def script(self, delivery: Delivery) -> Iterator[Gate]:
        if delivery.value == b"bad" and not self.mended:
            raise RuntimeError("no price")
        self.handled[delivery.key].append(delivery.offset)
        return
        yield


class Operator:
    """Says at random what is to be done to which lanes."""

    def __init__(self, worker: Live, seed: int) -> None:
        self.worker = worker
        self.noise = random.Random(seed)
        self.done = Counter[Action]()

    def acts(self, action: Action | None = None) -> None:
        """One word, between two turns of the loop, as all that workers are told."""
        noise = self.noise
        action = action or noise.choice(ACTIONS)
        wanted = () if noise.random() < 0.2 else tuple(noise.sample(KEYS, 3))
        if action in {Action.DEAD_LETTER, Action.DISCARD} and not wanted:
            wanted = (KEYS[0],)
        delay_s = noise.choice([0.0, 0.002, 0.02])
        order = LaneOrder(action, "handle", wanted, delay_s=delay_s, reason="old")
        answer = self.worker.loop.engine.lane_orders.carry_out(order, self.worker.clock.now())
        self.done[action] += answer.done


def write(worker: Live, seed: int) -> dict[bytes, list[int]]:
    """Records of all keys; returns the offsets of each key."""
    noise, offsets = random.Random(seed), defaultdict(list)
    for offset in range(RECORDS):
        key = noise.choice(KEYS)
        offsets[key].append(offset)
        worker.send("orders", b"bad" if noise.random() < 0.3 else b"good", key=key)
    return offsets


def check(worker: Live, work: Work, operator: Operator, offsets: dict[bytes, list[int]]) -> None:
    """Each record has ended once and one way, in order, and as many left as were told to."""
    dead = [each.origin.offset for each in worker.dlq("orders")]
    discarded = [event.offset for event in worker.watcher.told(RecordDiscarded)]
    assert len(set(dead)) == len(dead) == operator.done[Action.DEAD_LETTER]
    assert len(set(discarded)) == len(discarded) == operator.done[Action.DISCARD]
    gone = {*dead, *discarded}
    for key, all_ in offsets.items():
        assert work.handled[key] == [offset for offset in all_ if offset not in gone]


def runs_on(worker: Live, work: Work, operator: Operator) -> None:
    """The operator goes on until much was moved; then all is mended, and tried until it is done."""
    enough = {Action.RETRY: 40, Action.DELAY: 10, Action.DEAD_LETTER: 8, Action.DISCARD: 8}

    def much_moved() -> bool:
        operator.acts()
        return all(operator.done[action] >= count for action, count in enough.items())

    worker.until(much_moved, "much is moved")
    work.mended = True
    worker.until(lambda: operator.acts(Action.RETRY) or worker.settled(), "all is settled")


@EVERY
@pytest.mark.parametrize("seed", [1, 2])
def test_heads_are_moved_at_any_moment(kind: str, seed: int) -> None:
    """While they run, are due, are being written, or wait."""
    app, work = App("g"), Work()
    register(app, kind, "orders", work.script, ordering="key", retry=SOON, concurrency=4)
    with live(app) as worker:
        offsets, operator = write(worker, seed), Operator(worker, seed)
        # The dead-letter topic refuses the first writes: their lanes wait, whatever is said.
        worker.broker.fail_publish("orders--g--dlq", times=6)
        runs_on(worker, work, operator)
        check(worker, work, operator, offsets)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_several_heads_of_a_batch_are_moved(kind: str, seed: int) -> None:
    """Records of one lane that failed in one call wait one behind the other."""
    work = Work()

    def script(_: list[str], deliveries: list[Delivery]) -> Iterator[Gate]:
        for delivery in deliveries:
            if delivery.value == b"bad" and not work.mended:
                delivery.retry()
            else:
                work.handled[delivery.key].append(delivery.offset)
                delivery.ack()
        return
        yield

    app = batch_app(kind, script, ordering="key", retry=SOON, batch=5)
    with live(app) as worker:
        offsets, operator = write(worker, seed), Operator(worker, seed)
        runs_on(worker, work, operator)
        dead = {each.origin.offset for each in worker.dlq("orders")}
        gone = dead | {event.offset for event in worker.watcher.told(RecordDiscarded)}
        assert len(gone) == operator.done[Action.DEAD_LETTER] + operator.done[Action.DISCARD]
        for key, all_ in offsets.items():
            assert sorted(work.handled[key]) == [offset for offset in all_ if offset not in gone]


@EVERY
def test_heads_are_moved_while_partitions_leave_and_come(kind: str) -> None:
    """What is on its way when they leave is delivered again there, or was written."""
    app, work = App("g"), Work()
    register(app, kind, "orders", work.script, ordering="key", retry=SOON, concurrency=4)
    with live(app) as worker:
        offsets, operator = write(worker, 3), Operator(worker, 3)
        for _ in range(10):
            for _ in range(5):
                operator.acts()
                worker.loop.turn(0.005)
            worker.broker.rebalance("g")
            operator.acts()
        work.mended = True
        worker.until(lambda: operator.acts(Action.RETRY) or worker.settled(), "all is settled")
        gone = {each.origin.offset for each in worker.dlq("orders")}
        gone |= {event.offset for event in worker.watcher.told(RecordDiscarded)}
        for key, all_ in offsets.items():
            handled = list(dict.fromkeys(work.handled[key]))
            assert handled == [offset for offset in all_ if offset in set(handled)]
            assert set(all_) - set(handled) <= gone


@pytest.mark.parametrize("kind", KINDS)
def test_withheld_heads_are_moved_while_trials_of_them_start(kind: str) -> None:
    """Lanes of the source topic and of its retry topic, behind an open breaker."""
    app, work = App("g"), Work()
    register(
        app, kind, "orders", work.script, ordering="key", on_failure="park", concurrency=4,
        retry=RetryPolicy.fixed("20ms", 50), breaker=CircuitBreaker(park_rate="600/h"),
    )  # fmt: skip
    moves = [Action.PARK, Action.PARK, Action.DEAD_LETTER, Action.DISCARD]
    with live(app, breakers=True) as worker:
        write(worker, 5)
        operator = Operator(worker, 5)
        engine = worker.loop.engine
        engine.force("handle", Forced.OPEN, inf, "", worker.clock.now())

        def each_moved() -> bool:
            # Trials of what is withheld are a second and more apart.
            worker.skip(0.5)
            operator.acts(operator.noise.choice(moves))
            return all(operator.done[action] >= 8 for action in set(moves))

        worker.until(each_moved, "heads are moved")
        work.mended = True
        engine.force("handle", None, inf, "", worker.clock.now())
        engine.force("handle", Forced.CLOSED, inf, "", worker.clock.now())

        def all_ended() -> bool:
            worker.skip(0.5)
            return worker.settled() and all(
                not assignment.tracker.open for assignment in engine.assignments.values()
            )

        worker.until(all_ended, "all has ended")
        assert operator.done[Action.PARK] <= len(worker.parked("orders"))
        dead = [each.origin.offset for each in worker.dlq("orders")]
        assert len(dead) == len(set(dead)) == operator.done[Action.DEAD_LETTER]
        discarded = len(worker.watcher.told(RecordDiscarded))
        assert discarded == operator.done[Action.DISCARD]
        handled = [offset for offsets in work.handled.values() for offset in offsets]
        assert len(handled) == RECORDS - len(dead) - discarded
        assert all(each.held == each.held_bytes == 0 for each in engine.assignments.values())
