"""A small world around the engine: records in memory, a clock that is set, and two handlers' hands.

Shared by the engine's tests. Everything here is plain data; nothing waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ackfloor.core.engine.engine import Engine
from ackfloor.core.messages.commands import Command, Commit, Publish, TakeBack
from ackfloor.core.messages.events import Event
from ackfloor.core.parking.parking import Parking
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import (
    COMMITTED,
    Transact,
    Transaction,
    TransactionOutcome,
)
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.queues.lanes import Lane, Lanes, Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.envelope import NOT_BEFORE
from ackfloor.core.records.outcomes import ACKED, Failed, Outcome
from ackfloor.core.records.record import (
    CommitPosition,
    Failure,
    Headers,
    Now,
    StartPosition,
    TopicPartition,
)
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.worker_state import Route

E = TypeVar("E")

START_S = 1_000.0
START_MS = 1_700_000_000_000
TIER = "orders--g--retry-1s"
DLQ = "orders--g--dlq"


@dataclass(slots=True)
class MemoryRecord:
    """A record with the method shape of the client's messages."""

    _topic: str
    _partition: int
    _offset: int
    _value: bytes | None = b"{}"
    _key: bytes | None = None
    _headers: Headers | None = None
    _timestamp_ms: int = START_MS
    _leader_epoch: int | None = 0

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return (1, self._timestamp_ms)

    def leader_epoch(self) -> int | None:
        return self._leader_epoch

    def __len__(self) -> int:
        return len(self._value or b"")


def tier_record(topic: str, partition: int, offset: int, due_ms: int) -> MemoryRecord:
    """A record that waits in a retry tier."""
    headers = [(NOT_BEFORE, str(due_ms).encode()), ("ackfloor.attempt", b"1")]
    return MemoryRecord(topic, partition, offset, _headers=headers)


