"""Quarantine against a naive model: order per key, across failures, writes, reads and restarts.

The machine plays handlers, broker and clock: it produces, reads any topic in any portion, ends
handlers in any order and with any outcome, confirms, refuses and loses writes (also those of a
partition that has left), commits or does not, opens and closes the breaker, kills the worker, and
takes partitions away and gives them back, together or one topic at a time.

The oracle knows the logs and what was answered: a record may start when all of its key that precede
it are handled or in the dead-letter topic; in the end every record is.
"""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.rule import Forced
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.outcomes import ACKED, Discarded, Outcome
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import AfterDeadLetter
from tests.examples import examples
from tests.framework.core.quarantine_worlds import (
    BOOM,
    HOPELESS,
    SOURCE,
    TIERS,
    QuarantineWorld,
    envelope_of,
    rules,
)
from tests.framework.core.worlds import DLQ

pytestmark = pytest.mark.usefixtures("without_coverage")

PARTITIONS = 2
SLOTS = 3
OUTCOMES: tuple[Outcome, ...] = (ACKED, ACKED, BOOM, BOOM, HOPELESS, Discarded("told to"))
Place = tuple[int, int]


class ModelWorld(QuarantineWorld):
    """A world whose workers all have the same small bound of keys."""

    def begin(self) -> None:
        """A worker starts."""
        super().begin()
        self.engine._quarantines.most_keys = 3


