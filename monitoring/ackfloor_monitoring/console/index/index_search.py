"""IndexSearch: what the index answers: counts, dead letters by cause, and one after the other.

Only open dead letters are counted and listed. Times bound the work as well as filters do: a search
that takes longer than `LONGEST_S` is ended, and says so.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

from ackfloor.redrive import Wanted, select
from ackfloor_monitoring.console.index.index_file import HOUR_MS
from ackfloor_monitoring.console.index.index_rows import header_bits
from ackfloor_monitoring.console.index.known_causes import OTHER

#: Seconds that one search may take, and after how many steps of SQLite's machine the clock is read.
LONGEST_S: Final = 5.0
_STEPS: Final = 20_000
#: Up to so many causes are read one by one, each in the order of time, instead of all dead letters.
_FEW_CAUSES: Final = 300
#: Up to so many are put in order after all were read; more are met soon in the order of time.
_FEW: Final = 20_000
#: Hours of a trend.
TREND_HOURS: Final = 24


class TooSlow(Exception):
    """A search that was ended."""


class Place(NamedTuple):
    """Where a list goes on: behind this dead letter, the newest first."""

    at_ms: int
    topic: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """What dead letters have to be, to be found; what is None or "" matches any.

    Attributes:
        error: the error's class, whole or without its module, or the cause.
        key: as the index has it.
        header: as `stored_header` or `named_header` has it.
        text: is in the error's message, in whatever case.
        since_ms, until_ms: when it failed for the last time, from and before.
    """

    topic: str = ""
    group: str = ""
    handler: str = ""
    error: str = ""
    reason: str = ""
    release: str = ""
    key: bytes | None = None
    header: str = ""
    text: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def reads_all(self) -> bool:
        """Whether no order in the index leads to what is meant."""
        by_order = (self.key, self.since_ms, self.until_ms)
        return bool(self.text or self.header) and by_order == (None, None, None)

    def of_cause(self) -> tuple[list[str], list[Any]]:
        """Those that a cause meets or does not, in SQL, with their values."""
        names = {
            "topic.name": self.topic,
            "topic.consumer_group": self.group,
            "cause.handler": self.handler,
            "cause.reason": self.reason,
            "cause.release": self.release,
        }
        found = [f"{name} = ?" for name, value in names.items() if value]
        values: list[Any] = [value for value in names.values() if value]
        if self.error:
            # As the command line's --error: the class, with or without its module, or the cause.
            found.append(
                "(cause.cause = @ or cause.error_type = @ or (instr(@, '.') = 0 "
                "and substr(cause.error_type, -length(@) - 1) = '.' || @))".replace("@", "?")
            )
            values += [self.error] * 5
        return found, values

    def of_dead_letter(self, *, reads_all: bool) -> tuple[list[str], list[Any]]:
        """The others, in SQL, with their values.

        Args:
            reads_all: all are read, from front to back, which is faster than in the order of time.
        """
        found, values = list[str](), list[Any]()
        bits = header_bits(self.header) if self.header else None
        for condition, value in (
            ("d.key = ?", self.key),
            # They are told apart by numbers first: texts take three times as long.
            (f"d.header_bits & {bits} = ?", bits),
            ("instr(d.headers, ?) > 0", self.header or None),
            ("d.at_ms >= ?", self.since_ms),
            ("d.at_ms < ?", self.until_ms),
            ("d.message like ? escape '!'", f"%{_escaped(self.text)}%" if self.text else None),
        ):
            if value is not None:
                found.append(condition)
                values.append(value)
        # With a plus it leads to no index: that of keys is the better one. Nearly all are open, so
        # it comes last.
        plus = "+" if reads_all or self.key is not None else ""
        return [*found, f"{plus}d.disposed = 0"], values


def _escaped(text: str) -> str:
    return "".join(f"!{each}" if each in "!%_" else each for each in text)


@dataclass(frozen=True, slots=True)
class FoundDeadLetter:
    """One that was found; `place` is where the list goes on behind it."""

    place: Place
    topic: str
    handler: str
    cause: str
    error_type: str
    reason: str
    release: str
    attempt: int
    replays: int
    key: bytes | None
    message: str


@dataclass(frozen=True, slots=True)
class FoundCause:
    """Open dead letters of one topic, handler and cause.

    Attributes:
        first_ms, last_ms: when the first of them failed for the first time, and the last for the
            last time; of what is gone as well, within an hour that has some left.
        trend: how many failed in each of the last hours, the oldest hour first.
        latest: the newest of them; None while it is being removed.
    """

    topic: str
    group: str
    handler: str
    cause: str
    count: int
    first_ms: int
    last_ms: int
    trend: Sequence[int]
    latest: FoundDeadLetter | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the index is.

    Attributes:
        read: records of the dead-letter topics that are read, of `total` that are there.
        open: dead letters in it that are open.
        left_out: the oldest open ones that were removed because there are too many; those that
            retention has removed since, of a partition that has others of them, are counted, too.
        taken_ms: when all that was there was in it, in wall-clock ms; None before that.
        built_s: how long that took; None before that, and where it was not seen to its end.
        topics: the dead-letter topics.
        groups: their groups.
        uncaused: open dead letters of which the cause is not kept: there are too many causes.
    """

    read: int = 0
    total: int = 0
    open: int = 0
    left_out: int = 0
    taken_ms: int | None = None
    built_s: float | None = None
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    uncaused: int = 0