@dataclass
class World:
    """An engine, its clock, and what it has commanded and told so far."""

    rules: HandlerRules = field(default_factory=lambda: HandlerRules("bill"))
    routes: dict[str, Route] = field(
        default_factory=lambda: {
            "orders": Route("bill", "orders"),
            "orders--g--retry-1s": Route("bill", "orders", 1.0),
        }
    )
    limits: FlowLimits = field(default_factory=FlowLimits)
    pick: Callable[[int], int] = lambda n: 0
    now_s: float = START_S
    transactional: bool = False

    def __post_init__(self) -> None:
        self.inbox: deque[TrackedDelivery] = deque()
        self.partitions = {"orders--g--retry-1s": 4, "orders--g--dlq": 4}
        self.begin()

    def begin(self) -> None:
        """A worker starts, without partitions."""
        self.engine = Engine(
            [self.rules],
            self.routes,
            Parking("g", self.pick, self.partitions, release="r1"),
            limits=self.limits,
            inbox=self.inbox,
            clock=lambda: self.now_s,
            transactional=self.transactional,
        )
        self.transactions: list[Transaction] = []
        self.commands: list[Command] = []
        self.events: list[Event] = []
        #: What executors have and have not started, and what they were given each time.
        self.ready: deque[Any] = deque()
        self.given: list[list[Any]] = []
        #: What a delivery was taken from that a worker has started.
        self.works: dict[TrackedDelivery, Work] = {}
        self.writes: list[PendingWrite] = []
        self.commits: list[Commit] = []

    @property
    def now(self) -> Now:
        """The time in this world."""
        return Now(self.now_s, START_MS + round((self.now_s - START_S) * 1000))

    def take(self) -> list[Command]:
        """Collect what the engine commanded since the last time."""
        if self.engine.in_question:
            self.engine.judge(self.running_now(), self.now)
        self.engine.transact(self.now)
        commands = self.engine.take_commands()
        for command in commands:
            if isinstance(command, TakeBack):
                self.give_back(command.handler)
            elif isinstance(command, Publish):
                self.writes.append(command.write)
            elif isinstance(command, Commit):
                self.commits.append(command)
            elif isinstance(command, Transact):
                self.transactions.append(command.transaction)
        self.commands.extend(commands)
        self.feed()
        self.events.extend(self.engine.take_events(self.now))
        return commands

    def running_now(self) -> list[TrackedDelivery]:
        """What a judgement may have to wait for: nothing in this world."""
        return []

    def feed(self) -> None:
        """Executors are given what they have room for; here that is everything."""
        for name in self.engine.state.handlers:
            while items := list(self.engine.next_units(name, self.queued(), self.now)):
                self.given.append(items)
                self.ready.extend(items)

    def queued(self) -> int:
        """What executors say that they have not started."""
        return 0

    def give_back(self, handler: str) -> None:
        """An executor gives back what it has not started."""
        mine = [item for item in self.ready if self._is_of(item, handler)]
        self.ready = deque(item for item in self.ready if not self._is_of(item, handler))
        self.engine.returned(handler, mine)

    def _is_of(self, item: Unit, handler: str) -> bool:
        # A work that is empty now says no longer whose it was.
        found = deliveries_in(item)
        name = found[0].assignment.handler.rules.name if found else self.rules.name
        return name == handler

    def assign(self, partition: int = 0, position: int = 0, topic: str = "orders") -> None:
        """One partition comes, committed at its position."""
        self.engine.assign([StartPosition(topic, partition, position)], self.now)
        self.take()

    def read(self, offsets: Sequence[int], partition: int = 0, key: bytes | None = None) -> None:
        """Records of the source topic are read."""
        self.engine.polled(
            [MemoryRecord("orders", partition, offset, _key=key) for offset in offsets], self.now
        )
        self.take()

    def start(self) -> TrackedDelivery:
        """A worker takes the next unordered delivery and starts its handler."""
        item = self.ready.popleft()
        delivery = item
        if isinstance(item, Work):
            delivery = item.popleft()
            self.works[delivery] = item
        delivery.started_s = self.now_s
        if self.rules.manual:
            delivery.arm(None)
        return delivery

    def leave(self, delivery: TrackedDelivery) -> None:
        """The worker ends the work that a delivery was taken from, if it was in one."""
        work = self.works.pop(delivery, None)
        if work is not None:
            self.engine.unit_ended(self.rules.name, work, self.now)
            self.take()

    def finish(self, delivery: TrackedDelivery, outcome: Outcome = ACKED) -> None:
        """A handler ends."""
        delivery.outcome = outcome
        delivery.finished_s = self.now_s
        self.engine.answered([delivery], self.now)
        self.take()

    def tick(self, seconds: float = 0.0) -> list[Command]:
        """Time passes."""
        self.now_s += seconds
        self.engine.tick(self.now)
        return self.take()

    def floor(self, partition: int = 0, topic: str = "orders") -> int:
        """The floor of a partition."""
        return self.engine.assignments[topic, partition].tracker.floor()

    def told(self, kind: type[E]) -> list[E]:
        """The events of one kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def redeliver(
        self,
        offsets: Sequence[int],
        *,
        due_ms: int | None = None,
        partition: int = 0,
        headers: Headers = (),
        size: int = 2,
        key: bytes | None = None,
    ) -> None:
        """Records of the retry tier are read, due now or at the given time."""
        due_ms = self.now.wall_ms if due_ms is None else due_ms
        records = [tier_record(TIER, partition, offset, due_ms) for offset in offsets]
        for record in records:
            record._headers = [*(record._headers or ()), *headers]
            record._value = b"x" * size
            record._key = key
        self.engine.polled(records, self.now)
        self.take()

    def fail(self, delivery: TrackedDelivery, outcome: Outcome | None = None) -> PendingWrite:
        """A handler raises; returns the parcel that is written for it."""
        self.finish(delivery, outcome or Failed(Failure("Boom", "x")))
        return self.writes[-1]

    def confirm(self) -> PendingWrite:
        """The broker confirms the oldest parcel under way."""
        write = self.writes.pop(0)
        self.engine.published((write,), self.now)
        self.take()
        return write

    def refuse(self, error: str = "no such topic", *, too_large: bool = False) -> PendingWrite:
        """The broker refuses the oldest parcel under way."""
        write = self.writes.pop(0)
        self.engine.publish_failed(write, error, too_large=too_large, now=self.now)
        self.take()
        return write

    def end_transaction(self, outcome: TransactionOutcome = COMMITTED) -> Transaction:
        """The transaction under way ends."""
        transaction = self.transactions.pop(0)
        self.engine.transacted(transaction, outcome, self.now)
        self.take()
        return transaction

    def expire(self, *running: TrackedDelivery) -> list[Command]:
        """The engine looks for running deliveries that are overdue."""
        self.engine.expire(running, self.now)
        return self.take()

    def answer_commit(self, error: str | None = None) -> Commit:
        """The oldest commit under way is confirmed, or refused."""
        commit = self.commits.pop(0)
        self.engine.committed([(position, error) for position in commit.positions], self.now)
        self.take()
        return commit

    def revoke(
        self, partition: int = 0, topic: str = "orders", *, lost: bool = False
    ) -> tuple[CommitPosition, ...]:
        """A partition leaves; returns what is committed last for it."""
        leaving = [TopicPartition(topic, partition)]
        self.engine.stop(leaving)
        final = () if lost else self.engine.final_positions(leaving)
        self.engine.drop(leaving, lost=lost)
        self.take()
        return final

    def subjects(self) -> list[str]:
        """The subjects of the faults in force."""
        return [f"{fault.kind} {fault.subject}" for fault in self.engine.faults.all()]


class HeldWorld(World):
    """A world whose executor has a window, and whose slots are seen at work."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.started: list[TrackedDelivery] = []

    @property
    def held(self) -> bool:
        """Whether nothing may start by itself."""
        return self.engine.state.handlers[self.rules.name].held

    def queued(self) -> int:
        """What has not started and may."""
        return sum(1 for item in self.ready if _may_start(item))

    def running_now(self) -> list[TrackedDelivery]:
        """What has started and not ended."""
        self.started = [d for d in self.started if d.outcome is None and not d.closed]
        return self.started

    def startable(self) -> bool:
        """Whether a worker may take something."""
        if not self.queued():
            self.feed()
        return any(map(_may_start, self.ready))

    def start(self) -> TrackedDelivery:
        """A worker takes the first that may start; of a lane it takes one record alone."""
        assert self.startable()
        item = next(item for item in self.ready if _may_start(item))
        self.ready.remove(item)
        self.ready.appendleft(item)
        self.started.append(super().start())
        return self.started[-1]


