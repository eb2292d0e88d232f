"""Harness: runs an app in a test, without a broker and without waiting.

The worker is the real one: engine, executors, decoding, middleware and lifespan run as in
production. Only what is outside is replaced: Kafka by a broker in memory, time by a manual
clock, the asyncio loop by one on that clock. The calling thread is the worker's owner thread, so
nothing happens between two calls of the harness, and a test sees the same every time. Handlers with
`executor="process"` run on threads here, in the test's process, where the test can see and patch
what they do; to test that they can be killed, use a real Kafka.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypedDict

from ackfloor.core.parking.topic_names import dlq_topic
from ackfloor.core.records.record import Origin
from ackfloor.core.scheduling.blocked_lanes import Head
from ackfloor.core.scheduling.quarantine_orders import head_of
from ackfloor.core.state.assignment import Assignment
from ackfloor.core.values.durations import parse_duration
from ackfloor.dead_letters.rules.redrive_rules import TO_RETRY
from ackfloor.declare.broadcast_mode import check_settings
from ackfloor.declare.outgoing import HeadersGiven, Value, encode, header_pairs
from ackfloor.declare.registration import HandlerSpec
from ackfloor.declare.topic_patterns import Matches, match
from ackfloor.runtime.loop.worker_assembly import Topology
from ackfloor.settings import Settings
from ackfloor.testing.kit.driver import Driver
from ackfloor.testing.kit.memory_redrives import Redrives
from ackfloor.testing.kit.memory_worker import MemoryWorker
from ackfloor.testing.kit.observations import (
    HandledRecord,
    Observations,
    ParkedRecord,
    QuarantinedKey,
    SeenRecord,
    Trouble,
    parked,
    seen,
)
from ackfloor.testing.kit.topology import (
    create_topics,
    on_a_thread,
    overlaid,
    partitions_of,
    settings_of,
    without_jitter,
    worker_config,
)
from ackfloor.testing.memory.manual_clock import ManualClock
from ackfloor.testing.memory.memory_broker import MemoryBroker

if TYPE_CHECKING:
    from ackfloor.app import App
    from ackfloor.core.records.tracked_delivery import TrackedDelivery


class HarnessOptions(TypedDict, total=False):
    """The options of `Harness(...)`; each is explained there."""

    partitions: int | Mapping[str, int]
    settings: Mapping[str, Mapping[str, object]] | None
    jitter: bool
    start: datetime | None
    stuck_after: timedelta | str
    give_up_after: timedelta | str


class Harness:
    """Runs an app on a broker in memory; a context manager, plain or async.

    Reads no file and no environment variable: what counts is what the code says, and
    `settings`. Retries wait exactly as their schedule says, unless `jitter` is on.

    A topic that a handler's pattern matches exists once it is named in `partitions`, sent or
    published to. One that is new while the worker runs is found when it is at rest next; the worker
    is then replaced, as it would be: handlers that still run are cancelled, and their records are
    delivered again.

    Args:
        app: the app under test.
        partitions: of every source topic, or by topic (1 where none is given).
        settings: what operators would set: `{"handlers": {"bill": {"consume_timeout": "2s"}}}`.
        jitter: keep the policies' jitter.
        start: the wall-clock time at which it begins.
        stuck_after: real time without any change after which a `def` handler that has not
            returned counts as stuck; `advance` can then time it out.
        give_up_after: real time after which a worker that does not come to rest is an error.
    """

    def __init__(
        self,
        app: App,
        *,
        partitions: int | Mapping[str, int] = 1,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        jitter: bool = False,
        start: datetime | None = None,
        stuck_after: timedelta | str = "200ms",
        give_up_after: timedelta | str = "10s",
    ) -> None:
        self._app = app
        self._given = settings or {}
        self._jitter = jitter
        self._settings = settings_of(app, self._given)
        if app.broadcast:
            check_settings(self._settings, self._settings.applied(app.handlers))
        #: The handlers as registered, and with the topics that their patterns match.
        self._declared = self._applied(self._settings)
        for spec in self._declared:
            app.check_middleware(spec)
        self._grace_s = parse_duration(stuck_after, field="stuck_after")
        self._give_up_s = parse_duration(give_up_after, field="give_up_after")
        #: The time, which stands still between two calls.
        self.clock = ManualClock() if start is None else ManualClock(start)
        #: The broker: for faults, retention, holes and other members of the group.
        self.broker = MemoryBroker(self.clock)
        self._redrives = Redrives(self.broker)
        self._partitions = partitions
        self._matches = self._matched(() if isinstance(partitions, int) else partitions)
        self._specs = self._matches.applied(self._declared)
        self._topology = self._create_topics()
        #: Topics that a pattern matches and that are newer than the group.
        self._late: frozenset[str] = frozenset()
        self._observations = Observations()
        self._memory_worker: MemoryWorker | None = None
        self._driver: Driver | None = None
        self._thread = 0

    def _applied(self, settings: Settings) -> tuple[HandlerSpec, ...]:
        specs = tuple(on_a_thread(spec) for spec in settings.applied(self._app.handlers))
        return specs if self._jitter else tuple(without_jitter(spec) for spec in specs)

    def _matched(self, topics: Iterable[str] = ()) -> Matches:
        """What the patterns stand for, where these topics exist as well.

        Raises:
            ConfigError: one that they match can't be read.
        """
        matches = match(
            self._declared,
            {*self.broker.topics, *topics},
            self._settings.group,
            most=self._settings.app.max_pattern_topics,
        )
        matches.check()
        return matches

    def _create_topics(self) -> Topology:
        return create_topics(self.broker, self._settings.group, self._specs, self._partitions)

    # Start and end.

    def __enter__(self) -> Self:
        self._thread = threading.get_ident()
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        memory_worker, self._memory_worker, self._driver = self._memory_worker, None, None
        if memory_worker is not None:
            memory_worker.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, exc, trace)

    def _begin(self) -> None:
        memory_worker = MemoryWorker(
            self._app,
            self._specs,
            self._settings,
            self._topology,
            self.broker,
            self.clock,
            self._observations,
            self._give_up_s,
            self._late,
        )
        self._memory_worker = memory_worker
        self._driver = memory_worker.driver(grace_s=self._grace_s, give_up_s=self._give_up_s)
        self._driver.settle()

    def _follow_patterns(self) -> None:
        """Replace the worker while a pattern matches a topic that is new to it."""
        while new := self._find_new():
            memory_worker, _ = self._running()
            self._memory_worker = self._driver = None
            memory_worker.close()
            self._late |= new
            self._begin()

    def _find_new(self) -> frozenset[str]:
        """What patterns match since the worker started; it is read from now on."""
        if not any(spec.patterns for spec in self._declared):
            return frozenset()
        matches = self._matched()
        new = matches.all - self._matches.all
        if new:
            self._matches = matches
            self._specs = matches.applied(self._declared)
            self._topology = self._create_topics()
        return new

    def _running(self) -> tuple[MemoryWorker, Driver]:
        if self._memory_worker is None or self._driver is None:
            raise RuntimeError("the harness is not running: use `with Harness(app) as h:`")
        if threading.get_ident() != self._thread:
            raise RuntimeError(
                "the harness belongs to the thread that entered it: a handler can't use it, and "
                "publishes with app.publish"
            )
        return self._memory_worker, self._driver

    # What a test does.

    def send(
        self,
        topic: str,
        value: Value,
        *,
        key: str | bytes | None = None,
        headers: HeadersGiven = (),
        partition: int | None = None,
        settle: bool = True,
    ) -> Origin:
        """Write a record and let the worker do what it can at this time.

        Args:
            topic: one that a handler of the app takes; one that a pattern matches need not exist.
            value: bytes and str as they are, a pydantic model or what JSON can hold as JSON,
                None as a tombstone.
            key: the record's key; chooses the partition unless one is given.
            headers: by name, or (name, value) pairs where a name repeats.
            partition: where to write it.
            settle: False to only write, so that several records are read in one go.

        Returns:
            Its topic, partition and offset, which a handler sees as `delivery.origin`.
        """
        self._running()
        self._check_source(topic)
        if topic not in self.broker.topics:
            self.broker.create_topic(topic, partitions_of(topic, self._partitions))
        record = self.broker.produce(
            topic,
            encode(value),
            key=key.encode() if isinstance(key, str) else key,
            headers=header_pairs(headers),
            partition=partition,
        )
        if settle:
            self.settle()
        return Origin(record.topic(), record.partition(), record.offset())

    def redrive(self, topic: str, to: str = TO_RETRY) -> int:
        """Send the dead letters of a source topic back to work, as `ackfloor dlq replay` does.

        Args:
            topic: the source topic.
            to: "retry" (the first retry topic), "source", or the name of a topic.

        Returns:
            How many were sent; a dead letter is sent once, and a message five times at most.

        Raises:
            SettingError: there is no such topic to send them to.
        """
        self._running()
        self._check_source(topic)
        sent = self._redrives.send(dlq_topic(topic, self._settings.group), to)
        self.settle()
        return sent

    def advance(self, by: timedelta | str) -> None:
        """Let time pass ("30s", "1h30m"): what falls due meanwhile happens at its time.

        Raises:
            Unsettled: the worker does not come to rest.
        """
        self._running()[1].advance(parse_duration(by, field="by"))
        self._follow_patterns()

    def settle(self) -> None:
        """Let the worker do all it can without time passing.

        Raises:
            Unsettled: the worker does not come to rest.
        """
        driver = self._running()[1]
        driver.forget_stuck()
        driver.settle()
        self._follow_patterns()

    def reload(self, settings: Mapping[str, Mapping[str, object]]) -> None:
        """Change settings while the worker runs, what is in flight included.

        What is given comes on top of what was given before.

        Args:
            settings: as at the start: `{"handlers": {"bill": {"consume_timeout": "1s"}}}`.

        Raises:
            ConfigError: a setting is refused; nothing was changed then.
        """
        memory_worker, _ = self._running()
        given = overlaid(self._given, settings)
        changed = settings_of(self._app, given)
        declared = self._applied(changed)
        specs = self._matches.applied(declared)
        memory_worker.loop.reload(memory_worker.worker.reloaded(specs, worker_config(changed)))
        self._given, self._settings, self._declared, self._specs = given, changed, declared, specs
        self.settle()

    def rebalance(self) -> None:
        """Revoke all partitions and assign them again: running handlers may end (within the
        drain timeout), floors are committed, open records are redelivered."""
        self._running()
        self.broker.rebalance(self._settings.group)
        self.settle()

    def restart(self) -> None:
        """Crash the worker and start another: what was not committed is redelivered."""
        memory_worker, _ = self._running()
        self._memory_worker = self._driver = None
        memory_worker.crash()
        self._observations.abandoned.clear()
        self._begin()

    # What a test asserts.

    @property
    def now(self) -> datetime:
        """The wall-clock time, in UTC."""
        return self.clock.utc

    def handled(self, topic: str | None = None) -> list[HandledRecord]:
        """What was settled as handled, in order; by the topic it was first delivered from."""
        return self._from(topic, self._observations.handled)

    def discarded(self, topic: str | None = None) -> list[HandledRecord]:
        """What was settled by an explicit `Discard`, in order."""
        return self._from(topic, self._observations.discarded)

    def parked(self, topic: str) -> list[ParkedRecord]:
        """What waits in the retry topics of a source topic now, soonest due first.

        A record is here from the moment it is parked until it is delivered again. What waits for
        another record of its key comes last.
        """
        memory_worker, _ = self._running()
        self._check_source(topic)
        assignments = memory_worker.loop.engine.assignments
        found = [
            parked(record)
            for tier, route in self._topology.routes.items()
            if route.source_topic == topic and route.tier_s is not None
            for record in self.broker.records(tier)
            if _waits(assignments.get((tier, record.partition())), record.offset())
        ]
        return sorted(found, key=lambda r: (r.due is None, r.due or self.now, r.topic))

    def quarantined(self, topic: str) -> dict[bytes, QuarantinedKey]:
        """The keys of a source topic that are quarantined now, the longest quarantined first."""
        memory_worker, _ = self._running()
        self._check_source(topic)
        return {
            key: QuarantinedKey(
                partition=partition,
                offset=quarantine.head,
                behind=quarantine.behind,
                held=head_of(quarantine)[1] is Head.HELD,
            )
            for handler in memory_worker.loop.engine.state.handlers.values()
            for (source, partition, key), quarantine in handler.lanes.quarantined.items()
            if source == topic and isinstance(key, bytes) and quarantine.head is not None
        }

    def dlq(self, topic: str) -> list[ParkedRecord]:
        """The dead letters of a source topic, in order."""
        self._check_source(topic)
        return [parked(r) for r in self.broker.records(dlq_topic(topic, self._settings.group))]

    def published(self, topic: str) -> list[SeenRecord]:
        """The records of any topic: what was published there."""
        return [seen(record) for record in self.broker.records(topic)]

    def floor(self, topic: str, partition: int = 0) -> int:
        """The lowest open offset, or the next one to read where none is open."""
        memory_worker, _ = self._running()
        return memory_worker.loop.engine.assignments[topic, partition].tracker.floor()

    def committed(self, topic: str, partition: int = 0) -> int | None:
        """The group's committed position; None where there is none."""
        found = self.broker.committed(self._settings.group, topic, partition)
        return None if found is None else found.position

    @property
    def errors(self) -> list[Trouble]:
        """What handlers raised, timeouts, late answers, failed observers, in order.

        `Retry`, `DeadLetter`, `Discard` and `Pause` are no errors: the handler asked for them.
        """
        return list(self._observations.errors)

    def _from(self, topic: str | None, records: Sequence[HandledRecord]) -> list[HandledRecord]:
        if topic is None:
            return list(records)
        self._check_source(topic)
        return [record for record in records if record.topic == topic]

    def _check_source(self, topic: str) -> None:
        """A misspelt topic must not pass as one where nothing happened."""
        sources = [name for spec in self._specs for name in spec.subjects]
        if topic not in sources and topic not in self._matched({topic}).all:
            known = ", ".join(sources) or "none"
            raise ValueError(f"topic={topic!r}: no handler takes it; handled are: {known}")


def _waits(assignment: Assignment | None, offset: int) -> bool:
    """Whether a record of a retry topic has yet to be delivered."""
    if assignment is None or offset >= assignment.tracker.position:
        return True
    if offset in assignment.withheld:
        # It has failed again since, and its circuit breaker withholds it.
        return False
    if any(delivery.offset == offset for delivery in assignment.waiting):
        return True
    delivery = assignment.tracker.open.get(offset)
    return delivery is not None and _waits_for_another(delivery)


def _waits_for_another(delivery: TrackedDelivery) -> bool:
    """Whether a record waits in a quarantined key: behind its head, or as one that holds it."""
    lanes = delivery.assignment.handler.lanes
    quarantine = lanes.quarantined.get(delivery.lane_key(True))
    if quarantine is None or delivery is quarantine.current:
        return False
    offset = delivery.origin.offset
    return quarantine.has(delivery) and quarantine.at(offset) is delivery
