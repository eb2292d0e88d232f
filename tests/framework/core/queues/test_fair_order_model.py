"""FairOrder against a model: whatever happens, each record is given once (F1), quiet ones first
(F2), hanging keys have a quarter of the slots at most (F3), and kept slots are left free (F5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ackfloor.core.queues.fair_order import LOOK_S
from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.queues.lanes import Lane, Work
from ackfloor.core.records.record import TopicPartition
from tests.examples import examples
from tests.framework.core.queues.fair_worlds import BY_KEY, RULES, SLOTS, FairWorld, reload

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", None])


class CheckedWorld(FairWorld):
    """What executors are given is looked at."""

    def give_last(self) -> Sequence[Unit]:
        units = super().give_last()
        if units:
            # F2: of quiet keys nothing waits.
            assert not self.handler.queue.items
            firsts = [unit[0] if isinstance(unit, Work) else unit for unit in units]
            found = [self.fair.waiting[cast("bytes", first.key)] for first in firsts]
            if any(each.hanging for each in found):
                # F3
                assert self.fair.hanging_in_flight() <= SLOTS // 4
            if kept := self.fair.kept(SLOTS):
                # F5
                assert sum(each.in_flight for each in self.fair.waiting.values()) <= SLOTS - kept
        return units


class FairMachine(RuleBasedStateMachine):
    """Records of few keys, handlers that end or hang, executors that give back."""

    @initialize(by_key=st.booleans())
    def begin(self, by_key: bool) -> None:
        """An unordered handler, or one in key order."""
        self.world = CheckedWorld(BY_KEY if by_key else RULES)
        self.gone: set[int] = set()

    @rule(key=KEYS, count=st.integers(1, 3 * SLOTS))
    def read(self, key: bytes | None, count: int) -> None:
        """Records are read."""
        self.world.send(key, count)

    @rule()
    def fill(self) -> None:
        """Slots take what they are given."""
        self.world.fill()

    @rule(n=st.integers(0, SLOTS - 1), most=st.integers(1, SLOTS))
    def end(self, n: int, most: int) -> None:
        """Handlers end."""
        for delivery in list(self.world.running_now())[n : n + most]:
            self.world.end(delivery)

    @rule(seconds=st.sampled_from([0.0, LOOK_S, 0.5, 2.0, 61.0]))
    def turn(self, seconds: float) -> None:
        """Time passes; what hangs times out and is parked."""
        self.world.turn(seconds)

    @rule()
    def give_back(self) -> None:
        """The executor gives back what has not started."""
        self.world.give_back("bill")

    @rule()
    def gather(self) -> None:
        """A breaker opens."""
        self.world.handler.queue.gather()

    @rule(off=st.booleans())
    def set_otherwise(self, off: bool) -> None:
        """An operator switches fairness off and on, or has records grouped otherwise."""
        world = self.world
        if off:
            reload(world, None)
            world.fill()
        reload(world, lambda delivery: delivery.key)

    @rule()
    def leave(self) -> None:
        """The partition leaves and comes back behind what was read."""
        world = self.world
        world.engine.drop([TopicPartition("orders", 0)], lost=True)
        world.ready.clear()
        world.last.clear()
        self.gone.update(range(world.next_offset))
        world.assign(position=world.next_offset)

    @invariant()
    def what_waits_is_of_noisy_and_hanging_keys(self) -> None:
        """F4: and is in the order in which it was read."""
        for key, each in self.world.fair.waiting.items():
            firsts = [item[0] if isinstance(item, Lane) else item for item in each.items]
            assert {d.key for d in firsts} <= {key}

    def teardown(self) -> None:
        """F1: all that was not lost with its partition is handled, or parked, in the end."""
        world = self.world
        for _ in range(10_000):
            world.fill()
            running = list(world.running_now())
            if not running and not world.queued() and not len(world.handler.queue):
                break
            for delivery in running:
                world.end(delivery)
            world.turn()
        parked = {write.delivery.record_offset for write in world.writes}
        assert len(world.handled) == len(set(world.handled))
        assert set(world.handled) | parked | self.gone == set(range(world.next_offset))
        world.turn(1.0)
        world.turn(1.0)
        assert not any(each.items for each in world.fair.waiting.values())


TestFairOrder = FairMachine.TestCase
TestFairOrder.settings = examples(60, steps=40)
