"""The stage: the run, the topics and the live view together, and the waits between the steps.

Every wait looks at the run a few times a second, shows it, and fails as soon as the run has ended
or nothing has moved for long; none waits for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from ackfloor import AckfloorError
from ackfloor_handlers.demo.demo_errors import DemoFailed
from ackfloor_handlers.demo.demo_processes import Service
from ackfloor_handlers.demo.demo_topics import PARTITIONS, Topics
from ackfloor_handlers.demo.live_view import LiveView
from ackfloor_handlers.demo.order_producer import Feed
from ackfloor_handlers.demo.run_watch import (
    NOTHING,
    WORKER_EXITS,
    Counts,
    RunView,
    fetch,
    fetch_state,
)
from ackfloor_handlers.orders import RECEIPTS

LOOK_EVERY_S: Final = 0.2
#: Without a record settled for so long, nothing will come any more. Longer than a circuit
#: breaker withholds a bad record at the head of a lane: 20 trials, five seconds apart.
STANDSTILL_S: Final = 180.0


def wall_ms() -> int:
    """The wall clock, in ms."""
    return time.time_ns() // 1_000_000


class Stage:
    """Where the steps take place."""

    def __init__(self, topics: Topics, service: Service, feed: Feed, live: LiveView) -> None:
        self.topics = topics
        self.feed = feed
        self.service = service
        self.live = live
        self.view: RunView = NOTHING
        self._counts = Counts()

    def look(self) -> None:
        """See how the run is, and show it."""
        self.service.check()
        view = fetch_state(self.service.address)
        metrics = fetch(self.service.address, "/metrics")
        if view is not None and metrics is not None:
            self.view = view
            self._counts.read(metrics)
            self.live.show(view, self._counts, self.feed.confirmed)

    def until(self, done: Callable[[], bool], what: str, within_s: float) -> None:
        """Look until something is so.

        Raises:
            DemoFailed: it took longer than `within_s` seconds, or the run has ended.
        """
        give_up_s = time.monotonic() + within_s
        while True:
            self.look()
            if done():
                return
            if time.monotonic() > give_up_s:
                raise DemoFailed(f"waited {within_s:g} s in vain until {what}{self._why()}")
            time.sleep(LOOK_EVERY_S)

    def until_settled(self) -> None:
        """Look until the group has settled every record, of the retry topics too.

        Raises:
            DemoFailed: nothing was settled any more although there was something left.
        """
        left: int | None = None
        moved_s = time.monotonic()
        while True:
            self.look()
            found = _asked(self.topics.unsettled)
            if found == 0:
                return
            if found is not None and found != left:
                left, moved_s = found, time.monotonic()
            if time.monotonic() - moved_s > STANDSTILL_S:
                raise DemoFailed(
                    f"{'some' if left is None else left} records are not settled, and none was "
                    f"for {STANDSTILL_S:g} s{self._why()}"
                )
            time.sleep(LOOK_EVERY_S)

    def all_owned(self, workers: int) -> bool:
        """Whether each of so many workers has partitions, and every partition a worker."""
        owned = {part.place for part in self.view.partitions}
        at_work = {part.worker for part in self.view.partitions}
        return len(at_work) == workers and owned >= set(self.topics.consumed())

    def workers_lost(self) -> int:
        """How many worker processes ended so far."""
        return self._counts.total(WORKER_EXITS)

    def receipts(self) -> int:
        """How many receipts were written so far; 0 while the broker is away."""
        places = [(RECEIPTS, partition) for partition in range(PARTITIONS)]
        ends = _asked(lambda: sum(self.topics.ends(places).values()))
        return ends or 0

    def _why(self) -> str:
        """What is known of the reasons: faults, what is left, the end of the log."""
        left = [
            f"{part.place[0]}/{part.place[1]} of worker {part.worker}: floor {part.floor}, "
            f"{part.open} open, {part.left} to go"
            for part in self.view.partitions
            if part.left
        ]
        lines = [*dict.fromkeys(self.view.faults), *left]
        return "\n".join(["", *lines, "the end of the run's log:", self.service.log_tail()])


def _asked(question: Callable[[], int]) -> int | None:
    """The broker's answer, None while it has none."""
    try:
        return question()
    except (KafkaException, AckfloorError):
        return None
