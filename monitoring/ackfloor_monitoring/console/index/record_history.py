"""RecordHistory: what became of a record, or of those of a part of a partition, by the index.

A record is named by its source place, which its headers carry to every retry topic and into the
dead-letter topic. Each time that it was written to one of those is a `Stage`. The index knows
nothing of records that never failed, and forgets the oldest stages where there are too many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ackfloor.core.records.envelope import Reason
from ackfloor_monitoring.console.index.index_rows import SourcePlace
from ackfloor_monitoring.console.index.index_search import IndexSearch

#: Stages of one record that are shown: the newest.
MOST_STAGES: Final = 200


class DisposedBy(NamedTuple):
    """Who disposed of a dead letter; "" and 0 where the index does not know.

    Attributes:
        disposition: replayed, discarded or archived.
        at_ms: when, in wall-clock ms.
        target: the topic it was replayed to, or where it was archived.
    """

    disposition: str = ""
    by: str = ""
    job: str = ""
    target: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """One time that a record was written to a retry topic or the dead-letter topic.

    Attributes:
        kind: "retry" or "dlq".
        at_ms: when it failed last, or was written where it did not fail, in wall-clock ms.
        due_ms: when its wait in a retry topic ends; None where no time makes it due.
        message: of its error, only of a dead letter.
        source_ms: when it was written to its source topic; None where it is not known.
        disposed: who disposed of it; None where it is open, and of a retry topic.
    """

    kind: str
    group: str
    topic: str
    partition: int
    offset: int
    source: SourcePlace
    source_ms: int | None
    at_ms: int
    due_ms: int | None
    attempt: int
    replays: int
    handler: str
    error_type: str
    reason: str
    message: str
    disposed: DisposedBy | None

    @property
    def place(self) -> str:
        """Where it was written."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def is_held(self) -> bool:
        """Whether it only keeps the order of its key: the record itself is dead-lettered."""
        return self.reason == Reason.HELD


class Source(NamedTuple):
    """Where a record came from.

    Attributes:
        topic_id: Kafka's id of the topic; "" where it is not known.
        gone: whether that topic was deleted, and another one has its name.
    """

    place: SourcePlace
    topic_id: str = ""
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Followed:
    """How far the index is.

    Attributes:
        taken_ms: all that was there then is in it, in wall-clock ms; None before that.
        left_out: records of retry and dead-letter topics that were removed as the oldest.
    """

    taken_ms: int | None
    left_out: int


_COLUMNS: Final = (
    "topic.kind, topic.consumer_group, topic.name, r.partition, r.offset, "
    "source.name, r.source_partition, r.source_offset, r.source_ms, r.at_ms"
)
_JOINED: Final = (
    "join source on source.id = r.source join topic on topic.id = r.topic "
    "join cause on cause.id = r.cause"
)
_CAUSE: Final = "r.attempt, r.replays, cause.handler, cause.error_type, cause.reason"
_STAGES: Final = (
    f"select {_COLUMNS}, r.due_ms, {_CAUSE}, '', 0, null, null, null, null, null "  # noqa: S608
    f"from retry_record r {_JOINED} where {{where}} union all "
    f"select {_COLUMNS}, null, {_CAUSE}, r.message, r.disposed, "
    "act.disposition, act.who, act.job, act.target, done.at_ms "
    f"from dead_letter r {_JOINED} left join disposition done on "
    "(done.topic, done.partition, done.offset) = (r.topic, r.partition, r.offset) "
    "left join act on act.id = done.act where {where}"
)
#: Those of the topic that is there now, and of one that is not known to be another one.
_SOURCE: Final = (
    "r.source in (select id from source where name = ? and gone = 0) and r.source_partition = ? "
    "and r.source_offset"
)
#: Those of one topic, which may be an earlier one of its name; and those of all that are earlier.
_OF_ONE: Final = _SOURCE.replace("gone = 0", "topic_id = ?")
_EARLIER: Final = _SOURCE.replace("gone = 0", "gone = 1")
#: The order of what happened: by time, then by how often it was delivered. What is dead-lettered
#: comes behind the wait that was cut short, and one hop from tier to tier behind the other.
_ORDER: Final = "10, 12, 1 desc, 11"
_LATEST_FIRST: Final = "10 desc, 12 desc, 1, 11 desc"


