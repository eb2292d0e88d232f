"""The rules of `[redaction]` over the rows of the table: what they remove is never stored.

Rules that only look at names are Spark's own expressions. Those that look into values are the
core's functions, run in Python workers, so that a payload is masked here exactly as elsewhere;
the workers need this package installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

# Not for the type checker alone: PySpark reads the hints of a function to know what it takes.
import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

from ackfloor.core.records.redaction import MASK, Redaction
from ackfloor_monitoring.spark.table.columns import FAILURE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_TEXTS = ("error_message", "error_stack")
#: Of a payload, before the time of its correction: whoever can guess a payload can check it.
_HASH = r"(?s)\A.*?(?= [0-9]{1,15} |\z)"


def redacted(rows: DataFrame, rules: Redaction) -> DataFrame:
    """The rows as they may be stored; without rules the same plan."""
    columns: dict[str, Column] = {}
    if rules.payload == "drop":
        columns["payload"] = F.lit(None).cast("binary")
    elif rules.fields or rules.patterns:
        columns["payload"] = _valued(rules.of_payload, "payload", "binary")
    if rules.key == "drop":
        columns["key"] = F.lit(None).cast("binary")
    elif rules.key == "hash":
        columns["key"] = F.substring(F.sha2("key", 256), 1, 16).cast("binary")
    elif rules.patterns:
        columns["key"] = _valued(rules.of_key, "key", "binary")
    if rules.patterns:
        columns["headers"] = _headers(rules)
        columns |= {name: _valued(rules.of_text, name, "string") for name in _TEXTS}
    elif rules.headers:
        columns["headers"] = _masked_names(rules)
    if rules.active:
        columns["edited"] = F.regexp_replace("edited", _HASH, MASK)
    return rows.withColumns(columns) if columns else rows


def _valued(kept: Callable[[Any], Any], column: str, kind: str) -> Column:
    """One of the core's functions over a column."""

    def all_kept(values: pd.Series) -> pd.Series:
        return values.map(kept)

    udf: Any = pandas_udf(all_kept, kind)  # type: ignore[call-overload]
    return udf(column)  # type: ignore[no-any-return]


def _headers(rules: Redaction) -> Column:
    # A lambda, because it has no hints: PySpark would read the method's as those of its own.
    kept = F.udf(lambda headers: rules.of_headers(headers), FAILURE["headers"].dataType)  # noqa: PLW0108
    return kept("headers")


def _masked_names(rules: Redaction) -> Column:
    names = rules.header_names()
    assert names is not None
    hidden = f"(?is)\\A(?:{names.pattern})\\z"
    mask = F.lit(MASK).cast("binary")

    def masked(header: Column) -> Column:
        hide = header["key"].rlike(hidden) & header["value"].isNotNull()
        value = F.when(hide, mask).otherwise(header["value"])
        return F.struct(header["key"].alias("key"), value.alias("value"))

    return F.transform("headers", masked)
