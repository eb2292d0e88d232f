"""One query over the views, and its rows as plain values."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import ParseException
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from ackfloor_monitoring.spark.analysis.views import VIEWS
from ackfloor_monitoring.spark.report.parts import key_text
from ackfloor_monitoring.spark.spark_errors import QueryRefused
from ackfloor_monitoring.spark.sql_errors import readable_sql_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: What begins so is no query to Spark's parser, and changes nothing.
_LOOKS: Final = re.compile(r"(describe|desc|explain|show)\b", re.IGNORECASE)
_PARSED: Final = "write one SELECT of Spark's SQL"
_RESOLVED: Final = (
    f"the views are {', '.join(VIEWS)} (the last one where a setting names brokers), and "
    "`DESCRIBE failures` shows the columns of one"
)
_TIME: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


def mentions(text: str, *views: str) -> bool:
    """Whether a query may read one of the views."""
    return re.search(rf"\b({'|'.join(views)})\b", text, re.IGNORECASE) is not None


def answer(spark: SparkSession, text: str, most: int) -> tuple[list[str], list[Mapping[str, Any]]]:
    """The columns of a query, and its rows, at most `most` of them.

    Binary values are text where they are printable text, else 0x and hexadecimal; times are ISO
    8601 in UTC; structures are dictionaries.

    Raises:
        QueryRefused: it is no query, Spark can't answer it, or two columns have one name.
    """
    text = text.strip().rstrip(";").strip()
    if not text:
        raise QueryRefused("it is empty", _PARSED)
    with readable_sql_errors(QueryRefused, parsed=_PARSED, resolved=_RESOLVED):
        _require_query(spark, text)
        frame = spark.sql(text)
        _require_names(frame)
        rows = _with_text_times(frame).limit(most).collect()
    return frame.columns, [
        {name: plain(value) for name, value in zip(frame.columns, row, strict=True)} for row in rows
    ]


def plain(value: object) -> Any:
    """A value of Spark's as JSON has it."""
    match value:
        case None | bool() | int() | str():
            found: Any = value
        case float():
            found = value if math.isfinite(value) else str(value)
        case datetime():
            # Python gets the time in its own zone, unmarked.
            utc = value.astimezone(UTC).isoformat(timespec="milliseconds")
            found = utc.replace("+00:00", "Z")
        case bytes() | bytearray():
            found = key_text(bytes(value))
        case Row():
            found = plain(value.asDict())
        case list():
            found = [plain(each) for each in value]
        case dict():
            found = {str(plain(name)): plain(each) for name, each in value.items()}
        case _:
            found = str(value)  # also a date, as ISO 8601 writes it
    return found


def _require_query(spark: SparkSession, text: str) -> None:
    """Refuse what would change something: that is no part of a query to Spark's parser."""
    if _LOOKS.match(text):
        return
    session: Any = spark
    parser = session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001
    parser.parsePlan(text)
    try:
        # Parsed and not run; it may end in a comment.
        parser.parsePlan("SELECT * FROM (\n" + text + "\n)")  # noqa: S608
    except ParseException:
        raise QueryRefused(
            "it is a statement that may change something",
            "only queries are answered: SELECT, SHOW, DESCRIBE and EXPLAIN",
        ) from None


def _require_names(frame: DataFrame) -> None:
    twice = sorted(name for name, count in Counter(frame.columns).items() if count > 1)
    if twice:
        raise QueryRefused(
            f"it has more than one column {', '.join(twice)}", "give each a name with AS"
        )


def _with_text_times(frame: DataFrame) -> DataFrame:
    """Times as text: Spark's may be further than Python's go."""
    return frame.select(
        *(
            F.date_format(_named(each.name), _TIME).alias(each.name)
            if isinstance(each.dataType, TimestampType)
            else _named(each.name)
            for each in frame.schema
        )
    )


def _named(column: str) -> Any:
    return F.col("`" + column.replace("`", "``") + "`")
