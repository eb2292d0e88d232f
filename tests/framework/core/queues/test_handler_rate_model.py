"""HandlerRate, a whole group: workers that come, go and are killed never start more than they may.

The bound is H1's: over any stretch of time the rate, a burst of it, and one call for each worker.
"""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ackfloor.core.queues.handler_rate import BURST_S, HandlerRate
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import Assignment
from tests.examples import examples
from tests.framework.core.worlds import MemoryRecord

PARTITIONS = 6
BATCH = 3
#: What sums of floats may be off by.
HAIR = 1e-6


class Member:
    """One worker, its partitions, and what its executor has."""

    def __init__(self) -> None:
        self.rate = HandlerRate()
        self.owned: dict[int, Assignment] = {}
        self.given: list[Batch | TrackedDelivery] = []


class Group(RuleBasedStateMachine):
    """Workers, the partitions that each has, and a clock that goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.per_s = 10.0
        self.members = [Member()]
        self.free = set(range(PARTITIONS))
        for partition in range(PARTITIONS // 2):
            self.take(0, partition)
        #: Records started, and what the rate has allowed, until now.
        self.started = 0
        self.allowed = 0.0
        #: The least that was allowed of `started - allowed` by any moment so far.
        self.most = inf
        self.note()

    def note(self) -> None:
        """From this moment on, no more is started than the rate, a burst and a call each."""
        # Who has no partition has no bucket.
        owners = [member for member in self.members if member.owned]
        slack = BURST_S * self.per_s * self.owned() + BATCH * len(owners)
        self.most = min(self.most, self.started - self.allowed + slack)

    def owned(self) -> float:
        """The part of the partitions that somebody has."""
        return sum(len(member.owned) for member in self.members) / PARTITIONS

    def member(self, number: int) -> Member:
        """One of the workers."""
        return self.members[number % len(self.members)]

    def look(self, member: Member) -> int:
        """It looks at its tokens."""
        share = len(member.owned) / PARTITIONS
        return member.rate.look(self.per_s * share, BATCH, self.now_s)

    def move(self, member: Member) -> None:
        """Its part of the rate is another."""
        member.rate.changes()
        self.look(member)

    @rule(seconds=st.sampled_from([0.0, 0.02, 0.5, 60.0, 60.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now_s += seconds
        self.allowed += seconds * self.per_s * self.owned()
        self.note()

    @rule(number=st.integers(0, 5), partition=st.integers(0, PARTITIONS - 1))
    def take(self, number: int, partition: int) -> None:
        """A worker gets a partition that nobody has."""
        if partition in self.free:
            member = self.member(number)
            self.free.discard(partition)
            member.owned[partition] = cast(
                "Assignment", SimpleNamespace(closed=False, stopping=False)
            )
            self.move(member)

    @rule(number=st.integers(0, 5), count=st.integers(1, PARTITIONS))
    def give_up(self, number: int, count: int) -> None:
        """A worker gives partitions up; what it has not started of them never starts."""
        member = self.member(number)
        for partition in list(member.owned)[:count]:
            left = member.owned.pop(partition)
            left.closed = True
            self.free.add(partition)
        self.move(member)

    @rule()
    def join(self) -> None:
        """A worker joins."""
        if len(self.members) < 4:
            self.members.append(Member())

    @rule(number=st.integers(0, 5))
    def kill(self, number: int) -> None:
        """A worker is killed; a new one takes its place."""
        member = self.member(number)
        self.free.update(member.owned)
        self.members[self.members.index(member)] = Member()

    @rule(per_s=st.sampled_from([0.01, 1.0, 7.0, 10.0, 100.0]))
    def set_rate(self, per_s: float) -> None:
        """An operator sets another rate."""
        self.per_s = per_s
        for member in self.members:
            member.rate.changes()
            back, member.given = member.given, []
            member.rate.returned(back)
            self.look(member)
        self.note()

    @precondition(lambda self: any(m.owned for m in self.members))
    @rule(number=st.integers(0, 5), want=st.sampled_from([1, 5, 20, 20]), batches=st.booleans())
    def give(self, number: int, want: int, batches: bool) -> None:
        """A worker's executor gets as much as there are tokens for."""
        member = self.member(number)
        tokens = self.look(member)
        if not member.owned:
            return
        here = next(iter(member.owned.values()))
        made = [
            TrackedDelivery(here, MemoryRecord("orders", 0, 0), 0, 2, 0.0)
            for _ in range(min(want, tokens))
        ]
        units: list[Batch | TrackedDelivery] = list(made)
        if batches and len(made) >= BATCH:
            batch = Batch()
            batch.items.extend(made[:BATCH])
            units = [batch, *made[BATCH:]]
        member.rate.gave(units)
        member.given.extend(units)

    @rule(number=st.integers(0, 5), count=st.sampled_from([1, 40, 40]))
    def start(self, number: int, count: int) -> None:
        """Slots come free."""
        member = self.member(number)
        taken, member.given = member.given[:count], member.given[count:]
        for unit in taken:
            for delivery in unit.items if isinstance(unit, Batch) else [unit]:
                if not delivery.assignment.closed:
                    delivery.started_s = self.now_s
                    self.started += 1

    @rule(number=st.integers(0, 5), keep=st.integers(0, 5))
    def take_back(self, number: int, keep: int) -> None:
        """An executor gives back what it has not started."""
        member = self.member(number)
        back, member.given = member.given[keep:], member.given[:keep]
        member.rate.returned(back)

    @rule(number=st.integers(0, 5))
    def come_for_it(self, number: int) -> None:
        """H2: a worker that has a partition, and has started all it was given, gets a token."""
        member = self.member(number)
        self.start(number, 1_000)
        self.look(member)
        if not member.owned:
            return
        for _ in range(PARTITIONS * 4):
            member.rate.note(waits=True)
            if not member.rate.lacking:
                break
            due_s = member.rate.next_s()
            assert due_s > self.now_s
            self.wait(due_s - self.now_s)
            self.look(member)
        assert member.rate.tokens >= 1

    @invariant()
    def no_more_than_the_rate(self) -> None:
        """H1: since any earlier moment."""
        assert self.started - self.allowed <= self.most + HAIR


TestGroup = Group.TestCase
TestGroup.settings = examples(150, steps=80)
