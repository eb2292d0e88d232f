"""The engine on a stage: records from memory, answered in order, on a clock that is set.

Nothing here waits, draws lots or talks to anybody, so a run does the same on every machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.engine.engine import Engine
from ackfloor.core.messages.commands import Commit, Publish
from ackfloor.core.parking.parking import Parking
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.envelope import NOT_BEFORE
from ackfloor.core.records.outcomes import ACKED, Outcome
from ackfloor.core.records.record import CommitPosition, Headers, Now, StartPosition
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.worker_state import Route
from ackfloor.declare.fair_key import kafka_key
from ackfloor.testing.memory.memory_log import MemoryRecord

#: Records of one poll, and answers of one turn.
BATCH = 500
START_MS = 1_700_000_000_000
#: Seconds that a turn takes on the stage's clock.
TURN_S = 0.002
#: Nothing on the stage is to be held back.
NO_LIMITS = FlowLimits(
    max_open=10**9,
    max_open_bytes=10**15,
    partition_span=10**9,
    tier_buffer=10**9,
    partition_open=10**9,
    partition_open_bytes=10**15,
)
VALUE = b"x" * 200
#: The retry topic of the first handler.
TIER = "topic0--bench--retry-1h"


class Stage:
    """An engine with handlers of one kind, each on a topic of its own.

    Args:
        handlers: how many.
        partitions: of each topic.
        ordering: "unordered" or "key".
        breakers: whether the handlers have circuit breakers, as by default.
    """

    def __init__(
        self,
        *,
        handlers: int = 1,
        partitions: int = 1,
        ordering: str = "unordered",
        breakers: bool = True,
    ) -> None:
        self.mono_s = 1_000.0
        self.topics = [f"topic{n}" for n in range(handlers)]
        policy = RetryPolicy.fixed("1h", 3, jitter=0)
        routes = {topic: Route(topic, topic) for topic in self.topics}
        tiers = {f"{topic}--bench--retry-1h": Route(topic, topic, 3600.0) for topic in self.topics}
        targets = {f"{topic}--bench--dlq": partitions for topic in self.topics}
        self.engine = Engine(
            [
                HandlerRules(
                    topic,
                    ordering=ordering,
                    policy=policy,
                    concurrency=10**6,
                    breaker=CircuitBreaker(enabled=breakers),
                    fair_key=kafka_key,
                )
                for topic in self.topics
            ],
            {**routes, **tiers},
            Parking("bench", lambda n: 0, {**dict.fromkeys(tiers, partitions), **targets}),
            limits=NO_LIMITS,
            inbox=deque(),
            clock=lambda: self.mono_s,
        )
        self.ready: deque[TrackedDelivery | Work] = deque()
        self.writes: list[PendingWrite] = []
        self.commits: list[tuple[CommitPosition, ...]] = []
        starts = [
            StartPosition(topic, partition, 0)
            for topic in (*self.topics, *tiers)
            for partition in range(partitions)
        ]
        self.engine.assign(starts, self.now)
        self.turn()

    @property
    def now(self) -> Now:
        """The stage's time."""
        return Now(self.mono_s, START_MS + int((self.mono_s - 1_000.0) * 1000))

    def read(self, records: Sequence[MemoryRecord]) -> None:
        """One poll."""
        self.engine.polled(records, self.now)
        self._take()

    def turn(self, seconds: float = TURN_S) -> None:
        """What a turn does beside polling and answers."""
        self.mono_s += seconds
        now = self.now
        if now.mono_s >= self.engine.next_scan_s:
            self.engine.expire((), now)
        self.engine.commit_due(now)
        self.engine.tick(now)
        self._take()
        self.engine.take_events(now)
        self.engine.next_wakeup_s(now)

    def answer(self, count: int, outcome: Outcome = ACKED) -> int:
        """The oldest waiting deliveries end; returns how many."""
        ended: list[TrackedDelivery] = []
        emptied: list[Work] = []
        while len(ended) < count and self.ready:
            item = self.ready.popleft()
            if isinstance(item, Work):
                ended.extend(item)
                item.clear()
                emptied.append(item)
            else:
                ended.append(item)
        for delivery in ended:
            delivery.started_s = delivery.finished_s = self.mono_s
            delivery.outcome = outcome
        self.engine.answered(ended, self.now)
        for work in emptied:
            self.engine.unit_ended(self.topics[0], work, self.now)
        self._take()
        return len(ended)

    def confirm(self) -> None:
        """The broker has what was parked, and what was committed."""
        now = self.now
        writes, self.writes = self.writes, []
        self.engine.published(writes, now)
        commits, self.commits = self.commits, []
        for positions in commits:
            self.engine.committed([(position, None) for position in positions], now)
        self._take()

    def _take(self) -> None:
        for command in self.engine.take_commands():
            if isinstance(command, Publish):
                self.writes.append(command.write)
            elif isinstance(command, Commit):
                self.commits.append(command.positions)
        for topic in self.topics:
            items = self.engine.next_units(topic, 0, self.now)
            self.ready.extend(item for item in items if not isinstance(item, Batch))


def stored(
    topic: str,
    partition: int,
    offsets: Iterable[int],
    *,
    keys: int = 0,
    headers: Headers = (),
) -> list[MemoryRecord]:
    """Records of one partition."""
    return [
        MemoryRecord(
            topic,
            partition,
            offset,
            b"k%d" % (offset % keys) if keys else None,
            VALUE,
            headers,
            START_MS,
        )
        for offset in offsets
    ]


def due_in(seconds: int) -> Headers:
    """What a record of the retry topic says that is due so long after the stage's beginning."""
    return [(NOT_BEFORE, b"%d" % (START_MS + 1000 * seconds)), ("ackfloor.attempt", b"1")]


def with_gaps(count: int) -> Stage:
    """A stage of one partition in which every other record of twice as many is open."""
    stage = Stage()
    stage.read(stored("topic0", 0, range(2 * count)))
    everything = list(stage.ready)
    stage.ready.clear()
    stage.ready.extend(everything[1::2])
    stage.answer(count)
    stage.engine.take_events(stage.now)
    return stage
