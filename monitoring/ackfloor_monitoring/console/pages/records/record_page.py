"""One record, by its place in its source topic: its way in each group, and where it is now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.index.dead_letter_index import NoIndex
from ackfloor_monitoring.console.index.index_rows import SourcePlace
from ackfloor_monitoring.console.index.index_search import TooSlow
from ackfloor_monitoring.console.index.record_history import (
    Followed,
    RecordHistory,
    Source,
    Stage,
)
from ackfloor_monitoring.console.pages.console_page import Known, Page
from ackfloor_monitoring.console.pages.records.source_record import content, holders_of
from ackfloor_monitoring.console.pages.records.way import Now, may_have_gone_on, now_of, way_of
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.runs.run_facts import OfRuns
from ackfloor_monitoring.console.reads.settled_copies import SettledCopies, is_settled

Row = Mapping[str, Any]
#: Digits of an offset or a partition that SQLite can hold.
_DIGITS: Final = 18


def facts(cluster: Cluster, known: Known) -> Row:
    """What the template shows; raises Refused."""
    asked = _place_of(known.asked.parts)
    kafka = None if known.kafka is None else known.kafka.value
    settled, runs = SettledCopies(kafka), known.runs.value
    history = _history(cluster, asked)
    (place, _, is_earlier), followed = history.source, history.followed
    index_ms = None if followed is None else followed.taken_ms
    by_group = {
        group: list(each)
        for group, each in groupby(sorted(history.stages, key=lambda s: s.group), lambda s: s.group)
    }
    readers = () if is_earlier else {*_groups(known, place), *holders_of(runs, str(place))}
    groups = [
        _of_group(cluster, group, place, by_group.get(group, []), settled, runs, index_ms)
        for group in sorted({*by_group, *readers})
    ]
    return {
        "asked": str(asked),
        "place": str(place),
        "is_earlier": is_earlier,
        "has_earlier": history.has_earlier,
        "groups": groups,
        "followed": followed,
        "index_late": history.late,
        "index_error": "" if cluster.index is None else cluster.index.follower.error,
        "taken_ms": [each.taken_ms for each in (runs, kafka) if each is not None],
    }


def once(cluster: Cluster, known: Known) -> Row:
    """What is below that when the page is loaded; raises Refused."""
    return content(cluster, known, _place_of(known.asked.parts))


def _place_of(parts: Mapping[str, str]) -> SourcePlace:
    topic, partition, offset = (parts[name] for name in ("topic", "partition", "offset"))
    for number in (partition, offset):
        if not (number.isascii() and number.isdigit() and len(number) <= _DIGITS):
            raise Refused(404, f"{topic}/{partition}/{offset} is no place of a record")
    return SourcePlace(topic, int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class _History:
    """What the index knows of a record.

    Attributes:
        has_earlier: whether an earlier topic of its topic's name had one at its place.
        late: why the index can't be read; "" where it can.
    """

    source: Source
    stages: Sequence[Stage] = ()
    followed: Followed | None = None
    has_earlier: bool = False
    late: str = ""


def _history(cluster: Cluster, asked: SourcePlace) -> _History:
    """Of the record that is at a place."""
    if cluster.index is None:
        return _History(Source(asked), late="this console keeps none")
    try:
        with cluster.index.searching() as search:
            history = RecordHistory(search)
            # It may be asked for by a place in a retry topic or the dead-letter topic as well.
            source = history.source_of(*asked) or Source(asked)
            # First, so that the stages have all that was there then.
            followed = history.followed()
            stages = history.of(source.place, source.topic_id if source.gone else None)
            has_earlier = not source.gone and history.has_earlier(source.place)
            return _History(source, stages, followed, has_earlier)
    except (NoIndex, TooSlow) as exc:
        return _History(Source(asked), late=str(exc) or "it is being built")


def _groups(known: Known, place: SourcePlace) -> Iterator[str]:
    """The groups that read the record's topic, as far as they are known."""
    kafka = None if known.kafka is None else known.kafka.value
    for look in kafka.looks if kafka is not None else ():
        if any((p.topic, p.partition) == place[:2] for p in look.progress):
            yield look.group


def _of_group(
    cluster: Cluster,
    group: str,
    place: SourcePlace,
    stages: Sequence[Stage],
    settled: SettledCopies,
    runs: OfRuns | None,
    index_ms: int | None,
) -> Row:
    """What is known of a record in one group."""
    live = _live(group, {str(place), *(each.place for each in stages)}, runs)
    if stages:
        now = now_of(stages, settled, index_ms)
    else:
        now = _in_source(group, place, settled, index_ms)
    asks, in_group = cluster.commands.asks_kafka, ("--group", group)
    commands = [asks("dlq show", str(place), *in_group)] if stages else []
    if stages and stages[-1].kind == "retry":
        commands = [asks("retry show", str(place), *in_group)]
    way = way_of(stages) if stages else []
    return {"group": group, "now": now, "way": way, "commands": commands, **live}


def _live(group: str, places: set[str], runs: OfRuns | None) -> Row:
    """What the runs of a group say of a record: in flight, or what others wait for."""
    if runs is None:
        return {"running": [], "lanes": []}

    def of_it(rows: Iterator[Row]) -> list[Row]:
        return [row for row in rows if row["group"] == group and row["record"] in places]

    return {"running": of_it(runs.running()), "lanes": of_it(runs.lanes())}


def _in_source(group: str, place: SourcePlace, settled: SettledCopies, index_ms: int | None) -> Now:
    """Where a record is that was never parked, as far as the index knows."""
    progress = settled.progress(group, place.topic, place.partition)
    if progress is None or progress.end is None or progress.floor is None:
        return Now("How far its topic is settled is not known.")
    if place.offset >= progress.end:
        return Now(f"Nothing is there yet: the log ends at {progress.end:,}.")
    if is_settled(progress, place.offset):
        if not settled.had(index_ms, group, *place):
            return may_have_gone_on(place.topic, index_ms)
        return Now(
            "It is settled in its source topic, and the index has no other place of it: it was "
            "handled or discarded, or what it was parked as is not there any more."
        )
    if place.offset < (progress.start or 0):
        return Now(f"Retention has removed it: the log begins at {progress.start:,}.")
    return Now("It is open: the group has not settled it, as far as its last commit says.")


RECORD = Page(
    "records",
    "Record {topic}/{partition}/{offset}",
    "",
    facts,
    asks_kafka=True,
    asks_index=True,
    below="/{topic}/{partition}/{offset}",
    template="record.html",
    once=once,
    once_template="source-record.html",
)
