"""FairOrder: which keys of a handler wait for others, and in which order they go on.

Theory. A healthy key should not wait for one that floods the topic, or one whose records hang. So
from time to time what runs is looked at (`look`), and two kinds of keys are found:

NOISY    while all slots are taken: a key that holds more than a tenth of them, or that has used
         more than a tenth of the recent handling time. Which keys used how much is known from
         these looks alone: nothing is counted for each record. Where records wait for the handler's
         rate, slots may be free, and its tokens are what is scarce: a key that has taken more than
         a tenth of those is noisy. It is noisy until nothing of it waits.
HANGING  a key of which a delivery runs far longer than usual, or whose last delivery timed out. It
         hangs until one of its deliveries is handled.

All others are quiet. Quiet keys go first; what is due of others waits here, by key, and goes on
when nothing of a quiet key waits: that of the key first which has the fewest in flight, and of
several the one that has taken the fewest tokens. Were every slot given to them then, the next
record of a quiet key would wait for a delivery to end. So as many slots are kept free of them as
all others may need (`kept`, `slot_demand`). Hanging keys are different: a slot that one has is lost
for as long as the handler's consume timeout. So they never hold more than a quarter of the slots,
and together with redeliveries no more than half. Of redeliveries those whose last delivery timed
out have a quarter of the slots at most, so that others come through.

While no key is noisy or hanging, records are looked at by nobody, and go in their order.

What it can't do: many keys that hang once each are all quiet.

Invariants (tests/framework/core/queues/test_fair_order.py):

F1  what is put in comes out once; the records of a key in the order in which they were put in.
F2  nothing of a noisy key is given while something of a quiet one waits.
F3  hanging keys hold at most `hanging_room` slots by first deliveries.
F4  a key waits for others only while it is noisy or hanging.
F5  noisy and hanging keys are given no slot of those that are kept for others; but one slot beside
    those of hanging keys is never kept, so something of a noisy key goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heapreplace
from math import inf

from ackfloor.core.queues.lanes import Lane
from ackfloor.core.queues.slot_demand import SlotDemand
from ackfloor.core.queues.usual_time import UsualTime
from ackfloor.core.records.tracked_delivery import TAKES_ROOM, TrackedDelivery

Item = TrackedDelivery | Lane
#: What records are grouped by: their Kafka keys, or what a function makes of them.
Key = bytes | str

#: Seconds between two looks at what runs.
LOOK_S = 0.02
#: The part of the slots, or of the recent handling time, beyond which a key is noisy.
PART = 0.1
#: Looks of which the handling time is recent: each counts for less as others follow it.
LOOKS = 250
#: Looks that are needed to tell how much of the handling time a key uses.
FEWEST_LOOKS = 25
#: Tokens of a rate of which each counts as recent, and the fewest that tell a key's part of them.
TOKENS = 250
FEWEST_TOKENS = 10
#: Where most deliveries have run for less than so many seconds, slots are not what is scarce.
HELD_S = 0.001
#: How many keys are remembered whose last delivery timed out.
MOST_TIMED_OUT = 1_000


class Waiting:
    """What is due of one key that waits for others.

    Attributes:
        items: records, or lanes, in order.
        running: how many first deliveries of it run.
        given: those that were given and have not been seen to start.
        hanging: whether the key hangs; otherwise it is noisy.
    """

    __slots__ = ("given", "hanging", "items", "running")

    def __init__(self, *, hanging: bool) -> None:
        self.items: deque[Item] = deque()
        self.running = 0
        self.given: dict[TrackedDelivery, None] = {}
        self.hanging = hanging

    @property
    def in_flight(self) -> int:
        """How many of its deliveries have, or are about to have, a slot."""
        return self.running + len(self.given)

    def note_started(self) -> None:
        """See which of those that were given have started, or never will."""
        for delivery in list(self.given):
            if delivery.started_s:
                del self.given[delivery]
                self.running += 1
            elif delivery.closed or delivery.assignment.stopping:
                del self.given[delivery]

    def ended(self, delivery: TrackedDelivery) -> None:
        """A first delivery has ended."""
        if delivery in self.given:
            del self.given[delivery]
        else:
            self.running = max(0, self.running - 1)


class FairOrder:
    """The noisy and hanging keys of one handler, and what waits of them.

    Args:
        key_of: what a delivery's record is grouped by; None for a record that waits for no other.
        usual: how long the handler's deliveries usually run.

    Attributes:
        key_of: see above.
        waiting: noisy and hanging keys, and what is due of each.
    """

    __slots__ = (
        "_busy",
        "_looks",
        "_next_s",
        "_others",
        "_redelivered",
        "_taken",
        "_timed_out",
        "_tokens",
        "_used",
        "_usual",
        "key_of",
        "waiting",
    )

    def __init__(self, key_of: Callable[[TrackedDelivery], Key | None], usual: UsualTime) -> None:
        self.key_of = key_of
        self._usual = usual
        self.waiting: dict[Key, Waiting] = {}
        #: Those of which something is in flight, or was since the last look: most keys that timed
        #: out have nothing any more, and these are asked for many times a turn.
        self._busy: dict[Waiting, None] = {}
        #: Keys whose last delivery timed out, the oldest first.
        self._timed_out: dict[Key, None] = {}
        #: How much of the handling time each key used, in slots x looks, and of all looks.
        self._used: dict[Key, float] = {}
        self._looks = 0.0
        #: How many tokens of a rate that was scarce each key has taken, and all of them.
        self._taken: dict[Key, float] = {}
        self._tokens = 0.0
        #: Of redeliveries and all other keys.
        self._others = SlotDemand()
        #: Redeliveries of records whose last delivery timed out, that have, or had, a slot.
        self._redelivered: list[TrackedDelivery] = []
        self._next_s = 0.0

    def __len__(self) -> int:
        return sum(len(each.items) for each in self.waiting.values())

    # What is noisy, and what hangs.

    def ended(self, deliveries: Iterable[TrackedDelivery]) -> None:
        """Deliveries have ended by themselves: their keys do not hang."""
        if self.waiting:
            for delivery in deliveries:
                key = self.key_of(delivery)
                found = None if key is None else self.waiting.get(key)
                if key is None or found is None:
                    continue
                self._timed_out.pop(key, None)
                if delivery.envelope is None:
                    found.ended(delivery)

    def timed_out(self, delivery: TrackedDelivery) -> None:
        """A delivery timed out: its key hangs."""
        key = self.key_of(delivery)
        if key is None:
            return
        if delivery.envelope is None and (found := self.waiting.get(key)) is not None:
            found.ended(delivery)
        self._timed_out.pop(key, None)
        self._timed_out[key] = None
        if len(self._timed_out) > MOST_TIMED_OUT:
            del self._timed_out[next(iter(self._timed_out))]
        self._wait(key, hanging=True)

    def look_due(self, now_s: float) -> bool:
        """Whether it is time to look at what runs (monotonic seconds)."""
        return now_s >= self._next_s

    def next_s(self) -> float:
        """When what waits is to be looked at again (monotonic seconds); inf where nothing waits.

        A slot that a hanging key has is known to be free when that was seen.
        """
        return self._next_s if any(each.items for each in self.waiting.values()) else inf

    def look(
        self,
        running: Iterable[TrackedDelivery],
        concurrency: int,
        now_s: float,
        timeout_s: float | None = None,
        *,
        rationed: bool = False,
    ) -> bool:
        """Look at the deliveries that have a slot (of `concurrency`), redeliveries included.

        `timeout_s` is the handler's consume timeout, None for no limit; where `rationed`, records
        wait for its rate.
        Returns whether the executor has to give back what it has not started: a key waits now that
        did not before, or what it was given would start in slots that are kept by now.
        """
        self._next_s = now_s + LOOK_S
        long_s = self._usual.long_s(timeout_s)
        hanging = set(self._timed_out)
        in_flight: dict[Key, int] = {}
        busy = held = 0
        for delivery in running:
            if not delivery.started_s:
                continue
            busy += 1
            age_s = now_s - delivery.started_s
            held += age_s >= HELD_S
            # Redeliveries have slots of their own.
            if delivery.retrying or (key := self.key_of(delivery)) is None:
                continue
            in_flight[key] = in_flight.get(key, 0) + 1
            if age_s >= long_s:
                hanging.add(key)
        noisy: set[Key] = set()
        if busy >= concurrency and 2 * held >= busy:
            self._count(in_flight, concurrency)
            noisy = {key for key in in_flight if self._is_noisy(key, in_flight[key], concurrency)}
        if rationed and self._tokens >= FEWEST_TOKENS:
            noisy |= {key for key, part in self._taken.items() if part > PART * self._tokens}
        apart = noisy | hanging | self.waiting.keys()
        large = max(1.0, PART * concurrency)
        others = busy - sum(n for key, n in in_flight.items() if key in apart or n > large)
        self._others.seen(others)
        new = not (noisy | hanging) <= self.waiting.keys()
        self._update(noisy, hanging, in_flight)
        return new or self._has_too_much(concurrency)

    def _count(self, in_flight: dict[Key, int], concurrency: int) -> None:
        """Note how much of the handling time each key uses."""
        used = self._used
        for key, count in in_flight.items():
            used[key] = used.get(key, 0.0) + count / concurrency
        self._looks += 1
        if self._looks >= LOOKS:
            # What is older counts half from now on; what is next to nothing is forgotten.
            self._looks /= 2
            self._used = {key: part / 2 for key, part in used.items() if part >= 1.0}

    def took(self, firsts: Iterable[TrackedDelivery]) -> None:
        """These have taken a token each of a rate for which others wait."""
        for delivery in firsts:
            # Redeliveries have a part of the tokens of their own.
            if delivery.retrying or (key := self.key_of(delivery)) is None:
                continue
            self._taken[key] = self._taken.get(key, 0.0) + 1.0
            self._tokens += 1.0
        if self._tokens >= 2 * TOKENS:
            self._tokens /= 2
            self._taken = {key: part / 2 for key, part in self._taken.items() if part >= 2.0}

    def _is_noisy(self, key: Key, in_flight: int, concurrency: int) -> bool:
        if in_flight > max(1.0, PART * concurrency):
            return True
        return self._looks >= FEWEST_LOOKS and self._used.get(key, 0.0) > PART * self._looks

    def _has_too_much(self, concurrency: int) -> bool:
        """Whether the executor has more of noisy and hanging keys than they have slots."""
        kept = self.kept(concurrency)
        if not (kept and any(each.given for each in self._busy)):
            return False
        most = self._most_of(concurrency, kept, self.hanging_in_flight())
        return sum(each.in_flight for each in self._busy) > most

    @staticmethod
    def _most_of(concurrency: int, kept: int, hanging: int) -> int:
        """How many slots noisy and hanging keys may have: a noisy one has a slot whatever hangs."""
        return max(concurrency - kept, hanging + 1)

    def _update(self, noisy: set[Key], hanging: set[Key], in_flight: dict[Key, int]) -> None:
        for key in noisy | hanging:
            self._wait(key, hanging=key in hanging)
        for key, each in list(self.waiting.items()):
            each.note_started()
            each.running = in_flight.get(key, 0)
            each.hanging = key in hanging
            if not (each.items or each.given or each.hanging or key in noisy):
                del self.waiting[key]
        self._busy = {each: None for each in self.waiting.values() if each.in_flight}

    def _wait(self, key: Key, *, hanging: bool) -> None:
        found = self.waiting.get(key)
        if found is None:
            self.waiting[key] = Waiting(hanging=hanging)
        else:
            found.hanging = hanging

    # Redeliveries.

    def may_redeliver(self, delivery: TrackedDelivery, most: int) -> bool:
        """Whether a record whose last delivery timed out may be delivered again now.

        Args:
            delivery: what is due.
            most: how many such records may have a slot.
        """
        if len(self._redelivered) >= most:
            self._redelivered = [d for d in self._redelivered if d.retrying == TAKES_ROOM]
            if len(self._redelivered) >= most:
                return False
        self._redelivered.append(delivery)
        return True

    # What waits.

    def sift(self, items: deque[Item], count: int) -> list[Item]:
        """Take up to so many items of quiet keys; those of others that come before wait here."""
        quiet: list[Item] = []
        while items and len(quiet) < count:
            item = items.popleft()
            if (found := self._waiting_of(item)) is None:
                quiet.append(item)
            else:
                found.items.append(item)
        return quiet

    def put_back(self, item: Item) -> bool:
        """What the executor has not started waits here again, in front of what else does of its
        key; False where its key waits for no other."""
        if not self.waiting or (found := self._waiting_of(item)) is None:
            return False
        found.items.appendleft(item)
        return True

    def _waiting_of(self, item: Item) -> Waiting | None:
        """What waits of its key; None for an item that waits for no other key."""
        first = item[0] if isinstance(item, Lane) else item
        # For a crash suspect that has its turn others wait, so it waits for none.
        if first.retrying or first is first.assignment.handler.suspect:
            return None
        key = self.key_of(first)
        return None if key is None else self.waiting.get(key)

    def kept(self, concurrency: int) -> int:
        """How many slots, of so many, noisy and hanging keys leave to all others."""
        return min(self._others.slots(), concurrency - 1)

    def take(self, count: int, hanging_room: int, concurrency: int) -> list[Item]:
        """Take up to so many items of noisy and hanging keys.

        Args:
            count: how many.
            hanging_room: how many slots hanging keys may have by first deliveries.
            concurrency: how many slots the handler has.
        """
        hanging = self.hanging_in_flight()
        room = hanging_room - hanging
        if kept := self.kept(concurrency):
            # Whatever the executor has, it starts: nothing waits there then for a slot.
            in_flight = sum(each.in_flight for each in self._busy)
            room = min(room, concurrency - kept - in_flight)
            count = min(count, self._most_of(concurrency, kept, hanging) - in_flight)
        order = [
            (w.in_flight, self._taken.get(key, 0.0), n, w)
            for n, (key, w) in enumerate(self.waiting.items())
            if w.items
        ]
        heapify(order)
        taken: list[Item] = []
        while order and len(taken) < count:
            in_flight, tokens, n, found = order[0]
            if found.hanging and room <= 0:
                heappop(order)
                continue
            room -= found.hanging
            item = found.items.popleft()
            taken.append(item)
            found.given[item[0] if isinstance(item, Lane) else item] = None
            self._busy[found] = None
            if found.items:
                heapreplace(order, (in_flight + 1, tokens, n, found))
            else:
                heappop(order)
        return taken

    def unstarted(self) -> int:
        """How many of those that were taken have not been seen to start."""
        for each in self._busy:
            each.note_started()
        return sum(len(each.given) for each in self._busy)

    def hanging_in_flight(self) -> int:
        """How many slots hanging keys have, or are about to have, by first deliveries."""
        return sum(each.in_flight for each in self._busy if each.hanging)

    def returned(self, firsts: Iterable[TrackedDelivery]) -> None:
        """What was taken was given back: it has no slot, and is not about to have one.

        It is not asked for its key: a user's function may fail now that did not before, and what
        stayed here would take a slot from its key for good.
        """
        taken = [each.given for each in self._busy if each.given]
        for delivery in firsts if taken else ():
            for given in taken:
                given.pop(delivery, None)

    def give_up(self) -> list[Item]:
        """Everything that waits, for a handler that is given single records in their order."""
        items = [item for each in self.waiting.values() for item in each.items]
        for each in self.waiting.values():
            each.items.clear()
        return items

    def lines(self) -> Iterable[deque[Item]]:
        """The items of each key."""
        return (each.items for each in self.waiting.values())
