"""The messages that no single day decides: all parts of them, from all days.

They are those that lie in two days or more, and the rest of each day (`day_sums`). Which lie in two
days is asked in each report anew, of all days' hashes at once: so it does not matter which run has
counted a day, nor when. What costs is to read a part out of a large day, so a run that counts days
keeps those that it had to read, for days of other runs as well (`moved`).

Hashes are compared range by range: of millions, all at once would take much memory, and memory that
a process has not touched yet is slow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackfloor_monitoring.spark.report.kept.arrays import Numbers, is_among
from ackfloor_monitoring.spark.report.kept.day_frames import DAY
from ackfloor_monitoring.spark.report.kept.day_sums import with_deaths
from ackfloor_monitoring.spark.report.kept.kept_days import KeptDays, Run, days_of
from ackfloor_monitoring.spark.report.kept.life_sums import numbered
from ackfloor_monitoring.spark.report.kept.quantiles import rows_by

RUN_DAY = "run_day"
# Hashes that are compared at once, about.
_AT_ONCE = 400_000


@dataclass(frozen=True, slots=True)
class JoinedParts:
    """Parts, with `DAY`.

    Attributes:
        parts: with `plain`: whether they are in the sums of their day.
        read: those of them that were read out of days now, with `RUN_DAY`.
    """

    parts: pa.Table
    read: pa.Table


@dataclass(slots=True)
class HashesAndMoved:
    """What joining reads of runs; what was read once stays at hand.

    Attributes:
        hashes: of the messages of each day, sorted, by the day's name in its run (`Run.key`).
        moved: what each run has moved, by the run's name.
    """

    days: KeptDays
    hashes: dict[str, Numbers] = field(default_factory=dict)
    moved: dict[str, pa.Table] = field(default_factory=dict)

    def read(self, chosen: Mapping[str, Run], unfinished: str | None = None) -> None:
        """Read what is lacking for these days.

        Args:
            unfinished: the run that has not moved any yet.
        """
        for run, of_run in days_of(chosen):
            if lacking := [day for day in of_run if run.key(day) not in self.hashes]:
                for day, hashes in _hashes(self.days, run, lacking):
                    self.hashes[run.key(day)] = hashes
            if run.name not in self.moved and run.name != unfinished:
                self.moved[run.name] = self.days.read_moved(run)


def joined_parts(
    days: KeptDays,
    chosen: Mapping[str, Run],
    at_hand: HashesAndMoved,
    unfinished: str | None = None,
) -> JoinedParts:
    """Those of the chosen days.

    Args:
        at_hand: what is read already; what is lacking is read.
        unfinished: the run that has not moved any yet.
    """
    at_hand.read(chosen, unfinished)
    rest = days.read("rest", chosen)
    wanted = _in_several_days(chosen, at_hand.hashes)
    message = rest["message"].to_numpy()
    known = {day: message[rows] for (day,), rows in rows_by(rest, (DAY,))}
    moved = _moved(chosen, wanted, at_hand.moved)
    for day, found in moved.items():
        known[day] = np.append(known.get(day, message[:0]), found["message"].to_numpy())
    read = []
    for day, messages in wanted.items():
        lacking = messages[~is_among(messages, np.sort(known.get(day, message[:0])))]
        if len(lacking):
            found = parts_of_day(days, day, chosen[day], lacking)
            key = pa.array([chosen[day].key(day)] * len(found), pa.string())
            read.append(found.append_column(RUN_DAY, key))
    plain = [*moved.values(), *(each.drop_columns([RUN_DAY]) for each in read)]
    parts = [_flagged(rest, plain=False), *(_flagged(each, plain=True) for each in plain)]
    none = rest.slice(0, 0).append_column(RUN_DAY, pa.array([], pa.string()))
    return JoinedParts(
        pa.concat_tables(parts, promote_options="permissive"),
        pa.concat_tables([none, *read], promote_options="permissive"),
    )


def parts_of_day(days: KeptDays, day: str, run: Run, messages: Numbers | None = None) -> pa.Table:
    """Parts of these messages or of all, of a day that has any; as `rest`, with `DAY`."""
    parts = days.read_day("parts", day, run)
    assert parts is not None, "a message is of a day that has parts"
    dead = days.read_day("dead_letters", day, run)
    if messages is not None:
        parts = parts.filter(pc.is_in(parts["message"], pa.array(messages)))
    parts = with_deaths(parts, no_dead_letters() if dead is None else dead)
    return parts.append_column(DAY, pa.array([day] * len(parts), pa.string()))


def no_dead_letters() -> pa.Table:
    """The frame of a day on which nothing died."""
    types = {"message": pa.int64(), "replays": pa.int32(), "handler": pa.string()}
    return pa.schema({**types, "cause": pa.string()}).empty_table()


def _hashes(days: KeptDays, run: Run, wanted: Sequence[str]) -> Iterator[tuple[str, Numbers]]:
    """Of each of these days of a run; of a day without a message there are none."""
    left = dict.fromkeys(wanted)
    table = days.read("messages", dict.fromkeys(wanted, run), [DAY, "message"])
    coded = table[DAY].combine_chunks()
    codes = coded.indices.to_numpy()
    # The rows of a day follow each other.
    begin = np.flatnonzero(np.diff(codes, prepend=-1))
    message = table["message"].to_numpy()
    for at, hashes in zip(begin, np.split(message, begin[1:]), strict=bool(len(begin))):
        day = coded.dictionary[int(codes[at])].as_py()
        del left[day]
        yield day, hashes
    yield from ((day, message[:0]) for day in left)


def _in_several_days(
    chosen: Mapping[str, Run], hashes: Mapping[str, Numbers]
) -> dict[str, Numbers]:
    """Of each day the messages that lie in another one as well; all of them numbers, sorted."""
    sets = [hashes[run.key(day)] for day, run in chosen.items()]
    return {day: each for day, each in zip(chosen, _shared(sets), strict=True) if len(each)}


def _shared(sets: Sequence[Numbers]) -> list[Numbers]:
    """What of each sorted set is in another one as well."""
    ranges = sum(map(len, sets)) // _AT_ONCE + 1
    bounds = np.linspace(-(2.0**63), 2.0**63, ranges + 1)[1:-1].astype(np.int64)
    cut = [np.split(each, np.searchsorted(each, bounds)) for each in sets]
    found = [_shared_of_range(each) for each in zip(*cut, strict=True)]
    return [np.concatenate(each) for each in zip(*found, strict=True)]


def _shared_of_range(sets: Sequence[Numbers]) -> list[Numbers]:
    values = np.concatenate(sets)
    # Sorted runs are merged.
    order = np.argsort(values, kind="stable")
    values = values[order]
    twice = np.zeros(len(values), bool)
    twice[1:] = values[1:] == values[:-1]
    twice[:-1] |= twice[1:].copy()
    ends = np.cumsum([len(each) for each in sets])
    of_set = np.searchsorted(ends, order[twice], side="right")
    return [values[twice][of_set == number] for number in range(len(sets))]


def _moved(
    chosen: Mapping[str, Run], wanted: Mapping[str, Numbers], moved: Mapping[str, pa.Table]
) -> dict[str, pa.Table]:
    """Of each day those of the wanted messages that a run has moved, once each."""
    found: dict[str | None, list[pa.Table]] = defaultdict(list)
    for name in {run.name for run in chosen.values()} & moved.keys():
        for (key,), rows in rows_by(moved[name], (RUN_DAY,)):
            # The rows of a day follow each other.
            found[key].append(moved[name].slice(rows[0], len(rows)))
    return {
        day: _once(found[key], messages).drop_columns([RUN_DAY])
        for day, messages in wanted.items()
        if (key := chosen[day].key(day)) in found
    }


def _once(tables: Sequence[pa.Table], messages: Numbers) -> pa.Table:
    """The parts of these messages, each once."""
    parts = pa.concat_tables(tables, promote_options="permissive")
    wanted = is_among(parts["message"].to_numpy(), messages)
    parts = parts if wanted.all() else parts.filter(pa.array(wanted))
    if len(tables) > 1:
        # Two runs that counted at once may both have it: all parts of a message are in each.
        _, first_of = np.unique(numbered(parts, "replays"), return_index=True)
        parts = parts.take(pa.array(first_of))
    return parts


def _flagged(parts: pa.Table, *, plain: bool) -> pa.Table:
    return parts.append_column("plain", pa.array([plain] * len(parts), pa.bool_()))
