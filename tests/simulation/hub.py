"""Hub: simulated time, and who runs next.

Everything that happens is an event at a moment of simulated time. The hub takes the earliest, and
of those at one moment the one that the seed prefers; time passes only between events. So at most
one part of the simulation runs at a time, and one seed gives one order of everything.

A strand is code that waits in the middle of a call: a worker's owner thread inside a rebalance, a
plain `def` handler that sleeps. It is a greenlet. `pause` gives control to the hub and returns when
the time is over, or when somebody pokes the strand. Between two pauses nothing else runs.

A process that dies takes its strands with it: each one that waits has `Killed` raised where it
waits, and whatever it touches on its way out raises it again.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from math import inf
from random import Random

from greenlet import getcurrent, greenlet

from ackfloor.core.records.record import Now

#: Where simulated time begins, in seconds: not 0, which means "never" in many a place.
FIRST_S = 1_000.0
#: Longest sleep of who waits for something that others do, in seconds.
LOOK_S = 0.02


class Killed(BaseException):
    """The process that this code ran in is dead."""


class Stuck(Exception):
    """The simulation does not end: events beget events at one moment of time."""


class Event:
    """Something that happens at its time, unless it is cancelled before."""

    __slots__ = ("action", "at_s")

    def __init__(self, at_s: float, action: Callable[[], object]) -> None:
        self.at_s = at_s
        self.action: Callable[[], object] | None = action

    def cancel(self) -> None:
        """It does not happen."""
        self.action = None


class Hub:
    """Time and order of one run.

    Args:
        seed: decides everything that is left open.
        most_events: events after which a run is taken to go on for ever.
        trace: whether every event's note is kept as text, and not only hashed.

    Attributes:
        random: the seed's dice. Only what runs inside the simulation may throw them.
        now_s: simulated monotonic seconds.
        wall_offset_s: how far the wall clock is ahead of the monotonic one; it may jump.
        events: how many events there have been.
        notes: the trace, where it is kept.
    """

    def __init__(self, seed: int, *, most_events: int = 60_000, trace: bool = False) -> None:
        self.random = Random(seed)
        self.now_s = FIRST_S
        self.wall_offset_s = 1_767_225_600.0 - FIRST_S
        self.events = 0
        self.notes: list[str] | None = [] if trace else None
        self.strand: Strand | None = None
        #: Is given what code on a strand has let out.
        self.on_raised: Callable[[BaseException], None] = _raise
        self._most_events = most_events
        self._heap: list[tuple[float, float, int, Event]] = []
        self._count = 0
        self._digest = blake2b(digest_size=16)
        self._main = getcurrent()

    def allow(self, events: int) -> None:
        """Something was done that has a few more events in its train."""
        self._most_events += events

    # What happens when.

    def at(self, at_s: float, action: Callable[[], object]) -> Event:
        """Have something happen at a moment; one that has passed means now."""
        event = Event(max(at_s, self.now_s), action)
        self._count += 1
        heappush(self._heap, (event.at_s, self.random.random(), self._count, event))
        return event

    def after(self, delay_s: float, action: Callable[[], object]) -> Event:
        """Have something happen in so many seconds."""
        return self.at(self.now_s + delay_s, action)

    def run(self, until_s: float, done: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen up to a moment, or until `done` says so.

        Raises:
            Stuck: there is no end to it.
        """
        heap = self._heap
        while heap and heap[0][0] <= until_s and not done():
            at_s, _, _, event = heappop(heap)
            if event.action is None:
                continue
            self.events += 1
            if self.events > self._most_events:
                raise Stuck(f"{self.events} events, and no end at {self.now_s - FIRST_S:.3f} s")
            if at_s > self.now_s:
                self.now_s = at_s
            event.action()
        if until_s < inf and not done():
            self.now_s = max(self.now_s, until_s)

    # Strands.

    def pause(self, seconds: float, *, wakeable: bool = False) -> None:
        """Let others run for so long; inside a strand only.

        Args:
            seconds: infinity waits for a poke alone.
            wakeable: whether a poke ends it earlier.

        Raises:
            Killed: the strand's process died meanwhile.
        """
        strand = self.strand
        if strand is None:
            raise RuntimeError("only a strand can wait: this is the hub itself")
        strand.wait(self.now_s + seconds, wakeable=wakeable)

    @property
    def wall_ms(self) -> int:
        """The wall clock, milliseconds since the epoch."""
        return int((self.now_s + self.wall_offset_s) * 1000)

    # The trace.

    def note(self, text: str) -> None:
        """Add a line to the trace: what two runs of one seed must have in common."""
        line = f"{self.now_s - FIRST_S:.6f} {text}"
        self._digest.update(line.encode() + b"\n")
        if self.notes is not None:
            self.notes.append(line)

    @property
    def digest(self) -> str:
        """A hash of the trace so far."""
        return self._digest.hexdigest()


