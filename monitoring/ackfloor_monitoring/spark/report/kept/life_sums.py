"""Lives from their parts, and what the report sums up of them: `report.lives` once more, in Arrow.

For the lives of one day, and for the few that have to be looked at in each report: a query of
Spark's would take longer to plan. A message is its hash here (`lives.message_hash`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackfloor_monitoring.spark.report.kept.arrays import Mask, Numbers, is_among, numbers, replaced
from ackfloor_monitoring.spark.report.lives import OUTCOMES
from ackfloor_monitoring.spark.report.time_axis import Period

_RECOVERED, _DEAD, _WAITING, _UNKNOWN = range(4)
_FIRST, _LAST = -(2**62), 2**62
# A message's own, the same in all its parts.
_OWN = ("key_hash", "group", "origin_topic", "origin_partition", "origin_offset")
_SUMMED = (
    "failures", "replay_records", "numbered", "tier_records", "dead_records", "open", "unknown",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LifeSums:
    """What is summed up of lives; all of it can be added up.

    Attributes:
        outcomes: as `lives.outcome_counts`.
        partitions: as `lives.partitions`, with `first` and `last` offset.
        times: how many first `lives` ended, `dead` or recovered, after so many `ms`, by `group` and
            `origin_topic`; of those whose time is known.
        keys: `failures`, `messages` and `dead` by `key_hash` and `group`; a key may have more
            rows than one.
        healed: as `lives.replays_by_cause`.
    """

    outcomes: pa.Table
    partitions: pa.Table
    times: pa.Table
    keys: pa.Table
    healed: pa.Table


OUTCOMES_ADDED: Mapping[str, str] = {"lives": "sum", "duplicates": "sum"}
PARTITIONS_ADDED: Mapping[str, str] = {
    **dict.fromkeys(("failures", "messages", "tier_records", *OUTCOMES), "sum"),
    "first": "min",
    "last": "max",
}
HEALED_ADDED: Mapping[str, str] = {"replayed": "sum", "healed": "sum"}
TIMES_ADDED: Mapping[str, str] = {"lives": "sum"}
_KEYS_ADDED: Mapping[str, str] = dict.fromkeys(("failures", "messages", "dead"), "sum")


def whole(parts: pa.Table, period: Period | None) -> pa.Table:
    """One row per life, sorted by message and replay: what all its parts come to.

    Args:
        parts: from `day_frames`, with `open` and `unknown`: how many records of the life are.
        period: in which failures lie; None where all of them do.
    """
    message, replays = numbers(parts, "message"), numbers(parts, "replays")
    order = np.lexsort((replays, message))
    message, replays = message[order], replays[order]
    first_of = np.flatnonzero(_differs(message) | _differs(replays))
    columns: dict[str, Any] = {"message": message[first_of], "replays": replays[first_of]}
    for name in _SUMMED:
        columns[name] = _reduced(np.add, numbers(parts, name)[order], first_of)
    columns["attempts"] = _reduced(np.maximum, numbers(parts, "attempts")[order], first_of)
    bits = _reduced(np.bitwise_or, numbers(parts, "numbers")[order], first_of)
    columns["duplicates"] = np.where(
        bits == 0, 0, columns["numbered"] - np.bitwise_count(bits).astype(np.int64)
    )
    # All records of a life name the same first failure, which may be older than the table.
    first = _reduced(np.minimum, numbers(parts, "first_ms", _LAST)[order], first_of)
    due = _reduced(np.maximum, numbers(parts, "due_ms", _FIRST)[order], first_of)
    at = numbers(parts, "died_ms", _LAST)[order]
    if period is not None:
        first = np.where((first >= period.earliest_ms) & (first <= period.last_ms), first, _LAST)
        at = np.where((at >= period.first_ms) & (at <= period.last_ms), at, _LAST)
    died = _reduced(np.minimum, at, first_of)
    known = first < _LAST
    columns["recovery_ms"] = pa.array(due - first, mask=~(known & (due > _FIRST) & (due >= first)))
    columns["death_ms"] = pa.array(died - first, mask=~(known & (died < _LAST) & (died >= first)))
    columns["outcome"] = np.select(
        [columns["dead_records"] > 0, columns["open"] > 0, columns["unknown"] > 0],
        [_DEAD, _WAITING, _UNKNOWN],
        _RECOVERED,
    ).astype(np.int64)
    own = parts.select(_OWN).take(pa.array(order[first_of]))
    table = pa.table({name: pa.array(column) for name, column in columns.items()})
    for name in _OWN:
        table = table.append_column(name, own[name])
    failed = (columns["failures"] > 0) | (columns["replay_records"] > 0)
    # What only waited behind another record is no message that failed.
    return table.filter(pa.array(failed))


def sums_of(lives: pa.Table, died: pa.Table) -> LifeSums:
    """The sums over lives.

    Args:
        lives: from `whole`.
        died: with `message`, `replays`, `died_by` and `died_of`; of replayed messages at least.
    """
    messages = _messages(lives)
    return LifeSums(
        _outcomes(lives),
        _partitions(messages),
        _times(lives),
        _keys(messages),
        _healed(lives, died),
    )


def added(sums: Sequence[LifeSums]) -> LifeSums:
    """The sums over the lives of different messages, one at least."""
    return LifeSums(
        summed([each.outcomes for each in sums], OUTCOMES_ADDED),
        summed([each.partitions for each in sums], PARTITIONS_ADDED),
        summed([each.times for each in sums], TIMES_ADDED),
        pa.concat_tables([each.keys for each in sums], promote_options="permissive"),
        summed([each.healed for each in sums], HEALED_ADDED),
    )


def numbered(table: pa.Table, name: str) -> Numbers:
    """One number for a message and one more number, a hash as that of the message is."""
    found: Numbers = numbers(table, "message") * 31 + numbers(table, name)
    return found


def deaths_of(lives: Numbers, died: pa.Table) -> pa.Table:
    """A row for each life, with `died_by` and `died_of` of its dead letter; null where it has none.

    Of several the first one, no handler before all others: each time the same, as in Spark.

    Args:
        lives: by `numbered`.
        died: with `message`, `replays`, `died_by` and `died_of`.
    """
    life = numbered(died, "replays")
    order = np.lexsort((_ranks(died["died_of"]), _ranks(died["died_by"]), life))
    life = life[order]
    first_of = np.flatnonzero(_differs(life))
    life, order = life[first_of], order[first_of]
    found = is_among(lives, life)
    place = np.zeros(len(lives), np.int64)
    place[found] = order[np.searchsorted(life, lives[found])]
    return died.select(["died_by", "died_of"]).take(pa.array(place, mask=~found))


def _ranks(texts: pa.ChunkedArray) -> Numbers:
    """Numbers that sort as the texts do, none as the first."""
    coded = texts.combine_chunks().dictionary_encode()
    ranks = pc.rank(coded.dictionary).to_numpy().astype(np.int64)
    codes = pc.fill_null(coded.indices.cast(pa.int64()), len(ranks)).to_numpy()
    found: Numbers = np.append(ranks, 0)[codes]
    return found


def summed(
    tables: Sequence[pa.Table], how: Mapping[str, str], minus: Sequence[pa.Table] = ()
) -> pa.Table:
    """Tables added up, a row for each value of the columns that are not in `how`.

    Args:
        how: how each column is added up.
        minus: what is taken away again.
    """
    less = [negative(each, how) for each in minus]
    table = pa.concat_tables([*tables, *less], promote_options="permissive")
    by = [name for name in table.column_names if name not in how]
    found = table.group_by(by).aggregate(list(how.items()))
    names = [*by, *(f"{name}_{way}" for name, way in how.items())]
    return found.select(names).rename_columns([*by, *how])


def negative(table: pa.Table, how: Mapping[str, str]) -> pa.Table:
    """With numbers below zero. What bounds a sum bounds what is left of it as well."""
    for name, way in how.items():
        if way == "sum":
            table = replaced(table, name, pc.negate(table[name]))
    return table


def _messages(lives: pa.Table) -> pa.Table:
    """One row per message: the outcome of its last life, and the sums of all its lives."""
    message = numbers(lives, "message")
    new = _differs(message)
    first_of = np.flatnonzero(new)
    last_of = np.append(first_of[1:], len(message))[: len(first_of)] - 1
    found = lives.select(_OWN).take(pa.array(first_of))
    found = found.append_column("outcome", pa.array(numbers(lives, "outcome")[last_of]))
    for name in ("failures", "tier_records"):
        column = _reduced(np.add, numbers(lives, name), first_of)
        found = found.append_column(name, pa.array(column))
    return found


def _outcomes(lives: pa.Table) -> pa.Table:
    table = lives.select(["group", "origin_topic", "attempts", "outcome", "duplicates"])
    table = table.append_column("replayed", pc.greater(lives["replays"], 0))
    return summed([_with_ones(table, "lives")], OUTCOMES_ADDED)


def _times(lives: pa.Table) -> pa.Table:
    first = lives.filter(pc.equal(lives["replays"], 0))
    kinds = []
    for dead, outcome, name in ((False, _RECOVERED, "recovery_ms"), (True, _DEAD, "death_ms")):
        ended = first.filter(pc.and_(pc.equal(first["outcome"], outcome), pc.is_valid(first[name])))
        table = ended.select(["group", "origin_topic", name])
        table = table.rename_columns(["group", "origin_topic", "ms"])
        table = table.append_column("dead", pa.array(np.full(len(table), dead)))
        kinds.append(_with_ones(table, "lives"))
    by = [(name, "ascending") for name in ("group", "origin_topic", "dead", "ms")]
    return summed(kinds, TIMES_ADDED).sort_by(by)


def _partitions(messages: pa.Table) -> pa.Table:
    names = ["group", "origin_topic", "origin_partition", "failures", "tier_records"]
    table = _with_ones(messages.select(names), "messages")
    for name in ("first", "last"):
        table = table.append_column(name, messages["origin_offset"])
    for at, name in enumerate(OUTCOMES):
        ended = pc.cast(pc.equal(messages["outcome"], at), pa.int64())
        table = table.append_column(name, ended)
    return summed([table], PARTITIONS_ADDED)


def _keys(messages: pa.Table) -> pa.Table:
    keyed = messages.filter(pc.is_valid(messages["key_hash"]))
    table = _with_ones(keyed.select(["key_hash", "group", "failures"]), "messages")
    dead = pc.cast(pc.equal(keyed["outcome"], _DEAD), pa.int64())
    return summed([table.append_column("dead", dead)], _KEYS_ADDED)


def _healed(lives: pa.Table, died: pa.Table) -> pa.Table:
    """What became of replays, by the handler and the cause of the dead letter before."""
    again = lives.filter(pc.greater(lives["replays"], 0))
    before = numbered(again, "replays") - 1
    died = died.filter(pc.is_valid(died["died_of"]))
    wanted = is_among(numbered(died, "replays"), np.sort(before))
    first = deaths_of(before, died.filter(pa.array(wanted)))
    table = pa.table(
        {
            "group": again["group"].cast(pa.string()),
            "handler": first["died_by"],
            "cause": first["died_of"],
            "healed": pc.cast(pc.equal(again["outcome"], _RECOVERED), pa.int64()),
        }
    )
    known = table.filter(pc.is_valid(table["cause"]))
    return summed([_with_ones(known, "replayed")], HEALED_ADDED)


def _with_ones(table: pa.Table, name: str) -> pa.Table:
    return table.append_column(name, pa.array(np.ones(len(table), np.int64)))


def _differs(values: Numbers) -> Mask:
    """Where a value is another than the one before."""
    found = np.ones(len(values), bool)
    found[1:] = values[1:] != values[:-1]
    return found


def _reduced(way: np.ufunc, values: Numbers, first_of: Any) -> Numbers:
    """One value of each run of rows; there may be no row."""
    found: Numbers = way.reduceat(values, first_of) if len(first_of) else values[:0]
    return found
