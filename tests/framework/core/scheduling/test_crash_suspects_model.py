"""Suspects against a model worker: any mix of records, suspects and handler ends, in any order."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.messages.commands import TakeBack
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.outcomes import ACKED
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import HeldWorld, MemoryRecord

SLOTS = 3
HOW = "ended with code 1"


class ModelWorker:
    """Slots that take what is given as the executors do, one step at a time."""

    def __init__(self, ordering: str, crashes: dict[int, int]) -> None:
        self.world = HeldWorld(HandlerRules("bill", ordering, concurrency=SLOTS))
        self.crashes = crashes
        self.world.engine.suspects.learn(("orders", 0, o, n, HOW) for o, n in crashes.items())
        self.world.assign()
        #: How often everything was asked back.
        self.recalls = 0
        #: What runs, the run it was taken from, and `recalls` when it was.
        self.running: list[tuple[TrackedDelivery, Work | None, int]] = []
        self.started: list[TrackedDelivery] = []
        self.next_offset = 0

    def do_commands(self) -> None:
        self.recalls += self.world.take().count(TakeBack("bill"))

    def read(self, keys: list[int]) -> None:
        records = [
            MemoryRecord("orders", 0, self.next_offset + i, _key=b"%d" % key)
            for i, key in enumerate(keys)
        ]
        self.next_offset += len(keys)
        self.world.engine.polled(records, self.world.now)
        self.do_commands()

    def pause(self) -> None:
        """An operator pauses the handler."""
        self.world.engine.pause("bill", inf, "a test", self.world.now)
        self.do_commands()
        assert not self.world.ready

    def resume(self) -> None:
        """An operator resumes the handler, paused or not."""
        self.world.engine.resume("bill", self.world.now)
        self.do_commands()

    def turn(self) -> None:
        if self.world.engine.suspects.active:
            self.world.engine.suspects.tick(self.world.now, quiet=not self.running)
        self.do_commands()

    def start(self) -> None:
        """A slot takes the next item, if it may."""
        ready = self.world.ready
        if len(self.running) == SLOTS or not ready:
            return
        item = ready.popleft()
        run = item if isinstance(item, Work) else None
        delivery = item.popleft() if isinstance(item, Work) else item
        self.check_start(delivery)
        delivery.started_s = self.world.now_s
        self.running.append((delivery, run, self.recalls))
        self.started.append(delivery)

    def check_start(self, delivery: TrackedDelivery) -> None:
        suspects = [d for d, _, _ in self.running if d.offset in self.crashes]
        if delivery.offset in self.crashes:
            assert suspects == [], "S1: one suspect at a time"
            if self.crashes[delivery.offset] == 2:
                assert self.running == [], "S2: nothing beside it"
        assert all(self.crashes[d.offset] < 2 for d in suspects), "S2: nothing else starts"
        for before in self.started:
            if before.key == delivery.key and self.world.rules.ordering == "key":
                assert before.offset < delivery.offset, "S3: the lane's order"

    def finish(self, which: int) -> None:
        """One of the handlers that run ends, and its slot looks for the lane's next record."""
        if not self.running:
            return
        delivery, run, recalls = self.running.pop(which % len(self.running))
        delivery.outcome, delivery.finished_s = ACKED, self.world.now_s
        self.world.engine.answered([delivery], self.world.now)
        if run and recalls == self.recalls:
            self.world.ready.append(run)
        elif run is not None:
            self.world.engine.unit_ended("bill", run, self.world.now)
        self.do_commands()


@given(
    ordering=st.sampled_from(["unordered", "key"]),
    crashes=st.dictionaries(st.integers(0, 14), st.integers(1, 2), max_size=6),
    steps=st.lists(
        st.one_of(
            st.lists(st.integers(0, 3), min_size=1, max_size=6),
            st.sampled_from(["turn", "start", "pause", "resume"]),
            st.integers(0, SLOTS),
        ),
        max_size=40,
    ),
)
def test_any_course_of_events(
    ordering: str, crashes: dict[int, int], steps: list[list[int] | str | int]
) -> None:
    """The rules hold at each step, and in the end everything was run once and cleared."""
    worker = ModelWorker(ordering, crashes)
    for step in steps:
        if isinstance(step, list):
            worker.read(step)
        elif isinstance(step, str):
            getattr(worker, step)()
        elif isinstance(step, int):
            worker.finish(step)
    worker.resume()
    for _ in range(8 * worker.next_offset + 8):
        worker.turn()
        worker.start()
        worker.finish(0)
    assert sorted(d.offset for d in worker.started) == list(range(worker.next_offset))
    assert not worker.world.engine.state.exclusive
    assert not worker.world.engine.suspects.active
    read = {offset for offset in crashes if offset < worker.next_offset}
    assert {offset for _, _, offset in worker.world.engine.suspects.over} == read
