"""Quarantine against a naive model: order per key, across failures, writes, reads and restarts.

The machine plays handlers, broker and clock: it produces, reads any topic in any portion, ends
handlers in any order and with any outcome, confirms, refuses and loses writes (also those of a
partition that has left), commits or does not, opens and closes the breaker, kills the worker, and
takes partitions away and gives them back, together or one topic at a time. Retention takes what was
not read of retry topics.

The oracle knows the logs and what was answered: a record may start when all of its key that precede
it are handled, in the dead-letter topic, or were removed; in the end every record is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from tests.framework.core.worlds import DLQ, MemoryRecord

pytestmark = pytest.mark.usefixtures("without_coverage")

PARTITIONS = 2
SLOTS = 3
KEYS = (b"a", b"a", b"b", b"c", None)
OUTCOMES: tuple[Outcome, ...] = (ACKED, ACKED, BOOM, BOOM, HOPELESS, Discarded("told to"))
Place = tuple[int, int]


class ModelWorld(QuarantineWorld):
    """A world whose workers all have the same small bound of keys."""

    def begin(self) -> None:
        """A worker starts."""
        super().begin()
        self.engine._quarantines.most_keys = 3


class QuarantineModel:
    """One handler, two partitions, three keys, small limits.

    Each step takes a number, which says which of several things it does, and to what.
    """

    def __init__(self, after: AfterDeadLetter) -> None:
        self.after = after
        # Where it holds keys, what has none may wait behind what fills its retry partition.
        self.keys = [key for key in KEYS if key is not None or after != "hold"]
        breaker = CircuitBreaker(park_rate="60/m")
        self.world = ModelWorld(
            rules(after_dead_letter=after, breaker=breaker, concurrency=SLOTS),
            count=PARTITIONS,
            limits=FlowLimits(max_open=64, tier_buffer=4),
        )
        self.world.engine.force("bill", Forced.CLOSED, inf, "", self.world.now)
        self.running: list[TrackedDelivery] = []
        #: What was handled or discarded, and the worker knew it.
        self.done: set[Place] = set()
        #: What retention has taken a copy of that nobody had read, or had ended.
        self.removed: set[Place] = set()
        #: Writes of partitions that have left.
        self.strays: list[PendingWrite] = []
        for partition in range(PARTITIONS):
            self.world.gain(partition=partition)

    # What the oracle knows.

    def dead(self) -> set[Place]:
        """What is in the dead-letter topic."""
        logs = self.world.logs.items()
        return places([record for (topic, _), log in logs for record in log if topic == DLQ])

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
        over = self.done | self.removed
        return self.after == "hold" and any(p in dead and p not in over for p in front)

    # Records and handlers.

    def produce(self, number: int) -> None:
        """Records are written to the source; some of it is read."""
        partition, number = number % PARTITIONS, number // PARTITIONS
        for _ in range(1 + number % 3):
            key = self.keys[number % len(self.keys)]
            self.world.append(SOURCE, key, partition=partition)
            number = number * 7 + 3
        self.read_of(SOURCE, partition, 1 + number % 4)

    def read(self, number: int) -> None:
        """Some records of a partition are read."""
        partition, number = number % PARTITIONS, number // PARTITIONS
        topic = (SOURCE, *TIERS)[number % 3]
        self.read_of(topic, partition, 1 + number % 5)

    def read_of(self, topic: str, partition: int, most: int) -> None:
        """So many records of a partition are read, unless it is paused."""
        a = self.world.engine.assignments.get((topic, partition))
        if a is None or a.paused or a.stopping:
            return
        position = a.tracker.position
        if found := self.world.logs[topic, partition][position : position + most]:
            self.world.engine.polled(found, self.world.now)
            self.world.take()

    def start(self, _: int = 0) -> None:
        """A slot takes what is first: its turn has come."""
        if not self.world.startable() or len(self.running) == SLOTS:
            return
        delivery = self.world.start()
        self.running.append(delivery)
        origin = delivery.origin
        place = origin.partition, origin.offset
        dead = self.dead()
        front = self.before(place)
        over = self.done | dead | self.removed
        assert over.issuperset(front), f"{place} overtakes"
        assert not self.is_held(place, dead), f"{place} starts, and is held"
        key = delivery.lane_key(True)
        mates = [d for d in self.running if not d.closed and d.lane_key(True) == key]
        assert mates == [delivery], f"two of {key} at a time"

    def end(self, number: int) -> None:
        """A handler ends."""
        if self.running:
            outcome = OUTCOMES[number // SLOTS % len(OUTCOMES)]
            self.finish(self.running[number % len(self.running)], outcome)

    def finish(self, delivery: TrackedDelivery, outcome: Outcome) -> None:
        """One of those that run ends."""
        self.running.remove(delivery)
        if not delivery.closed and (outcome is ACKED or isinstance(outcome, Discarded)):
            self.done.add((delivery.origin.partition, delivery.origin.offset))
        self.world.finish(delivery, outcome)

    # Writes, commits and time.

    def confirm(self, number: int) -> None:
        """Some writes are there, in order."""
        for _ in range(min(len(self.world.writes), 1 + number % 4)):
            self.world.confirm()

    def refuse(self, number: int) -> None:
        """A write is refused; or it is there, and the worker is told that it is not."""
        if not self.world.writes:
            return
        write = self.world.writes.pop(number // 2 % len(self.world.writes))
        if number % 2:
            self.world.store(write)
        self.world.engine.publish_failed(write, "no", too_large=False, now=self.world.now)
        self.world.take()

    def stray(self, number: int) -> None:
        """A write of a partition that has left arrives after all, or never."""
        if self.strays:
            write = self.strays.pop(number // 3 % len(self.strays))
            if number % 3:
                self.world.store(write)

    def all_goes_well(self, _: int) -> None:
        """All that is written is confirmed, all that is there is read, and a second passes."""
        self.world.confirm_all()
        self.world.poll()
        self.world.tick(1.0)

    def time_passes(self, number: int) -> None:
        """What is due is due; what is committed is taken, or refused."""
        self.world.tick((0.0, 0.3, 1.0, 5.0)[number % 4])
        if number % 5:
            self.world.answer_commits()
        elif self.world.commits:
            self.world.answer_commit("no")

    def force(self, number: int) -> None:
        """An operator forces the breaker."""
        forced = (Forced.CLOSED, Forced.OPEN, Forced.CLOSED, None)[number % 4]
        self.world.engine.force("bill", forced, inf, "a test", self.world.now)
        self.world.take()

    def remove(self, number: int) -> None:
        """Retention takes some of what was written to a retry partition and not read."""
        self.world.confirm_all()
        partition, number = number % PARTITIONS, number // PARTITIONS
        topic, number = TIERS[number % 2], number // 2
        a = self.world.engine.assignments.get((topic, partition))
        if a is None:
            return
        log, position = self.world.logs[topic, partition], a.tracker.position
        if unread := log[position:]:
            count = 1 + number % len(unread)
            self.removed |= places(unread[:count])
            self.world.remove(topic, position + count, partition)

    # Workers.

    def crash(self, number: int) -> None:
        """The worker is killed, and another has its partitions; some writes have arrived."""
        for bit, write in enumerate(self.world.writes):
            if number >> bit & 1:
                self.world.store(write)
        self.running.clear()
        self.world.crash()
        self.world.engine.force("bill", Forced.CLOSED, inf, "", self.world.now)
        self.gain_all()

    def gain_all(self) -> None:
        """All partitions come that are not here."""
        for partition in range(PARTITIONS):
            if (SOURCE, partition) not in self.world.engine.assignments:
                for topic in TIERS:
                    position, _ = self.world.stored.get((topic, partition), (0, ""))
                    first = self.world.firsts.get((topic, partition), 0)
                    self.removed |= places(self.world.logs[topic, partition][position:first])
                self.world.gain(partition=partition)

    def rebalance(self, number: int) -> None:
        """A partition and its retry topics leave, committed or not; or what had left comes."""
        partition, lost = number % PARTITIONS, number // 4 % 2 == 0
        if (SOURCE, partition) not in self.world.engine.assignments or number // 2 % 2:
            self.gain_all()
            return
        self.world.leave_all(partition=partition, lost=lost)
        gone = [w for w in self.world.writes if w.delivery.assignment.closed]
        self.strays += gone
        self.world.writes = [w for w in self.world.writes if w not in gone]

    # What must hold.

    def levels_match_the_open_records(self) -> None:
        """Counts are exact, of what is open and of what is in memory alone."""
        engine = self.world.engine
        assignments = engine.assignments.values()
        assert engine.flow.open_count == sum(len(a.tracker.open) for a in assignments)
        lanes = engine.state.handlers["bill"].lanes
        assert lanes.pending == sum(len(q.pending) for q in lanes.quarantined.values())
        assert all(0 <= a.held <= len(a.tracker.open) for a in assignments)

    def positions_pass_nothing_that_has_not_ended(self) -> None:
        """What is committed of the source is done, dead, or parked where it is not committed."""
        safe = self.done | self.dead() | self.parked() | self.removed
        for partition in range(PARTITIONS):
            position, _ = self.world.stored.get((SOURCE, partition), (0, ""))
            for offset in range(position):
                assert (partition, offset) in safe, f"{partition}/{offset} is lost"

    def parked(self) -> set[Place]:
        """What waits in retry topics beyond what is committed there."""
        found = set[Place]()
        for (topic, partition), log in self.world.logs.items():
            if topic in TIERS:
                position, _ = self.world.stored.get((topic, partition), (0, ""))
                found |= places(log[position:])
        return found

    def come_to_rest(self) -> None:
        """In the end every record was handled or dead-lettered, or is held; nothing is stranded."""
        world = self.world
        self.gain_all()
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
        left = {*produced} - self.done - dead - self.removed
        # One in front of it may have been handled before: by a worker that was killed then.
        held = {place for place in left if self.after == "hold" and dead & {*self.before(place)}}
        assert left == held, f"{left - held} never ended"
        if self.after != "hold":
            assert not world.quarantined
            assert not world.engine.state.handlers["bill"].lanes
            open_ = {place: sorted(a.tracker.open) for place, a in world.engine.assignments.items()}
            assert world.engine.flow.open_count == 0, open_
        assert all(a.held == a.held_bytes == 0 for a in world.engine.assignments.values())
        assert world.engine.state.handlers["bill"].open_retries == 0


def places(records: Sequence[MemoryRecord]) -> set[Place]:
    """Where records of retry and dead-letter topics come from."""
    envelopes = map(envelope_of, records)
    return {(e.origin_partition or 0, e.origin_offset or 0) for e in envelopes}


#: What happens, and how often.
STEPS: dict[str, int] = {
    "produce": 6,
    "read": 3,
    "start": 6,
    "end": 6,
    "confirm": 4,
    "all_goes_well": 4,
    "time_passes": 3,
    "refuse": 1,
    "stray": 1,
    "force": 1,
    "crash": 1,
    "rebalance": 1,
    "remove": 2,
}


@pytest.mark.parametrize("after", ["continue", "dead_letter", "hold"])
@examples(60)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(list(chain.from_iterable(repeat(s, n) for s, n in STEPS.items()))),
            st.integers(0, 255),
        ),
        min_size=30,
        max_size=120,
    )
)
def test_no_course_of_events_breaks_the_order_of_a_key(
    after: AfterDeadLetter, steps: list[tuple[str, int]]
) -> None:
    """Nor loses a record, or leaves one stranded."""
    model = QuarantineModel(after)
    for step, number in steps:
        getattr(model, step)(number)
        model.levels_match_the_open_records()
        model.positions_pass_nothing_that_has_not_ended()
    model.come_to_rest()
