"""Follower: keeps an index up to date, on a thread of its own.

Every few seconds it asks Kafka for the ends of the dead-letter topics, and reads on what is new. A
broker that does not answer is asked again later; an index that can't be used is made anew.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final, Protocol

from ackfloor import AckfloorError
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.kafka.followed_topics import FollowedTopic, NewDeadLetters
from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor.errors import RedriveRefused
from ackfloor.redrive import JobNote
from ackfloor_monitoring.console.index.index_file import IndexFile
from ackfloor_monitoring.console.index.index_rows import index_row
from ackfloor_monitoring.console.index.index_writer import IndexWriter

#: Seconds between two looks.
EVERY_S: Final = 5.0

log = logging.getLogger("ackfloor.console")


class Topics(Protocol):
    """Where dead letters come from: `FollowedTopics`, or a test's."""

    def look(self) -> tuple[str, Sequence[FollowedTopic]]:
        """The cluster's id, and its dead-letter topics."""

    def note_disposed(self, topic: FollowedTopic, disposed: Disposed) -> None:
        """Note the dispositions of a topic that are new."""

    def read_on(
        self, topic: FollowedTopic, positions: Mapping[int, int]
    ) -> Iterator[NewDeadLetters]:
        """What a topic has from these positions on."""


class Changes(Disposed):
    """What is disposed of, and which of it changed since it was asked last."""

    def __init__(self, topic_id: str) -> None:
        super().__init__(topic_id)
        self._changed: dict[int, array[int]] = {}

    def note(self, key: bytes | None, value: bytes | None) -> None:
        """Note one record of the dispositions topic."""
        super().note(key, value)
        partition, slash, offset = (key or b"").partition(b"/")
        if slash and partition.isdigit() and offset.isdigit() and len(offset) <= 18:
            self._changed.setdefault(int(partition), array("q")).append(int(offset))

    def take(self) -> Iterator[tuple[int, int]]:
        """The places that changed, each time once."""
        changed, self._changed = self._changed, {}
        for partition, offsets in changed.items():
            for offset in offsets:
                yield partition, offset


class Follower:
    """Follows the dead-letter topics of one cluster.

    Args:
        topics: makes what reads them; called on the thread.
        file: is written by nobody else.
        rules: what is taken away from what is kept.
        most: so many dead letters are kept.
        wait: waits for so many seconds; returns whether it is to end.

    Attributes:
        error: why the newest look failed; empty where it did not.
        jobs: topic -> the jobs that redrive or dispose of its dead letters, the latest first.
    """

    def __init__(
        self,
        topics: Callable[[], Topics],
        file: IndexFile,
        rules: Redaction,
        most: int,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._make_topics = topics
        self._file = file
        self._rules = rules
        self._most = most
        self._over = threading.Event()
        self._wait = wait or self._over.wait
        self._thread = threading.Thread(target=self.run, name="console:index", daemon=True)
        self.error = ""
        self.jobs: dict[str, Sequence[JobNote]] = {}

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self, patience_s: float) -> None:
        """End, at the latest after so many seconds: what is under way is done again next time."""
        self._over.set()
        self._thread.join(patience_s)

    def run(self) -> None:
        """Follow, and begin again where something failed, until this is to end."""
        while True:
            try:
                self.follow(self._make_topics())
            except (AckfloorError, OSError) as exc:
                self.error = str(exc)
            except sqlite3.DatabaseError as exc:
                self.error = f"{self._file.path} is made anew: {exc}"
                log.warning("the index %s is made anew: %s", self._file.path, exc)
                self._file.throw_away()
            except Exception as exc:
                log.exception("the index of dead letters was not renewed")
                self.error = f"{type(exc).__name__}: {exc}; the console's log has more"
            if self._wait(EVERY_S):
                return

    def follow(self, topics: Topics) -> None:
        """Look again and again, until something fails or this is to end."""
        cluster_id, found = topics.look()
        disposed: dict[str, Changes] = {}
        with closing(self._file.to_write(cluster_id)) as connection:
            writer = IndexWriter(connection, self._most)
            while True:
                taken_ms = time.time_ns() // 1_000_000
                self._remove(writer, found)
                refused = []
                for topic in found:
                    try:
                        self._read(topics, writer, topic, disposed)
                    except RedriveRefused as exc:  # a missing permission: the rest is read
                        refused.append(str(exc))
                if not self._over.is_set():
                    writer.note_time(taken_ms)
                    self.error = "; ".join(refused)
                if self._wait(EVERY_S):
                    return
                again_id, found = topics.look()
                if again_id != cluster_id:
                    return

    def _remove(self, writer: IndexWriter, found: Sequence[FollowedTopic]) -> None:
        """Forget topics that are gone, or are others under the same name."""
        there = {topic.name: topic.topic_id for topic in found}
        for name, topic_id in writer.topics().items():
            if there.get(name) != topic_id:
                writer.remove_topic(name)
                self.jobs.pop(name, None)

    def _read(
        self,
        topics: Topics,
        writer: IndexWriter,
        topic: FollowedTopic,
        known: dict[str, Changes],
    ) -> None:
        """Read one topic on."""
        number = writer.add_topic(topic.name, topic.topic_id, topic.group)
        disposed = known.get(topic.topic_id)
        first = disposed is None
        if disposed is None:
            disposed = known[topic.topic_id] = Changes(topic.topic_id)
        topics.note_disposed(topic, disposed)
        self.jobs[topic.name] = disposed.jobs.latest_first()
        if first:
            # What was taken back while nobody looked leaves no trace once it is compacted.
            writer.dispose(number, list(writer.disposed_places(number)), disposed)
        writer.dispose(number, disposed.take(), disposed)
        for each in topics.read_on(topic, writer.keep(number, topic.ranges)):
            rows = [index_row(dead_letter, self._rules) for dead_letter in each.dead_letters]
            writer.add(number, rows, each.positions, disposed)
            if self._over.is_set():
                return
