"""Batches against the naive model of the engine: every item of a batch ends once, by itself.

The machine is the engine's own (test_engine_model); its workers take batches, answer some of the
items by hand, in any order and with the answers on their way for as long as it likes, and end the
call with any outcome, also long after its deadline.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import ACKED, APART, Discarded, Outcome, Paused
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.runtime.executors.batch_calls import begin, startable
from tests.examples import examples
from tests.framework.core.engine.test_engine_model import OUTCOMES, EngineMachine

pytestmark = pytest.mark.usefixtures("without_coverage")

SIZE = 3
WORKERS = 4


class BatchMachine(EngineMachine):
    """Workers take up to three records at once."""

    batch = SIZE

    @initialize()
    def begin(self) -> None:
        """As the engine's machine."""
        self.calls: list[Batch] = []
        self.zombies: list[Batch] = []
        #: What was in a call whose process died: (epoch, partition, offset).
        self.apart: set[tuple[int, int, int]] = set()
        super().begin()

    def in_flight(self) -> list[TrackedDelivery]:
        return [delivery for batch in self.calls for delivery in batch.items]

    def lanes(self) -> list[tuple[str, int, bytes | int | None]]:
        """Of each call its lanes, each once."""
        by_key = self.ordering == "key"
        return [
            lane
            for batch in self.calls
            if not batch.over
            for lane in {d.lane_key(by_key) for d in batch.items if not d.assignment.closed}
        ]

    def give_up(self, delivery: TrackedDelivery) -> None:
        batch = delivery.batch
        self.calls.remove(batch)
        self.zombies.append(batch)
        self.world.engine.unit_ended("bill", batch, self.world.now)
        self.world.take()

    def may_start(self) -> bool:
        return len(self.calls) < WORKERS and bool(self.world.ready)

    @precondition(lambda self: self.may_start())
    @rule()
    def start(self) -> None:
        """A worker takes a batch and starts its handler."""
        world = self.world
        batch = world.ready.popleft()
        if not startable(batch, stopping=False):
            world.engine.unit_ended("bill", batch, world.now)
            world.take()
            self.follow()
            return
        begin(batch, world.now_s)
        self.check_batch(batch)
        self.calls.append(batch)

    def check_batch(self, batch: Batch) -> None:
        """C2, C3, and what an ordering promises."""
        items = batch.items
        assert 1 <= len(items) <= SIZE
        if any(d.unbatched or _place(d) in self.apart for d in items):
            assert len(items) == 1
        lanes = [d.lane_key(self.ordering == "key") for d in items]
        if self.ordering == "partition":
            assert len(set(lanes)) == 1
        if self.ordering != "unordered":
            for lane in set(lanes):
                offsets = [d.offset for d in items if d.lane_key(self.ordering == "key") == lane]
                assert offsets == sorted(set(offsets))
        beside = frozenset((d.partition, d.offset) for d in items)
        if self.in_place:
            for delivery in items:
                self.check_turn(delivery, beside)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def answer_one(self, data: st.DataObject, outcome: Outcome) -> None:
        """An item is answered by hand; the answer is on its way until it is collected."""
        delivery = data.draw(st.sampled_from(self.in_flight()))
        open_ = not delivery.closed and delivery.outcome is None
        assert self.answer(delivery, outcome) is open_
        assert delivery.ack() is False

    @precondition(lambda self: self.world.inbox)
    @rule()
    def collect(self) -> None:
        """The answers by hand arrive."""
        answered = list(self.world.inbox)
        self.world.inbox.clear()
        for delivery in answered:
            if not delivery.closed and delivery.outcome in (ACKED, Discarded("x")):
                self.note_settled(delivery)
        self.world.engine.answered(answered, self.world.now)
        self.world.take()
        self.follow()

    @precondition(lambda self: self.calls or self.zombies)
    @rule(data=st.data(), outcome=st.sampled_from((*OUTCOMES, Paused(0.0), APART)))
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        """A call ends, in any order, perhaps after it was given up."""
        self.finish_batch(data.draw(st.sampled_from([*self.calls, *self.zombies])), outcome)

    def finish_batch(self, batch: Batch, outcome: Outcome) -> None:
        """One of the calls ends."""
        (self.calls if batch in self.calls else self.zombies).remove(batch)
        if outcome is ACKED or isinstance(outcome, Discarded):
            for delivery in batch.items:
                if not delivery.closed and delivery.outcome is None:
                    self.note_settled(delivery)
        if outcome is APART:
            self.apart |= {_place(d) for d in batch.items if not d.closed and d.outcome is None}
        batch.outcome, batch.finished_s = outcome, self.world.now_s
        self.ended.extend(batch.items)
        self.world.engine.unit_ended("bill", batch, self.world.now)
        self.world.take()
        self.follow()

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def answer_again(self, data: st.DataObject) -> None:
        """An answer after the end changes nothing."""
        delivery = data.draw(st.sampled_from(self.ended))
        if delivery.closed or delivery.outcome is not None:
            assert delivery.ack() is False

    @invariant()
    def calls_are_counted(self) -> None:
        """Q3 needs it: what was given and has not ended, whoever has it."""
        queue = self.world.engine.state.handlers["bill"].queue
        assert queue.calls == len(self.calls) + len(self.world.ready)

    def teardown(self) -> None:
        """In the end everything can be handled, and nothing is left behind in any corner."""
        engine = self.world.engine
        handler = engine.state.handlers["bill"]
        self.resume()
        for _ in range(300):
            self.collect()
            while self.may_start():
                self.start()
            for batch in [*self.calls, *self.zombies]:
                self.finish_batch(batch, ACKED)
            for write in list(self.world.writes):
                self.world.writes.remove(write)
                self.note_settled(write.delivery)
                engine.published((write,), self.world.now)
            self.world.take()
            self.time_passes(20.0)
            if not engine.flow.open_count:
                assert all(a.held == a.held_bytes == 0 for a in engine.assignments.values())
                assert (len(handler.batch_buffer or ()), handler.behind) == (0, {})
                assert handler.open_retries == 0
                return
        raise AssertionError(f"{engine.flow.open_count} records are stranded")


