"""Process: one simulated worker process, from its start to its end or its death.

The worker in it is the real one: engine, loop, settings, decoding, the async executor, and the
thread executor on strands. What is outside (client, clock, event loop) is simulated. Its owner
thread is a strand; the supervisor, the signals and the marks of what is in flight are the world's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ackfloor import App, CircuitBreaker, RetryPolicy
from ackfloor.core.engine.engine import Engine
from ackfloor.core.messages.events import Event
from ackfloor.core.messages.lane_order import LaneOrder
from ackfloor.core.parking.parking import Parking
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Transaction, TransactionOutcome
from ackfloor.core.records.outcomes import Verdict
from ackfloor.core.records.output import OUTPUT_TOO_LARGE
from ackfloor.core.records.record import CommitPosition, Now, StartPosition, TopicPartition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.runtime.loop.worker_assembly import Outside, Worker
from ackfloor.runtime.supervision.in_flight_memory import RecordId
from ackfloor.testing.kit.topology import settings_of, worker_config
from tests.simulation.event_loop import SimEventLoop, SimEvents
from tests.simulation.executor import stand_in_of
from tests.simulation.handlers import Handlers, in_process
from tests.simulation.hub import Hub, SimClock, Strand
from tests.simulation.life import Life
from tests.simulation.plan import HandlerPlan, Plan
from tests.simulation.ports import SimPublisher, SimSink, SimSource, SimTransactionalSink
from tests.simulation.watch import GRACE_S, Broken, Place, Watch

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

GROUP = "sim"
#: Failures that open a breaker as it is by default.
FAILURES = 50
#: Longest waits of a turn, in seconds: with records open, and without.
BUSY_S = 1.0
IDLE_S = 10.0


def topic_of(number: int) -> str:
    """The source topic of the handler with this number."""
    return f"t{number}"


def make_app(plan: Plan, functions: Sequence[Callable[..., Any]]) -> App:
    """The app of a run."""
    app = App(group=GROUP, **options_of(plan))
    for number, (handler, function) in enumerate(zip(plan.handlers, functions, strict=True)):
        registered = in_process if handler.kind == "process" else function
        app.handler(topic_of(number), **handler_options(number, handler))(registered)
    return app


def options_of(plan: Plan) -> dict[str, object]:
    """The app's settings."""
    return {
        "parking": "transactional" if plan.transactional else "at_least_once",
        "commit_interval": f"{plan.commit_interval_s}s",
        "drain_timeout": f"{plan.drain_s}s",
        "shutdown_timeout": "4s",
        "cancel_grace": f"{GRACE_S}s",
        "max_open": plan.max_open,
        "partition_open": plan.partition_open,
        "max_open_bytes": plan.open_bytes,
    }


def handler_options(number: int, plan: HandlerPlan) -> dict[str, Any]:
    """The options of one handler."""
    options: dict[str, Any] = {
        "name": f"h{number}",
        "ordering": plan.ordering,
        "on_failure": plan.on_failure,
        "concurrency": plan.concurrency,
        "consume_timeout": f"{plan.timeout_s}s",
        "retry": RetryPolicy(
            delays=[f"{delay_s}s" for delay_s in plan.delays_s],
            max_redeliveries=plan.redeliveries,
            jitter=0.1,
        ),
        "breaker": breaker_of(plan.breaker),
        "ack": "manual" if plan.manual else "auto",
    }
    if plan.outputs:
        options["output"] = "exactly_once"
    if plan.rate_per_s:
        options["rate"] = f"{plan.rate_per_s}/s"
    if plan.on_failure == "quarantine":
        options["after_dead_letter"] = plan.after_dead_letter
    if plan.kind == "process":
        options["executor"] = "process"
    if plan.batch is not None:
        options["batch"] = plan.batch
        options["batch_wait"] = "100ms"
    return options


def breaker_of(failures: int) -> CircuitBreaker | None:
    """A circuit breaker that opens after so many failures; small ones are quick in all they do."""
    if failures >= FAILURES:
        return CircuitBreaker(failures)
    if not failures:
        return None
    return CircuitBreaker(failures, failures - 1, "20s", "60/m", "40s")


class News(deque[T]):
    """One of the inbox's deques; whoever adds to it wakes the owner thread, after a while."""

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self._wake = wake

    def append(self, item: T) -> None:
        """Add, and wake."""
        super().append(item)
        self._wake()


class SimParking(Parking):
    """Parking, with what leaves its lane shown to the watch."""

    __slots__ = ("watch",)

    watch: Watch

    def park(self, delivery: TrackedDelivery, verdict: Verdict, now: Now) -> PendingWrite:
        """As parking."""
        if verdict.failure.error_type != OUTPUT_TOO_LARGE:
            # Such a dead letter has a place in its lane until it is written.
            self.watch.leaves(delivery)
        return super().park(delivery, verdict, now)


