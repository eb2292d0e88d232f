"""The guard in the engine's model: every invariant of the engine, with handlers that are stopped.

The same machine with a guard so small that it trips all the time. Its workers start nothing while
they are held, but for the probes that are let through; some of these are lost with their partition.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from ackfloor.core.delivery import Delivery
from ackfloor.core.guard import FloodGuard
from ackfloor.core.lanes import Run
from ackfloor.core.outcomes import Outcome
from tests.examples import examples
from tests.framework.core.test_engine_model import OUTCOMES, PARTITIONS, EngineMachine


class GuardedEngineMachine(EngineMachine):
    """A guard that trips at the first failure, unless the last record was handled."""

    guard = FloodGuard(limit=0.6, window=2, min_sample=1)

    def may_start(self) -> bool:
        """Whether a worker is free and finds something that it may start."""
        return super().may_start() and (not self.world.held or self.world.permits > 0)

    @precondition(lambda self: self.may_start())
    @rule()
    def start(self) -> None:
        """A worker takes the next item; while it is held, a probe."""
        if self.world.held:
            self.world.permits -= 1
        super().start()

    def finish(self, pair: tuple[Delivery, Run | None], outcome: Outcome) -> None:
        """A handler ends; nothing is written while the guard is tripped."""
        tripped, written = self.tripped(), len(self.world.parcels)
        super().finish(pair, outcome)
        assert not tripped or len(self.world.parcels) == written

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        keys=st.lists(st.sampled_from([b"a", b"b", None]), max_size=3),
        outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=8),
    )
    def work(self, partition: int, keys: list[bytes | None], outcomes: list[Outcome]) -> None:
        """A busy moment: records come, and handlers start and end one after the other."""
        for key in keys:
            self.read(partition, [0], key)
        for outcome in outcomes:
            if self.may_start():
                self.start()
            elif self.world.held:
                self.time_passes(5.0)
            if self.running:
                self.finish(self.running[0], outcome)

    def tripped(self) -> bool:
        """Whether the guard is tripped."""
        return self.world.engine.state.handlers["bill"].guard.tripped

    @invariant()
    def a_next_probe_is_planned(self) -> None:
        """H3, and the executor is told to hold exactly as long as something holds it."""
        handler = self.world.engine.state.handlers["bill"]
        assert self.world.held == (handler.held_until_s > 0)
        assert not handler.guard.tripped or self.world.held
        assert handler.held_until_s <= self.world.now_s + 5.0

    @invariant()
    def the_newest_delivery_of_each_record_is_alive(self) -> None:
        """H1, H2: the tracker knows the delivery that is going to be started."""
        waiting = [item for item in self.world.ready if isinstance(item, Delivery)]
        for delivery in waiting:
            assignment = delivery.assignment
            if not delivery.closed and not assignment.closed:
                assert assignment.tracker.open[delivery.offset] is delivery


class GuardedKeyedEngineMachine(GuardedEngineMachine):
    """In key order, parking."""

    ordering = "key"


class GuardedBlockedEngineMachine(GuardedEngineMachine):
    """In key order, retrying in place."""

    ordering = "key"
    in_place = True


class GuardedManualEngineMachine(GuardedEngineMachine):
    """In partition order, with answers by hand."""

    ordering = "partition"
    manual = True


@pytest.mark.parametrize(
    "machine",
    [
        GuardedEngineMachine,
        GuardedKeyedEngineMachine,
        GuardedBlockedEngineMachine,
        GuardedManualEngineMachine,
    ],
    ids=["unordered", "key", "key, in place", "partition, manual"],
)
def test_invariants_hold_while_a_handler_is_stopped(machine: type[GuardedEngineMachine]) -> None:
    """No interleaving of trips, probes, deadlines and rebalances breaks one."""
    limits = examples(60)
    run_state_machine_as_test(machine, settings=limits)
