"""Lanes: what is handled one at a time, in offset order.

Theory. A lane is named by (topic, partition, key) or by (topic, partition). While it has work
it owns one `Run`, a deque that is handed to one executor worker at a time. The worker takes
records with `popleft()`: that call is atomic, so each record is taken by exactly one party,
and a worker that is abandoned in the middle of a record loses the rest of its run the moment
the engine empties it. The engine appends while the worker takes; no lock is needed because of
one rule: *only the engine decides that a lane is idle*. A worker that finds its run empty
posts the run back ("left"), and the engine, looking at it later, either hands the run out
again (something was appended meanwhile) or forgets the lane. An idle lane costs nothing.

With many keys most lanes have a single record. It is dispatched *lone*, without a run: nobody
visits its lane, and its own end is when the engine looks at the lane again. What comes after it
meanwhile waits in a run that nobody has.

Where the first record of a lane is to be tried by itself, it is lent: it is alone in the lane's
run, and what is behind it waits until that run has been left.

Invariants:

L1  a live run is with at most one worker, or in exactly one queue, or with nobody while the lone
    delivery in front of it has not ended.
L2  a lane's records are taken in the order in which they were admitted.
L3  a run that was seized or dropped is detached: whatever its old worker posts is ignored.
L4  a blocked lane's run is with nobody and in no queue until what holds the lane lets it go on;
    nor is what is behind a lent one until that is left.
L5  an assignment's `held` and `held_bytes` are those of the records that are in lanes whose head
    failed, or were when it did or came since: until that head is settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackfloor.core.delivery import Delivery


class Run(deque["Delivery"]):
    """The waiting records of one lane; `popleft()` is the claim."""

    __slots__ = ("lane",)

    lane: Hashable


class Lanes:
    """The lanes of one handler that have work."""

    __slots__ = ("_behind", "_blocked", "_held", "_lent", "_live")

    def __init__(self) -> None:
        #: The run of each lane that has work, or its one delivery where that is lone.
        self._live: dict[Hashable, Run | Delivery] = {}
        #: Lane -> the lone delivery that its run waits for.
        self._behind: dict[Hashable, Delivery] = {}
        #: Lane whose run is lent -> what is behind that.
        self._lent: dict[Hashable, Run] = {}
        #: Lane -> the delivery that it waits for; each of these lanes is live.
        self._blocked: dict[Hashable, Delivery] = {}
        #: Lane whose head failed and is not settled -> records and bytes that it holds.
        self._held: dict[Hashable, list[int]] = {}

    def __len__(self) -> int:
        return len(self._live)

    @property
    def holding(self) -> bool:
        """Whether a lane waits for a head that failed."""
        return bool(self._held)

    def records(self) -> int:
        """How many records are in runs: they wait for the one in front of them, or for a slot.

        Looks at each lane, so it is for who asks once a second.
        """
        live = sum(len(run) for run in self._live.values() if isinstance(run, Run))
        return live + sum(map(len, self._lent.values()))

    def behind(self, delivery: Delivery) -> int:
        """How many records of its lane wait for a delivery that runs."""
        lane = delivery.lone
        if lane is not None:
            run = self._live.get(lane) if self._behind.get(lane) is delivery else None
            return len(run) if isinstance(run, Run) else 0
        run = delivery.run
        return len(self._lent.get(run.lane, run)) if self.has(run) else 0

    def admit_all(self, batch: Iterable[Delivery], by_key: bool) -> list[Delivery | Run]:
        """Queue deliveries on their lanes; return what to dispatch of those that were idle.

        A lane that was idle and gets one of them only is dispatched without a run.
        """
        live = self._live
        fresh: dict[Hashable, Delivery | Run] = {}
        for delivery in batch:
            lane = delivery.lane(by_key)
            first = live.setdefault(lane, delivery)
            if first is delivery:
                delivery.lone = lane
                fresh[lane] = delivery
            elif isinstance(first, Run) or lane not in fresh:
                self.admit(lane, delivery)
            else:
                run = first.run = delivery.run = Run((first, delivery))
                first.lone = None
                run.lane = lane
                live[lane] = fresh[lane] = run
        return list(fresh.values())

    def admit(self, lane: Hashable, delivery: Delivery) -> Run | None:
        """Queue a delivery on its lane; return a run to dispatch if the lane was idle."""
        run = self._live.get(lane)
        if isinstance(run, Run):
            if self._lent and lane in self._lent:
                run = self._lent[lane]
            run.append(delivery)
            delivery.run = run
            if self._held and lane in self._held:
                self._hold(lane, delivery)
            return None
        if run is not None:
            self._behind[lane] = run
        self._live[lane] = delivery.run = after = Run((delivery,))
        after.lane = lane
        return after if run is None else None

    def ended(self, deliveries: Iterable[Delivery]) -> list[Run]:
        """Deliveries have ended, and their lanes need not wait; return what to dispatch."""
        live, runs = self._live, []
        for delivery in deliveries:
            lane = delivery.lone
            if lane is None:
                continue
            if live.get(lane) is delivery:
                del live[lane]
            elif self._behind.get(lane) is delivery:
                del self._behind[lane]
                run = live[lane]
                assert isinstance(run, Run), "what is behind a lone delivery is a run"
                runs.append(run)
        return runs

    def idle(self, lane: Hashable) -> bool:
        """Whether nothing of a lane is dispatched."""
        return lane not in self._live

    def left(self, run: Run) -> Run | None:
        """A worker found its run empty; return the run if it must be dispatched again."""
        return next(iter(self.left_all((run,))), None)

    def left_all(self, runs: Iterable[Run]) -> list[Run]:
        """Workers found these runs empty; return those that must be dispatched again."""
        live, again = self._live, []
        for run in runs:
            lane = run.lane
            if live.get(lane) is run:
                whole = self.whole(run) if self._lent else run
                if whole:
                    again.append(whole)
                else:
                    del live[lane]
        return again

    def begins(self, run: Run) -> bool:
        """Whether a lane has a record that may start; what may not any more is passed over."""
        while run and (run[0].closed or run[0].assignment.stopping):
            run.popleft()
        if not run:
            self.left(run)
        return bool(run)

    def lend(self, run: Run) -> Run:
        """Put the first record of a lane's run into one of its own; the rest waits for that."""
        lane, head = run.lane, run.popleft()
        first = self._live[lane] = head.run = Run((head,))
        first.lane = lane
        self._lent[lane] = run
        return first

    def whole(self, run: Run) -> Run:
        """A run that nobody visits, with what waits behind it where it was lent."""
        rest = self._lent.pop(run.lane, None) if self._live.get(run.lane) is run else None
        if rest is None:
            return run
        for delivery in reversed(run):
            rest.appendleft(delivery)
            delivery.run = rest
        run.clear()
        self._live[run.lane] = rest
        return rest

    def seize(self, run: Run) -> Run | None:
        """Take a run away from a worker that is stuck; return a new one with the rest."""
        lane = run.lane
        if self._live.get(lane) is not run:
            return None
        rest = self._emptied(lane)
        if rest:
            self._live[lane] = rest
            return rest
        del self._live[lane]
        return None

    def block(self, lane: Hashable, holder: Delivery, *, again: bool) -> None:
        """Let a lane wait for one delivery, whose record was its head.

        The rest is taken away from whoever visits the lane, and no worker gets it before
        `go_on`.

        Args:
            holder: what the lane waits for.
            again: the holder is to be delivered, first of the lane; otherwise it is on its way
                to the dead-letter topic.
        """
        rest = self._emptied(lane)
        if again:
            rest.appendleft(holder)
            holder.run = rest
        self._live[lane] = rest
        self._blocked[lane] = holder
        self.free(lane, holder)
        self._held[lane] = [0, 0]
        for delivery in rest:
            if not delivery.settled:
                self._hold(lane, delivery)

    def _hold(self, lane: Hashable, delivery: Delivery) -> None:
        held = self._held[lane]
        held[0] += 1
        held[1] += delivery.size
        delivery.assignment.held += 1
        delivery.assignment.held_bytes += delivery.size

    def settled(self, lane: Hashable, delivery: Delivery) -> None:
        """A record of a batch is settled before its turn: nothing that is in its lane holds it."""
        held = self._held.get(lane)
        if held is not None and self._blocked.get(lane) is not delivery:
            held[0] -= 1
            held[1] -= delivery.size
            delivery.assignment.held -= 1
            delivery.assignment.held_bytes -= delivery.size

    def free(self, lane: Hashable, head: Delivery) -> None:
        """The head of a lane is settled, after all: the lane holds nothing any more."""
        count, size = self._held.pop(lane, (0, 0))
        head.assignment.held -= count
        head.assignment.held_bytes -= size

    def go_on(self, lane: Hashable, holder: Delivery, *, settled: bool) -> Run | None:
        """What holds a lane lets it go on; return a run to dispatch if there is work in it.

        Args:
            settled: the holder is dead-lettered; otherwise it is due.
        """
        if self._blocked.get(lane) is not holder:
            return None
        del self._blocked[lane]
        if settled:
            self.free(lane, holder)
        run = self._live[lane]
        assert isinstance(run, Run), "a lane that was blocked has a run"
        return self.left(run)

    def put_back(self, lane: Hashable, deliveries: Sequence[Delivery]) -> Run:
        """Make deliveries (at least one) the first of their lane again; return the run to dispatch.

        The rest is taken away from whoever still visits the lane.
        """
        rest = self._emptied(lane)
        for delivery in reversed(deliveries):
            rest.appendleft(delivery)
            delivery.run = rest
        self._live[lane] = rest
        return rest

    def _emptied(self, lane: Hashable) -> Run:
        """A new run with what is left of a lane, which nobody else has any longer."""
        run = self._live.get(lane)
        self._behind.pop(lane, None)
        rest = _emptied(run) if isinstance(run, Run) else Run()
        rest.lane = lane
        for delivery in self._lent.pop(lane, ()):
            delivery.run = rest
            rest.append(delivery)
        return rest

    def has(self, run: Run) -> bool:
        """Whether a run is still its lane's: it was not seized or dropped."""
        return self._live.get(run.lane) is run

    def is_blocked(self, lane: Hashable) -> bool:
        """Whether a lane waits for its head to be delivered again or dead-lettered."""
        return lane in self._blocked

    def drop(self, topic: str, partition: int) -> None:
        """Forget every lane of one partition that is no longer ours."""
        gone = [
            lane
            for lane in self._live
            if isinstance(lane, tuple) and lane[0] == topic and lane[1] == partition
        ]
        for lane in gone:
            del self._live[lane]
            self._behind.pop(lane, None)
            self._blocked.pop(lane, None)
            self._held.pop(lane, None)
            self._lent.pop(lane, None)


def _emptied(run: Run) -> Run:
    """What is left in a run, moved to a new one: who still has the old one finds nothing."""
    rest = Run()
    rest.lane = run.lane
    while True:
        try:
            delivery = run.popleft()
        except IndexError:
            return rest
        delivery.run = rest
        rest.append(delivery)
