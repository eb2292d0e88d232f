"""The messages that no single day decides: all parts of them, from all days.

They are those that lie in two days or more, and the rest of each day (`day_sums`). Which lie in two
days is asked in each report anew, of all days' hashes at once: so it does not matter which run has
counted a day, nor when. What costs is to read a part out of a large day, so a run that counts days
keeps those that it had to read, for days of other runs as well (`moved`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class JoinedParts:
    """Parts, with `DAY`.

    Attributes:
        parts: with `plain`: whether they are in the sums of their day.
        read: those of them that were read out of days now, with `RUN_DAY`.
    """

    parts: pa.Table
    read: pa.Table


def joined_parts(
    days: KeptDays, chosen: Mapping[str, Run], unfinished: str | None = None
) -> JoinedParts:
    """Those of the chosen days.

    Args:
        unfinished: the run that has not moved any yet.
    """
    rest = days.read("rest", chosen)
    wanted = _in_several_days(days, chosen)
    message = rest["message"].to_numpy()
    known = {day: message[rows] for (day,), rows in rows_by(rest, (DAY,))}
    moved = _moved(days, chosen, wanted, unfinished)
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


def _in_several_days(days: KeptDays, chosen: Mapping[str, Run]) -> dict[str, Numbers]:
    """Of each day the messages that lie in another one as well; all of them numbers, sorted."""
    names, hashes = [], []
    for run, of_run in days_of(chosen):
        table = days.read("messages", dict.fromkeys(of_run, run), [DAY, "message"])
        coded = table[DAY].combine_chunks()
        codes = coded.indices.to_numpy()
        # The rows of a day follow each other.
        begin = np.flatnonzero(np.diff(codes, prepend=-1))
        named = coded.dictionary.to_pylist()
        message = table["message"].to_numpy()
        names += [named[codes[at]] for at in begin]
        hashes += np.split(message, begin[1:]) if len(begin) else []
    return {day: each for day, each in zip(names, _shared(hashes), strict=True) if len(each)}


def _shared(sets: Sequence[Numbers]) -> list[Numbers]:
    """What of each sorted set is in another one as well."""
    values = np.concatenate([*sets, np.empty(0, np.int64)])
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
    days: KeptDays,
    chosen: Mapping[str, Run],
    wanted: Mapping[str, Numbers],
    unfinished: str | None,
) -> dict[str, pa.Table]:
    """Of each day those of the wanted messages that a run has moved, once each."""
    found: dict[str | None, list[pa.Table]] = defaultdict(list)
    for run, _ in days_of(chosen):
        if run.name == unfinished:
            continue
        moved = days.read_moved(run)
        for (key,), rows in rows_by(moved, (RUN_DAY,)):
            # The rows of a day follow each other.
            found[key].append(moved.slice(rows[0], len(rows)))
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
