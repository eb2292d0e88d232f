"""What became of all messages, from the sums of days and from the lives that no day decides.

A figure is the sum over days, less what the joined lives (`joined_lives`) had added to their days,
plus what they come to as a whole. A day that is not drawn (I3) has no sums: a time that is summed
up with a day says nothing about a period without it, so all of its lives are joined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackfloor_monitoring.spark.report.kept.arrays import Mask, Numbers, numbers, replaced
from ackfloor_monitoring.spark.report.kept.commits_kept import with_settled
from ackfloor_monitoring.spark.report.kept.day_frames import DAY
from ackfloor_monitoring.spark.report.kept.day_sums import named, with_nothing_open
from ackfloor_monitoring.spark.report.kept.joined_lives import parts_of_day
from ackfloor_monitoring.spark.report.kept.kept_days import KeptDays, Run
from ackfloor_monitoring.spark.report.kept.life_sums import (
    HEALED_ADDED,
    OUTCOMES_ADDED,
    PARTITIONS_ADDED,
    TIMES_ADDED,
    LifeSums,
    added,
    negative,
    numbered,
    summed,
    sums_of,
    whole,
)
from ackfloor_monitoring.spark.report.kept.quantiles import counted_values, percentiles, rows_by
from ackfloor_monitoring.spark.report.sums import Sums
from ackfloor_monitoring.spark.report.time_axis import Period

if TYPE_CHECKING:
    from ackfloor.commits import Settled

_RECOVERED, _DEAD, _WAITING, _UNKNOWN = range(4)
_SHARES = (0.5, 0.95, 0.99)
# A key's failures are bounded by those of all keys whose hashes begin with as many bits.
_BITS = 20
# Parts of which lives are made at once, about.
_AT_ONCE = 100_000


@dataclass(slots=True)
class KeptLives:
    """The figures of `figures.LifeFigures`.

    Args:
        chosen: the run of each day that has rows of the group.
        undrawn: those of these days that are not drawn.
        joined: from `joined_lives`.
        commits: those of now; None where they are not known.
        of_group: narrows a table to the group that is asked for.
    """

    days: KeptDays
    chosen: Mapping[str, Run]
    undrawn: Sequence[str]
    joined: pa.Table
    period: Period
    commits: Sequence[Settled] | None
    of_group: Callable[[pa.Table], pa.Table]
    _parts: pa.Table = field(init=False)
    _more: LifeSums = field(init=False)
    _less: LifeSums = field(init=False)

    def __post_init__(self) -> None:
        self._parts = self._all_parts()
        open_lives = self._open_lives()
        sums = [self._sums(piece, open_lives) for piece in _pieces(self._parts)]
        self._more, self._less = (added(each) for each in zip(*sums, strict=True))

    def _sums(self, parts: pa.Table, open_lives: Mapping[str, Numbers]) -> tuple[LifeSums, ...]:
        """Of the lives that these parts come to, and of what they had added to their days."""
        lives = whole(self._with_open(parts, open_lives), self.period)
        plain = _each_day_apart(parts.filter(parts["plain"]))
        return sums_of(lives, parts), sums_of(whole(with_nothing_open(plain), None), plain)

    def outcome_counts(self) -> Sequence[Sums]:
        """Lives by outcome."""
        plain = self._plain("outcomes", OUTCOMES_ADDED, [self._less.outcomes])
        if self.commits is None:
            unknown = pc.equal(plain["outcome"], _RECOVERED)
            outcome = pc.if_else(unknown, pa.scalar(_UNKNOWN, pa.int64()), plain["outcome"])
            plain = replaced(plain, "outcome", outcome)
        found = summed([plain, self._more.outcomes], OUTCOMES_ADDED)
        rows: list[Sums] = found.filter(pc.greater(found["lives"], 0)).to_pylist()
        return rows

    def partitions(self) -> Sequence[Sums]:
        """Messages by source partition."""
        plain = self._plain("partitions", PARTITIONS_ADDED, [self._less.partitions])
        if self.commits is None:
            recovered = plain["recovered"]
            plain = replaced(plain, "unknown", pc.add(plain["unknown"], recovered))
            plain = replaced(plain, "recovered", pc.multiply(recovered, 0))
        found = summed([plain, self._more.partitions], PARTITIONS_ADDED).to_pylist()
        return [{**row, "span": row["last"] - row["first"] + 1} for row in found]

    def times(self, handlers: pa.Table) -> Sequence[Sums]:
        """Percentiles of recovery and death, by handler."""
        named_by = {(row["group"], row["origin_topic"]): row for row in handlers.to_pylist()}

        def owner(group: str | None, topic: str | None) -> tuple[str | None, str | None]:
            row = None if group is None else named_by.get((group, topic))
            return group, None if row is None else row["handler"]

        owners = {
            owner(row["group"], row["origin_topic"])
            for row in self.outcome_counts()
            if not row["replayed"]
        }
        sets = [*self._plain_times(), self._more.times, negative(self._less.times, TIMES_ADDED)]
        found: dict[tuple[Any, ...], list[tuple[Numbers, Numbers]]] = defaultdict(list)
        for table in sets:
            for (group, topic, dead), counted in _by_topic(table):
                found[*owner(group, topic), dead].append(counted)
        rows: list[Sums] = []
        for who in owners:
            row: dict[str, Any] = {"group": who[0], "handler": who[1]}
            for name, dead in (("recovered", False), ("dead", True)):
                known = self.commits is not None or dead
                ms, lives = counted_values(found[*who, dead] if known else ())
                row |= {name: percentiles(ms, _SHARES, lives), f"{name}_messages": int(lives.sum())}
            rows.append(row)
        return rows

    def hot_keys(self, most: int) -> Sequence[Sums]:
        """The keys with the most failures: of as many those with the lowest hash."""
        sets = [self._keys(), self._more.keys, self._less.keys]
        hashes = np.concatenate([numbers(each, "key_hash") for each in sets])
        signs = np.repeat([1, 1, -1], [len(each) for each in sets])
        failures = np.concatenate([numbers(each, "failures") for each in sets]) * signs
        chosen = np.flatnonzero(_perhaps_among(hashes, failures, most))
        hashes, failures, signs = hashes[chosen], failures[chosen], signs[chosen]
        keys, of_key = np.unique(hashes, return_inverse=True)
        columns = {
            name: _counted(
                of_key,
                np.concatenate([numbers(each, name) for each in sets])[chosen] * signs,
                len(keys),
            )
            for name in ("failures", "messages", "dead")
        }
        order = np.lexsort((keys, -columns["failures"]))
        order = order[columns["messages"][order] > 0][:most]
        names = self._names(keys[order])
        return [
            {**names[int(keys[at])], **{name: int(each[at]) for name, each in columns.items()}}
            for at in order
        ]

    def replays_by_cause(self) -> Sequence[Sums]:
        """What became of replays, by the handler and the cause of the dead letter before."""
        plain = self._plain("healed", HEALED_ADDED, [self._less.healed])
        if self.commits is None:
            plain = replaced(plain, "healed", pc.multiply(plain["healed"], 0))
        found = summed([plain, self._more.healed], HEALED_ADDED)
        rows: list[Sums] = found.filter(pc.greater(found["replayed"], 0)).to_pylist()
        return rows

    def _all_parts(self) -> pa.Table:
        """Those that are joined, and all those of days that are not drawn."""
        if not self.undrawn:
            return self.of_group(self.joined)
        elsewhere = pc.invert(pc.is_in(self.joined[DAY], pa.array(self.undrawn, pa.string())))
        tables = [self.joined.filter(elsewhere)]
        for day in self.undrawn:
            if self.days.read_day("parts", day, self.chosen[day], ["message"]) is not None:
                found = parts_of_day(self.days, day, self.chosen[day])
                tables.append(found.append_column("plain", pa.array([False] * len(found))))
        return self.of_group(pa.concat_tables(tables, promote_options="permissive"))

    def _open_lives(self) -> dict[str, Numbers]:
        """By the commits of now, the lives that wait and those of which nothing is known."""
        if self.commits is None:
            return {}
        columns = ["message", "replays", "topic_id", "partition", "offset"]
        records = with_settled(self.days.read("open", self.chosen, columns), self.commits)
        kinds = {
            "open": pc.equal(records["settled"], False),
            "unknown": pc.is_null(records["settled"]),
        }
        return {name: numbered(records.filter(these), "replays") for name, these in kinds.items()}

    def _with_open(self, parts: pa.Table, open_lives: Mapping[str, Numbers]) -> pa.Table:
        """With `open` and `unknown`."""
        if self.commits is None:
            zero = pa.array(np.zeros(len(parts), np.int64))
            return parts.append_column("open", zero).append_column("unknown", parts["tier_records"])
        for name, waiting in open_lives.items():
            found = np.isin(numbered(parts, "replays"), waiting).astype(np.int64)
            parts = parts.append_column(name, pa.array(found))
        return parts

    def _drawn(self) -> dict[str, Run]:
        return {day: run for day, run in self.chosen.items() if day not in set(self.undrawn)}

    def _plain(self, name: str, how: Mapping[str, str], less: Sequence[pa.Table]) -> pa.Table:
        table = self.days.read(name, self._drawn()).drop_columns([DAY])
        return summed([self.of_group(table)], how, less)

    def _plain_times(self) -> Iterator[pa.Table]:
        text = ("group", "origin_topic")
        columns = (*text, "dead", "ms", "lives")
        for table in self.days.read_parts("times", self._drawn(), columns, text):
            yield self.of_group(table)

    def _keys(self) -> pa.Table:
        columns = ["key_hash", "failures", "messages", "dead", "group"]
        return self.of_group(self.days.read("keys", self._drawn(), columns, ["group"]))

    def _names(self, wanted: Numbers) -> dict[int, Sums]:
        """The keys of these hashes."""
        lacking = pa.array(wanted)
        found: dict[int, Sums] = {}
        for table in self._named():
            rows = table.filter(pc.is_in(table["key_hash"], lacking))
            for row in rows.to_pylist():
                found[row.pop("key_hash")] = row
            lacking = pa.array([each for each in wanted.tolist() if each not in found], pa.int64())
            if not len(lacking):
                break
        return found

    def _named(self) -> Iterable[pa.Table]:
        yield self.days.read("named_keys", self.chosen).drop_columns([DAY])
        columns = ["key_hash", "group", "origin_topic", "key"]
        yield self._parts.select(columns)
        for day, run in self.chosen.items():
            if (table := self.days.read_day("parts", day, run, columns)) is not None:
                yield named(table, table["key_hash"])


def _pieces(parts: pa.Table) -> Iterator[pa.Table]:
    """All parts, those of a message together: so much less memory is needed at a time."""
    count = len(parts) // _AT_ONCE + 1
    of_piece = pa.array(numbers(parts, "message") % count)
    for number in range(count):
        yield parts.filter(pc.equal(of_piece, number)).combine_chunks()


def _each_day_apart(parts: pa.Table) -> pa.Table:
    """Parts as they are in the sums of days: a message is another one on each day."""
    day = parts[DAY].combine_chunks().dictionary_encode().indices
    return replaced(parts, "message", pa.array(numbered(parts.append_column("d", day), "d")))


def _by_topic(
    times: pa.Table,
) -> Iterable[tuple[tuple[str | None, str | None, bool], tuple[Numbers, Numbers]]]:
    """How many lives took how many milliseconds, by topic and kind."""
    dead = times["dead"].to_numpy()
    ms, lives = times["ms"].to_numpy(), times["lives"].to_numpy()
    for (group, topic), rows in rows_by(times, ("group", "origin_topic")):
        for kind in (False, True):
            of_kind = rows[dead[rows] == kind]
            yield (group, topic, kind), (ms[of_kind], lives[of_kind])


def _perhaps_among(hashes: Numbers, failures: Numbers, most: int) -> Mask:
    """Which of the hashes may be one of those with the most failures."""
    if len(hashes) <= most:
        return np.ones(len(hashes), bool)
    bits = (hashes >> (64 - _BITS)) + 2 ** (_BITS - 1)
    # Weights are floats, and exact: they are far below 2^53.
    bound = np.bincount(bits, failures, minlength=2**_BITS)
    # Sums of some keys: the last of the first `most` is no more than that of all keys.
    largest = (
        np.argsort(-failures, kind="stable")[: 20 * most]
        if len(failures) < 10**5
        else (np.argpartition(-failures, 20 * most)[: 20 * most])
    )
    keys = np.unique(hashes[largest])
    some = np.isin(bits, np.unique(bits[largest]))
    own = np.flatnonzero(some)
    own = own[np.isin(hashes[own], keys)]
    named_keys, of_key = np.unique(hashes[own], return_inverse=True)
    totals = np.sort(_counted(of_key, failures[own], len(named_keys)))[::-1]
    enough = totals[most - 1] if len(totals) >= most else 0
    found: Mask = bound[bits] >= enough
    return found


def _counted(places: Any, numbers: Numbers, size: int) -> Numbers:
    """The sums of numbers by place."""
    return np.bincount(places, numbers, minlength=size).astype(np.int64)
