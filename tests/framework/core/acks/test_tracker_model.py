"""AckTracker against a naive set: invariants I1 to I9 under any order of reads and settles."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ackfloor.core.acks.tracker import AckTracker
from tests.examples import examples

pytestmark = pytest.mark.usefixtures("without_coverage")


class TrackerMachine(RuleBasedStateMachine):
    """Reads, settles, re-reads, rewinds, foreign settles and trailing markers, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker: AckTracker[int] = AckTracker(0)
        self.open: set[int] = set()
        self.settled: set[int] = set()
        self.position = 0
        self.start = 0
        self.last_floor = 0
        self.restored: set[int] = set()
        self.highest = -1
        self.settles = 0

    @initialize(
        position=st.integers(0, 10_000),
        lengths=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 8)), max_size=6),
    )
    def assigned(self, position: int, lengths: list[tuple[int, int]]) -> None:
        """The first offset may be anything, and so may what was settled above it before."""
        runs, end = [], position
        for distance, length in lengths:
            runs.append((end + distance, end + distance + length))
            end += distance + length
        self.tracker = AckTracker(position, runs)
        self.restored = {offset for run in runs for offset in range(*run)}
        self.position = self.start = self.last_floor = position

    @rule(holes=st.lists(st.integers(0, 3), min_size=1, max_size=20))
    def read(self, holes: list[int]) -> None:
        """A batch with any holes in it."""
        offsets = []
        for hole in holes:
            self.position += hole
            offsets.append(self.position)
            self.position += 1
        self.admit(offsets)

    def admit(self, offsets: list[int]) -> None:
        """Open what is new, skip what was settled before."""
        for offset in offsets:
            if self.tracker.was_settled(offset):
                assert offset in self.restored
                assert self.tracker.skip(offset)
                self.note_settled(offset)
            else:
                assert offset not in self.restored
                assert list(self.tracker.register([offset], [offset])) == [offset]
                self.open.add(offset)

    def note_settled(self, offset: int) -> None:
        """It is settled, or was skipped."""
        self.settled.add(offset)
        self.highest = max(self.highest, offset)
        self.settles += 1

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        """From some open offset on everything is to be read again; what was settled stays so."""
        if not self.open:
            return
        position = data.draw(st.sampled_from(sorted(self.open)))
        taken = sorted(offset for offset in self.open if offset >= position)
        assert self.tracker.rewind(position) == taken
        known = range(position, min(self.highest + 1, self.position))
        ahead = {offset for offset in self.restored if offset >= self.position}
        self.restored = ahead | (set(known) - self.open)
        self.settled = {offset for offset in self.settled if offset < position}
        self.open.difference_update(taken)
        self.position = position

    @rule(back=st.integers(1, 10), count=st.integers(1, 15))
    def read_again(self, back: int, count: int) -> None:
        """A fetch that goes back delivers what was seen; only what is new is registered."""
        first = max(self.start, self.position - back)
        offsets = list(range(first, first + count))
        seen = [offset for offset in offsets if offset < self.position]
        assert list(self.tracker.register(seen, seen)) == []
        assert not any(self.tracker.skip(offset) for offset in seen)
        self.admit(offsets[len(seen) :])
        self.position = max(self.position, first + count)

    @rule(holes=st.lists(st.integers(0, 3), min_size=1, max_size=20))
    def read_at_once(self, holes: list[int]) -> None:
        """Once nothing is restored, a whole batch is registered in one call."""
        offsets = [self.position + sum(holes[: n + 1]) + n for n in range(len(holes))]
        if self.restored and max(self.restored) >= self.position:
            return
        assert list(self.tracker.register(offsets, offsets)) == offsets
        self.open.update(offsets)
        self.position = offsets[-1] + 1

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """Any open offset settles, once."""
        if self.open:
            offset = data.draw(st.sampled_from(sorted(self.open)))
            assert self.tracker.settle(offset) == offset
            assert self.tracker.settle(offset) is None
            self.open.remove(offset)
            self.note_settled(offset)

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

    @rule(ahead=st.integers(-3, 8))
    def lose(self, ahead: int) -> None:
        """Retention is faster than the reader: what was settled before is not lost by that."""
        position = max(0, self.position + ahead)
        gone = set(range(self.position, position))
        assert self.tracker.lose(position) == len(gone - self.restored)
        self.position = max(self.position, position)

    @invariant()
    def matches_the_model(self) -> None:
        """Floor, counts and gap set are what the plain sets say."""
        floor = min(self.open, default=self.position)
        assert self.tracker.floor() == floor
        assert floor >= self.last_floor
        self.last_floor = floor
        gaps = sorted(offset for offset in self.settled if offset > floor and self.open)
        assert self.tracker.gap_count() == len(gaps)
        runs = self.tracker.gap_runs()
        assert all(a[1] < b[0] for a, b in pairwise(runs))
        told = {offset for run in runs for offset in range(*run)}
        ahead = {offset for offset in self.restored if offset >= self.position}
        assert told >= set(gaps) | ahead
        assert not told & self.open
        assert not any(offset >= self.position for offset in told - ahead)
        assert not any(offset < floor for offset in told)
        assert self.tracker.settled_count() == self.settles
        assert self.tracker.span() == self.position - floor
        assert set(self.tracker.open) == self.open
        assert self.tracker.position == self.position
        assert self.tracker.highest_settled == self.highest
        assert self.tracker.oldest() == min(self.open, default=None)


TestTracker = TrackerMachine.TestCase
TestTracker.settings = examples(150, 40)
