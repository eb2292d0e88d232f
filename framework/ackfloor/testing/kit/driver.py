"""Driver: turns a worker's loop by hand, until everything is at rest.

Two kinds of waiting are told apart. What waits for the manual clock (a retry's due time, a
deadline, `asyncio.sleep`) is at rest. What waits for the real world (a `def` handler on its
thread, an async handler on a socket or on `asyncio.to_thread`) is given a grace in real time,
renewed by every change; if nothing comes, it counts as stuck and is not waited for again until
it moves.

Time is walked, not jumped: the clock stops at every moment at which the engine or the event
loop has something to do, the engine goes first, and everything comes to rest before the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from math import inf

from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerState
from ackfloor.errors import AckfloorError
from ackfloor.ports import Source
from ackfloor.runtime.executors.inbox import Inbox
from ackfloor.runtime.loop.loop import Loop
from ackfloor.testing.kit.manual_event_loop import ManualEventLoop
from ackfloor.testing.memory.manual_clock import ManualClock

#: Turns after which work that begets work is taken to do so for ever.
MOST_TURNS = 100_000
_NAMED = 5


class Unsettled(AckfloorError):
    """The worker did not come to rest; the text says what it was doing."""


class Driver:
    """Turns one worker.

    Args:
        loop: the worker's owner loop; the caller's thread becomes its owner.
        source: what the loop listens to.
        inbox: what its executors post to.
        event_loop: where its async handlers run.
        clock: its clock.
        abandoned: deliveries that have timed out and whose handlers may still run.
        on_threads: names of the handlers that run on threads.
        grace_s: real seconds without change after which a handler counts as stuck.
        give_up_s: real seconds after which coming to rest is given up.
    """

    def __init__(
        self,
        loop: Loop,
        source: Source,
        inbox: Inbox,
        event_loop: ManualEventLoop,
        clock: ManualClock,
        abandoned: set[TrackedDelivery],
        on_threads: frozenset[str],
        *,
        grace_s: float,
        give_up_s: float,
    ) -> None:
        self._loop = loop
        self._source = source
        self._inbox = inbox
        self._event_loop = event_loop
        self._clock = clock
        self._abandoned = abandoned
        self._on_threads = on_threads
        self._grace_s = grace_s
        self._give_up_s = give_up_s
        self._stuck: set[TrackedDelivery] = set()

    # Rest.

    def forget_stuck(self) -> None:
        """Give handlers that count as stuck another grace."""
        self._stuck.clear()

    def settle(self) -> None:
        """Turn until nothing more happens at this time.

        Raises:
            Unsettled: there is no end to it.
        """
        until_s = time.monotonic() + self._give_up_s
        for turn in range(MOST_TURNS):
            if time.monotonic() > until_s:
                raise self._unsettled(f"it did not come to rest in {turn} turns")
            if not self._event_loop.settle(self._give_up_s):
                raise self._unsettled("an async handler blocks the event loop or never waits")
            if self._step():
                continue
            if not self._await_outside():
                return
        raise self._unsettled(f"{MOST_TURNS} turns, and still there is more to do")

    def _step(self) -> bool:
        """One turn; returns whether there is more to do.

        Answers are taken before new records are handed out, never after: so no answer is taken
        in the step that made it possible, however fast its handler is, and what a commit of
        this step contains is the same every time.
        """
        moved = self._loop.after_poll()
        count = self._source.poll(0.0)
        engine = self._loop.engine
        left = bool(engine.state.commands) or engine.commit_due(self._clock.now())
        return moved or count > 0 or left or self._posted()

    def _posted(self) -> bool:
        inbox = self._inbox
        return bool(inbox.answered or inbox.finished or inbox.pause_requests or inbox.errors)

    def _await_outside(self) -> bool:
        """Wait in real time for what may still answer; False when nothing will."""
        self._abandoned.difference_update([d for d in self._abandoned if d.outcome is not None])
        awaited = set(self._awaited())
        self._stuck &= awaited
        if awaited <= self._stuck:
            return False
        started = self._progress(awaited)
        pause_s, waited_s, looked_s = 0.00005, 0.0, time.monotonic()
        while waited_s < self._grace_s:
            if self._posted() or self._progress(awaited) != started:
                return True
            time.sleep(pause_s)
            now_s = time.monotonic()
            # A machine that stands still, or has too much to do, gives handlers no time either.
            waited_s += min(now_s - looked_s, 2 * pause_s)
            looked_s, pause_s = now_s, min(pause_s * 2, 0.002)
        self._stuck |= awaited
        # Once more round: a stuck handler may have published something before it got stuck.
        return True

    def _progress(self, awaited: set[TrackedDelivery]) -> tuple[int, int, int]:
        """Changes whenever a handler starts, ends, or turns to something else outside."""
        started = sum(1 for delivery in awaited if delivery.started_s)
        return started, sum(1 for d in awaited if d.outcome), self._event_loop.outside()

    def _awaited(self) -> Iterator[TrackedDelivery]:
        """Deliveries that the real world may answer."""
        outside = self._event_loop.outside() > 0
        for delivery in chain(self._in_flight(), self._abandoned):
            handler = delivery.assignment.handler
            if handler.held and not delivery.started_s and not self._starts_now(handler):
                continue
            if outside or handler.rules.name in self._on_threads:
                yield delivery

    def _starts_now(self, handler: HandlerState) -> bool:
        """Whether a delivery of a paused handler is about to start."""
        executor = self._loop.executors.by_name[handler.rules.name]
        return executor.queued() > 0 or any(not d.started_s for d in executor.running())

    def _in_flight(self) -> Iterator[TrackedDelivery]:
        """Deliveries that were dispatched and have not ended."""
        for assignment in self._loop.engine.assignments.values():
            waiting = set(assignment.waiting)
            if assignment.handler.batch_buffer is not None:
                waiting.update(assignment.handler.batch_buffer.waiting())
            rules, lanes = assignment.handler.rules, assignment.handler.lanes
            for delivery in list(assignment.tracker.open.values()):
                blocked = lanes.is_blocked(delivery.lane_key(rules.ordering == "key"))
                if not delivery.closed and delivery not in waiting and not blocked:
                    yield delivery

    def _unsettled(self, why: str) -> Unsettled:
        running = [d for d in self._in_flight() if d.started_s]
        named = ", ".join(map(repr, running[:_NAMED])) or "nothing"
        return Unsettled(
            f"the worker did not settle: {why}; running: {named}. Blocking work belongs into a "
            "`def` handler or `asyncio.to_thread`; give_up_after=... allows more real time"
        )

    # Time.

    def advance(self, seconds: float) -> None:
        """Walk through time, stopping wherever something is due."""
        end_s = self._clock.monotonic() + seconds
        self.settle()
        while self._clock.monotonic() < end_s:
            self._clock.move_to(min(end_s, self._next_s()))
            # The engine before the event loop: of a deadline and an answer that are due at the
            # same moment the deadline wins, every time.
            self._loop.after_poll()
            self.settle()

    def _next_s(self) -> float:
        """The next moment at which something is due, infinity where there is none."""
        engine, now = self._loop.engine, self._clock.now()
        moments = [self._event_loop.due_s, engine.next_due_s(now)]
        if any(delivery.started_s for delivery in self._in_flight()):
            moments.append(engine.next_scan_s)
        if any(a.floor(now.wall_ms) != a.commit.position for a in engine.assignments.values()):
            moments.append(engine.state.commits.next_s)
        return min((moment for moment in moments if moment > now.mono_s), default=inf)
