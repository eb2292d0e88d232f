"""Worker: one worker put together from its parts, and its life from start to end.

What is outside (source, sink, publisher, clock, event loop, topology) is passed in, so that the
same worker runs on Kafka in a process of its own and on the in-memory broker in a test.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ackfloor.core.engine.engine import Engine
from ackfloor.core.parking.parking import Parking
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.redaction import Redaction
from ackfloor.core.state.rule_changes import Reloaded
from ackfloor.core.state.worker_state import Route
from ackfloor.core.values.durations import format_duration
from ackfloor.declare.codec import Decode, make_decoder
from ackfloor.declare.encoders import Encoders
from ackfloor.declare.handler import HandlerSpec
from ackfloor.declare.signature import Signature, read_signature
from ackfloor.errors import ConfigError
from ackfloor.ports import (
    Clock,
    Executor,
    Observer,
    ProcessMonitor,
    Publisher,
    Sink,
    Source,
    TransactionalSink,
)
from ackfloor.runtime.calls.invoke import Invocation, being_handled, bind
from ackfloor.runtime.calls.invoke_batch import bind_batch
from ackfloor.runtime.calls.publishes import Publishes
from ackfloor.runtime.calls.refused_publishes import RefusedPublishes
from ackfloor.runtime.calls.results import Results
from ackfloor.runtime.calls.tracing import spans_of
from ackfloor.runtime.executors.async_executor import AsyncExecutor
from ackfloor.runtime.executors.event_loop import EventLoop
from ackfloor.runtime.executors.inbox import Inbox
from ackfloor.runtime.executors.lifespan import Lifespan
from ackfloor.runtime.executors.process.process_executor import ProcessExecutor
from ackfloor.runtime.executors.process.start_arguments import plan_of
from ackfloor.runtime.executors.thread_executor import ThreadExecutor
from ackfloor.runtime.logging.delivery_log import DeliveryLog
from ackfloor.runtime.loop.error_functions import ErrorFunctions
from ackfloor.runtime.loop.executors import Executors
from ackfloor.runtime.loop.loop import Loop
from ackfloor.runtime.reporting.observers import Observers
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory
from ackfloor.settings import RegistrySettings

if TYPE_CHECKING:
    from ackfloor.app import App
    from ackfloor.runtime.calls.spans import Spans

log = logging.getLogger("ackfloor.worker")

#: Seconds the lifespan has to end.
LIFESPAN_S = 5.0
#: Seconds that functions of `on_error` have for what waits for them.
ERROR_FUNCTIONS_S = 5.0
#: Seconds that published records have to be confirmed at the end.
PUBLISHER_S = 5.0


@dataclass(frozen=True, slots=True)
class Topology:
    """What is read and where parked records go.

    Attributes:
        routes: topic that is read (source or tier) -> whose it is.
        partitions: topic -> partition count, of every tier and dead-letter topic.
        spare: the topics among these that nothing new goes to, tiers of an earlier policy.
        sources: topic -> partition count, of every source topic.
    """

    routes: Mapping[str, Route]
    partitions: Mapping[str, int]
    spare: frozenset[str] = frozenset()
    sources: Mapping[str, int] = field(default_factory=dict)

    def low_priority_topics(self) -> Mapping[str, str]:
        """The tiers that are not subscribed but read with their sources, and the source of each."""
        routes = self.routes.items()
        return {
            topic: route.source_topic
            for topic, route in routes
            if route.tier_s is not None and not route.high_priority
        }

    def quarantined_topics(self) -> Mapping[str, str]:
        """The tiers in which keys may be quarantined, and the source of each."""
        return {
            topic: route.source_topic
            for topic, route in self.routes.items()
            if route.tier_s is not None and route.quarantines
        }


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """A worker's settings; durations in seconds."""

    group: str
    limits: FlowLimits = field(default_factory=FlowLimits)
    commit_interval_s: float = 1.0
    commit_count: int = 10_000
    drain_s: float = 10.0
    shutdown_s: float = 30.0
    cancel_grace_s: float = 5.0
    max_abandoned: int = 256
    release: str | None = None
    #: This worker's name in the headers of its dead letters (broadcast mode).
    worker: str | None = None
    spring_headers: bool = False
    kafka_headers: bool = False
    transactional: bool = False
    #: What is taken from the text of exceptions before it is logged or traced.
    redaction: Redaction = field(default_factory=Redaction)
    #: How what handlers publish with an encoder gets its schema.
    registry: RegistrySettings = field(default_factory=RegistrySettings)
    #: Whether whoever publishes waits for the registry where it stands; see `Encoders`.
    encodes_inline: bool = False


