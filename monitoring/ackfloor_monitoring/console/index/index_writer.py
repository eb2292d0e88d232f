"""IndexWriter: adds records to the index and removes them, with the position in one step.

What is written and up to where was read are one transaction: whoever is stopped in the middle goes
on where the file says, and no record is missing or there twice.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from ackfloor.dead_letters.rules.dispositions import Disposed, DispositionNote
from ackfloor_monitoring.console.index.index_rows import (
    NAME,
    IndexRow,
    RetryRow,
    SourcePlace,
)
from ackfloor_monitoring.console.index.known_causes import KnownCauses

#: Where the bound is passed, this part more is removed at once: not a few rows each time.
SLACK: Final = 0.01
#: Likewise of records of retry topics, of which all are read to find the oldest.
RETRY_SLACK: Final = 0.05
#: Source topics whose names are kept: a header may have any.
MOST_SOURCES: Final = 10_000
#: So many of the oldest that are disposed of, or that are not.
_OLDEST: Final = (
    "select topic, partition, offset from dead_letter where disposed = ? "
    "order by at_ms, topic, partition, offset limit ?"
)
_OLDEST_RETRY: Final = (
    "select topic, partition, offset from retry_record "
    "order by at_ms, topic, partition, offset limit ?"
)
_REMOVE_RETRY: Final = "delete from retry_record where (topic, partition, offset) in"
_REMOVE: Final = "delete from dead_letter where (topic, partition, offset) in"
_LEAVE_OUT: Final = (
    "update progress set left_out = left_out + gone.count, "
    "left_out_below = max(left_out_below, gone.below) from "
    "(select topic, partition, count(*) as count, max(offset) + 1 as below from"
)
_OF_THE_SAME: Final = (
    "group by topic, partition) as gone "
    "where progress.topic = gone.topic and progress.partition = gone.partition"
)
#: What else is there of a topic.
_OF_TOPIC: Final = ("dead_letter", "retry_record", "disposition", "act", "progress", "cause")
#: Of what was read and is no longer there, nothing more is kept.
_NOTE: Final = (
    "insert or replace into disposition select :topic, :partition, :offset, :act, :at_ms "
    "where exists (select 1 from dead_letter "
    "where topic = :topic and partition = :partition and offset = :offset) "
    "or not exists (select 1 from progress "
    "where topic = :topic and partition = :partition and position > :offset)"
)

log = logging.getLogger("ackfloor.console")


class Change(NamedTuple):
    """What a disposition record says of a dead letter; no note where it takes one back."""

    partition: int
    offset: int
    note: DispositionNote | None


class IndexWriter:
    """Writes.

    Args:
        connection: to the file, in autocommit mode.
        most: so many dead letters are kept, as many records of retry topics, and as many
            dispositions; the oldest go first.
    """

    def __init__(self, connection: sqlite3.Connection, most: int) -> None:
        self._connection = connection
        self._most = most
        self._causes = KnownCauses(connection)
        #: Rows that are gone since room was made for causes; before that there may be any.
        self._gone = most
        #: Name and id of a source topic -> its number.
        sources = connection.execute("select name, topic_id, id from source")
        self._sources: dict[tuple[str, str], int] = {tuple(topic): n for *topic, n in sources}
        #: Name of a source topic -> the id of the one that is there now.
        self._there: dict[str, str] = {}
        self._count = self._count_of("dead_letter")
        self._retry_count = self._count_of("retry_record")
        self._noted = self._count_of("disposition")
        #: The newest of what jobs do, and its number in the index.
        self._last_act: tuple[object, int] = (None, 0)

    def _count_of(self, table: str) -> int:
        text = f"select count(*) from {table}"  # noqa: S608 -- a name of ours
        [(count,)] = self._connection.execute(text)
        return int(count)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """All of it or nothing."""
        counts = self._count, self._retry_count, self._noted
        self._connection.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._count, self._retry_count, self._noted = counts
            self._last_act = (None, 0)
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            raise
        self._connection.execute("commit")

    def topics(self) -> dict[str, str]:
        """Name -> Kafka's id, of the topics that the index has."""
        return dict(self._connection.execute("select name, topic_id from topic"))

    def add_topic(self, name: str, topic_id: str, group: str, kind: str) -> int:
        """Begin a topic, or go on with it; returns its number in the index."""
        with self._together():
            self._connection.execute(
                "insert or ignore into topic(name, topic_id, consumer_group, kind) "
                "values (?, ?, ?, ?)",
                (name, topic_id, group, kind),
            )
        [(number,)] = self._connection.execute("select id from topic where name = ?", (name,))
        return int(number)

    def remove_topic(self, name: str) -> None:
        """Forget a topic and all that is known of it."""
        self._last_act = (None, 0)
        with self._together():
            for table in _OF_TOPIC:
                self._connection.execute(
                    f"delete from {table} where topic = (select id from topic where name = ?)",  # noqa: S608 -- names of ours
                    (name,),
                )
            self._connection.execute("delete from topic where name = ?", (name,))
            self._count = self._count_of("dead_letter")
            self._retry_count = self._count_of("retry_record")
        self._causes.read()

    def keep(self, topic: int, ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Remove what is in a topic's log no more; returns where to read on.

        Args:
            ranges: partition -> its first offset, and the one behind its last.

        Returns:
            Partition -> offset, of those that have something new.
        """
        with self._together():
            for partition, (start, end) in ranges.items():
                self._connection.execute(
                    "insert into progress(topic, partition, start, position, log_end) "
                    "values (?, ?, ?, ?, ?) on conflict do update set "
                    "start = excluded.start, position = max(position, excluded.start), "
                    "log_end = excluded.log_end, "
                    "left_out = iif(excluded.start < left_out_below, left_out, 0)",
                    (topic, partition, start, start, end),
                )
                gone = (topic, partition, start)
                self._count -= self._remove_below("dead_letter", gone)
                self._retry_count -= self._remove_below("retry_record", gone)
                self._noted -= self._remove_below("disposition", gone)
        new = "select partition, position from progress where topic = ? and position < log_end"
        return {p: at for p, at in self._connection.execute(new, (topic,)) if p in ranges}

    def _remove_below(self, table: str, place: tuple[int, int, int]) -> int:
        """Remove what is before a place: topic, partition and offset; returns how many."""
        where = "topic = ? and partition = ? and offset < ?"
        text = f"delete from {table} where {where}"  # noqa: S608 -- names of ours
        removed = self._connection.execute(text, place).rowcount
        self._gone += removed
        return removed

    def add(
        self,
        topic: int,
        rows: Sequence[IndexRow],
        positions: Mapping[int, int],
        disposed: Disposed,
    ) -> None:
        """Add dead letters; what is there already stays as it is.

        Args:
            positions: partition -> the offset to read next.
            disposed: which of them are replayed, discarded or archived.
        """
        self._make_room()
        added = [
            (
                topic, row.partition, row.offset,
                disposed.hides(row.partition, row.offset), row.header_bits, row.message,
                row.headers, self._causes.number(topic, row.cause), row.at_ms, row.first_ms,
                row.attempt, row.replays, row.key, row.headers_cut,
                *self._source(row.source, row.source_id), row.source_ms,
            )
            for row in rows
        ]  # fmt: skip
        with self._together():
            self._count += self._insert("dead_letter", 18, added)
            self._move_on(topic, positions)
            self._keep_bound()

    def add_retry(self, topic: int, rows: Sequence[RetryRow], positions: Mapping[int, int]) -> None:
        """Add records of a retry topic, likewise."""
        self._make_room()
        added = [
            (
                topic, row.partition, row.offset, self._causes.number(topic, row.cause), row.at_ms,
                row.due_ms, row.attempt, row.replays, *self._source(row.source, row.source_id),
                row.source_ms,
            )
            for row in rows
        ]  # fmt: skip
        with self._together():
            self._retry_count += self._insert("retry_record", 12, added)
            self._move_on(topic, positions)
            self._keep_retry_bound()

    def _insert(self, table: str, columns: int, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert those that are not there; returns how many."""
        places = ", ".join("?" * columns)
        text = f"insert or ignore into {table} values ({places})"  # noqa: S608 -- a name of ours
        return self._connection.executemany(text, rows).rowcount

    def _move_on(self, topic: int, positions: Mapping[int, int]) -> None:
        self._connection.executemany(
            "update progress set position = max(position, ?), log_end = max(log_end, ?) "
            "where topic = ? and partition = ?",
            [(at, at, topic, partition) for partition, at in positions.items()],
        )

    def forget_dispositions(self, topic: int) -> None:
        """Forget who disposed of what: it is read anew."""
        self._last_act = (None, 0)
        with self._together():
            for table in ("disposition", "act"):
                where = "where topic = ?"
                self._connection.execute(f"delete from {table} {where}", (topic,))  # noqa: S608
        self._noted = self._count_of("disposition")

    def note_changes(self, topic: int, changes: Sequence[Change], disposed: Disposed) -> None:
        """Note who disposed of what; where there is too much of it, not of all.

        A change that SQLite can't hold is left out and logged, and the others are noted.
        """
        with self._together():
            for change in changes:
                try:
                    self._note_change(topic, change, disposed)
                except (ValueError, OverflowError) as exc:
                    place = f"{change.partition}/{change.offset}"
                    log.warning("the index leaves out who disposed of %s: %s", place, exc)
            if self._noted >= self._most:
                # Some were there before, and others went with their dead letters.
                self._noted = self._count_of("disposition")

    def _note_change(self, topic: int, change: Change, disposed: Disposed) -> None:
        partition, offset, note = change
        if note is None or not disposed.hides(partition, offset):
            self._noted -= self._connection.execute(
                "delete from disposition where topic = ? and partition = ? and offset = ?",
                (topic, partition, offset),
            ).rowcount
        elif self._noted < self._most:
            values = {"topic": topic, "partition": partition, "offset": offset}
            values |= {"act": self._act(topic, note), "at_ms": note.at_ms}
            self._noted += self._connection.execute(_NOTE, values).rowcount

    def dispose(self, topic: int, places: Iterable[tuple[int, int]], disposed: Disposed) -> None:
        """Note for these places whether they are disposed of now; others are left as they are."""
        with self._together():
            self._connection.executemany(
                "update dead_letter set disposed = :hides where topic = :topic and "
                "partition = :partition and offset = :offset and disposed <> :hides",
                (
                    {"hides": disposed.hides(p, at), "topic": topic, "partition": p, "offset": at}
                    for p, at in places
                ),
            )

    def disposed_places(self, topic: int) -> Iterator[tuple[int, int]]:
        """The places of a topic that the index takes for disposed of."""
        return self._connection.execute(
            "select partition, offset from dead_letter where topic = ? and disposed = 1", (topic,)
        )

    def note_time(self, taken_ms: int, name: str = "taken_ms") -> None:
        """Note that all dead letters that were there at this time are in the index.

        Args:
            name: "retry_taken_ms" for the records of retry topics, where no topic was refused.
        """
        self._connection.execute("insert or replace into meta values (?, ?)", (name, str(taken_ms)))

    @property
    def is_built(self) -> bool:
        """Whether all dead letters that were there at some time are in the index."""
        [(found,)] = self._connection.execute("select count(*) from meta where name = 'taken_ms'")
        return bool(found)

    def note_built(self, seconds: float) -> None:
        """Note how long it took until they were."""
        note = "insert or replace into meta values ('built_s', ?)"
        self._connection.execute(note, (f"{seconds:.1f}",))

    def _keep_bound(self) -> None:
        """Remove some where there are too many: first what is disposed of, then the oldest."""
        if self._count <= self._most:
            return
        over = self._count - int(self._most * (1 - SLACK))
        over -= self._remove_oldest(1, over)
        # Once a log begins behind the last of them, none of them is missing.
        self._connection.execute(
            f"{_LEAVE_OUT} ({_OLDEST}) {_OF_THE_SAME}",
            (0, over),
        )
        self._remove_oldest(0, over)

    def _keep_retry_bound(self) -> None:
        """Remove the oldest records of retry topics where there are too many."""
        if self._retry_count <= self._most:
            return
        over = self._retry_count - int(self._most * (1 - RETRY_SLACK))
        self._connection.execute(f"{_LEAVE_OUT} ({_OLDEST_RETRY}) {_OF_THE_SAME}", (over,))
        removed = self._connection.execute(f"{_REMOVE_RETRY} ({_OLDEST_RETRY})", (over,))
        self._retry_count -= removed.rowcount
        self._gone += removed.rowcount

    def _remove_oldest(self, disposed: int, most: int) -> int:
        removed = self._connection.execute(
            f"{_REMOVE} ({_OLDEST})",
            (disposed, most),
        ).rowcount
        self._count -= removed
        self._gone += removed
        return removed

    def _make_room(self) -> None:
        """Forget causes that nothing has any more, where there is no room for others.

        All rows are looked at for that, so some have to be gone since the last time.
        """
        if self._causes.is_full and self._gone >= self._most * SLACK:
            self._causes.make_room()
            self._gone = 0

    def note_source(self, name: str, topic_id: str) -> None:
        """Note which of the topics of a name is there now."""
        self._there[name] = topic_id
        self._connection.execute(
            "update source set gone = topic_id not in (:there, '') "
            "where name = :name and gone <> (topic_id not in (:there, ''))",
            {"there": topic_id, "name": name},
        )

    def _source(
        self, place: SourcePlace | None, topic_id: str
    ) -> tuple[int | None, int | None, int | None]:
        """The columns of a source place; none where it is not known, or names too many topics."""
        if place is None:
            return None, None, None
        number = self._sources.get((place.topic, topic_id))
        if number is None:
            if len(self._sources) >= MOST_SOURCES:
                return None, None, None
            topic = place.topic, topic_id
            gone = topic_id not in ("", self._there.get(place.topic, topic_id))
            add = "insert or ignore into source(name, topic_id, gone) values (?, ?, ?)"
            self._connection.execute(add, (*topic, gone))
            find = "select id from source where name = ? and topic_id = ?"
            [(number,)] = self._connection.execute(find, topic)
            self._sources[topic] = number
        return number, place.partition, place.offset

    def _act(self, topic: int, note: DispositionNote) -> int:
        """The number of what a job does."""
        said = tuple(map(_stored, (note.disposition, note.by, note.job, note.target)))
        # One job has written most of them that follow each other.
        if self._last_act[0] == (topic, said):
            return self._last_act[1]
        self._connection.execute(
            "insert or ignore into act(topic, disposition, who, job, target) "
            "values (?, ?, ?, ?, ?)",
            (topic, *said),
        )
        [(number,)] = self._connection.execute(
            "select id from act where topic = ? and disposition = ? and who = ? and job = ? and "
            "target = ?",
            (topic, *said),
        )
        self._last_act = ((topic, said), int(number))
        return int(number)


def _stored(text: str) -> str:
    """A name as SQLite can hold it, which has no half of a surrogate pair; JSON may."""
    return text[:NAME].encode("utf-8", "replace").decode()
