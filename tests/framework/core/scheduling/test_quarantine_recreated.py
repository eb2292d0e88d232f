"""A source topic that is created anew while keys are quarantined, again and again: nothing is lost.

The records of each topic begin at offset 0, so what is parked of two of them may have the same key
and the same origin offset. A random course of events knows each record by its value.
"""

from __future__ import annotations

from random import Random

import pytest

from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import ACKED, Outcome
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import AfterDeadLetter
from tests.framework.core.quarantine_worlds import (
    BOOM,
    HOPELESS,
    SOURCE,
    TIERS,
    QuarantineWorld,
    parked_headers,
    rules,
)
from tests.framework.core.worlds import DLQ

pytestmark = pytest.mark.usefixtures("without_coverage")

OUTCOMES: tuple[Outcome, ...] = (ACKED, ACKED, ACKED, BOOM, BOOM, BOOM, HOPELESS)


class Course:
    """A random course of events.

    Attributes:
        ended: the values of what was handled.
        gone: those of what was deleted with its topic, and parked nowhere.
        topics: the values that were written to each source topic so far, by key and in order.
    """

    def __init__(self, seed: int, after: AfterDeadLetter) -> None:
        self.random = Random(seed)
        self.world = QuarantineWorld(
            rules(after_dead_letter=after, concurrency=3), limits=FlowLimits(tier_buffer=8)
        )
        self.ended: set[bytes] = set()
        self.gone: set[bytes] = set()
        self.topics: list[dict[bytes, list[bytes]]] = [{}]
        self.running: list[TrackedDelivery] = []
        for _ in range(self.random.randint(1, 3)):
            self.park_topic()
        self.world.tick(1.0)
        self.world.gain()

    def park_topic(self) -> None:
        """A source topic was deleted some of whose records are parked; some of them twice."""
        self.world.tick(1.0)
        for offset in range(self.random.randint(1, 3)):
            written = self.topics[-1].setdefault(b"a", [])
            written.append(b"%d a %d" % (len(self.topics), offset))
            for attempt in range(1, self.random.choice((2, 2, 3))):
                headers = parked_headers(
                    offset,
                    reason=Reason.BEHIND if offset else Reason.ERROR,
                    attempt=0 if offset else attempt,
                    written_ms=self.world.now.wall_ms + offset,
                )
                self.world.append(self.random.choice(TIERS), headers=headers, value=written[-1])
        self.topics.append({})

    # What happens.

    def produce(self) -> None:
        """Some records are written to the source."""
        for _ in range(self.random.randint(1, 2)):
            key = self.random.choice((b"a", b"a", b"a", b"b"))
            written = self.topics[-1].setdefault(key, [])
            value = b"%d %b %d" % (len(self.topics), key, len(written))
            written.append(value)
            self.world.append(SOURCE, key, value=value)
            self.world.tick(0.001)

    def read(self) -> None:
        """Some of the topics are read."""
        self.world.poll(*self.random.sample((SOURCE, *TIERS), self.random.choice((1, 3, 3))))

    def start(self) -> None:
        """A record starts, in the order of its key and its topic."""
        if not self.world.startable() or len(self.running) == 3:
            return
        delivery = self.world.start()
        self.running.append(delivery)
        value, key = bytes(delivery.value or b""), delivery.key or b""
        written = next(t[key] for t in self.topics if value in t.get(key, ()))
        before = {*written[: written.index(value)]}
        assert before <= self.over(), f"{value!r} overtakes {before - self.over()}"

    def end(self) -> None:
        """A handler ends."""
        if self.running:
            self.finish(self.random.choice(OUTCOMES))

    def finish(self, outcome: Outcome) -> None:
        """One of those that run ends."""
        delivery = self.running.pop(self.random.randrange(len(self.running)))
        if outcome is ACKED and not delivery.closed:
            self.ended.add(bytes(delivery.value or b""))
        self.world.finish(delivery, outcome)

    def confirm(self) -> None:
        """Some writes are confirmed."""
        for _ in range(self.random.choice((1, 9, 9))):
            if self.world.writes:
                self.world.confirm()

    def time_passes(self) -> None:
        """What is due is due, and a commit is taken."""
        self.world.tick(self.random.choice((0.3, 1.0, 1.0, 5.0)))
        if self.random.random() < 0.3:
            self.world.answer_commits()

    def crash(self) -> None:
        """The worker is killed; some of its writes have arrived, in order."""
        for write in self.world.writes[: self.random.randint(0, len(self.world.writes))]:
            self.world.store(write)
        self.running.clear()
        self.world.crash()
        self.world.gain()

    def move(self) -> None:
        """The partitions leave, and come back."""
        self.world.leave_all(lost=self.random.random() < 0.5)
        self.world.writes.clear()
        self.world.gain()

    def tier_moves(self) -> None:
        """A retry partition leaves alone, and comes back at once."""
        topic = self.random.choice(TIERS)
        self.world.confirm_all()
        self.world.leave_all(topic, lost=True)
        self.world.gain(topic)

    def recreate(self) -> None:
        """The source is deleted and created anew; or it is truncated."""
        self.world.answer_commits()
        if self.random.random() < 0.5:
            self.world.leave_all(lost=self.random.random() < 0.5)
            self.world.writes.clear()
        else:
            self.running.clear()
            self.world.crash()
        self.world.stored.pop((SOURCE, 0), None)
        log = self.world.logs[SOURCE, 0]
        kept = self.random.choice((0, 0, 0, 1))
        cut = {bytes(record.value() or b"") for record in log[kept:]}
        del log[kept:]
        self.gone |= cut - self.parked() - self.over()
        self.topics.append({})
        self.world.tick(self.random.choice((0.1, 3.0)))
        self.world.gain()

    # What is known.

    def values(self, *topics: str) -> set[bytes]:
        """What some topics have."""
        return {bytes(r.value() or b"") for topic in topics for r in self.world.logs[topic, 0]}

    def parked(self) -> set[bytes]:
        """What is or was in retry topics."""
        return self.values(*TIERS)

    def over(self) -> set[bytes]:
        """What may be followed by others of its key."""
        return self.ended | self.gone | self.values(DLQ)

    def come_to_rest(self) -> None:
        """All that is left is handled."""
        for _ in range(80):
            while self.running:
                self.finish(ACKED)
            self.world.confirm_all()
            self.world.poll()
            while self.world.startable():
                self.start()
                self.finish(ACKED)
            self.world.tick(5.0)
            self.world.answer_commits()


STEPS = (
    *(Course.produce,) * 2,
    *(Course.read,) * 4,
    *(Course.start,) * 5,
    *(Course.end,) * 4,
    *(Course.confirm,) * 4,
    *(Course.time_passes,) * 3,
    *(Course.crash,) * 1,
    Course.move,
    Course.tier_moves,
    *(Course.recreate,) * 2,
)


@pytest.mark.parametrize("after", ["continue", "dead_letter"])
@pytest.mark.parametrize("first", range(0, 120, 40))
def test_no_record_of_any_of_the_topics_is_lost(first: int, after: AfterDeadLetter) -> None:
    """Each is handled or dead-lettered, in the order of its key and topic."""
    for seed in range(first, first + 40):
        course = Course(seed, after)
        for step in course.random.choices(STEPS, k=90):
            step(course)
        course.come_to_rest()
        written = {v for topic in course.topics for values in topic.values() for v in values}
        assert written <= course.over(), f"seed {seed}: {written - course.over()} lost"
        assert not course.world.quarantined, f"seed {seed}"
        assert course.world.engine.flow.open_count == 0, f"seed {seed}"