def _place(delivery: TrackedDelivery) -> tuple[int, int, int]:
    return (delivery.assignment.epoch, delivery.partition, delivery.offset)


class KeyedBatchMachine(BatchMachine):
    """Batches of several keys, each in order."""

    ordering = "key"


class PartitionedBatchMachine(BatchMachine):
    """Batches of one partition, in order."""

    ordering = "partition"


class BlockedBatchMachine(BatchMachine):
    """Retry in place without order."""

    in_place = True


class BlockedKeyedBatchMachine(KeyedBatchMachine):
    """What failed of a batch holds its keys."""

    in_place = True


class BlockedPartitionedBatchMachine(PartitionedBatchMachine):
    """What failed of a batch holds its partition."""

    in_place = True


class BreakingBatchMachine(KeyedBatchMachine):
    """A circuit breaker that opens soon."""

    breaker = CircuitBreaker(2, park_rate="30/m")


class BreakingBlockedBatchMachine(BlockedPartitionedBatchMachine):
    """The same where failures hold the partition."""

    breaker = CircuitBreaker(2, park_rate="30/m")


LIMITS = examples(50)


@pytest.mark.parametrize(
    "machine",
    [
        BatchMachine,
        KeyedBatchMachine,
        PartitionedBatchMachine,
        BlockedBatchMachine,
        BlockedKeyedBatchMachine,
        BlockedPartitionedBatchMachine,
        BreakingBatchMachine,
        BreakingBlockedBatchMachine,
    ],
    ids=lambda machine: machine.__name__.removesuffix("Machine"),
)
def test_invariants_hold(machine: type[BatchMachine]) -> None:
    """No interleaving of calls, answers by hand, deadlines, reports and rebalances breaks one."""
    run_state_machine_as_test(machine, settings=LIMITS)
