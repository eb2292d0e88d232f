"""Follower: keeps an index up to date, on a thread of its own.

Every few seconds it asks Kafka for the ends of the dead-letter and retry topics, and reads on what
is new. Dead letters come first: of the retry topics, which may have far more, it reads for a few
seconds, and goes on at the next look. A broker that does not answer is asked again later; an index
that can't be used is made anew.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Final, Protocol

from ackfloor import AckfloorError
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.kafka.followed_topics import FollowedTopic, NewRecords
from ackfloor.dead_letters.rules.dispositions import Disposed, read_disposition
from ackfloor.errors import RedriveRefused
from ackfloor.redrive import JobNote
from ackfloor_monitoring.console.index.index_file import IndexFile
from ackfloor_monitoring.console.index.index_rows import index_row, retry_row
from ackfloor_monitoring.console.index.index_writer import Change, IndexWriter

#: Seconds between two looks.
EVERY_S: Final = 5.0
#: Seconds that the retry topics are read for before dead letters have their turn again.
RETRY_S: Final = 5.0
#: Dispositions that are in memory before they are written.
CHANGES: Final = 5_000
#: Partitions that an error names.
MOST_NAMED: Final = 3
#: Digits of a partition and an offset that SQLite can hold: a key may have any.
DIGITS: Final = 18

log = logging.getLogger("ackfloor.console")


class Topics(Protocol):
    """Where records come from: `FollowedTopics`, or a test's."""

    def look(self) -> tuple[str, Sequence[FollowedTopic]]:
        """The cluster's id, and its dead-letter and retry topics."""

    def note_disposed(self, topic: FollowedTopic, disposed: Disposed) -> None:
        """Note the dispositions of a topic that are new."""

    def read_on(self, topic: FollowedTopic, positions: Mapping[int, int]) -> Iterator[NewRecords]:
        """What a topic has from these positions on."""


class Changes(Disposed):
    """What is disposed of; writes what changed, so many at once.

    Attributes:
        number: of its topic in the index.
    """

    def __init__(self, topic_id: str, writer: IndexWriter, number: int) -> None:
        super().__init__(topic_id)
        self._writer = writer
        self.number = number
        self._changed: list[Change] = []

    def note(self, key: bytes | None, value: bytes | None) -> None:
        """Note one record of the dispositions topic."""
        super().note(key, value)
        partition, slash, offset = (key or b"").partition(b"/")
        digits = partition.isdigit() and offset.isdigit()
        if slash and digits and max(len(partition), len(offset)) <= DIGITS:
            place = int(partition), int(offset)
            self._changed.append(Change(*place, read_disposition(value)))
            if len(self._changed) >= CHANGES:
                self.write()

    def write(self) -> None:
        """Write what is not written yet."""
        changed, self._changed = self._changed, []
        self._writer.dispose(self.number, [each[:2] for each in changed], self)
        self._writer.note_changes(self.number, changed, self)


