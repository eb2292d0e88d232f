"""What is summed up of the lives of one day, and which of them the day does not decide.

Most messages lie in one day, their replays as well, and all their records are settled: what they
add to a report is final. Such a message is plain, as far as its day knows. All parts of every other
message are kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackfloor_monitoring.spark.report.kept.arrays import Mask, Numbers
from ackfloor_monitoring.spark.report.kept.life_sums import (
    LifeSums,
    deaths_of,
    numbered,
    sums_of,
    whole,
)
from ackfloor_monitoring.spark.report.time_axis import DAY_MS

# A period and what lies before it are longer (`Period.earliest_ms`): no first failure of these
# days is too old for a period that holds the day.
_NEVER_TOO_OLD_DAYS = 30
# Beside each sum of a key the report needs the key itself: that of so many of each day is at hand.
_NAMED_KEYS = 200
_NOT_SETTLED = ("open", "unknown")


@dataclass(frozen=True, slots=True)
class DaySums:
    """Of one day.

    Attributes:
        messages: the hashes of all its messages, sorted.
        plain: the sums over the plain ones.
        named_keys: `key_hash`, `group`, `origin_topic`, `key` of those with the most failures.
        rest: the parts of the others, with `died_by` and `died_of`.
    """

    messages: pa.Table
    plain: LifeSums
    named_keys: pa.Table
    rest: pa.Table


def day_sums(
    day: str,
    parts: pa.Table,
    dead_letters: pa.Table,
    open_messages: Numbers,
    last_ms: Mapping[str | None, int],
) -> DaySums:
    """Sum up a day.

    Args:
        day: in ISO 8601.
        parts, dead_letters: as `day_frames` has them.
        open_messages: those of which a record is not settled.
        last_ms: the last failure of each group on that day.
    """
    message = parts["message"].to_numpy()
    rest = np.isin(message, message[_undecided(day, parts, open_messages, last_ms)])
    again = np.isin(message, message[parts["replays"].to_numpy() > 0]) & ~rest
    plain = whole(with_nothing_open(parts.filter(pa.array(~rest))), None)
    sums = sums_of(plain, with_deaths(parts.filter(pa.array(again)), dead_letters))
    return DaySums(
        pa.table({"message": np.unique(message)}),
        sums,
        _named_keys(sums.keys, parts),
        with_deaths(parts.filter(pa.array(rest)), dead_letters),
    )


def with_nothing_open(parts: pa.Table) -> pa.Table:
    """Parts of messages whose records are settled."""
    for name in _NOT_SETTLED:
        parts = parts.append_column(name, pa.array(np.zeros(len(parts), np.int64)))
    return parts


def with_deaths(parts: pa.Table, dead_letters: pa.Table) -> pa.Table:
    """Add `died_by` and `died_of`: the handler and the cause of the life's dead letter.

    Of several the first one: each time the same.
    """
    names = ["message", "replays", "died_by", "died_of"]
    died = dead_letters.select(["message", "replays", "handler", "cause"]).rename_columns(names)
    died = died.filter(pc.is_in(died["message"], pc.unique(parts["message"])))
    found = deaths_of(numbered(parts, "replays"), died)
    for name in found.column_names:
        parts = parts.append_column(name, found[name])
    return parts


def _undecided(
    day: str, parts: pa.Table, open_messages: Numbers, last_ms: Mapping[str | None, int]
) -> Mask:
    """Which parts are of a message that is not plain."""
    begins = datetime.fromisoformat(day).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    oldest_ms = begins // timedelta(milliseconds=1) + DAY_MS - _NEVER_TOO_OLD_DAYS * DAY_MS
    groups = pc.dictionary_encode(parts["group"], null_encoding="encode").combine_chunks()
    last = np.array([last_ms[name] for name in groups.dictionary.to_pylist()], np.int64)
    first = pc.fill_null(parts["first_ms"], oldest_ms).to_numpy()
    no_failure = (parts["failures"].to_numpy() == 0) & (parts["replay_records"].to_numpy() == 0)
    wrong_clock = first > last[groups.indices.to_numpy()] if len(parts) else no_failure
    is_open = np.isin(parts["message"].to_numpy(), open_messages)
    found: Mask = no_failure | (first < oldest_ms) | wrong_clock | is_open
    return found


def _named_keys(keys: pa.Table, parts: pa.Table) -> pa.Table:
    most = keys.sort_by([("failures", "descending"), ("key_hash", "ascending")])
    chosen = most["key_hash"].slice(0, _NAMED_KEYS)
    return named(parts, chosen)


def named(parts: pa.Table, key_hashes: pa.Array) -> pa.Table:
    """The keys themselves: `key_hash`, `group`, `origin_topic`, `key`.

    Args:
        parts: among which are some of these keys.
    """
    found = parts.filter(pc.is_in(parts["key_hash"], key_hashes))
    _, first_of = np.unique(found["key_hash"].to_numpy(), return_index=True)
    return found.select(["key_hash", "group", "origin_topic", "key"]).take(pa.array(first_of))