class Strand:
    """Code that may wait in the middle.

    Args:
        hub: whose time it lives in.
        main: what it does; runs from the first `resume`.
        alive: whether the process it belongs to is alive.
        thaws_s: until when that process stands still.
        life: that process, for code that has to find out in which it runs.
    """

    def __init__(
        self,
        hub: Hub,
        main: Callable[[], object],
        alive: Callable[[], bool] = lambda: True,
        thaws_s: Callable[[], float] = lambda: 0.0,
        life: object = None,
    ) -> None:
        self._hub = hub
        self._main = main
        self._alive = alive
        self._thaws_s = thaws_s
        self._greenlet = greenlet(self._run)
        self._greenlet.life = life
        self._waking: Event | None = None
        self._wakeable = False
        self._killed = False
        self.ended = False

    def start(self, delay_s: float = 0.0) -> None:
        """Begin, in so many seconds."""
        self._waking = self._hub.after(delay_s, self._resume)

    def _run(self) -> None:
        try:
            if self._alive():
                self._main()
        except Killed:
            pass
        except BaseException as exc:  # noqa: BLE001 -- whatever it is, the run has to know
            self._hub.on_raised(exc)
        finally:
            self.ended = True

    def _resume(self) -> None:
        thaws_s = self._thaws_s()
        if self.ended or not self._alive():
            return
        if thaws_s > self._hub.now_s:
            self._waking = self._hub.at(thaws_s, self._resume)
            return
        self._waking = None
        self._switch()

    def _switch(self) -> None:
        hub = self._hub
        before, hub.strand = hub.strand, self
        self._greenlet.parent = getcurrent()
        try:
            self._greenlet.switch()
        finally:
            hub.strand = before

    def wait(self, until_s: float, *, wakeable: bool) -> None:
        """Give control back until a moment, or a poke."""
        if self._killed or not self._alive():
            raise Killed
        self._wakeable = wakeable
        self._waking = None if until_s == inf else self._hub.at(until_s, self._resume)
        parent = self._greenlet.parent
        assert parent is not None
        parent.switch()
        self._wakeable = False
        if self._killed or not self._alive():
            raise Killed

    def poke(self, delay_s: float = 0.0) -> None:
        """End its wait in so many seconds, if it can be ended and would last longer."""
        if not self._wakeable or self.ended:
            return
        at_s = self._hub.now_s + delay_s
        if self._waking is not None:
            if self._waking.at_s <= at_s:
                return
            self._waking.cancel()
        self._waking = self._hub.at(at_s, self._resume)

    def kill(self) -> None:
        """Leave wherever it waits, at once."""
        if self.ended or self._hub.strand is self:
            return
        self._killed = True
        if self._waking is not None:
            self._waking.cancel()
        if self._greenlet:
            self._switch()
        self.ended = True


def _raise(exc: BaseException) -> None:
    raise exc


class SimClock:
    """Implements `ports.Clock` on a hub's time; to sleep is to let others run."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def now(self) -> Now:
        """One reading of both clocks."""
        return Now(self._hub.now_s, self._hub.wall_ms)

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return self._hub.now_s

    def sleep(self, seconds: float) -> None:
        """Let others run: until something comes for who sleeps, or for a little longer.

        In production who waits looks every millisecond; here it is woken by what it waits for.
        """
        self._hub.pause(max(seconds, LOOK_S), wakeable=True)
