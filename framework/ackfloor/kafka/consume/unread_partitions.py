"""UnreadPartitions: logs which assigned partitions are not read, and that they are read again.

A partition whose start the brokers do not tell is left out or waits, while the others are read. One
line says so for all partitions that come together, and one when they are read, with how long that
took. A topic that comes and goes all the time is a line a minute, which says how often it did.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from math import inf

from ackfloor.core.parking.partition_text import partitions_text
from ackfloor.core.records.record import TopicPartition

log = logging.getLogger("ackfloor.kafka")

#: Seconds before the partitions of a topic are logged again.
SAY_AGAIN_S = 60.0

Place = tuple[str, int]


class UnreadPartitions:
    """The partitions of one consumer that should be read and are not.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: Since when each is not read.
        self._since_s: dict[Place, float] = {}
        #: Topic -> when it was logged.
        self._logged_s: dict[str, float] = {}
        #: The topics that were logged as unread, and not yet as read again.
        self._open: set[str] = set()
        #: Topic -> how often it was unread without a line.
        self._unlogged: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._since_s)

    def left_out(self, places: Collection[Place], why: str) -> None:
        """These are not read for now; called again as long as that lasts."""
        now_s = self._clock()
        new = {topic for topic, number in places if (topic, number) not in self._since_s}
        for place in places:
            self._since_s.setdefault(place, now_s)
        topics = {topic for topic, _ in places}
        due = {t for t in topics if now_s - self._logged_s.get(t, -inf) >= SAY_AGAIN_S}
        for topic in new - due - self._open:
            self._unlogged[topic] = self._unlogged.get(topic, 0) + 1
        if not due:
            return
        before = max(self._unlogged.pop(topic, 0) for topic in due)
        often = f"; {before} times more since this was logged last" if before else ""
        text = "not read for now, and asked for again: %s (%s%s)"
        log.warning(text, _text(place for place in places if place[0] in due), why, often)
        self._open |= due
        self._logged_s.update(dict.fromkeys(due, now_s))

    def begun(self, places: Iterable[Place]) -> None:
        """These are read from now on."""
        if not self._since_s:
            return
        now_s = self._clock()
        lasted_s = {p: now_s - self._since_s.pop(p) for p in places if p in self._since_s}
        logged = [place for place in lasted_s if place[0] in self._open]
        if logged:
            longest_s = max(lasted_s[place] for place in logged)
            log.info("now read, after %.0f s: %s", longest_s, _text(logged))
        self._close()

    def keep(self, is_ours: Callable[[Place], bool]) -> None:
        """Partitions were taken away: whoever has them now reads them."""
        self._since_s = {place: s for place, s in self._since_s.items() if is_ours(place)}
        self._close()

    def _close(self) -> None:
        self._open &= {topic for topic, _ in self._since_s}


def _text(places: Iterable[Place]) -> str:
    return partitions_text(TopicPartition(*place) for place in places)
