"""Reference: docs/reference/table.md, written from the schema.

    python -m ackfloor_monitoring.spark.table.table_reference > docs/reference/table.md

A column without a meaning here raises KeyError, and a test compares the file with what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from pyspark.sql.types import StructField, StructType

from ackfloor_monitoring.spark.analysis.view_columns import ABOUT, COMPUTED, NEW_CAUSE
from ackfloor_monitoring.spark.table.column_meanings import OF_DISPOSITIONS, of_failures
from ackfloor_monitoring.spark.table.columns import DERIVED, FAILURE, PARTITIONED_BY, TABLE_VERSION
from ackfloor_monitoring.spark.table.disposition_rows import DISPOSITION

_FOLDERS = " and ".join(f"`{name}`" for name in PARTITIONED_BY)
_HEAD = f"""\
# The table of failures

<!-- Written by `python -m ackfloor_monitoring.spark.table.table_reference`; don't edit. -->

[`ackfloor spark ingest`](../spark.md) stores one row for each record of a retry or dead-letter
topic, in a Delta table of version {TABLE_VERSION}, in folders by {_FOLDERS}. Types are Spark's.
Times are in UTC, to the millisecond. A column is null where its header is not there or can't be
read; `unreadable` names the latter.
"""
_DERIVED = """\
## What `read_failures` adds

These follow from the stored columns, so tables of earlier releases have them as well. `--where` of
`ackfloor spark replay` knows them too. [Spark](../spark.md#the-table) says how to count with them.
"""
_DISPOSITIONS = """\
## Dispositions

`read_dispositions` gives a row for each dead letter that was redriven, discarded or archived, from
the compacted topics of the dispositions. The first four columns are those of the table.
"""
_VIEWS = """\
## Views

[Plain SQL and notebooks](../spark-analysis.md) have the view `failures`, the table with what
`read_failures` adds, `dispositions`, and these. They are computed from the table when one is read.
"""
_NEW_CAUSES = """\
### New causes of a release

What `notebook.new_causes(failures, release)` gives: a row for each cause that a release brought.
"""


def render() -> str:
    """The whole page."""
    meanings = of_failures()
    return "\n".join(
        [
            _HEAD,
            _table(FAILURE, meanings),
            _DERIVED,
            _table(DERIVED, meanings),
            _DISPOSITIONS,
            _table(DISPOSITION, OF_DISPOSITIONS),
            _VIEWS,
            *(_view(name, columns) for name, columns in COMPUTED.items()),
            _NEW_CAUSES,
            _described(NEW_CAUSE),
        ]
    )


def _view(name: str, columns: StructType) -> str:
    return f"### `{name}`\n\n{ABOUT[name]}\n\n{_described(columns)}"


def _described(columns: StructType) -> str:
    return _table(columns, {each.name: each.metadata["comment"] for each in columns})


def _table(fields: Iterable[StructField], meanings: Mapping[str, str]) -> str:
    rows = [
        f"| `{field.name}` | `{field.dataType.simpleString()}` | {meanings[field.name]} |"
        for field in fields
    ]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
