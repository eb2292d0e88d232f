"""Suspects: records that were in flight when a worker process died.

Theory. What kills its process (a fault in native code, memory, `os._exit`) raises nothing. It is
only known which records were in flight, and one of them may have caused it. Each is a suspect, and
is handled by how many processes have died with it:

1   it runs beside ordinary work, but never two suspects at once: of those that were in flight
    together, a second death names one;
2   it runs alone: nothing else of the worker starts, and what runs may end first;
3   it goes to the dead-letter topic without being run (reason `crash`).

The supervisor counts (runtime/supervision/crashes.py): a record comes to 3 only by a death with
nothing else in flight. So an innocent record is delayed, and none is condemned for another's crash.
Any end that leaves the process alive clears a suspect: handled, failed, timed out.

Invariants:

S1  at most one suspect runs at a time, those that have run for `LONGEST_S` not counted;
S2  nothing else starts while one runs alone, for `LONGEST_S` at most;
S3  what comes after a suspect in its lane waits until the suspect has ended;
S4  a suspect that could run does so as soon as no other runs; those with most deaths first;
S5  none starts while a dead letter of a crash is not committed, for `COMMIT_S` at most: another
    death would bring the condemned record back;
S6  what waits here of a key that is quarantined goes behind that key's head, unless it is
    condemned;
S7  one of a handler that an operator paused holds up nothing, unless it runs: it waits for another
    turn, which it gets when the handler is resumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ackfloor.core.messages.events import SuspectCleared, SuspectStarted
from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.records.envelope import Reason, fingerprint
from ackfloor.core.records.outcomes import CONDEMNED, RELEASED, Bury
from ackfloor.core.records.record import Failure, Now
from ackfloor.core.records.tracked_delivery import LaneKey, TrackedDelivery
from ackfloor.core.state.assignment import Assignment, HandlerState
from ackfloor.core.state.worker_state import WorkerState

EXCLUSIVE_CRASHES = 2
#: Seconds after which nothing waits for a suspect any longer, nor a suspect for what runs. Only
#: handlers that have no consume timeout, or a longer one, take so long.
LONGEST_S = 600.0
#: Seconds that the others wait for a condemned record to be written and committed.
COMMIT_S = 10.0


class Suspicion(NamedTuple):
    """What is known of a record that was in flight when processes died.

    Attributes:
        crashes: how many did.
        how: how the last one died, in words.
    """

    crashes: int
    how: str


class _Buried:
    """A condemned record until a commit holds it as settled."""

    __slots__ = ("assignment", "hurried", "offset", "settled_count", "since_s")

    def __init__(self, assignment: Assignment, offset: int, since_s: float) -> None:
        self.assignment = assignment
        self.offset = offset
        self.since_s = since_s
        #: How many records of the partition were settled when this one was.
        self.settled_count: int | None = None
        self.hurried = False

    def is_over(self, state: WorkerState) -> bool:
        """Whether a commit holds it as settled, or its partition has left."""
        assignment = self.assignment
        if assignment.closed:
            return True
        if self.offset in assignment.tracker.open:
            return False
        if self.settled_count is None:
            self.settled_count = assignment.tracker.settled_count()
        if not self.hurried and not assignment.commit.outstanding:
            self.hurried = True
            state.commits.hurry()
        return assignment.commit.settled_count >= self.settled_count


_Entry: TypeAlias = tuple[TrackedDelivery, Suspicion | None]


class _Queue(deque[_Entry]):
    """A suspect and what has come after it in its lane."""

    __slots__ = ("handler", "lane")

    def __init__(self, handler: HandlerState, lane: LaneKey | None) -> None:
        super().__init__()
        self.handler = handler
        #: None where the handler is unordered.
        self.lane = lane

    def is_free(self, now: Now) -> bool:
        """Whether its first suspect could run now."""
        if self.handler.held_until_s > now.mono_s:
            return False
        return self.lane is None or self.handler.lanes.idle(self.lane)

    def is_quarantined(self) -> bool:
        """Whether another record of its key failed, and is the key's head."""
        return self.lane in self.handler.lanes.quarantined