class SimEngine(Engine):
    """The engine, with what it takes shown to the watch."""

    def __init__(self, watch: Watch, life: Life, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._watch = watch
        self._life = life
        real = self.state.parking
        parking = self.state.parking = SimParking(
            *(getattr(real, each.name) for each in fields(Parking) if each.init)
        )
        parking.watch = watch

    def assign(self, starts: Sequence[StartPosition], now: Now) -> None:
        """As the engine."""
        self._watch.assigned(self._life, starts)
        super().assign(starts, now)

    def drop(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """As the engine."""
        partitions = list(partitions)
        self._watch.released(self._life, partitions, lost=lost)
        super().drop(partitions, lost=lost)

    def answered(self, deliveries: Iterable[TrackedDelivery], now: Now) -> None:
        """As the engine."""
        batch = list(deliveries)
        self._watch.taken(self._life, [(delivery, delivery.closed) for delivery in batch])
        super().answered(batch, now)

    def expire(self, running: Iterable[TrackedDelivery], now: Now) -> None:
        """As the engine."""
        before = [delivery for delivery in running if not delivery.closed]
        super().expire(before, now)
        for delivery in before:
            if delivery.closed and delivery.outcome is None:
                self._watch.timed_out(self._life, delivery)

    def published(self, parcels: Iterable[PendingWrite], now: Now) -> None:
        """As the engine."""
        confirmed = list(parcels)
        for parcel in confirmed:
            self._watch.confirmed(self._life, parcel)
        super().published(confirmed, now)

    def transacted(self, transaction: Transaction, outcome: TransactionOutcome, now: Now) -> None:
        """As the engine."""
        if outcome.committed:
            for parcel in transaction.writes:
                self._watch.confirmed(self._life, parcel)
        super().transacted(transaction, outcome, now)

    def committed(self, results: Iterable[tuple[CommitPosition, str | None]], now: Now) -> None:
        """As the engine."""
        results = list(results)
        self._watch.committed(self._life, results)
        super().committed(results, now)


class Process:
    """One worker process.

    Attributes:
        life: whether it is alive.
        ended: whether it has ended in order.
        stops: how many SIGTERMs it has had.
    """

    def __init__(self, world: World, number: int) -> None:
        hub, plan, watch = world.hub, world.plan, world.watch
        self._world = world
        self._hub: Hub = hub
        self._watch = watch
        self.life = life = Life(hub, number, self._died)
        self.stops = 0
        self._reloads = False
        self._lane_orders: deque[LaneOrder] = deque()
        self.ended = False
        self._loop = SimEventLoop(hub, life.is_alive, life.thaws, self._raised)
        clock = SimClock(hub)
        self.source = SimSource(
            world.broker, GROUP, hub, life, world.network, watch, world.quarantined_topics
        )
        self.source.patience_s = self._patience_s
        self.sink: SimSink | SimTransactionalSink = (
            SimTransactionalSink(world.broker, GROUP, hub, life, world.network, watch)
            if plan.transactional
            else SimSink(world.broker, hub, life, world.network, watch)
        )
        handlers = Handlers(hub, life, watch)
        functions = [handlers.make(handler) for handler in plan.handlers]
        life.functions = {f"h{number}": function for number, function in enumerate(functions)}
        app = make_app(plan, functions)
        settings = settings_of(app, world.settings)
        outside = Outside(
            self.source,
            self.sink,
            SimPublisher(world.broker, life, world.network),
            clock,
            SimEvents(hub, self._loop),
        )
        outside.stand_in = stand_in_of(hub, life)
        self.worker = Worker(
            app,
            settings.applied(app.handlers),
            worker_config(settings),
            world.topology,
            outside,
            [self],
            hub.random.randrange,
            partial(SimEngine, watch, life),
        )
        self.app = app
        answered: News[TrackedDelivery] = News(self._answered)
        self.worker.inbox.answered = self.worker.engine.state.inbox = answered
        self.worker.inbox.finished = News(self._answered)
        self.worker.inbox.pause_requests = News(self._answered)
        self.worker.engine.suspects.learn(world.suspects())
        self.owner = Strand(hub, self._live, life.is_alive, self._owner_thaws)
        self.owner_thaws_s = 0.0
        life.strands.append(self.owner)
        self.owner.start(hub.random.random() * 0.05)

    # Its life.

    def _live(self) -> None:
        hub = self._hub
        hub.note(f"{self.life} starts")
        loop = self.worker.start()
        while not self.stops:
            if self._reloads:
                self._reloads = False
                self._reload()
            while self._lane_orders:
                self._carry_out(self._lane_orders.popleft())
            loop.turn()
            self._watch.turn(self.life, loop.executors.running())
            engine = self.worker.engine
            self._watch.levels(self.life, engine.flow.open_count, len(engine.assignments))
            over = self.worker.engine.suspects.over
            if over:
                self._world.cleared(over)
                over.clear()
            broken = self.worker.inbox.broken
            self._watch.check("11", not broken, f"a part of {self.life} has ended: {broken}")
            if loop.executors.worn_out():
                break
        self.worker.close(lambda: self.stops > 1)
        hub.note(f"{self.life} has ended")
        self.ended = True
        self.life.alive = False
        self._world.ended(self)

    def _died(self) -> None:
        self.source.die()
        self.sink.die()
        self._loop.die()
        self._world.died(self, self.in_flight())

    def in_flight(self) -> list[RecordId]:
        """What its marks would say: the records whose handlers run."""
        loop = self.worker.loop
        if loop is None:
            return []
        running = [
            delivery
            for delivery in loop.executors.running()
            if delivery.started_s and not delivery.assignment.handler.rules.killable
        ]
        return sorted({RecordId(d.topic, d.partition, d.offset) for d in running})

    def drop(self) -> None:
        """The run is over."""
        self.life.alive = False
        for strand in self.life.strands:
            strand.kill()
        self._loop.drop()

    def stop(self) -> None:
        """SIGTERM."""
        self.stops += 1
        self.owner.poke()

    def reload(self) -> None:
        """Take the world's settings over; between two turns, as the real one."""
        self._reloads = True
        self.owner.poke()

    def _reload(self) -> None:
        loop = self.worker.loop
        assert loop is not None
        settings = settings_of(self.app, self._world.settings)
        specs = settings.applied(self.app.handlers)
        loop.reload(self.worker.reloaded(specs, worker_config(settings)))

    def operate(self, order: LaneOrder) -> None:
        """An operator moves heads of blocked lanes; between two turns, as frames are read."""
        self._lane_orders.append(order)
        self.owner.poke()

    def _carry_out(self, order: LaneOrder) -> None:
        engine = self.worker.engine
        before = _open_places(engine)
        answer = engine.lane_orders.carry_out(order, SimClock(self._hub).now())
        self._hub.note(f"{self.life} carries out {order.action}: {answer}")
        for place in before - _open_places(engine):
            self._watch.discarded(self.life, place)

    def freeze(self, seconds: float, *, owner_only: bool) -> None:
        """It stands still, whole or only its owner thread; the group may lose it meanwhile."""
        until_s = self._hub.now_s + seconds
        self.owner_thaws_s = until_s
        if not owner_only:
            self.life.thaws_s = until_s
        if seconds > self._world.plan.session_s:
            self._hub.after(self._world.plan.session_s, self.session_over)

    def session_over(self) -> None:
        """The group expels it."""
        if self.life.alive:
            self.source.outlive_session()

    def _owner_thaws(self) -> float:
        return max(self.life.thaws_s, self.owner_thaws_s)

    # When its owner thread wakes up.

    def wake(self) -> None:
        """There is news: the owner thread looks soon."""
        self.owner.poke(self._hub.random.random() * 0.002)

    def _answered(self) -> None:
        self.owner.poke(self._hub.random.random() * 0.02)

    def _patience_s(self, seconds: float) -> float:
        """How long a turn waits for news, at most; it is never longer than in production by much.

        In production an idle worker looks five times a second; here it is woken by what happens.
        """
        if seconds <= 0:
            return 0.0
        engine = self.worker.engine
        due_s = engine.next_wakeup_s(Now(self._hub.now_s, self._hub.wall_ms)) - self._hub.now_s
        longest_s = BUSY_S if engine.flow.open_count else IDLE_S
        return max(0.0, min(longest_s, due_s))

    def _raised(self, context: dict[str, Any]) -> None:
        if self.life.alive and not self._watch.over:
            exc = context.get("exception")
            self._world.fail(Broken("11", f"{context['message']}: {exc!r}"))

    # Observer.

    def observe(self, events: Sequence[Event]) -> None:
        """Events of a turn."""
        self._watch.observe(self.life, events)
        self._world.observed(events)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Nothing to note."""


def _open_places(engine: Engine) -> set[Place]:
    """The records that are open in a worker."""
    assigned = engine.assignments.values()
    return {Place(a.topic, a.partition, offset) for a in assigned for offset in a.tracker.open}