def deliveries_in(item: Unit | Lane) -> list[TrackedDelivery]:
    """What an executor would start of an item that it was given, in order."""
    if isinstance(item, Batch):
        return item.items
    return [item] if isinstance(item, TrackedDelivery) else list(item)


def offsets_of(items: Iterable[Unit | Lane]) -> list[int]:
    """The offsets of what is in items, in order."""
    return [delivery.offset for item in items for delivery in deliveries_in(item)]


def _may_start(item: Unit) -> bool:
    found = deliveries_in(item)
    if isinstance(item, Batch):
        return any(map(_is_due, found))
    return bool(found) and _is_due(found[0])


def _is_due(delivery: TrackedDelivery) -> bool:
    return not (delivery.closed or delivery.assignment.stopping)


#: How many records a call takes at most, of the handler of `batch_deliveries`.
BATCH = 3


def batch_deliveries(count: int, ordering: str = "unordered") -> list[TrackedDelivery]:
    """Deliveries of a handler that takes batches, which are in no queue."""
    world = World(HandlerRules("bill", concurrency=99, batch=BATCH, batch_wait_s=0.0))
    world.assign()
    world.read(range(count))
    world.tick()
    found = [delivery for item in world.ready for delivery in deliveries_in(item)]
    assert len(found) == count
    world.engine.state.handlers["bill"].rules = replace(world.rules, ordering=ordering)
    return found


def lanes_of(deliveries: Sequence[TrackedDelivery], lengths: Sequence[int]) -> list[Lane]:
    """Free lanes of so many of these deliveries each."""
    lanes, found = Lanes(singly=False), iter(deliveries)
    free: list[Lane] = []
    for n, length in enumerate(lengths):
        key = ("orders", 0, n)
        lane = lanes.admit(key, next(found))
        assert lane is not None
        for _ in range(length - 1):
            lanes.admit(key, next(found))
        free.append(lane)
    return free