class QuarantineMachine(RuleBasedStateMachine):
    """One handler, two partitions, three keys, small limits."""

    after: AfterDeadLetter = "continue"

    @initialize()
    def begin(self) -> None:
        """A worker has everything."""
        breaker = CircuitBreaker(park_rate="60/m")
        self.world = ModelWorld(
            rules(after_dead_letter=self.after, breaker=breaker, concurrency=SLOTS),
            count=PARTITIONS,
            limits=FlowLimits(max_open=64, tier_buffer=4),
        )
        self.world.engine.force("bill", Forced.CLOSED, inf, "", self.world.now)
        self.running: list[TrackedDelivery] = []
        #: What was handled or discarded, and the worker knew it.
        self.done: set[Place] = set()
        #: Writes of partitions that have left, or of workers that died.
        self.strays: list[PendingWrite] = []
        for partition in range(PARTITIONS):
            self.world.gain(partition=partition)

    # What the oracle knows.

    def dead(self) -> set[Place]:
        """What is in the dead-letter topic."""
        envelopes = [
            envelope_of(record)
            for (topic, _), log in self.world.logs.items()
            for record in log
            if topic == DLQ
        ]
        return {(e.origin_partition or 0, e.origin_offset or 0) for e in envelopes}

    def before(self, place: Place) -> list[Place]:
        """What precedes a record of its key."""
        log = self.world.logs[SOURCE, place[0]]
        key = log[place[1]].key()
        return (
            []
            if key is None
            else [(place[0], r.offset()) for r in log[: place[1]] if r.key() == key]
        )

    def is_held(self, place: Place, dead: set[Place]) -> bool:
        """Whether one in front of a record was dead-lettered, and holds it."""
        front = self.before(place)
        return self.after == "hold" and any(p in dead and p not in self.done for p in front)

    # Records and handlers.

    @rule(partition=st.integers(0, PARTITIONS - 1), keys=st.text("abc-", min_size=1, max_size=5))
    def produce(self, partition: int, keys: str) -> None:
        """Records are written to the source."""
        for key in keys:
            self.world.append(SOURCE, None if key == "-" else key.encode(), partition=partition)

    @rule(
        topic=st.sampled_from((SOURCE, *TIERS)), partition=st.integers(0, 1), most=st.integers(1, 6)
    )
    def read(self, topic: str, partition: int, most: int) -> None:
        """Some records of a partition are read."""
        a = self.world.engine.assignments.get((topic, partition))
        if a is None or a.paused or a.stopping:
            return
        position = a.tracker.position
        if found := self.world.logs[topic, partition][position : position + most]:
            self.world.engine.polled(found, self.world.now)
            self.world.take()

    def may_start(self) -> bool:
        """Whether a slot is free and finds something."""
        return self.world.startable() and len(self.running) < SLOTS

    @precondition(may_start)
    @rule()
    def start(self) -> None:
        """A slot takes what is first: its turn has come."""
        delivery = self.world.start()
        self.running.append(delivery)
        origin = delivery.origin
        place = origin.partition, origin.offset
        dead = self.dead()
        front = self.before(place)
        assert all(p in self.done or p in dead for p in front), f"{place} overtakes"
        assert not self.is_held(place, dead), f"{place} starts, and is held"
        key = delivery.lane_key(True)
        mates = [d for d in self.running if not d.closed and d.lane_key(True) == key]
        assert mates == [delivery], f"two of {key} at a time"

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        """A handler ends."""
        self.finish(data.draw(st.sampled_from(self.running)), outcome)

    def finish(self, delivery: TrackedDelivery, outcome: Outcome) -> None:
        """One of those that run ends."""
        self.running.remove(delivery)
        if not delivery.closed and (outcome is ACKED or isinstance(outcome, Discarded)):
            self.done.add((delivery.origin.partition, delivery.origin.offset))
        self.world.finish(delivery, outcome)

    # Writes, commits and time.

    @precondition(lambda self: self.world.writes)
    @rule(data=st.data(), fate=st.sampled_from(["confirmed", "confirmed", "refused", "in doubt"]))
    def report(self, data: st.DataObject, fate: str) -> None:
        """A write is reported; one in doubt is there, and the worker is told that it is not."""
        write: PendingWrite = data.draw(st.sampled_from(self.world.writes))
        self.world.writes.remove(write)
        if fate != "refused":
            self.world.store(write)
        if fate == "confirmed":
            self.world.engine.published(write, self.world.now)
        else:
            self.world.engine.publish_failed(write, "no", too_large=False, now=self.world.now)
        self.world.take()

    @precondition(lambda self: self.strays)
    @rule(data=st.data(), arrives=st.booleans())
    def stray(self, data: st.DataObject, arrives: bool) -> None:
        """A write of a worker that is gone arrives after all, or never."""
        write = data.draw(st.sampled_from(self.strays))
        self.strays.remove(write)
        if arrives:
            self.world.store(write)

    @precondition(lambda self: self.world.commits)
    @rule(error=st.sampled_from([None, None, "no"]))
    def commit_answered(self, error: str | None) -> None:
        """A commit is taken, or refused."""
        if error is None:
            self.world.answer_commits()
        else:
            self.world.answer_commit(error)

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        """What is due is due."""
        self.world.tick(seconds)

    @rule(forced=st.sampled_from([Forced.OPEN, Forced.CLOSED, None]))
    def force(self, forced: Forced | None) -> None:
        """An operator forces the breaker."""
        self.world.engine.force("bill", forced, inf, "a test", self.world.now)
        self.world.take()

    # Workers.

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """The worker is killed, and another has its partitions; some writes have arrived."""
        for write in self.world.writes:
            if data.draw(st.booleans()):
                self.world.store(write)
        self.running.clear()
        self.world.crash()
        for partition in range(PARTITIONS):
            self.world.gain(partition=partition)

    @rule(
        topics=st.sampled_from([(SOURCE, *TIERS), (SOURCE,), *((tier,) for tier in TIERS)]),
        partition=st.integers(0, PARTITIONS - 1),
        lost=st.booleans(),
    )
    def rebalance(self, topics: tuple[str, ...], partition: int, lost: bool) -> None:
        """Partitions leave, with what is settled committed or not; or those come that had left."""
        owned = [t for t in topics if (t, partition) in self.world.engine.assignments]
        if owned:
            self.world.leave_all(*owned, partition=partition, lost=lost)
            gone = [w for w in self.world.writes if w.delivery.assignment.closed]
            self.strays += gone
            self.world.writes = [w for w in self.world.writes if w not in gone]
        else:
            self.world.gain(*topics, partition=partition)

    # What must hold.

    @invariant()
    def levels_match_the_open_records(self) -> None:
        """Counts are exact, of what is open and of what is in memory alone."""
        engine = self.world.engine
        assignments = engine.assignments.values()
        assert engine.flow.open_count == sum(len(a.tracker.open) for a in assignments)
        lanes = engine.state.handlers["bill"].lanes
        assert lanes.pending == sum(len(q.pending) for q in lanes.quarantined.values())
        assert all(0 <= a.held <= len(a.tracker.open) for a in assignments)

    @invariant()
    def positions_pass_nothing_that_has_not_ended(self) -> None:
        """What is committed of the source is done, dead, or parked where it is not committed."""
        dead = self.dead()
        parked = self.parked()
        for partition in range(PARTITIONS):
            position, _ = self.world.stored.get((SOURCE, partition), (0, ""))
            for offset in range(position):
                place = partition, offset
                assert place in self.done or place in dead or place in parked, f"{place} is lost"

    def parked(self) -> set[Place]:
        """What waits in retry topics beyond what is committed there."""
        found = set[Place]()
        for (topic, partition), log in self.world.logs.items():
            if topic in TIERS:
                position, _ = self.world.stored.get((topic, partition), (0, ""))
                envelopes = [envelope_of(record) for record in log[position:]]
                found |= {(e.origin_partition or 0, e.origin_offset or 0) for e in envelopes}
        return found

    def teardown(self) -> None:
        """In the end every record was handled or dead-lettered, or is held; nothing is stranded."""
        world = self.world
        for partition in range(PARTITIONS):
            here = {topic for topic, number in world.engine.assignments if number == partition}
            for topic in (SOURCE, *TIERS):
                if topic not in here:
                    world.gain(topic, partition=partition)
        world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
        world.take()
        for delivery in list(self.running):
            self.finish(delivery, ACKED)
        for _ in range(80):
            world.confirm_all()
            world.poll()
            while world.startable():
                self.start()
                self.finish(self.running[0], ACKED)
            world.tick(5.0)
            world.answer_commits()
        self.check_end()

    def check_end(self) -> None:
        """Everything has ended that should have."""
        world, dead = self.world, self.dead()
        produced = [(p, r.offset()) for p in range(PARTITIONS) for r in world.logs[SOURCE, p]]
        left = [p for p in produced if p not in self.done and p not in dead]
        assert all(self.is_held(place, dead) for place in left), f"{left} never ended"
        if self.after != "hold":
            assert not world.quarantined
            assert not world.engine.state.handlers["bill"].lanes
            open_ = {place: sorted(a.tracker.open) for place, a in world.engine.assignments.items()}
            assert world.engine.flow.open_count == 0, open_
        assert all(a.held == a.held_bytes == 0 for a in world.engine.assignments.values())
        assert world.engine.state.handlers["bill"].open_retries == 0


class DeadLetteringMachine(QuarantineMachine):
    """What is behind a dead-lettered record goes with it."""

    after = "dead_letter"


class HoldingMachine(QuarantineMachine):
    """What is behind a dead-lettered record stays."""

    after = "hold"


@pytest.mark.parametrize("machine", [QuarantineMachine, DeadLetteringMachine, HoldingMachine])
def test_invariants_hold(machine: type[QuarantineMachine]) -> None:
    """No interleaving breaks the order of a key, or loses a record."""
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(machine, settings=examples(60))
