"""The columns of the table of failures."""

from __future__ import annotations

from ackfloor_monitoring.spark.table.columns import (
    FAILURE,
    HEADER_COLUMNS,
    IDENTITY,
    PARTITIONED_BY,
)


def test_every_header_has_a_column_in_the_table() -> None:
    """Of the type that it has after decoding, and none twice."""
    types = {field.name: field.dataType for field in FAILURE.fields}
    assert {spec.column: types.get(spec.column) for spec in HEADER_COLUMNS} == {
        spec.column: spec.type for spec in HEADER_COLUMNS
    }
    assert len(types) == len(FAILURE.fields)


def test_identity_and_partitions_are_columns() -> None:
    """What tells rows and folders apart is in the row."""
    assert {*IDENTITY, *PARTITIONED_BY} <= set(FAILURE.fieldNames())
