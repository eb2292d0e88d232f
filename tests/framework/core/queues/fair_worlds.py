"""A world whose handler has slots, a window before them, and noisy or hanging keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.queues.fair_order import LOOK_S, FairOrder, Key
from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.outcomes import ACKED, Outcome
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules, HandlerState
from ackfloor.core.state.rule_changes import Reloaded
from ackfloor.declare.fair_key import kafka_key
from tests.framework.core.worlds import World

SLOTS = 20
RULES = HandlerRules(
    "bill",
    concurrency=SLOTS,
    consume_timeout_s=60.0,
    breaker=CircuitBreaker(enabled=False),
    fair_key=kafka_key,
)
BY_KEY = replace(RULES, ordering="key")


@dataclass
class FairWorld(World):
    """A handler with slots that take what is to go last only when nothing else is there."""

    rules: HandlerRules = field(default_factory=lambda: RULES)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.last: deque[Any] = deque()
        self.running: list[TrackedDelivery] = []
        self.handled: list[int] = []
        self.next_offset = 0
        self.assign()

    @property
    def handler(self) -> HandlerState:
        """The one handler."""
        return self.engine.state.handlers["bill"]

    @property
    def fair(self) -> FairOrder:
        """What waits of its noisy and hanging keys."""
        assert self.handler.queue.fair is not None
        return self.handler.queue.fair

    def running_now(self) -> list[TrackedDelivery]:
        """What has a slot."""
        self.running = [d for d in self.running if d.outcome is None and not d.closed]
        return self.running

    def queued(self) -> int:
        """What no slot has taken."""
        return len(self.ready) + len(self.last)

    def feed(self) -> None:
        """What a turn of the loop gives the executor."""
        if self.engine.look_due("bill", self.now) and self.engine.look(
            "bill", self.running_now(), self.now
        ):
            self.give_back("bill")
        self.ready.extend(self.engine.next_units("bill", self.queued(), self.now))
        self.last.extend(self.give_last())

    def give_last(self) -> Sequence[Unit]:
        """What the executor is given for slots that have nothing else."""
        return self.engine.next_last("bill", self.queued(), self.now)

    def give_back(self, handler: str) -> None:
        """The executor gives back what it has not started."""
        back = [*self.ready, *self.last]
        self.ready.clear()
        self.last.clear()
        self.engine.returned(handler, back)

    def send(self, key: bytes | None, count: int = 1) -> None:
        """So many records of a key are read."""
        first, self.next_offset = self.next_offset, self.next_offset + count
        self.read(range(first, self.next_offset), key=key)

    def fill(self) -> list[TrackedDelivery]:
        """Every free slot takes what it is given; returns what was started."""
        started: list[TrackedDelivery] = []
        while len(self.running_now()) < self.rules.concurrency:
            self.feed()
            if not self.queued():
                break
            if not self.ready:
                # What slots do: the others first.
                self.ready.append(self.last.popleft())
            item = self.ready[0]
            first = item[0] if isinstance(item, Work) else item
            if first.closed or first.assignment.stopping:
                self.ready.popleft()
                continue
            started.append(self.start())
            self.running.append(started[-1])
        return started

    def end(self, delivery: TrackedDelivery, outcome: Outcome = ACKED) -> None:
        """A handler ends, and its slot is free."""
        if outcome is ACKED:
            self.handled.append(delivery.offset)
        self.finish(delivery, outcome)
        self.leave(delivery)

    def end_of(self, key: bytes | None, most: int = SLOTS) -> int:
        """Up to so many handlers of a key end; returns how many did."""
        mine = [d for d in self.running_now() if d.key == key][:most]
        for delivery in mine:
            self.end(delivery)
        return len(mine)

    def runs(self, key: bytes | None) -> int:
        """How many slots a key has."""
        return sum(d.key == key for d in self.running_now())

    def turn(self, seconds: float = LOOK_S) -> None:
        """Time passes; handlers whose deadline passes are ended."""
        self.now_s += seconds
        self.engine.expire(self.running_now(), self.now)
        self.tick()


def reload(world: FairWorld, fair_key: Callable[[TrackedDelivery], Key | None] | None) -> None:
    """Other settings, by which the handler's records are grouped by something else, or nothing."""
    world.rules = replace(world.handler.rules, fair_key=fair_key)
    world.engine.reload(Reloaded((world.rules,), world.limits, 1.0, 10_000), world.now)
    world.take()
