"""Rewinds: what waits behind failed records beyond its share leaves memory and is read again.

Invariants D1 to D3 of `core/state/rewinds.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from ackfloor.core.acks.gap_set import decode
from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.messages.commands import Pause, Resume
from ackfloor.core.messages.events import RecordsRewound, RecordsSkipped
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.outcomes import ACKED, Failed, Outcome
from ackfloor.core.records.record import Failure, TopicPartition
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import HeldWorld, MemoryRecord

BOOM = Failed(Failure("Boom", "x"))
NEVER_DEAD = RetryPolicy("1s", 1, "1s", None, 0)
#: A quarter of it is enough for one waiting record of each partition.
LIMITS = FlowLimits(max_open=120, partition_open=60)
FETCH = 10


def rules_of(ordering: str = "partition", batch: int | None = None) -> HandlerRules:
    """A handler that retries in place, without a circuit breaker."""
    return HandlerRules(
        "bill",
        ordering,
        concurrency=4,
        policy=NEVER_DEAD,
        in_place=True,
        batch=batch,
        batch_wait_s=0.0,
        breaker=CircuitBreaker(enabled=False),
    )


class LogWorld(HeldWorld):
    """A worker that reads logs as far as its partitions are not paused."""

    def fill(self, keys: list[str], *, limits: FlowLimits = LIMITS) -> LogWorld:
        """Partitions come; each has a record for each letter of its string, which is its key."""
        self.limits = limits
        self.begin()
        self.logs = [
            [
                MemoryRecord("orders", partition, n, _key=key.encode(), _leader_epoch=3)
                for n, key in enumerate(letters)
            ]
            for partition, letters in enumerate(keys)
        ]
        #: Where the consumer is, which is ahead of a partition that was rewound.
        self.consumer = [0] * len(keys)
        self.most = 0
        self.handled: list[tuple[int, int]] = []
        self.seen = 0
        for partition in range(len(keys)):
            self.assign(partition)
        return self

    def fetch(self) -> bool:
        """The next records of all partitions that are read; returns whether there were any."""
        self.follow()
        before = list(self.consumer)
        for partition, log in enumerate(self.logs):
            if not self.engine.assignments["orders", partition].paused:
                first = self.consumer[partition]
                if batch := log[first : first + FETCH]:
                    self.consumer[partition] += len(batch)
                    self.engine.polled(batch, self.now)
                    self.take()
                    self.follow()
            self.most = max(self.most, self.engine.flow.open_count)
        return self.consumer != before

    def follow(self) -> None:
        """The consumer seeks where it was told to read on."""
        for command in self.commands[self.seen :]:
            if isinstance(command, Resume):
                for key, position in command.positions:
                    self.consumer[key.partition] = position
        self.seen = len(self.commands)

    def handle(self, outcome_of: Callable[[TrackedDelivery], Outcome]) -> None:
        """One record is handled, or fails, if any may start."""
        if not self.startable():
            return
        delivery = self.start()
        outcome = outcome_of(delivery)
        if outcome is ACKED:
            self.handled.append((delivery.partition, delivery.offset))
        self.finish(delivery, outcome)
        self.leave(delivery)

    def read_all(self) -> None:
        """Fetch until nothing more is read, while heads that were started run."""
        while self.fetch():
            pass

    def come_to_rest(self, rounds: int = 5_000) -> None:
        """Everything is handled."""
        for _ in range(rounds):
            self.fetch()
            self.handle(lambda _: ACKED)
            self.tick(0.05)

    def positions(self) -> dict[tuple[str, int], int]:
        """The consumer's own positions."""
        return {("orders", n): position for n, position in enumerate(self.consumer)}