@dataclass(frozen=True, slots=True)
class Chosen:
    """Dead letters of one topic that are to be redriven or disposed of.

    Attributes:
        topic_id: of the topic that the index knows under its name.
        wanted: partition -> offsets, ascending.
        ends: partition -> offset; what is at or behind it was not there yet.
    """

    topic_id: str
    wanted: Wanted
    ends: Mapping[int, int]

    def __len__(self) -> int:
        return sum(map(len, self.wanted.values()))


@dataclass(slots=True)
class _Sum:
    """A cause's sums while they are added up.

    Attributes:
        numbers: of the causes in the index that are one here: of several releases, for example.
        newest: the number of who failed last.
    """

    numbers: list[int] = field(default_factory=list[int])
    count: int = 0
    first_ms: int = 0
    last_ms: int = -1
    newest: int = 0


_ROW: Final = (
    "d.at_ms, d.topic, d.partition, d.offset, topic.name, cause.handler, cause.cause, "
    "cause.error_type, cause.reason, cause.release, d.attempt, d.replays, d.key, d.message "
    "from dead_letter d join cause on cause.id = d.cause join topic on topic.id = d.topic"
)
_SUMS: Final = (
    "select cause.id, topic.name, topic.consumer_group, cause.handler, cause.cause, sum(count), "
    "min(first_ms), max(last_ms) from hourly join cause on cause.id = hourly.cause "
    "join topic on topic.id = cause.topic"
)
_HOURS: Final = "select hour, count from hourly where cause = ? and hour between ? and ?"
_CAUSES: Final = "select cause.id from cause join topic on topic.id = cause.topic"
_UNCAUSED: Final = (
    "select coalesce(sum(count), 0) from hourly where hourly.cause in (select cause.id from cause "
    "where cause.handler = ? and cause.cause = ? and cause.error_type = ?)"
)
_PLACE: Final = "at_ms, topic, partition, offset"
_NEWEST_FIRST: Final = "order by d.at_ms desc, d.topic desc, d.partition desc, d.offset desc"


