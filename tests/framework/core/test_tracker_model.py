"""AckTracker against a naive set: invariants I1 to I6 under any order of reads and settles."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ackfloor.core.tracker import AckTracker


class TrackerMachine(RuleBasedStateMachine):
    """Reads, settles, re-reads, foreign settles and trailing markers, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker: AckTracker[int] = AckTracker(0)
        self.open: set[int] = set()
        self.settled: set[int] = set()
        self.position = 0
        self.start = 0
        self.last_floor = 0

    @initialize(position=st.integers(0, 10_000))
    def assigned(self, position: int) -> None:
        """The first offset may be anything."""
        self.tracker = AckTracker(position)
        self.position = self.start = self.last_floor = position

    @rule(holes=st.lists(st.integers(0, 3), min_size=1, max_size=20))
    def read(self, holes: list[int]) -> None:
        """A batch with any holes in it."""
        offsets = []
        for hole in holes:
            self.position += hole
            offsets.append(self.position)
            self.position += 1
        assert list(self.tracker.register(offsets, offsets)) == offsets
        self.open.update(offsets)

    @rule(back=st.integers(1, 10), count=st.integers(1, 15))
    def read_again(self, back: int, count: int) -> None:
        """A fetch that goes back delivers what was seen; only what is new is registered."""
        first = max(self.start, self.position - back)
        offsets = list(range(first, first + count))
        fresh = [offset for offset in offsets if offset >= self.position]
        assert list(self.tracker.register(offsets, offsets)) == fresh
        self.open.update(fresh)
        self.position = max(self.position, first + count)

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """Any open offset settles, once."""
        if self.open:
            offset = data.draw(st.sampled_from(sorted(self.open)))
            assert self.tracker.settle(offset) == offset
            assert self.tracker.settle(offset) is None
            self.open.remove(offset)
            self.settled.add(offset)

    @rule(offset=st.integers(-5, 20_000))
    def settle_foreign(self, offset: int) -> None:
        """An offset that is not open changes nothing."""
        if offset not in self.open:
            assert self.tracker.settle(offset) is None

    @rule(ahead=st.integers(-3, 5))
    def passed(self, ahead: int) -> None:
        """The log has nothing more below some position."""
        position = max(0, self.position + ahead)
        self.tracker.passed(position)
        self.position = max(self.position, position)

    @invariant()
    def matches_the_model(self) -> None:
        """Floor, counts and gap set are what the plain sets say."""
        floor = min(self.open, default=self.position)
        assert self.tracker.floor() == floor
        assert floor >= self.last_floor
        self.last_floor = floor
        gaps = sorted(offset for offset in self.settled if offset > floor and self.open)
        assert list(self.tracker.gap_set()) == gaps
        assert self.tracker.gap_count() == len(gaps)
        assert self.tracker.span() == self.position - floor
        assert set(self.tracker.open) == self.open
        assert self.tracker.position == self.position
        assert self.tracker.highest_settled == max(self.settled, default=-1)
        assert self.tracker.oldest() == min(self.open, default=None)


TestTracker = TrackerMachine.TestCase
TestTracker.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
