"""Percentiles by the columns that rows have in common, exactly as Spark's `percentile` has them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackfloor_monitoring.spark.report.kept.arrays import Numbers


def percentiles(values: Numbers, shares: Sequence[float], times: Numbers) -> list[float] | None:
    """The values at these shares, between neighbours as they lie; None where there is no value.

    Args:
        values: sorted.
        times: how often each value is there.
    """
    if not len(values):
        return None
    ends = np.cumsum(times)
    last = int(ends[-1]) - 1

    def value(place: int) -> float:
        return float(values[int(np.searchsorted(ends, place, side="right"))])

    found = []
    for share in shares:
        place = last * share
        lower, higher = value(math.floor(place)), value(math.ceil(place))
        part = math.floor(place), math.ceil(place)
        if lower == higher:
            found.append(lower)
        else:
            found.append((part[1] - place) * lower + (place - part[0]) * higher)
    return found


def counted_values(sets: Iterable[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """Values, sorted, and how often each is there in all of the sets; a number may be below zero,
    and what comes to none is left out.

    Args:
        sets: values, and how often each is there.
    """
    none = np.empty(0, np.int64)
    values, times = (np.concatenate(each) for each in zip((none, none), *sets, strict=True))
    # Sorted runs are merged.
    order = np.argsort(values, kind="stable")
    values = values[order]
    first_of = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    times = np.add.reduceat(times[order], first_of) if len(first_of) else none
    return values[first_of][times > 0], times[times > 0]


def rows_by(
    table: pa.Table, names: Sequence[str]
) -> Iterator[tuple[tuple[str | None, ...], np.ndarray[Any, np.dtype[np.intp]]]]:
    """The rows of each combination of these columns of text; there are few."""
    code = np.zeros(len(table), np.int64)
    texts = []
    for name in names:
        coded = table[name].combine_chunks()
        if not pa.types.is_dictionary(coded.type):
            coded = coded.dictionary_encode()
        numbers = pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        texts.append([*coded.dictionary.to_pylist(), None])
        code = code * len(texts[-1]) + numbers % len(texts[-1])
    for number in np.flatnonzero(np.bincount(code)):
        key, left = [], int(number)
        for each in reversed(texts):
            left, at = divmod(left, len(each))
            key.append(each[at])
        yield tuple(reversed(key)), np.flatnonzero(code == number)