class IndexSearch:
    """Searches; one is made for each request, and closes nothing."""

    def __init__(self, connection: sqlite3.Connection, longest_s: float = LONGEST_S) -> None:
        self._connection = connection
        until_s = time.monotonic() + longest_s
        connection.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS)

    def progress(self) -> Progress:
        """How far the index is."""
        meta = dict(self.ask("select name, value from meta"))
        [(read, total, left_out)] = self.ask(
            "select coalesce(sum(min(position, log_end) - start), 0), "
            "coalesce(sum(log_end - start), 0), coalesce(sum(left_out), 0) "
            "from progress join topic on topic.id = progress.topic where topic.kind = 'dlq'"
        )
        [(open_,)] = self.ask("select coalesce(sum(count), 0) from hourly")
        [(uncaused,)] = self.ask(_UNCAUSED, OTHER[:3])
        topics = list(
            self.ask("select name, consumer_group from topic where kind = 'dlq' order by name")
        )
        taken_ms, built_s = meta.get("taken_ms"), meta.get("built_s")
        return Progress(
            read,
            total,
            open_,
            left_out,
            None if taken_ms is None else int(taken_ms),
            None if built_s is None else float(built_s),
            [name for name, _ in topics],
            sorted({group for _, group in topics}),
            uncaused,
        )

    def count(self, wanted: Conditions) -> int:
        """How many match; raises TooSlow."""
        causes = self._causes(wanted)
        all_ = causes is None and wanted.reads_all
        where, values = self._where(wanted, causes, reads_all=all_)
        text = f"select count(*) from dead_letter d where {where}"  # noqa: S608 -- `?` for values
        [(count,)] = self.ask(text, values)
        return int(count)

    def with_more_headers(self) -> int:
        """How many open dead letters have more headers than the index keeps."""
        [(count,)] = self.ask(
            "select count(*) from dead_letter indexed by with_more_headers "
            "where headers_cut = 1 and disposed = 0"
        )
        return int(count)

    def page(
        self, wanted: Conditions, most: int, behind: Place | None = None
    ) -> tuple[int, Sequence[FoundDeadLetter]]:
        """How many match, and the newest of them; raises TooSlow.

        Args:
            behind: the last one that was shown.
        """
        few = self._few(wanted, most, behind)
        if few is None:
            count = self.count(wanted)
            return count, self.newest(wanted, most, behind) if count else []
        count, places = few
        found = (self._at(each) for each in places)
        # One that was removed meanwhile is not there any more.
        return count, [each for each in found if each is not None]

    def newest(
        self, wanted: Conditions, most: int, behind: Place | None = None
    ) -> Sequence[FoundDeadLetter]:
        """Those that match, the newest first; raises TooSlow.

        Args:
            behind: the last one that was shown.
        """
        causes = self._causes(wanted)
        if causes is None or len(causes) > _FEW_CAUSES or wanted.key is not None:
            return list(self._in_order(wanted, causes, most, behind))
        parts = [self._in_order(wanted, [each], most, behind) for each in causes]
        return list(islice(merge(*parts, key=lambda each: each.place, reverse=True), most))

    def causes(
        self, wanted: Conditions, most: int, now_ms: int
    ) -> tuple[Sequence[FoundCause], int]:
        """The causes with the most open dead letters, and how many causes there are.

        Args:
            wanted: only what is asked of causes counts here.
        """
        conditions, values = wanted.of_cause()
        sums: dict[tuple[str, str, str, str], _Sum] = {}
        text = f"{_SUMS} {_all_of(conditions)} group by cause.id"
        for number, topic, group, handler, cause, count, first_ms, last_ms in self.ask(
            text, values
        ):
            found = sums.setdefault((topic, group, handler, cause), _Sum(first_ms=first_ms))
            found.numbers.append(number)
            found.count += count
            found.first_ms = min(found.first_ms, first_ms)
            if last_ms > found.last_ms:
                found.last_ms, found.newest = last_ms, number
        largest = sorted(sums.items(), key=lambda each: (-each[1].count, each[0]))
        return [
            FoundCause(
                *name, each.count, each.first_ms, each.last_ms,
                self._trend(each.numbers, now_ms // HOUR_MS),
                next(self._in_order(Conditions(), [each.newest], 1, None), None),
            )
            for name, each in largest[:most]
        ], len(largest)  # fmt: skip

    def _trend(self, causes: Sequence[int], now_hour: int) -> Sequence[int]:
        """How many of some causes failed in each of the last hours, the oldest hour first."""
        trend = [0] * TREND_HOURS
        first = now_hour - TREND_HOURS + 1
        for cause in causes:
            for hour, count in self.ask(_HOURS, [cause, first, now_hour]):
                trend[hour - first] += count
        return trend

    def chosen(self, topic: str, wanted: Conditions) -> Chosen:
        """All dead letters of a topic that match, and up to where the topic was read for that.

        Raises:
            TooSlow: there are too many for the time of a search.
            LookupError: the index has no such topic.
        """
        wanted = replace(wanted, topic=topic)
        # One snapshot: what is written meanwhile is in none of the answers, or in all.
        self._connection.execute("begin")
        try:
            found = list(self.ask("select id, topic_id from topic where name = ?", [topic]))
            if not found:
                raise LookupError(topic)
            [(number, topic_id)] = found
            ends = "select partition, position from progress where topic = ?"
            where, values = self._where(wanted, self._causes(wanted))
            text = f"select d.partition, d.offset from dead_letter d where {where}"  # noqa: S608
            return Chosen(
                topic_id,
                select(self.ask(text, values)),
                dict(self.ask(ends, [number])),
            )
        finally:
            self._connection.execute("rollback")

    def topic_id(self, name: str) -> str:
        """Kafka's id of a dead-letter topic; "" where the index has none of this name."""
        found = self.ask("select topic_id from topic where name = ? and kind = 'dlq'", [name])
        return next((str(topic_id) for (topic_id,) in found), "")

    def is_disposed(self, topic: str, partition: int, offset: int) -> bool | None:
        """Whether a dead letter is disposed of; None where the index does not have it."""
        found = list(
            self.ask(
                "select disposed from dead_letter d join topic on topic.id = d.topic "
                "where topic.name = ? and partition = ? and offset = ?",
                [topic, partition, offset],
            )
        )
        return bool(found[0][0]) if found else None

    def _few(
        self, wanted: Conditions, most: int, behind: Place | None
    ) -> tuple[int, Sequence[Place]] | None:
        """How many match and the newest of them, where all are read to find them.

        None where another way is better.
        """
        if not wanted.reads_all or self._causes(wanted) is not None:
            return None
        where, values = self._where(wanted, None, reads_all=True)
        further, from_ = "", list[Any]()
        if behind is not None:
            further, from_ = f"where ({_PLACE}) < (?, ?, ?, ?)", list(behind)
        # What is found stays with SQLite: to hand a row to Python takes as long as to read twenty.
        text = (
            f"with found as materialized (select {_PLACE} from dead_letter d "  # noqa: S608 -- `?` for values
            f"where {where} limit {_FEW + 1}) "
            f"select count(*), 0, 0, 0 from found union all select * from (select * from found "
            f"{further} order by 1 desc, 2 desc, 3 desc, 4 desc limit {most:d})"
        )
        [(count, *_), *places] = self.ask(text, [*values, *from_])
        return (count, [Place(*row) for row in places]) if count <= _FEW else None

    def _at(self, place: Place) -> FoundDeadLetter | None:
        text = f"select {_ROW} where (d.topic, d.partition, d.offset) = (?, ?, ?)"
        rows = self.ask(text, [place.topic, place.partition, place.offset])
        return next((FoundDeadLetter(Place(*row[:4]), *row[4:]) for row in rows), None)

    def _causes(self, wanted: Conditions) -> Sequence[int] | None:
        """The numbers of the causes that match; None where any does."""
        conditions, values = wanted.of_cause()
        if not conditions:
            return None
        conditions.append("topic.kind = 'dlq'")
        return [
            number
            for (number,) in self.ask(
                f"{_CAUSES} {_all_of(conditions)}",
                values,
            )
        ]

    def _where(
        self, wanted: Conditions, causes: Sequence[int] | None, *, reads_all: bool = False
    ) -> tuple[str, list[Any]]:
        conditions, values = wanted.of_dead_letter(reads_all=reads_all)
        if causes is not None:
            # Numbers of ours, and too many for parameters.
            conditions.append(f"d.cause in ({','.join(map(str, causes))})")
        return " and ".join(conditions), values

    def _in_order(
        self,
        wanted: Conditions,
        causes: Sequence[int] | None,
        most: int,
        behind: Place | None,
    ) -> Iterator[FoundDeadLetter]:
        where, values = self._where(wanted, causes)
        if behind is not None:
            where += (
                " and d.at_ms <= ? and (d.at_ms, d.topic, d.partition, d.offset) < (?, ?, ?, ?)"
            )
            values += [behind.at_ms, *behind]
        text = f"select {_ROW} where {where} {_NEWEST_FIRST} limit {most:d}"
        for row in self.ask(text, values):
            yield FoundDeadLetter(Place(*row[:4]), *row[4:])

    def ask(self, text: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query; raises TooSlow."""
        try:
            yield from self._connection.execute(text, values)
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise TooSlow from None
            raise


def _all_of(conditions: Sequence[str]) -> str:
    return f"where {' and '.join(conditions)}" if conditions else ""