def fail_heads(world: LogWorld, rounds: int = 60) -> None:
    """Partitions are read as far as they may, then their heads fail, again and again."""
    for _ in range(rounds):
        world.read_all()
        world.handle(lambda _: BOOM)
        world.tick(0.1)


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_worker_holds_no_more_than_its_limits_however_many_partitions_fail(
    ordering: str,
) -> None:
    """Each has read half of what the worker may hold before its first record fails."""
    world = LogWorld(rules_of(ordering)).fill(["a" * 100] * 30)
    fail_heads(world)
    assert world.most <= LIMITS.max_open + FETCH * 2
    assert {r.partition for r in world.told(RecordsRewound)} >= set(range(20))
    assert all(a.tracker.open for a in world.engine.assignments.values() if a.rewound)
    assert world.engine.flow.open_count == sum(
        len(a.tracker.open) for a in world.engine.assignments.values()
    )
    world.come_to_rest()
    assert sorted(world.handled) == [(p, n) for p in range(30) for n in range(100)]
    for partition in range(30):
        mine = [offset for p, offset in world.handled if p == partition]
        assert mine == sorted(mine)
        assert world.floor(partition) == 100
    flow = world.engine.flow
    assert (flow.open_count, flow.open_bytes) == (0, 0)
    assert all(a.held == a.held_bytes == 0 for a in world.engine.assignments.values())


def test_partitions_without_failures_go_on() -> None:
    """The failing ones keep their share, and the others are read and handled to their end."""
    world = LogWorld(rules_of()).fill(["b" * 60] * 8 + ["w" * 60] * 2)
    for _ in range(600):
        world.fetch()
        world.handle(lambda delivery: BOOM if delivery.key == b"b" else ACKED)
        world.tick(0.05)
    assert world.told(RecordsRewound)
    assert [offset for p, offset in world.handled if p == 8] == list(range(60))
    assert [offset for p, offset in world.handled if p == 9] == list(range(60))


def test_what_was_settled_beyond_it_stays_settled() -> None:
    """Another key's records were handled: they are in the commits, and are not handled again."""
    keys = "a" * 10 + "b" * 10 + "a" * 40
    world = LogWorld(rules_of("key")).fill([keys, *["c" * 100] * 12])
    others, world.logs = world.logs[1:], world.logs[:1]
    for _ in range(40):
        world.fetch()
        world.handle(lambda delivery: ACKED if delivery.key == b"b" else BOOM)
        world.tick(0.2)
    world.logs += others
    fail_heads(world)
    mine = world.engine.assignments["orders", 0]
    of_b = [(0, n) for n, key in enumerate(keys) if key == "b"]
    assert world.handled == of_b
    assert [r for r in world.told(RecordsRewound) if r.partition == 0]
    assert mine.tracker.position < of_b[0][1]
    world.answer_commit()
    world.tick(5)
    sent = {p.partition: p for commit in world.commits for p in commit.positions}
    found = decode(sent[0].metadata, "orders", 0)
    assert {n for run in found.runs for n in range(*run)} >= {n for _, n in of_b}
    assert found.leader_epoch == 3
    world.come_to_rest()
    logs = enumerate(world.logs)
    assert sorted(world.handled) == [(p, n) for p, log in logs for n in range(len(log))]
    skipped = sum(event.count for event in world.told(RecordsSkipped))
    assert skipped > 0
    assert world.floor(0) == len(keys)


def test_any_failures_in_any_order() -> None:
    """Keys that fail for a while, keys that don't: each record is handled once, keys in order."""
    for seed in range(30):
        dice = Random(seed)
        keys = ["".join(dice.choices("abcdef", k=80)) for _ in range(dice.randint(2, 12))]
        sick = {(p, key) for p in range(len(keys)) for key in "abcdef" if dice.random() < 0.5}
        world = LogWorld(rules_of("key")).fill(keys)
        for _ in range(300):
            world.fetch()
            world.handle(
                lambda d, sick=sick: (
                    BOOM  # type: ignore[misc]
                    if (d.partition, (d.key or b"").decode()) in sick
                    else ACKED
                )
            )
            world.tick(0.05)
        world.come_to_rest(1_500 + 80 * len(keys))
        assert sorted(world.handled) == [(p, n) for p in range(len(keys)) for n in range(80)]
        for partition, letters in enumerate(keys):
            for key in set(letters):
                mine = [n for p, n in world.handled if p == partition and letters[n] == key]
                assert mine == sorted(mine)


