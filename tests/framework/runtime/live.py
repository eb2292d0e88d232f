"""A worker on the in-memory broker in real time: real threads, a real event loop, no Kafka.

The test's own thread is the worker's owner thread: it turns the loop, in `until`, and between two
calls nothing is turned. So a test may look at the engine and may also decide when the owner is
busy elsewhere. Nothing here waits for a fixed time; every wait is for a condition, with a bound.

A deadline that only one of several handlers is to miss is a minute, and the worker's clock is put
forward (`Live.skip`) once that one waits: a machine that stands still for a moment makes no other
handler late. Handlers in processes read the machine's clock and don't notice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

from ackfloor import App, Delivery
from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.messages.events import Event
from ackfloor.core.parking.topic_names import dlq_topic
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.record import Now
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.ports import Executor
from ackfloor.runtime.executors.event_loop import EventLoopThread
from ackfloor.runtime.loop.clock import SystemClock
from ackfloor.runtime.loop.loop import Loop
from ackfloor.runtime.loop.worker_assembly import Outside, Worker, WorkerConfig
from ackfloor.testing.kit.observations import ParkedRecord, parked
from ackfloor.testing.kit.topology import create_topics
from ackfloor.testing.memory.memory_broker import MemoryBroker, MemoryPublisher
from ackfloor.testing.memory.memory_client import MemorySink, MemorySource
from tests.framework.runtime import puppets

E = TypeVar("E", bound=Event)

#: How long a condition may take on a busy machine before the test fails.
PATIENCE_S = 120.0
KINDS = ("async", "thread")
#: For what any executor must do, and a handler in a process of its own can show.
EVERY_KIND = (*KINDS, "process")
#: Kind and acknowledgement, where both matter: a process handler is not answered by hand.
KINDS_AND_ACKS = (*product(KINDS, ("auto", "manual")), ("process", "auto"))
#: Processes of a process handler at most: each takes half a second to start.
MOST_PROCESSES = 4


class Gate:
    """A door that handlers of any kind wait at until a test opens it."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._lock = threading.Lock()
        #: How many handlers have come to it.
        self.arrived = 0

    def open(self) -> None:
        """Let everybody pass, now and later."""
        self._open.set()

    @property
    def is_open(self) -> bool:
        """Whether it has been opened."""
        return self._open.is_set()

    def wait(self) -> None:
        """Wait in a thread."""
        self._arrive()
        assert self._open.wait(60)

    async def passed(self) -> None:
        """Wait on an event loop."""
        self._arrive()
        while not self._open.is_set():  # noqa: ASYNC110 -- another thread opens it
            await asyncio.sleep(0.001)

    def _arrive(self) -> None:
        with self._lock:
            self.arrived += 1


Script = Callable[[Delivery], Iterator[Gate]]


def register(app: App, kind: str, topic: str, script: Script, **options: Any) -> None:
    """Register a handler of one kind that runs a script; it waits at each gate it yields."""

    async def handle_async(delivery: Delivery) -> None:
        for gate in script(delivery):
            await gate.passed()

    def handle_sync(delivery: Delivery) -> None:
        for gate in script(delivery):
            gate.wait()

    options.setdefault("name", "handle")
    if kind == "process":
        puppets.play(topic, handle_sync)
        options["concurrency"] = min(options.get("concurrency", 3), MOST_PROCESSES)
        app.handler(topic, executor="process", **options)(puppets.puppet)
        return
    app.handler(topic, **options)(handle_async if kind == "async" else handle_sync)


class Watcher:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.latest: Snapshot | None = None

    def observe(self, events: Sequence[Event]) -> None:
        self.events.extend(events)

    def snapshot(self, snapshot: Snapshot) -> None:
        self.latest = snapshot

    def told(self, kind: type[E]) -> list[E]:
        """The events of one kind so far."""
        return [event for event in self.events if isinstance(event, kind)]


