"""World: the broker, the worker processes, who starts them anew, and the run of one plan.

The supervisor is played here: a process that dies is started again after a while, with the suspects
that the real count of crashes names. Once the last fault is over the world is given time to come to
rest; whatever has not ended by then is stuck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ackfloor.core.messages.events import (
    BreakerClosed,
    BreakerOpened,
    DeliveryTimedOut,
    Event,
    RecordDeadLettered,
    RecordParked,
)
from ackfloor.core.records.record import TopicPartition
from ackfloor.runtime.supervision.crashes import Crashes
from ackfloor.runtime.supervision.in_flight_memory import RecordId
from ackfloor.testing.kit.topology import create_topics, settings_of
from ackfloor.testing.memory.memory_broker import MemoryBroker
from tests.simulation.faults import FaultMaker
from tests.simulation.hub import FIRST_S, Hub, SimClock, Stuck
from tests.simulation.network import Network
from tests.simulation.outputs import PARTITIONS, TOPICS
from tests.simulation.plan import Plan, RecordPlan
from tests.simulation.ports import SimBroker
from tests.simulation.process import GROUP, Process, make_app, topic_of
from tests.simulation.watch import Broken, Watch

#: Seconds after the last fault and record in which everything must have ended. A handler's guard
#: may hold a topic up for long: it is not what this bound is for.
REST_S = 1_500.0
#: The events that a result keeps.
TOLD = (BreakerClosed, BreakerOpened, DeliveryTimedOut, RecordDeadLettered, RecordParked)
#: Seconds between two looks whether everything has ended.
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Result:
    """How a run went.

    Attributes:
        broken: the promise that was broken, or None.
        digest: a hash of the trace: the same for the same plan, everywhere.
        events: how many events the hub had.
        transitions: how many starts, ends, answers, parks there were.
        checks: rule -> how often it was looked at.
        trace: the trace, where it was kept.
        starts_s: uid -> seconds from its production to its first start.
        seen: (fault, state of a record) that came together.
        took_s: simulated seconds.
        sick_slots_s: seconds of slots that sick records have had.
        told: seconds since the beginning, and an event that `TOLD` names.
    """

    broken: Broken | None
    digest: str
    events: int
    transitions: int
    checks: Mapping[str, int]
    trace: Sequence[str] | None
    starts_s: Mapping[int, float]
    seen: frozenset[tuple[str, str]]
    took_s: float
    sick_slots_s: float
    told: Sequence[tuple[float, Event]]


class _WorldWatch(Watch):
    """The watch, with a look at what the broker has stored."""

    broker: MemoryBroker

    def stored(self, key: TopicPartition) -> Any:
        """What is committed."""
        return self.broker.committed(GROUP, key.topic, key.partition)


class World:
    """Everything of one run."""

    def __init__(self, plan: Plan, *, trace: bool = False) -> None:
        self.plan = plan
        self.hub = Hub(
            plan.seed, most_events=plan.most_events + 40 * len(plan.records), trace=trace
        )
        self.clock = SimClock(self.hub)
        self.broker = SimBroker(self.clock)
        self.watch = _WorldWatch(self.hub, plan)
        self.watch.broker = self.broker
        self.network = Network(self.hub, session_s=plan.session_s, batch=plan.batch)
        self.settings: dict[str, Any] = {}
        app = make_app(plan, [_FUNCTIONS[h.kind, h.batch is not None] for h in plan.handlers])
        specs = settings_of(app, {}).applied(app.handlers)
        self.topology = create_topics(self.broker, GROUP, specs, plan.partitions)
        for topic in TOPICS:
            self.broker.create_topic(topic, PARTITIONS)
        self.quarantined_topics = self.topology.quarantined_topics()
        self._crashes = Crashes()
        self.processes: list[Process] = []
        self._by_life: dict[int, Process] = {}
        self._started = 0
        self.told: list[tuple[float, Event]] = []
        self.wanted = plan.workers
        self.quiet_from_s = FIRST_S
        self.faults = FaultMaker(self)
        self.broker.on_moved = self.news
        self.network.on_news = self._worker_news
        self.network.on_append = self.appended
        self.hub.on_raised = self._raised

    # The run.

    def run(self) -> Result:
        """Play the plan."""
        hub = self.hub
        try:
            self._begin()
            self._play()
        except Broken as exc:
            self.fail(exc)
        except Stuck as exc:
            self.fail(Broken("stuck", str(exc)))
        broken = self.watch.broken
        took_s = hub.now_s - FIRST_S
        self._tear_down()
        starts = {
            uid: at_s - self.watch.produced_s[uid] for uid, at_s in self.watch.first_start_s.items()
        }
        return Result(
            broken,
            hub.digest,
            hub.events,
            self.watch.transitions,
            self.watch.checks,
            hub.notes,
            starts,
            frozenset(self.faults.seen),
            took_s,
            self.watch.slots_s(),
            self.told,
        )

    def _begin(self) -> None:
        hub, plan = self.hub, self.plan
        for record in plan.records:
            hub.at(FIRST_S + record.at_s, lambda record=record: self._produce(record))
            self.quiet_from_s = max(self.quiet_from_s, FIRST_S + record.at_s)
        for fault in plan.faults:
            hub.at(FIRST_S + fault.at_s, lambda fault=fault: self.faults.begin(fault))
            self.quiet_from_s = max(self.quiet_from_s, FIRST_S + fault.at_s + fault.lasts_s)
        for _ in range(plan.workers):
            self.spawn()

    def _play(self) -> None:
        hub = self.hub
        hub.run(self.quiet_from_s, self._is_over)
        self.faults.end_all()
        self.wanted = max(1, self.wanted)
        until_s = hub.now_s + REST_S
        while not self._is_over() and hub.now_s < until_s:
            if self.watch.all_ended() and self._at_rest():
                break
            hub.run(hub.now_s + LOOK_S, self._is_over)
            self._fill_up()
            self.faults.free_held()
        if self.watch.broken is None:
            self._check_rest()

    def _is_over(self) -> bool:
        return self.watch.broken is not None

    def _raised(self, exc: BaseException) -> None:
        """A worker's thread has let something out: it would be gone."""
        broken = exc if isinstance(exc, Broken) else Broken("11", f"a thread ends with {exc!r}")
        if broken is not exc:
            broken.__cause__ = exc
        self.fail(broken)

    def fail(self, broken: Broken) -> None:
        """A promise was broken where nothing can be raised."""
        self.watch.broken = self.watch.broken or broken

    def _at_rest(self) -> bool:
        """Whether all is committed, and nothing is open anywhere."""
        for process in self.processes:
            if not process.life.alive:
                continue
            engine = process.worker.engine
            if engine.flow.open_count:
                return False
        return not self._uncommitted()

    def _uncommitted(self) -> list[str]:
        """Partitions whose floor is not committed up to the log's end."""
        late = []
        for topic in self.topology.routes:
            for partition in range(self.plan.partitions):
                log = self.broker.log(topic, partition)
                found = self.broker.committed(GROUP, topic, partition)
                if log.end > 0 and (found is None or found.position < log.end):
                    late.append(f"{topic}/{partition}")
        return late

    def _check_rest(self) -> None:
        self.watch.check_end()
        late = self._uncommitted()
        self.watch.check("6", not late, f"not committed up to the end: {', '.join(late)}")
        for process in self.processes:
            if process.life.alive:
                self.watch.account(process.life, process.worker.engine.flow.open_count)

    def _tear_down(self) -> None:
        self.watch.over = True
        for process in self.processes:
            process.drop()

    def _produce(self, record: RecordPlan) -> None:
        topic = topic_of(record.handler)
        if record.gap:
            self.broker.skip_offsets(topic, record.partition, record.gap)
        value = b"{%d" % record.uid if record.garbage else b"%d" % record.uid
        written = self.broker.produce(topic, value, key=record.key, partition=record.partition)
        self.watch.produced(record.uid, written)
        self.hub.note(f"{record.uid} is produced as {topic}/{record.partition}/{written.offset()}")
        self.appended(topic, record.partition)

    # Who runs.

    def observed(self, events: Sequence[Event]) -> None:
        """A worker's observers get events."""
        now_s = self.hub.now_s - FIRST_S
        self.told += [(now_s, event) for event in events if isinstance(event, TOLD)]

    def spawn(self) -> None:
        """Start a worker process."""
        self._started += 1
        process = Process(self, self._started)
        self.processes.append(process)
        self._by_life[process.life.number] = process

    def alive(self) -> list[Process]:
        """The processes that are there and were not asked to go."""
        return [p for p in self.processes if p.life.alive and not p.stops]

    def died(self, process: Process, in_flight: Sequence[RecordId]) -> None:
        """A process is dead: count, and start another after a while."""
        if in_flight:
            self._crashes.died(in_flight, "was killed")
        self.hub.after(0.05 + self.hub.random.random() * 2, self._fill_up)

    def ended(self, process: Process) -> None:
        """A process has ended in order."""
        self.hub.after(0.01, self._fill_up)

    def _fill_up(self) -> None:
        while len(self.alive()) < self.wanted and not self.watch.over:
            self.spawn()

    def suspects(self) -> list[tuple[str, int, int, int, str]]:
        """What a new process is told of those who died."""
        return [
            (record.topic, record.partition, record.offset, count.crashes, count.how)
            for record, count in self._crashes._counts.items()
        ]

    def cleared(self, over: Sequence[tuple[str, int, int]]) -> None:
        """Records are suspects no longer."""
        for topic, partition, offset in over:
            self._crashes._counts.pop(RecordId(topic, partition, offset), None)

    # News.

    def news(self) -> None:
        """Something has changed at the broker: whoever waits for it looks soon."""
        for process in self.processes:
            if process.life.alive:
                process.wake()

    def appended(self, topic: str, partition: int) -> None:
        """A log has grown: whoever reads it looks soon."""
        for process in self.processes:
            if process.life.alive and process.source.reads(topic, partition):
                process.wake()

    def _worker_news(self, life: Any) -> None:
        process = self._by_life.get(life.number)
        if process is not None and life.alive:
            process.wake()


async def _async(value: int) -> None:
    """A handler where only the topics of the app are asked for."""


async def _async_batch(items: list[int]) -> None:
    """The same for batches."""


def _plain(value: int) -> None:
    """The same on threads."""


def _plain_batch(items: list[int]) -> None:
    """The same on threads, for batches."""


_FUNCTIONS: dict[tuple[str, bool], Callable[..., Any]] = {
    ("async", False): _async,
    ("async", True): _async_batch,
    ("thread", False): _plain,
    ("thread", True): _plain_batch,
    ("process", False): _plain,
}


def play(plan: Plan, *, trace: bool = False) -> Result:
    """Run one plan."""
    return World(plan, trace=trace).run()
