"""The executors that stand in for threads and processes.

Of threads only what they run on is replaced: the real `ThreadExecutor` runs on strands, which wait
in simulated time. A process handler runs on a strand, too; when its time is up the strand is killed
first and its outcome is posted when it is dead, as the real executor does with a process.
tests/contracts/test_simulated_executors.py holds them to the contract of all executors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ackfloor.core.engine.completions import timed_out
from ackfloor.core.records.outcomes import RELEASED, Outcome, Paused
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.declare.registration import HandlerSpec
from ackfloor.ports import Executor
from ackfloor.runtime.executors.thread_executor import ThreadExecutor
from ackfloor.runtime.executors.thread_slot import Slot
from tests.simulation.hub import Hub, Killed, Strand
from tests.simulation.life import Life

#: Seconds between two looks of who waits for something on a strand.
LOOK_S = 0.01
#: Seconds after which a wait that nothing ends is taken up again.
LONG_S = 1e7


class Bell:
    """What an idle slot sleeps on."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._rung = False
        self._sleeper: Strand | None = None

    def acquire(self, *, blocking: bool = True) -> bool:
        """Wait until it is rung."""
        if not blocking:
            return True
        self._sleeper = self._hub.strand
        while not self._rung:
            self._hub.pause(LONG_S, wakeable=True)
        self._rung = False
        return True

    def release(self) -> None:
        """Ring it."""
        self._rung = True
        if self._sleeper is not None:
            self._sleeper.poke(self._hub.random.random() * 0.0003)


class Answer(threading.Event):
    """What the answer to one delivery sets."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._hub = hub
        self._waits: Strand | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set."""
        self._waits = self._hub.strand
        while not self.is_set():
            self._hub.pause(LONG_S, wakeable=True)
        return True

    def set(self) -> None:
        """The answer has come."""
        super().set()
        if self._waits is not None:
            self._waits.poke(self._hub.random.random() * 0.0003)


def slot_type_of(hub: Hub, life: Life) -> type[Slot]:
    """A slot that runs on a strand of one process."""

    class SimSlot(Slot):
        """One unit of concurrency on a strand."""

        def __init__(self, executor: ThreadExecutor, number: int, place: int) -> None:
            super().__init__(executor, number, place)
            self.bell = Bell(hub)  # type: ignore[assignment]
            self.strand = Strand(hub, self.run, life.is_alive, life.thaws, life)
            life.strands.append(self.strand)

        def new_answer(self) -> threading.Event:
            """What the answer to one delivery sets."""
            return Answer(hub)

        def start(self) -> None:
            """Begin."""
            self.strand.start(hub.random.random() * 0.0005)

        def run(self) -> None:
            """Take and handle deliveries."""
            try:
                self._executor.work(self)
            except Killed:
                raise
            except BaseException as exc:  # noqa: BLE001 -- as the real slot
                self._executor.broke(self, exc)
            finally:
                if life.alive:
                    self._executor.thread_ended(self)

        def is_alive(self) -> bool:
            """Whether its strand goes on."""
            return not self.strand.ended

    return SimSlot


class _Simulated:
    """What both kinds of thread executors have in common here."""

    hub: Hub
    _slots: list[Slot]
    _zombies: set[Slot]

    def stop(self, timeout_s: float) -> int:
        """Let what runs end, in simulated time; see `ThreadExecutor.stop`."""
        self._stopping = True
        while self._idle:  # type: ignore[attr-defined]
            self._wake_one()  # type: ignore[attr-defined]
        slots = self._slots
        for slot in slots:
            slot.answered.set()
        until_s = self.hub.now_s + timeout_s
        while any(slot.is_alive() for slot in slots) and self.hub.now_s < until_s:
            self.hub.pause(LOOK_S)
        return sum(1 for slot in (*slots, *self._zombies) if slot.is_alive())


class SimThreads(_Simulated, ThreadExecutor):
    """The real thread executor, on strands."""


class SimProcesses(_Simulated, ThreadExecutor):
    """A handler that can be killed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._doomed: set[TrackedDelivery] = set()
        #: Whose strand is being killed.
        self._killed: TrackedDelivery | None = None

    def cancel(self, delivery: TrackedDelivery) -> None:
        """Kill what runs it; its outcome follows its death."""
        if delivery in self._doomed:
            return
        if any(delivery in slot.lease for slot in self._slots):
            self._doomed.add(delivery)
            self.hub.after(self.hub.random.random() * 0.005, lambda: self._kill(delivery))

    def abandoned(self) -> int:
        """Killed and not seen dead."""
        return len(self._doomed)

    def _kill(self, delivery: TrackedDelivery) -> None:
        self._doomed.discard(delivery)
        due_s = delivery.deadline_s
        if not delivery.closed and (due_s is None or due_s > self.hub.now_s):
            # Extended in the last moment, or the setting has changed.
            return
        for slot in self._slots:
            if slot.take_lease(delivery):
                self._replace(slot, delivery, timed_out(delivery))
                return

    def _replace(self, slot: Slot, delivery: TrackedDelivery, outcome: Outcome) -> None:
        slot.abandoned = True
        missing = self._without(slot)
        self._killed = delivery
        slot.strand.kill()  # type: ignore[attr-defined]
        self._killed = None
        if not delivery.closed:
            delivery.outcome = outcome
            delivery.finished_s = self.hub.now_s
            self._inbox.answered.append(delivery)
        if missing and not self._stopping:
            self._add_slot()

    def _end(self, delivery: TrackedDelivery, outcome: Outcome | None) -> Paused | bool:
        """Post the outcome; a process that is killed says nothing on its way out."""
        return delivery is not self._killed and super()._end(delivery, outcome)

    def stop(self, timeout_s: float) -> int:
        """Let what runs end for so long, then kill it: its records are released."""
        super().stop(timeout_s)
        for slot in self._slots:
            for delivery in list(slot.lease):
                if slot.take_lease(delivery):
                    self._replace(slot, delivery, RELEASED)
        return sum(1 for slot in self._slots if slot.is_alive())


def stand_in_of(hub: Hub, life: Life) -> Callable[[HandlerSpec], Callable[..., Executor]]:
    """What stands in for threads and processes in one worker."""
    slots = slot_type_of(hub, life)

    def stand_in(spec: HandlerSpec) -> Callable[..., Executor]:
        kind = {"thread": SimThreads, "process": SimProcesses}[spec.executor]
        return type(kind.__name__, (kind,), {"slot_type": slots, "hub": hub})

    return stand_in