@dataclass(slots=True)
class Outside:
    """The ports a worker runs on; the sink is the one that its settings ask for."""

    source: Source
    sink: Sink | TransactionalSink
    publisher: Publisher
    clock: Clock
    events: EventLoop
    in_flight: InFlightMemory = field(default_factory=InFlightMemory)
    #: Hears from the handlers' processes.
    process_monitor: ProcessMonitor | None = None
    #: Stands in for threads and processes, by the handler's spec (the simulation has its own).
    stand_in: Callable[[HandlerSpec], Callable[..., Executor]] | None = None


class Worker:
    """One worker of an app.

    Args:
        app: the user's app.
        handlers: its handlers, settings applied.
        config: the worker's settings.
        topology: what to subscribe and where to park.
        outside: the ports.
        observers: receive all events and snapshots.
        pick: chooses a partition among n; random unless a test says otherwise.
        make_engine: the engine's class, or one that watches it (the test kit does).
    """

    def __init__(
        self,
        app: App,
        handlers: Sequence[HandlerSpec],
        config: WorkerConfig,
        topology: Topology,
        outside: Outside,
        observers: Sequence[Observer] = (),
        pick: Callable[[int], int] = random.randrange,
        make_engine: Callable[..., Engine] = Engine,
    ) -> None:
        self._app = app
        self._handlers = handlers
        self._config = config
        self._topology = topology
        self._outside = outside
        self.inbox = Inbox()
        parking = Parking(
            config.group,
            pick,
            topology.partitions,
            release=config.release,
            worker=config.worker,
            spring_headers=config.spring_headers,
            kafka_headers=config.kafka_headers,
        )
        self.engine = make_engine(
            [spec.rules() for spec in handlers],
            topology.routes,
            parking,
            limits=config.limits,
            inbox=self.inbox.answered,
            clock=outside.clock.monotonic,
            commit_interval_s=config.commit_interval_s,
            commit_count=config.commit_count,
            transactional=config.transactional,
            redaction=config.redaction,
        )
        self.engine.counted(topology.sources)
        self.observers = Observers(observers)
        self._lifespan = Lifespan(app.open_lifespan, outside.events, self.inbox.broken.append)
        self._error_functions = ErrorFunctions(app.error_functions, config.redaction)
        self._spans: Spans | None = None
        self._publishes = Publishes(being_handled)
        self._encoders = Encoders(config.registry, inline=config.encodes_inline)
        self.loop: Loop | None = None

    def start(self) -> Loop:
        """Enter the lifespan, bind the handlers and join the group."""
        self._outside.events.on_stray = self.inbox.strays.append
        self._outside.events.start()
        self._attach(self._outside.publisher)
        state = self._lifespan.enter()
        self._error_functions.start()
        self._spans = spans_of(self._config.group, self._config.redaction)
        if self._spans is not None:
            self._attach(self._spans.publisher(self._outside.publisher))
        delivery_log = DeliveryLog(self._config.redaction)
        executors = Executors(
            {spec.name: self._executor(spec, state) for spec in self._handlers},
            self._outside.clock,
            delivery_log,
            max_abandoned=self._config.max_abandoned,
            events=self._outside.events,
            in_flight=self._outside.in_flight,
        )
        self.loop = Loop(
            self.engine,
            self._outside.source,
            self._outside.sink,
            executors,
            self.inbox,
            self._outside.clock,
            self.observers,
            delivery_log,
            self._error_functions,
            group=self._config.group,
            drain_s=self._config.drain_s,
        )
        self.loop.open(sorted(self._topology.routes))
        return self.loop

    def _attach(self, publisher: Publisher) -> None:
        if any(spec.exactly_once for spec in self._handlers):
            publisher = RefusedPublishes(publisher, being_handled)
        self._app.attach(publisher, self._publishes.confirmed, self._encoders)

    def reloaded(self, handlers: Sequence[HandlerSpec], config: WorkerConfig) -> Reloaded:
        """Other settings, as the loop takes them.

        Raises:
            ConfigError: a retry policy waits in topics that this worker is not subscribed to.
        """
        known = {(r.handler, r.source_topic, r.tier_s) for r in self._topology.routes.values()}
        for spec in handlers:
            for topic in spec.topics:
                for tier_s in spec.tiers():
                    if (spec.name, topic, tier_s) not in known:
                        raise ConfigError(
                            f"handlers.{spec.name}.retry", format_duration(tier_s),
                            f"no retry topic of {topic} with this delay is subscribed",
                            "restart the run, or keep to the delays it has",
                        )  # fmt: skip
        return Reloaded(
            tuple(spec.rules() for spec in handlers),
            config.limits,
            config.commit_interval_s,
            config.commit_count,
        )

    def _executor(self, spec: HandlerSpec, state: object) -> Executor:
        signature = read_signature(
            spec.function,
            handler=spec.name,
            state_type=self._app.state_type,
            batch=spec.batch is not None,
            results=spec.to is not None,
        )
        if spec.executor == "process" and self._outside.stand_in is None:
            monitor = self._outside.process_monitor
            report = None if monitor is None else monitor.process_report
            return ProcessExecutor(
                plan_of(self._app, spec, signature, self._config.redaction, report),
                self.inbox,
                self._outside.clock.monotonic,
                concurrency=spec.concurrency,
                max_records=spec.process_max_records,
                monitor=monitor,
            )
        decode = make_decoder(
            signature.value_type,
            signature.accepts_null,
            decoder=spec.decoder,
            field=f"handlers.{spec.name}.{signature.value_param or 'value'}",
        )
        invocation = self._invocation(spec, signature, decode, state)
        if self._spans is not None:
            invocation = self._spans.around(invocation, batch=spec.batch is not None)
        return self._in_process(spec, invocation)

    def _in_process(self, spec: HandlerSpec, invocation: Invocation) -> Executor:
        """What runs a handler inside this process: on the event loop, or on threads."""
        clock = self._outside.clock.monotonic
        if invocation.is_async:
            return AsyncExecutor(
                invocation,
                self._outside.events,
                self.inbox,
                clock,
                concurrency=spec.concurrency,
                cancel_grace_s=self._config.cancel_grace_s,
                in_flight=self._outside.in_flight,
            )
        return self._on_threads(spec)(
            invocation,
            self.inbox,
            clock,
            concurrency=spec.concurrency,
            in_flight=self._outside.in_flight,
        )

    def _on_threads(self, spec: HandlerSpec) -> Callable[..., Executor]:
        if self._outside.stand_in is not None:
            return self._outside.stand_in(spec)
        return ThreadExecutor

    def _invocation(
        self, spec: HandlerSpec, signature: Signature, decode: Decode, state: object
    ) -> Invocation:
        if spec.batch is not None:
            return bind_batch(
                spec.name,
                spec.function,
                signature,
                decode,
                dead_letter_on=spec.dead_letter_on,
                state=state,
                publishes=self._publishes,
                results=self._results(spec),
            )
        call = bind(
            spec.function,
            signature,
            decode,
            state=state,
            middleware=(*self._app.middleware, *spec.middleware),
            results=self._results(spec),
        )
        return Invocation(
            spec.name,
            call,
            signature.is_async,
            spec.manual,
            spec.dead_letter_on,
            self._publishes,
        )

    def _results(self, spec: HandlerSpec) -> Results | None:
        """What publishes the results of a handler; None where it has none."""
        if spec.to is None:
            return None
        trace_of = nullcontext if self._spans is None else self._spans.trace_of
        return Results(spec.to, self._app.write, trace_of)

    def close(self, forced: Callable[[], bool] = lambda: False) -> int:
        """End in order; returns how many running handlers were cut short.

        Raises:
            Exception: what the lifespan raised on the way out, or a failed source; everything
                else has been closed by then.
        """
        with ExitStack() as rest:
            rest.callback(self._outside.events.stop)
            rest.callback(self._outside.publisher.close, PUBLISHER_S)
            rest.callback(self._app.detach)
            rest.callback(self._lifespan.exit, LIFESPAN_S)
            # Before the lifespan, whose objects they may use.
            rest.callback(self._error_functions.stop, ERROR_FUNCTIONS_S)
            if self.loop is not None:
                return self.loop.close(self._config.shutdown_s, forced)
        return 0