class Suspects:
    """The suspects among one worker's records.

    Attributes:
        over: (topic, partition, offset) of those that are suspects no longer; the runtime reports
            them to the supervisor and takes them out.
    """

    __slots__ = (
        "_buried",
        "_current",
        "_known",
        "_lanes",
        "_outbox",
        "_state",
        "_until_s",
        "_waiting",
        "go_on",
        "over",
    )

    def __init__(self, state: WorkerState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self._known: dict[tuple[str, int], dict[int, Suspicion]] = {}
        #: Queues whose first is a suspect.
        self._waiting: list[_Queue] = []
        #: (handler, lane) -> the queue of that lane, also while its first suspect runs.
        self._lanes: dict[Hashable, _Queue] = {}
        self._current: tuple[TrackedDelivery, _Queue, Suspicion] | None = None
        #: Until when `_current`, or what must end before it, is waited for.
        self._until_s = 0.0
        #: Given what has waited here, returns what is not to wait in quarantine; see `Quarantines`.
        self.go_on: Callable[
            [HandlerState, Sequence[TrackedDelivery]], Sequence[TrackedDelivery]
        ] = lambda _handler, batch: batch
        #: Condemned; they stay suspects until they are committed.
        self._buried: list[_Buried] = []
        self.over: list[tuple[str, int, int]] = []

    def learn(self, suspects: Iterable[tuple[str, int, int, int, str]]) -> None:
        """Replace what is known: (topic, partition, offset, crashes, how) of every suspect."""
        self._known = {}
        for topic, partition, offset, crashes, how in suspects:
            self._known.setdefault((topic, partition), {})[offset] = Suspicion(crashes, how)

    @property
    def watching(self) -> bool:
        """Whether `sift` has anything to look for."""
        return bool(self._known or self._waiting or self._lanes)

    @property
    def active(self) -> bool:
        """Whether `tick` has anything to do."""
        return bool(self._waiting or self._current or self._buried or self._state.exclusive)

    def assigned(self, topic: str, partition: int, position: int) -> None:
        """A partition came: what lies below its position has been settled elsewhere."""
        known = self._known.get((topic, partition), {})
        for offset in [offset for offset in known if offset < position]:
            self._forget(topic, partition, offset)

    def sift(
        self, handler: HandlerState, batch: Sequence[TrackedDelivery], now: Now
    ) -> Sequence[TrackedDelivery]:
        """Keep the suspects of a batch and what must wait for them; return the others.

        Args:
            handler: whose they are.
            batch: deliveries of one partition that are due, in order.
            now: the time.
        """
        source = batch[0].assignment
        known = self._known.get((source.topic, source.partition), {})
        if not known and not self._lanes:
            return batch
        rules = handler.rules
        keeps_order = rules.in_place or rules.quarantines
        others: list[TrackedDelivery] = []
        for delivery in batch:
            suspicion = known.get(delivery.record_offset)
            if suspicion is not None and suspicion.crashes >= CONDEMNED and not keeps_order:
                self._condemn(delivery, suspicion, now)
                continue
            lane = (
                None
                if rules.ordering == "unordered"
                else delivery.lane_key(rules.ordering == "key")
            )
            queue = None if lane is None else self._lanes.get((rules.name, lane))
            if queue is None and suspicion is None:
                others.append(delivery)
                continue
            if queue is None:
                queue = _Queue(handler, lane)
                self._waiting.append(queue)
                if lane is not None:
                    self._lanes[rules.name, lane] = queue
            queue.append((delivery, suspicion))
            if lane is not None and delivery.retrying:
                # The failed head of its lane may be waiting for that room itself.
                handler.gives_room(delivery)
        return others

    def _condemn(self, delivery: TrackedDelivery, suspicion: Suspicion, now: Now) -> None:
        assignment = delivery.assignment
        assignment.end(delivery)
        what = (
            f"{suspicion.crashes} worker processes died with this record in flight, the last one "
            f"with nothing else: it {suspicion.how}"
        )
        failure = Failure("WorkerCrash", what, "", fingerprint("WorkerCrash", ()))
        self._outbox.park(delivery, Bury(Reason.CRASH, failure), now)
        self._buried.append(_Buried(assignment, delivery.record_offset, now.mono_s))

    def _condemn_in_lane(self, queue: _Queue, suspicion: Suspicion, now: Now) -> None:
        """Condemn a suspect that is retried in place: its lane waits until it is dead-lettered."""
        delivery = queue.popleft()[0]
        self._waiting.remove(queue)
        self._state.block(delivery, again=False)
        self._condemn(delivery, suspicion, now)
        self._go_on(queue)

    def tick(self, now: Now, *, quiet: bool) -> None:
        """Start the next suspect if its turn has come.

        Args:
            now: the time.
            quiet: whether no handler of the worker runs.
        """
        self._forget_buried()
        if self._current is not None and self._still_runs(*self._current, now):
            return
        if any(now.mono_s < buried.since_s + COMMIT_S for buried in self._buried):
            return
        for blocked in [each for each in self._waiting if each.is_quarantined()]:
            self._waiting.remove(blocked)
            self._go_on(blocked)
        queue = self._next(now)
        if queue is None:
            self._set_exclusive(False, now)
            return
        suspicion = queue[0][1]
        assert suspicion is not None, "a waiting queue begins with a suspect"
        if suspicion.crashes >= CONDEMNED:
            self._condemn_in_lane(queue, suspicion, now)
            return
        exclusive = suspicion.crashes >= EXCLUSIVE_CRASHES
        if not exclusive:
            self._set_exclusive(False, now)
        elif not self._state.exclusive:
            # Whether nothing runs is known only once nothing starts any more.
            self._set_exclusive(True, now)
            return
        elif not quiet and now.mono_s < self._until_s:
            return
        self._start(queue, suspicion, now, exclusive=exclusive)

    def _next(self, now: Now) -> _Queue | None:
        free = [queue for queue in self._waiting if queue.is_free(now)]
        return max(free, key=_crashes, default=None)

    def _start(self, queue: _Queue, suspicion: Suspicion, now: Now, *, exclusive: bool) -> None:
        delivery = queue.popleft()[0]
        self._waiting.remove(queue)
        self._current = (delivery, queue, suspicion)
        queue.handler.suspect = delivery
        self._until_s = now.mono_s + LONGEST_S
        self._state.dispatch(queue.handler, [delivery], ahead=True, exclusive=exclusive)
        assignment = delivery.assignment
        self._state.events.append(
            SuspectStarted(
                assignment.source_topic,
                assignment.partition,
                delivery.record_offset,
                queue.handler.rules.name,
                suspicion.crashes,
                exclusive,
                assignment.topic,
            )
        )

    def _still_runs(
        self, delivery: TrackedDelivery, queue: _Queue, suspicion: Suspicion, now: Now
    ) -> bool:
        if not delivery.closed:
            if queue.handler.paused_until_s > now.mono_s:
                if not delivery.started_s and queue.handler.queue.withdraw(delivery):
                    self._postpone(delivery, queue, suspicion)
                    return False
            elif queue.handler.held_until_s > now.mono_s:
                # It asked for a pause: the others need not wait for that.
                self._set_exclusive(False, now)
            if now.mono_s < self._until_s:
                return True
        elif not delivery.assignment.closed and delivery.outcome is not RELEASED:
            self._clear(delivery)
        self._current = None
        queue.handler.suspect = None
        self._go_on(queue)
        return False

    def _postpone(self, delivery: TrackedDelivery, queue: _Queue, suspicion: Suspicion) -> None:
        """A suspect has not started, and may not for long: it waits as before its turn."""
        self._current = None
        queue.handler.suspect = None
        queue.appendleft((delivery, suspicion))
        self._waiting.append(queue)

    def _go_on(self, queue: _Queue) -> None:
        """Dispatch what waits in a queue, up to its next suspect."""
        # What is closed belongs to an assignment that has ended; what is not may have come since.
        waits = [entry for entry in queue if not entry[0].closed]
        if queue.is_quarantined():
            waits = self._without_quarantined(queue.handler, waits)
        queue.clear()
        queue.extend(waits)
        others: list[TrackedDelivery] = []
        while queue and queue[0][1] is None:
            others.append(queue.popleft()[0])
        if queue:
            self._waiting.append(queue)
        elif queue.lane is not None:
            self._lanes.pop((queue.handler.rules.name, queue.lane), None)
        if others:
            self._state.dispatch(queue.handler, others, ahead=True)

    def _without_quarantined(self, handler: HandlerState, waits: Sequence[_Entry]) -> list[_Entry]:
        """Those that stay here: the condemned, and a record that is the key's head itself."""
        offered = [each for each, why in waits if why is None or why.crashes < CONDEMNED]
        taken = set(map(id, offered)).difference(map(id, self.go_on(handler, offered)))
        return [entry for entry in waits if id(entry[0]) not in taken]

    def _clear(self, delivery: TrackedDelivery) -> None:
        assignment = delivery.assignment
        self._forget(assignment.topic, assignment.partition, delivery.record_offset)
        self._state.events.append(
            SuspectCleared(assignment.source_topic, assignment.handler.rules.name)
        )

    def _forget(self, topic: str, partition: int, offset: int) -> None:
        known = self._known.get((topic, partition), {})
        known.pop(offset, None)
        if not known:
            self._known.pop((topic, partition), None)
        self.over.append((topic, partition, offset))

    def _forget_buried(self) -> None:
        over = [buried for buried in self._buried if buried.is_over(self._state)]
        for buried in over:
            self._buried.remove(buried)
            if not buried.assignment.closed:
                self._forget(buried.assignment.topic, buried.assignment.partition, buried.offset)

    def _set_exclusive(self, on: bool, now: Now) -> None:
        if on != self._state.exclusive:
            self._state.exclusive = on
            self._until_s = now.mono_s + LONGEST_S
            if on:
                for handler in self._state.handlers.values():
                    self._state.take_back(handler)

    def forget_closed(self) -> None:
        """Partitions were dropped: their next owner handles their suspects."""
        self._waiting = [q for q in self._waiting if not q[0][0].assignment.closed]
        current = None if self._current is None else self._current[1]
        waiting = {id(queue) for queue in self._waiting}
        for key, queue in list(self._lanes.items()):
            if queue is not current and id(queue) not in waiting:
                del self._lanes[key]


def _crashes(queue: _Queue) -> int:
    suspicion = queue[0][1]
    return 0 if suspicion is None else suspicion.crashes
