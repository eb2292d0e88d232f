"""IndexWriter: adds dead letters to the index and removes them, with the position in one step.

What is written and up to where was read are one transaction: whoever is stopped in the middle goes
on where the file says, and no dead letter is missing or there twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor_monitoring.console.index.index_rows import Cause, IndexRow

#: Where the bound is passed, this part more is removed at once: not a few rows each time.
SLACK: Final = 0.01
#: So many of the oldest that are disposed of, or that are not.
_OLDEST: Final = (
    "select topic, partition, offset from dead_letter where disposed = ? "
    "order by at_ms, topic, partition, offset limit ?"
)
_REMOVE: Final = "delete from dead_letter where (topic, partition, offset) in"
_LEAVE_OUT: Final = (
    "update progress set left_out = left_out + gone.count, "
    "left_out_below = max(left_out_below, gone.below) from "
    "(select topic, partition, count(*) as count, max(offset) + 1 as below from"
)


class IndexWriter:
    """Writes.

    Args:
        connection: to the file, in autocommit mode.
        most: so many dead letters are kept; the oldest go first.
    """

    def __init__(self, connection: sqlite3.Connection, most: int) -> None:
        self._connection = connection
        self._most = most
        self._causes: dict[tuple[int, Cause], int] = {}
        [(self._count,)] = connection.execute("select count(*) from dead_letter")

    @contextmanager
    def _together(self) -> Iterator[None]:
        """All of it or nothing."""
        count = self._count
        self._connection.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._count = count
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            raise
        self._connection.execute("commit")

    def topics(self) -> dict[str, str]:
        """Name -> Kafka's id, of the topics that the index has."""
        return dict(self._connection.execute("select name, topic_id from topic"))

    def add_topic(self, name: str, topic_id: str, group: str) -> int:
        """Begin a topic, or go on with it; returns its number in the index."""
        with self._together():
            self._connection.execute(
                "insert or ignore into topic(name, topic_id, consumer_group) values (?, ?, ?)",
                (name, topic_id, group),
            )
        [(number,)] = self._connection.execute("select id from topic where name = ?", (name,))
        return int(number)

    def remove_topic(self, name: str) -> None:
        """Forget a topic and all that is known of it."""
        with self._together():
            for table in ("dead_letter", "progress", "cause"):
                self._connection.execute(
                    f"delete from {table} where topic = (select id from topic where name = ?)",  # noqa: S608 -- names of ours
                    (name,),
                )
            self._connection.execute("delete from topic where name = ?", (name,))
            self._causes.clear()
            [(self._count,)] = self._connection.execute("select count(*) from dead_letter")

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
                self._count -= self._connection.execute(
                    "delete from dead_letter where topic = ? and partition = ? and offset < ?",
                    (topic, partition, start),
                ).rowcount
        new = "select partition, position from progress where topic = ? and position < log_end"
        return {p: at for p, at in self._connection.execute(new, (topic,)) if p in ranges}

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
        added = [
            (
                topic, row.partition, row.offset, self._cause(topic, row.cause), row.at_ms,
                row.first_ms, row.attempt, row.replays,
                disposed.hides(row.partition, row.offset), row.key, row.message, row.headers,
                row.headers_cut,
            )
            for row in rows
        ]  # fmt: skip
        with self._together():
            self._count += self._connection.executemany(
                "insert or ignore into dead_letter values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                added,
            ).rowcount
            self._connection.executemany(
                "update progress set position = max(position, ?), log_end = max(log_end, ?) "
                "where topic = ? and partition = ?",
                [(at, at, topic, partition) for partition, at in positions.items()],
            )
            self._keep_bound()

    def dispose(self, topic: int, places: Iterable[tuple[int, int]], disposed: Disposed) -> None:
        """Note for these places whether they are disposed of now; others are left as they are."""
        with self._together():
            self._connection.executemany(
                "update dead_letter set disposed = ?1 where topic = ?2 and partition = ?3 and "
                "offset = ?4 and disposed <> ?1",
                ((disposed.hides(p, at), topic, p, at) for p, at in places),
            )

    def disposed_places(self, topic: int) -> Iterator[tuple[int, int]]:
        """The places of a topic that the index takes for disposed of."""
        return self._connection.execute(
            "select partition, offset from dead_letter where topic = ? and disposed = 1", (topic,)
        )

    def note_time(self, taken_ms: int) -> None:
        """Note that all that was there at this time is in the index."""
        self._connection.execute(
            "insert or replace into meta values ('taken_ms', ?)", (str(taken_ms),)
        )

    def _keep_bound(self) -> None:
        """Remove some where there are too many: first what is disposed of, then the oldest."""
        if self._count <= self._most:
            return
        over = self._count - int(self._most * (1 - SLACK))
        over -= self._remove_oldest(1, over)
        # Once a log begins behind the last of them, none of them is missing.
        self._connection.execute(
            f"{_LEAVE_OUT} ({_OLDEST}) group by topic, partition) as gone "
            "where progress.topic = gone.topic and progress.partition = gone.partition",
            (0, over),
        )
        self._remove_oldest(0, over)

    def _remove_oldest(self, disposed: int, most: int) -> int:
        removed = self._connection.execute(
            f"{_REMOVE} ({_OLDEST})",
            (disposed, most),
        ).rowcount
        self._count -= removed
        return removed

    def _cause(self, topic: int, cause: Cause) -> int:
        """The number of a cause."""
        number = self._causes.get((topic, cause))
        if number is None:
            self._connection.execute(
                "insert or ignore into cause(topic, handler, cause, error_type, reason, release) "
                "values (?, ?, ?, ?, ?, ?)",
                (topic, *cause),
            )
            [(number,)] = self._connection.execute(
                "select id from cause where topic = ? and handler = ? and cause = ? and "
                "error_type = ? and reason = ? and release = ?",
                (topic, *cause),
            )
            self._causes[topic, cause] = number
        return number
