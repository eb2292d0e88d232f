"""HandlerRate: how many deliveries of one handler may start, of a rate for the whole group.

Theory. Nobody coordinates the workers. Each takes the part of the rate that is its part of the
partitions, and as a partition has one owner, the parts never add up to more than the rate. A worker
keeps a bucket of tokens, which fills at its part of the rate. Each record that the executor is
given takes one, whether it is new or delivered again; a batch takes one for each of its records.

What the executor was given and has not started counts against the bucket's size. So a slot that
comes free late can't add what has gathered in the executor to what has gathered here. What comes
back unstarted, or never starts because its partition has left, gives its tokens back. Where its
partition is about to leave, which may take long, it loses them and holds up no other.

When the worker's part changes, it keeps the tokens of one call, and none are made of the time since
the last look: whoever has the partition now begins without any. Without those of a call a slow
rate, or a large batch, would start nothing at all in a group whose partitions move more often than
its tokens come.

Of the tokens, redeliveries get half while others wait, as they get half of the slots.

Invariants (tests/framework/core/queues/test_handler_rate.py, test_handler_rate_model.py):

H1  in any `t` seconds a worker starts no more than its part of the rate in that time and what its
    bucket holds: `BURST_S` of its part, and the records of one call. So the group starts at most
    103 % of the rate in any ten seconds, and one call for each worker.
H2  something waits only while the bucket lacks tokens, and these come as long as the worker has a
    partition and the executor starts what it was given; also where others come and go all the time.
H3  each start takes a token: a batch one for each record, a redelivery as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING

from ackfloor.core.records.batch import Batch
from ackfloor.core.records.tracked_delivery import TrackedDelivery

if TYPE_CHECKING:
    from ackfloor.core.queues.handler_queue import Unit

#: Seconds of the rate that the bucket holds.
BURST_S = 0.3
#: The shortest time until the next look for tokens: a fast rate need not wake for each of them.
LOOK_AGAIN_S = 0.01
#: So many that have not started are looked at each time; more only as often as that.
FEW = 64
#: Floats are a hair off: a token is there when all but so much of it is.
HAIR = 1e-6


class HandlerRate:
    """The tokens of one handler in one worker; only the owner thread calls it.

    Attributes:
        share: the part of the rate that is the worker's; None where that is to be counted anew.
        per_s: the worker's part of the rate in records a second, as of the last look.
        lacking: something waited for a token when the last was given.
        lacking_s: for how many seconds something has waited for one so far.
    """

    __slots__ = (
        "_at_s",
        "_call",
        "_given",
        "_most",
        "_needed",
        "_retries",
        "_seen_s",
        "_tokens",
        "_unstarted",
        "lacking",
        "lacking_s",
        "per_s",
        "share",
    )

    def __init__(self) -> None:
        self.share: float | None = None
        self.per_s = 0.0
        self.lacking = False
        self.lacking_s = 0.0
        self._tokens = 0.0
        #: When tokens were made last (monotonic seconds); None where none are made of the time
        #: until the next look.
        self._at_s: float | None = None
        #: What the executor was given and has not been seen to start.
        self._given: deque[TrackedDelivery] = deque()
        #: When all of it was looked at (monotonic seconds).
        self._seen_s = 0.0
        #: What the bucket holds, how much of that is for the largest call, and how many tokens the
        #: next in line needs.
        self._most = 0.0
        self._call = 0
        self._needed = 1
        #: More would be there, had the executor started what it was given.
        self._unstarted = False
        #: How many redeliveries may go ahead of what was not tried yet.
        self._retries = 1.0

    @property
    def tokens(self) -> int:
        """How many records may be given to the executor now."""
        return max(0, int(self._tokens + HAIR))

    def look(self, per_s: float, largest: int, now_s: float) -> int:
        """Make tokens of the time since the last look; returns how many there are.

        Args:
            per_s: the worker's part of the rate now, in records a second.
            largest: records of the largest call.
            now_s: monotonic seconds.
        """
        since_s = 0.0 if self._at_s is None else max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self.per_s, self._call = per_s, largest
        self._most = largest + BURST_S * per_s if per_s > 0 else 0.0
        # What has started meanwhile had its place in the bucket for some of that time.
        made, room = self._tokens + since_s * per_s, self._most - len(self._given)
        self._tokens = min(made, room)
        self._note_started(now_s)
        self._unstarted = len(self._given) > 0 and made > room
        if self.lacking:
            self.lacking_s += since_s
        return self.tokens

    def gave(self, units: Sequence[Unit]) -> None:
        """The executor was given these."""
        for unit in units:
            deliveries = _deliveries(unit)
            self._given.extend(deliveries)
            self._tokens -= len(deliveries)
            for delivery in deliveries:
                if not delivery.retrying:
                    self._retries = min(self._retries + 1.0, max(1.0, self._most))

    def returned(self, units: Iterable[Unit]) -> None:
        """The executor gave these back."""
        self._note_started()
        back = {id(delivery) for unit in units for delivery in _deliveries(unit)}
        self._take_out([d for d in self._given if id(d) in back])

    def started_unseen(self) -> None:
        """A delivery was started, and came back as if it had not been."""
        self._tokens -= 1.0

    def changes(self) -> None:
        """The worker's part of the rate has changed, or is about to."""
        self._note_started()
        self.share = None
        self._tokens = min(self._tokens, float(self._call))
        self._at_s = None

    def note(self, *, waits: bool, needed: int = 1) -> None:
        """Note whether something waits for tokens, and not for slots.

        Args:
            waits: something waits.
            needed: the tokens that its first call takes.
        """
        self._needed = max(1, needed)
        self.lacking = waits and self.tokens < self._needed and not self._unstarted

    def next_s(self) -> float:
        """When to look for tokens next (monotonic seconds); infinity where nothing waits."""
        return self.ready_s(self._needed) if self.lacking else inf

    def ready_s(self, needed: int = 1) -> float:
        """The soonest at which so many tokens may be there; in the past where they are."""
        if self.tokens >= needed or self._at_s is None:
            return 0.0
        if self.per_s <= 0:
            return inf
        return self._at_s + max(LOOK_AGAIN_S, (needed - self._tokens) / self.per_s)

    # Redeliveries.

    def retry_room(self, *, others_wait: bool) -> int:
        """How many redeliveries may go ahead of what was not tried yet.

        Args:
            others_wait: something waits that they would go ahead of.
        """
        turns = int(self._retries)
        return turns if others_wait else max(turns, 1, int(self._most))

    def redelivered(self, count: int) -> None:
        """So many redeliveries go ahead."""
        self._retries = max(0.0, self._retries - count)

    # What was given.

    def _note_started(self, now_s: float | None = None) -> None:
        """See which of those that were given have started, or never will."""
        given = self._given
        while given and given[0].started_s:
            given.popleft()
        if now_s is not None and len(given) > FEW:
            if 0.0 <= now_s - self._seen_s < LOOK_AGAIN_S:
                return
            self._seen_s = now_s
        if given:
            self._given = deque(d for d in given if not d.started_s)
            self._take_out([d for d in self._given if d.closed or d.assignment.closed])
            # Nor do these start, but for those that a slot has just looked at.
            self._given = deque(d for d in self._given if not d.assignment.stopping)

    def _take_out(self, unstarted: Sequence[TrackedDelivery]) -> None:
        """Give the tokens of deliveries back that do not start."""
        if unstarted:
            gone = {id(delivery) for delivery in unstarted}
            self._given = deque(d for d in self._given if id(d) not in gone)
            self._tokens += len(unstarted)


def _deliveries(unit: Unit) -> Sequence[TrackedDelivery]:
    """The deliveries that a slot starts when it takes a unit."""
    if isinstance(unit, TrackedDelivery):
        return (unit,)
    return unit.items if isinstance(unit, Batch) else tuple(unit)
