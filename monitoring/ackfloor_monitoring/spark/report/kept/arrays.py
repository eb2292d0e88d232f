"""Columns of Arrow as arrays of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def numbers(table: pa.Table, name: str, null: int = 0) -> Numbers:
    """A column of whole numbers, with this number where it has none."""
    found: Numbers = pc.fill_null(pc.cast(table[name], pa.int64()), null).to_numpy()
    return found


def is_among(values: Numbers, sorted_set: Numbers) -> Mask:
    """Which of the values are in a sorted set."""
    if not len(sorted_set):
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(sorted_set, values), len(sorted_set) - 1)
    found: Mask = sorted_set[place] == values
    return found


def replaced(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The table with another column in the place of this one."""
    return table.set_column(table.column_names.index(name), name, column)
