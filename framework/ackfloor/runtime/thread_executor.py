"""ThreadExecutor: one plain `def` handler on threads.

`concurrency` long-lived threads (slots) take deliveries from a ready deque. A thread can't be
killed: when its delivery's time is up it is abandoned, its slot goes to a new thread at once,
and it ends by itself when its handler returns, if ever. Threads are daemons, so a stuck one
never keeps the process alive.

An idle thread sleeps on a lock of its own. It puts itself on the idle list before it looks at
the deque for the last time, and `dispatch` fills the deque before it looks at the idle list, so
a wake-up can't be lost. Each thread that takes an item wakes one more if there is work left:
no stampede of all threads for a handful of records.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Run
from ackfloor.core.outcomes import ACKED, RELEASED, Held, Outcome
from ackfloor.runtime.inbox import Held as HeldPosted
from ackfloor.runtime.inbox import Inbox
from ackfloor.runtime.invoke import Invocation, set_current

#: Records a thread takes of one lane before it lets another lane have its turn.
LANE_VISIT = 64


class _Slot(threading.Thread):
    """One unit of concurrency."""

    def __init__(self, executor: ThreadExecutor, number: int) -> None:
        name = f"ackfloor:{executor.handler}:{number}"
        super().__init__(name=name, daemon=True)
        self._executor = executor
        self.current: Delivery | None = None
        self.abandoned = False
        self.bell = threading.Lock()
        self.bell.acquire()
        self.answered = threading.Event()

    def run(self) -> None:
        """Take and handle deliveries until the executor stops or the slot is abandoned."""
        try:
            self._executor.work(self)
        finally:
            self._executor.ended(self)


class ThreadExecutor:
    """Runs one sync handler; implements `ports.Executor`.

    Args:
        invocation: how the handler is called.
        inbox: where finished deliveries go.
        clock: monotonic seconds.
        concurrency: how many deliveries run at once.
        lanes: whether items are runs (ordered) or deliveries.
    """

    def __init__(
        self,
        invocation: Invocation,
        inbox: Inbox,
        clock: Callable[[], float],
        *,
        concurrency: int,
        lanes: bool,
    ) -> None:
        self._invocation = invocation
        self._inbox = inbox
        self._clock = clock
        self._concurrency = concurrency
        self._lanes = lanes
        self._ready: deque[Delivery | Run] = deque()
        self._backlog: deque[Delivery | Run] = deque()
        self._idle: deque[_Slot] = deque()
        self._slots: list[_Slot] = []
        self._zombies: set[_Slot] = set()
        self._started = 0
        self._held = False
        self._stopping = False

    @property
    def handler(self) -> str:
        """The handler's name."""
        return self._invocation.handler

    # The owner thread's side.

    def start(self) -> None:
        """Start the threads."""
        for _ in range(self._concurrency):
            self._add_slot()

    def _add_slot(self) -> None:
        self._started += 1
        slot = _Slot(self, self._started)
        self._slots.append(slot)
        slot.start()

    def dispatch(self, items: Sequence[Delivery] | Sequence[Run]) -> None:
        """Queue deliveries (unordered) or runs (lanes)."""
        (self._backlog if self._held else self._ready).extend(items)
        self._wake_one()

    def running(self) -> Iterable[Delivery]:
        """The deliveries whose handlers have started and not been answered."""
        return [d for s in self._slots.copy() if (d := s.current) is not None and d.started_s]

    def queued(self) -> int:
        """Items that no thread has taken yet."""
        return len(self._ready) + len(self._backlog)

    def abandon(self, delivery: Delivery) -> None:
        """Give the slot of a delivery whose time is up to a new thread."""
        for slot in self._slots:
            if slot.current is delivery:
                slot.abandoned = True
                self._slots.remove(slot)
                self._zombies.add(slot)
                slot.answered.set()
                self._add_slot()
                return

    def abandoned(self) -> int:
        """Abandoned threads whose handlers are still running."""
        return sum(1 for slot in list(self._zombies) if slot.is_alive())

    def hold(self) -> None:
        """Start no further delivery until `unhold`."""
        self._held = True
        _move(self._ready, self._backlog)

    def unhold(self) -> None:
        """Start deliveries again."""
        self._held = False
        _move(self._backlog, self._ready)
        self._wake_one()

    def stop(self, timeout_s: float) -> int:
        """Let what runs end and return how many handlers did not end in time.

        A thread's handler can't be interrupted, so this only waits; the wait is in real time.
        """
        self._stopping = True
        while self._idle:
            self._wake_one()
        for slot in self._slots:
            slot.answered.set()
        until_s = time.monotonic() + timeout_s
        for slot in self._slots:
            slot.join(max(0.0, until_s - time.monotonic()))
        return sum(1 for slot in (*self._slots, *self._zombies) if slot.is_alive())

    # The threads' side.

    def ended(self, slot: _Slot) -> None:
        """A thread is about to end."""
        self._zombies.discard(slot)

    def work(self, slot: _Slot) -> None:
        """Take and handle deliveries; runs in the slot's own thread."""
        ready, lanes = self._ready, self._lanes
        while not slot.abandoned:
            try:
                item = ready.popleft()
            except IndexError:
                if not self._sleep(slot):
                    return
                continue
            if self._idle and ready:
                self._wake_one()
            if lanes:
                assert isinstance(item, Run)
                self._visit(slot, item)
            else:
                assert isinstance(item, Delivery)
                outcome = self._handle(slot, item)
                if isinstance(outcome, Held):
                    self._put_back(item, outcome)

    def _visit(self, slot: _Slot, run: Run) -> None:
        """Handle some records of one lane."""
        for _ in range(LANE_VISIT):
            try:
                delivery = run.popleft()
            except IndexError:
                self._inbox.left.append((self.handler, run))
                return
            outcome = self._handle(slot, delivery)
            if isinstance(outcome, Held):
                # First in its lane again, before anybody else can take from the lane.
                run.appendleft(delivery)
                self._put_back(run, outcome)
                return
            if slot.abandoned:
                return
        self._ready.append(run)

    def _handle(self, slot: _Slot, delivery: Delivery) -> Outcome | None:
        """Run one delivery to its outcome; None where there is nothing more to say of it."""
        # `current` before the check: a revoke marks the assignment first and looks at the
        # slots second, so either we see the mark or it sees us.
        slot.current = delivery
        if delivery.closed or delivery.assignment.stopping or self._stopping:
            slot.current = None
            return None
        invocation = self._invocation
        if invocation.manual:
            slot.answered.clear()
            delivery.arm(slot.answered.set)
        set_current(delivery)
        delivery.started_s = self._clock()
        try:
            invocation.call(delivery)
            outcome: Outcome | None = ACKED
            if invocation.manual:
                slot.answered.wait()
                outcome = None
        except BaseException as exc:
            outcome = self._caught(delivery, exc)
        if outcome is not None and not isinstance(outcome, Held):
            delivery.outcome = outcome
            delivery.finished_s = self._clock()
            self._inbox.answered.append(delivery)
        slot.current = None
        return outcome

    def _caught(self, delivery: Delivery, exc: BaseException) -> Outcome | None:
        """The outcome of a delivery whose handler raised, None where it has ended already."""
        manual = self._invocation.manual
        claimed = delivery.claim() if manual else True
        if isinstance(exc, SystemExit | KeyboardInterrupt):
            self._inbox.fatal.append(exc)
            return RELEASED if claimed else None
        if not claimed:
            if not delivery.closed:
                self._inbox.errors.append((self.handler, exc))
            return None
        outcome = self._invocation.outcome_of(exc)
        if isinstance(outcome, Held) and manual:
            delivery.unclaim()
        return outcome

    def _put_back(self, item: Delivery | Run, outcome: Held) -> None:
        """A held delivery waits at the head of the backlog until the engine lifts the hold."""
        self.hold()
        delivery = item if isinstance(item, Delivery) else item[0]
        delivery.reopen()
        self._backlog.appendleft(item)
        self._inbox.held.append(HeldPosted(self.handler, outcome.duration_s, outcome.reason))

    def _sleep(self, slot: _Slot) -> bool:
        """Wait for work; False when the executor is stopping."""
        if self._stopping:
            return False
        self._idle.append(slot)
        if self._ready or self._stopping:
            self._wake_one()
        slot.bell.acquire()
        return not self._stopping

    def _wake_one(self) -> None:
        try:
            self._idle.popleft().bell.release()
        except IndexError:
            return


def _move(source: deque[Delivery | Run], target: deque[Delivery | Run]) -> None:
    while True:
        try:
            target.append(source.popleft())
        except IndexError:
            return