class ForwardClock(SystemClock):
    """The machine's clocks, which a test can put forward."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def now(self) -> Now:
        """One reading of both clocks."""
        found = super().now()
        ahead_s = self._ahead_s
        return Now(found.mono_s + ahead_s, found.wall_ms + round(ahead_s * 1000))

    def monotonic(self) -> float:  # type: ignore[override]
        """Monotonic seconds."""
        return time.monotonic() + self._ahead_s

    def skip(self, seconds: float) -> None:
        """Put both forward."""
        self._ahead_s += seconds


class Live:
    """One running worker; made by `live`."""

    def __init__(
        self,
        worker: Worker,
        broker: MemoryBroker,
        watcher: Watcher,
        group: str,
        clock: ForwardClock,
    ) -> None:
        self.worker = worker
        self.clock = clock
        self.broker = broker
        self.watcher = watcher
        self.group = group
        self.closed = False
        try:
            self.loop: Loop = worker.start()
        except BaseException:
            worker.close(lambda: True)
            raise

    def send(self, topic: str, value: bytes = b"", *, key: bytes | None = None, n: int = 1) -> None:
        """Write records; a number at the end of each where there are several."""
        for number in range(n):
            body = value if n == 1 else value + str(number).encode()
            self.broker.produce(topic, body, key=key)

    def until(self, condition: Callable[[], object], what: str = "it") -> None:
        """Turn the loop until the condition holds."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, f"{what} did not happen in {PATIENCE_S:g} s"
            self.loop.turn(0.005)

    def turn_for(self, seconds: float) -> None:
        """Turn the loop for a while, to give what must not happen its chance."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.loop.turn(0.005)

    def skip(self, seconds: float) -> None:
        """Let the worker's time pass at once."""
        self.clock.skip(seconds)

    def settled(self) -> bool:
        """Whether every record of every source topic has been settled; retries may wait."""
        sources = {topic for spec in self.worker._handlers for topic in spec.topics}
        assignments = self.loop.engine.assignments
        return all(
            key in assignments and assignments[key].tracker.floor() == self.broker.log(*key).end
            for topic in sources
            for key in [(topic, number) for number in range(self.broker.topics[topic])]
        )

    def executor(self, handler: str = "handle") -> Executor:
        """The executor of a handler."""
        return self.loop.executors.by_name[handler]

    def queued(self, handler: str = "handle") -> int:
        """Items of a handler that no slot has taken: in its queue, or with its executor."""
        queue = self.loop.engine.state.handlers[handler].queue
        return len(queue) + self.executor(handler).queued()

    def parked(self, topic: str) -> list[ParkedRecord]:
        """Everything that was ever written to the retry topics of a source topic."""
        tiers = [
            name for name in self.broker.topics if name.startswith(f"{topic}--{self.group}--r")
        ]
        return [parked(record) for tier in tiers for record in self.broker.records(tier)]

    def dlq(self, topic: str) -> list[ParkedRecord]:
        """The dead letters of a source topic."""
        return [parked(record) for record in self.broker.records(dlq_topic(topic, self.group))]

    def close(self, forced: Callable[[], bool] = lambda: False) -> int:
        """End the worker in order; returns how many handlers were cut short."""
        self.closed = True
        return self.worker.close(forced)


@contextmanager
def live(
    app: App,
    *,
    partitions: int = 1,
    broker: MemoryBroker | None = None,
    events: EventLoopThread | None = None,
    observers: Sequence[Any] = (),
    breakers: bool = False,
    **config: Any,
) -> Iterator[Live]:
    """Run an app's worker; `config` are fields of `WorkerConfig`.

    Most tests fail more of their records than a circuit breaker would let pass, so there is none
    unless it is asked for.
    """
    clock = ForwardClock()
    broker = broker or MemoryBroker(clock)
    off = CircuitBreaker(enabled=False)
    handlers = [spec if breakers else replace(spec, breaker=off) for spec in app.handlers]
    topology = create_topics(broker, app.group, handlers, partitions)
    watcher = Watcher()
    outside = Outside(
        MemorySource(broker, app.group, quarantined_topics=topology.quarantined_topics()),
        MemorySink(broker),
        MemoryPublisher(broker, create_topics=True),
        clock,
        events or EventLoopThread(),
    )
    settings = {"commit_interval_s": 0.02, "shutdown_s": 60.0, "drain_s": 1.0, **config}
    if "max_open" in settings:
        settings["limits"] = FlowLimits(max_open=settings.pop("max_open"))
    worker = Worker(
        app,
        handlers,
        WorkerConfig(app.group, **settings),
        topology,
        outside,
        [watcher, *observers],
    )
    running = Live(worker, broker, watcher, app.group, clock)
    puppets.enter(running.loop.executors.running)
    try:
        yield running
    finally:
        if not running.closed:
            running.close(lambda: True)
        puppets.leave(running.loop.executors.running)


def within(condition: Callable[[], object], what: str = "it", seconds: float = PATIENCE_S) -> None:
    """Wait for a condition that needs nobody to turn a loop."""
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.002)
