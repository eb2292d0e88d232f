"""ProcessWork: which records go to which process of one handler, and how they end.

A process gets a few records ahead, so that it never waits for the worker: as many as take it about
`AHEAD_S`, by the handler's recent durations. A process of a slower handler gets one record at a
time. Where one record takes unusually long after all, those behind it are recalled and go to
another process.

Several records of a work go to one process together, which handles them in order. One that fails is
the last of them: the process gives the others back with its outcome, and they are in the work again
*before* the outcome is posted. So the engine, which takes the work back then, finds all of it.
While a process has records of a work, no other gets any: only the answer of the process, or its
death, ends a delivery.

Only the pool's thread calls this.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ackfloor.core.engine.completions import timed_out
from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import ACKED, Acked, Failed, Outcome, Paused, Released
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.runtime.executors.inbox import Inbox
from ackfloor.runtime.executors.process.handler_process import Handed, Host, LaneRun
from ackfloor.runtime.executors.process.wire_format import output_from_list, sent
from ackfloor.runtime.executors.window import Window

#: Seconds of work that a process has in hand, of a handler that takes at most `QUICK_S`: so much
#: may pass on a busy machine before the pool's thread gets a core.
AHEAD_S = 0.1
QUICK_S = 0.02
MOST_AHEAD = 128
#: Bytes beyond which a process gets no second record.
MOST_BYTES = 1 << 20
#: Seconds that a record may take before those behind it are asked back.
STUCK_S = 0.05
#: Weight of the newest record in the mean duration.
NEWEST = 0.1


class ProcessWork:
    """The records of one handler between its queue and its processes.

    Args:
        handler: its name.
        window: what is to be handled.
        inbox: where finished deliveries go.
        clock: monotonic seconds.
        max_records: how many records one process may handle; None for no limit.

    Attributes:
        stopping: nothing more is handed out.
    """

    def __init__(
        self,
        handler: str,
        window: Window,
        inbox: Inbox,
        clock: Callable[[], float],
        max_records: int | None,
    ) -> None:
        self._handler = handler
        self._window = window
        self._inbox = inbox
        self._clock = clock
        self.max_records = max_records
        self._mean_s: float | None = None
        self.stopping = False

    # To the processes.

    def feed(self, hosts: Sequence[Host], count: int) -> None:
        """Hand out what there is, first to the process with the fewest records.

        Args:
            hosts: all processes; there are more while some that were too many still work.
            count: how many may work at once.
        """
        now_s, depth = self._clock(), self._depth()
        rooms = {host: self._room(host, depth, now_s) for host in hosts}
        idle = count - sum(1 for host in hosts if host.in_flight)
        batches: dict[Host, list[list[tuple[Any, ...]]]] = {}
        while not self.stopping:
            able = (h for h in rooms if rooms[h] > 0 and (h.in_flight or idle > 0))
            host = min(able, key=_in_hand, default=None)
            if host is None:
                break
            begins = not host.in_flight
            taken = self._take(host, rooms[host])
            if taken is None:
                break
            if taken:
                idle -= begins
                batches.setdefault(host, []).append(taken)
                rooms[host] -= len(taken)
                if host.bytes > MOST_BYTES:
                    rooms[host] = 0
        for host, items in batches.items():
            self._send(host, items)

    def _send(self, host: Host, items: list[list[tuple[Any, ...]]]) -> None:
        rules = next(iter(host.in_flight.values())).deliveries[0].assignment.handler.rules
        level = logging.getLogger().level
        # A process reports room this early so that it need not wait for more.
        low = len(host.in_flight) // 2 if self._depth() > 1 else -1
        settings = (rules.consume_timeout_s, rules.max_extend_s, level)
        host.pipe.send(pickle.dumps(("work", settings, low, items)))

    def _depth(self) -> int:
        """How many records a process may have, by their recent durations."""
        mean_s = self._mean_s
        if mean_s is None or mean_s > QUICK_S:
            return 1
        return min(MOST_AHEAD, 1 + int(AHEAD_S / max(mean_s, 1e-6)))

    def _room(self, host: Host, depth: int, now_s: float) -> int:
        """How many more records a process may be given."""
        if not host.ready or host.ending or host.killed or host.recalled:
            return 0
        room = depth - len(host.in_flight)
        if self.max_records is not None:
            room = min(room, self.max_records - host.given)
        if host.in_flight and (is_stuck(host, now_s) or host.bytes > MOST_BYTES):
            return 0
        return room

    def _take(self, host: Host, room: int) -> list[tuple[Any, ...]] | None:
        """The next item for a process; empty where it is to be passed over, None without any."""
        try:
            item = self._window.take()
        except IndexError:
            return None
        return self._give(host, item, room)

    def _give(self, host: Host, item: Any, room: int) -> list[tuple[Any, ...]]:
        """Hand over an item, or some of it; empty where nothing of it may start."""
        if isinstance(item, Work):
            if item.recalls != self._window.recalls:
                self._window.end(item)
                return []
            return self._take_work(host, LaneRun(item), room)
        return self._hand(host, item, LaneRun(None))

    def _take_work(self, host: Host, lane_run: LaneRun, room: int) -> list[tuple[Any, ...]]:
        work, taken, size = lane_run.work, [], 0
        assert work is not None, "it is of a work"
        # Half of the room at most: the records of another should not wait for all of it.
        for _ in range(max(1, room // 2)):
            try:
                delivery = work.popleft()
            except IndexError:
                break
            taken += self._hand(host, delivery, lane_run)
            size += delivery.size
            if size > MOST_BYTES:
                break
        if not taken:
            self._go_on(lane_run)
        return taken

    def _hand(
        self, host: Host, delivery: TrackedDelivery, lane_run: LaneRun
    ) -> list[tuple[Any, ...]]:
        # In hand before the check: a revoke marks the assignment first and looks at who runs
        # second, so either we see the mark or it sees us.
        number = host.hand(Handed((delivery,), lane_run))
        if delivery.closed or delivery.assignment.stopping:
            host.take_back(number)
            return []
        lane_run.count += 1
        return [sent(number, delivery)]

    # From the processes.

    def returned(self, host: Host, numbers: Iterable[int]) -> None:
        """A process gave back records that it has not begun: give them back here, too."""
        units: list[Unit] = []
        for number in sorted(numbers, reverse=True):
            handed = host.take_back(number)
            if handed is not None:
                units += self._undone(handed)
        self._inbox.returned.extend((self._handler, unit) for unit in reversed(units))

    def _undone(self, handed: Handed) -> Sequence[Unit]:
        """What is given back of something that was handed over; a work with its first record."""
        (delivery,), lane_run = handed.deliveries, handed.lane_run
        lane_run.count -= 1
        delivery.reopen()
        if lane_run.work is None:
            return (delivery,)
        lane_run.work.appendleft(delivery)
        return () if lane_run.count else (lane_run.work,)

    def passed(self, host: Host, until: int) -> bool:
        """Records up to a number have ended without a message: acknowledge them."""
        moved = False
        for number in list(host.in_flight):
            if number >= until:
                break
            self.complete(host, number, ACKED)
            moved = True
        return moved

    def complete(
        self, host: Host, number: int, outcome: Outcome, finished_s: float | None = None
    ) -> None:
        """A record's handler has ended; the other records of its work are back."""
        handed = host.in_flight.get(number)
        if handed is None:
            return
        (delivery,), lane_run = host.note_times(number), handed.lane_run
        delivery.finished_s = finished_s or host.progress.finished_s(number)
        self._learn(delivery.finished_s - delivery.started_s)
        lane_run.count -= 1
        if isinstance(outcome, Paused):
            unit: TrackedDelivery | Work = delivery
            if lane_run.work is not None:
                lane_run.work.appendleft(delivery)
                unit = lane_run.work
            host.forget(number)
            self._window.put_back(unit, delivery, outcome)
            return
        # What it raised is in its process.
        self._inbox.note_failure(delivery, outcome, None)
        delivery.outcome = outcome
        self._inbox.answered.append(delivery)
        # After it was posted: `running` must not miss it.
        host.forget(number)
        if not isinstance(outcome, Acked) and delivery.keeps_lane():
            return
        if lane_run.count == 0:
            self._go_on(lane_run)

    def died(self, host: Host, number: int, outcome: Failed | Released) -> None:
        """Its process died while it handled this; for a timeout `timed_out` makes the outcome."""
        (delivery,) = host.note_times(number)
        if delivery.closed:
            # Its partition was revoked: the answer is not needed.
            host.in_flight[number].lane_run.count -= 1
            host.take_back(number)
            return
        if is_timeout(outcome):
            outcome = timed_out(delivery)
        self.complete(host, number, outcome, self._clock())

    def published(self, host: Host, message: Mapping[str, Any]) -> None:
        """What a record has published, which is about to end as handled."""
        handed = host.in_flight.get(message["outputs"])
        if handed is None:
            return
        delivery = handed.deliveries[message["place"]]
        for item in message["items"]:
            delivery.hold(output_from_list(item))
        if delivery.outputs is not None:
            delivery.outputs.too_large = str(message["too_large"])

    def answered_by_hand(self, host: Host, message: Mapping[str, Any]) -> None:
        """A record was answered by hand: only batch handlers do that in a process.

        Raises:
            ValueError: always; this is no batch handler.
        """
        raise ValueError(f"process {host.pid} said {message}")

    def _learn(self, duration_s: float) -> None:
        mean_s = self._mean_s
        self._mean_s = duration_s if mean_s is None else mean_s + (duration_s - mean_s) * NEWEST

    def _go_on(self, lane_run: LaneRun) -> None:
        """The process has no more records of a work: put it back in the queue, or end it."""
        if lane_run.work:
            self._window.put_last(lane_run.work)
        elif lane_run.work is not None:
            self._window.end(lane_run.work)


def is_stuck(host: Host, now_s: float) -> bool:
    """Whether a process runs a record that others should not wait for."""
    number = host.current()
    return number is not None and now_s - host.progress.started_s(number) > STUCK_S


def is_timeout(outcome: Outcome) -> bool:
    """Whether a process was killed because its time was up."""
    return isinstance(outcome, Failed) and outcome.reason is Reason.TIMEOUT


def _in_hand(host: Host) -> int:
    return len(host.in_flight)