def rewound() -> LogWorld:
    """A worker of which the first partition was rewound and is not read."""
    world = LogWorld(rules_of()).fill(["a" * 100] * 6)
    fail_heads(world)
    assert world.engine.assignments["orders", 0].rewound
    return world


def test_what_was_fetched_before_the_pause_is_not_registered() -> None:
    """It would leave a hole where records are that nobody has handled."""
    world = rewound()
    tracker = world.engine.assignments["orders", 0].tracker
    position, open_count = tracker.position, len(tracker.open)
    first = world.consumer[0]
    assert first > position
    world.engine.polled(world.logs[0][first : first + FETCH], world.now)
    assert (tracker.position, len(tracker.open)) == (position, open_count)


def test_the_position_of_the_consumer_counts_when_it_has_read_from_there() -> None:
    """Until then it is beyond records that are to be read again."""
    world = rewound()
    mine = world.engine.assignments["orders", 0]
    position = mine.tracker.position
    world.engine.passed(world.positions())
    assert mine.tracker.position == position
    world.come_to_rest()
    assert not mine.rewound
    world.engine.passed({("orders", 0): 101})
    assert mine.tracker.position == 101


def test_a_partition_that_leaves_is_read_from_its_floor_by_the_next_owner() -> None:
    """What it was rewound to is not committed."""
    world = LogWorld(rules_of("key")).fill(["b" + "a" * 99] * 6)
    world.read_all()
    world.handle(lambda delivery: ACKED if delivery.key == b"b" else BOOM)
    fail_heads(world)
    assert world.engine.assignments["orders", 0].rewound
    (final,) = world.revoke(0)
    assert final.position == 1
    assert not decode(final.metadata, "orders", 0).runs


def test_a_partition_that_stops_is_not_rewound() -> None:
    """It is about to leave."""
    world = LogWorld(rules_of()).fill(["a" * 100] * 6)
    world.read_all()
    world.engine.stop([TopicPartition("orders", n) for n in range(6)])
    world.take()
    fail_heads(world)
    assert not world.told(RecordsRewound)


def test_calls_with_several_records_lose_none() -> None:
    """What waits for a batch, or in one, is not dropped."""
    world = LogWorld(rules_of("key", batch=3)).fill(["a" * 60] * 12)
    assert world.rules.batch == 3
    handled: list[tuple[int, int]] = []
    for turn in range(3_000):
        world.fetch()
        while world.ready:
            item = world.ready.popleft()
            found = [d for d in getattr(item, "items", [item]) if not d.closed]
            for delivery in found:
                delivery.started_s = world.now_s
                outcome = BOOM if turn < 200 else ACKED
                handled += [(delivery.partition, delivery.offset)] * (outcome is ACKED)
                delivery.outcome = outcome
            world.engine.answered(found, world.now)
            if hasattr(item, "items"):
                world.engine.unit_ended("bill", item, world.now)
            world.take()
        world.tick(0.05)
    assert world.told(RecordsRewound)
    assert sorted(handled) == [(p, n) for p in range(12) for n in range(60)]


def test_a_rewound_partition_is_paused_before_it_is_dropped() -> None:
    """The order of the commands: what is read meanwhile would be registered."""
    world = rewound()
    last = [
        type(command)
        for command in world.commands
        if isinstance(command, Pause | Resume)
        and any(
            key[0] == TopicPartition("orders", 0) or key == TopicPartition("orders", 0)
            for key in getattr(command, "partitions", getattr(command, "positions", ()))
        )
    ][-1]
    assert last is Pause