class RecordHistory:
    """Asks an index for the ways of records; every method may raise TooSlow."""

    def __init__(self, search: IndexSearch) -> None:
        self._search = search

    def followed(self) -> Followed:
        """How far the index is."""
        meta = dict(self._search.ask("select name, value from meta"))
        taken = [meta.get("taken_ms"), meta.get("retry_taken_ms")]
        [(left_out,)] = self._search.ask("select coalesce(sum(left_out), 0) from progress")
        known = [int(each) for each in taken if each is not None]
        return Followed(min(known) if len(known) == len(taken) else None, int(left_out))

    def of(self, source: SourcePlace, topic_id: str | None = None) -> Sequence[Stage]:
        """The stages of a record in all groups, the newest `MOST_STAGES`, the oldest first.

        Args:
            topic_id: of the topic that it was in; None for the one of its name that is there now.
        """
        where, values = _SOURCE, list[Any](source)
        if topic_id is not None:
            where = _OF_ONE
            values.insert(1, topic_id)
        text = _STAGES.format(where=f"{where} = ?")
        text += f" order by {_LATEST_FIRST} limit {MOST_STAGES}"
        return [*self._stages(text, [*values, *values])][::-1]

    def has_earlier(self, source: SourcePlace) -> bool:
        """Whether a record was at this place in an earlier topic of the name."""
        text = f"{_STAGES.format(where=f'{_EARLIER} = ?')} limit 1"
        return any(True for _ in self._stages(text, [*source, *source]))

    def between(
        self, first: SourcePlace, behind: int, group: str, most: int
    ) -> tuple[Sequence[Stage], int]:
        """The newest stage of each record of a part of a partition, in the order of offsets.

        That a key is held for a record is no stage of it, unless no other one is known.

        Args:
            first: the first record of the part.
            behind: the offset behind its last.
            most: so many stages are read; where there are more, only of the first records.

        Returns:
            The stages, and the offset up to which all of them were read.
        """
        where = f"{_SOURCE} between ? and ? and topic.consumer_group = ?"
        text = f"{_STAGES.format(where=where)} order by 8, {_ORDER} limit {most + 1:d}"
        values = [*first, behind - 1, group]
        stages = list(self._stages(text, [*values, *values]))
        until = behind
        if len(stages) > most:
            # Of the last one there may be more.
            until = stages[-1].source.offset
        newest = dict[int, Stage]()
        for each in stages:
            known = newest.get(each.source.offset)
            is_kept = not each.is_held or known is None or known.is_held
            if each.source.offset < until and is_kept:
                newest[each.source.offset] = each
        return list(newest.values()), until

    def source_of(self, topic: str, partition: int, offset: int) -> Source | None:
        """Where a record of a retry or dead-letter topic came from; None: the index has none."""
        for table in ("retry_record", "dead_letter"):
            text = (
                "select source.name, r.source_partition, r.source_offset, source.topic_id, "  # noqa: S608
                f"source.gone from {table} r "
                "join source on source.id = r.source join topic on topic.id = r.topic "
                "where topic.name = ? and r.partition = ? and r.offset = ?"
            )
            for row in self._search.ask(text, [topic, partition, offset]):
                *place, topic_id, gone = row
                return Source(SourcePlace(*place), topic_id, bool(gone))
        return None

    def _stages(self, text: str, values: Sequence[Any]) -> Iterator[Stage]:
        for row in self._search.ask(text, values):
            (
                kind, group, topic, partition, offset, source, source_partition, source_offset,
                source_ms, at_ms, due_ms, attempt, replays, handler, error_type, reason, message,
                disposed, *by,
            ) = row  # fmt: skip
            yield Stage(
                kind, group, topic, partition, offset,
                SourcePlace(source, source_partition, source_offset), source_ms, at_ms, due_ms,
                attempt, replays, handler, error_type, reason, message,
                _disposed_by(*by) if disposed else None,
            )  # fmt: skip


def _disposed_by(
    disposition: str | None,
    by: str | None,
    job: str | None,
    target: str | None,
    at_ms: int | None,
) -> DisposedBy:
    if disposition is None:
        return DisposedBy()
    return DisposedBy(disposition, by or "", job or "", target or "", at_ms or 0)