class Follower:
    """Follows the dead-letter and retry topics of one cluster.

    Args:
        topics: makes what reads them; called on the thread.
        file: is written by nobody else.
        rules: what is taken away from what is kept.
        most: so many dead letters are kept, and as many records of retry topics.
        wait: waits for so many seconds; returns whether it is to end.

    Attributes:
        error: why the newest look failed; empty where it did not.
        jobs: topic -> the jobs that redrive or dispose of its dead letters, the latest first.
        building_since_s: since when it builds an index, on the monotonic clock; None where none is.
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
        #: The retry topic that the next look begins with, by its place among them.
        self._turn = 0
        self.error = ""
        self.jobs: dict[str, Sequence[JobNote]] = {}
        self.building_since_s: float | None = None

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
        taken_ms = _now_ms()
        cluster_id, found = topics.look()
        disposed: dict[str, Changes] = {}
        with closing(self._file.to_write(cluster_id)) as connection:
            writer = IndexWriter(connection, self._most)
            self.building_since_s = None if writer.is_built else time.monotonic()
            while True:
                self._remove(writer, found)
                whole = self._look(topics, writer, found, disposed, taken_ms)
                if self._wait(EVERY_S if whole else 0.0):
                    return
                taken_ms = _now_ms()
                again_id, found = topics.look()
                if again_id != cluster_id:
                    return

    def _look(
        self,
        topics: Topics,
        writer: IndexWriter,
        found: Sequence[FollowedTopic],
        known: dict[str, Changes],
        taken_ms: int,
    ) -> bool:
        """Read all topics on; returns whether nothing is left of what was there.

        Args:
            taken_ms: what was written by then is there, in wall-clock ms.
        """
        refused = list[str]()
        for topic in found:
            if topic.source_id:
                writer.note_source(topic.source, topic.source_id)
            if topic.kind == "dlq":
                with _noting_refusal(refused):
                    self._read(topics, writer, topic, known)
        if self._over.is_set():
            return False
        dlq, retry = ([each for each in found if each.kind == kind] for kind in ("dlq", "retry"))
        late = _late(dlq)
        if not late:
            writer.note_time(taken_ms)
            if self.building_since_s is not None:
                writer.note_built(time.monotonic() - self.building_since_s)
                self.building_since_s = None
        whole = self._read_retries(topics, writer, retry, refused)
        late += _late(retry)
        if whole and not refused and not late:
            # A record may have gone on to a topic that is refused, or was not looked at.
            writer.note_time(taken_ms, "retry_taken_ms")
        self.error = "; ".join([*refused, *([_of_late(late)] if late else [])])
        return whole

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
        """Read one dead-letter topic on."""
        number = writer.add_topic(topic.name, topic.topic_id, topic.group, topic.kind)
        positions = writer.keep(number, topic.ranges)
        disposed = known.get(topic.topic_id)
        first = disposed is None
        if disposed is None:
            disposed = known[topic.topic_id] = Changes(topic.topic_id, writer, number)
            writer.forget_dispositions(number)
        disposed.number = number
        topics.note_disposed(topic, disposed)
        disposed.write()
        self.jobs[topic.name] = disposed.jobs.latest_first()
        if first:
            # What was taken back while nobody looked leaves no trace once it is compacted.
            writer.dispose(number, list(writer.disposed_places(number)), disposed)
        for each in topics.read_on(topic, positions):
            rows = [index_row(dead_letter, self._rules) for dead_letter in each.records]
            writer.add(number, rows, each.positions, disposed)
            if self._over.is_set():
                return

    def _read_retries(
        self,
        topics: Topics,
        writer: IndexWriter,
        found: Sequence[FollowedTopic],
        refused: list[str],
    ) -> bool:
        """Read retry topics on, for a while; returns whether nothing is left.

        Each look begins behind the topic that was begun last, so that each has its turn.
        """
        until_s = time.monotonic() + RETRY_S
        for n in range(len(found)):
            topic = found[(self._turn + n) % len(found)]
            with _noting_refusal(refused):
                if not self._read_retry(topics, writer, topic, until_s):
                    self._turn = (self._turn + n + 1) % len(found)
                    return False
        return True

    def _read_retry(
        self, topics: Topics, writer: IndexWriter, topic: FollowedTopic, until_s: float
    ) -> bool:
        """Read one retry topic on; returns whether nothing of it is left."""
        number = writer.add_topic(topic.name, topic.topic_id, topic.group, topic.kind)
        for each in topics.read_on(topic, writer.keep(number, topic.ranges)):
            rows = [retry_row(record) for record in each.records]
            writer.add_retry(number, rows, each.positions)
            if self._over.is_set() or time.monotonic() >= until_s:
                return False
        return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _late(topics: Sequence[FollowedTopic]) -> list[str]:
    """Partitions whose broker has not said how far they go."""
    return [f"{topic.name}/{partition}" for topic in topics for partition in topic.late]


def _of_late(late: Sequence[str]) -> str:
    named = ", ".join(late[:MOST_NAMED]) + (" ..." if len(late) > MOST_NAMED else "")
    return f"no broker has answered for {named}: what is new there is missing"


@contextmanager
def _noting_refusal(refused: list[str]) -> Iterator[None]:
    """A missing permission is noted, and the rest is read."""
    try:
        yield
    except RedriveRefused as exc:
        refused.append(str(exc))
