"""Records become rows of the table, and rules apply to rows as the core says."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.testing import assertSchemaEqual

from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.rules.redrive_edit import shown_mark
from ackfloor_monitoring.spark.table.columns import FAILURE, KAFKA_RECORD
from ackfloor_monitoring.spark.table.redacted_rows import redacted
from ackfloor_monitoring.spark.table.table_frames import failure_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

Headers = list[tuple[str, bytes | None]]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATE_MS = int(datetime(2026, 3, 1, 23, 59, 59, 999_000, UTC).timestamp() * 1000)
TIER = "orders--billing--retry-5s"
DLQ = "orders--billing--dlq"


def rows(spark: SparkSession, *records: tuple[str, bytes | None, Headers | None]) -> DataFrame:
    """Rows of records with these topics, values and headers; the offset is the place."""
    data = [
        (b"key", value, topic, 0, offset, NOON, 0, headers)
        for offset, (topic, value, headers) in enumerate(records)
    ]
    ids = {TIER: "tier-id", DLQ: "dlq-id"}
    return spark.createDataFrame(data, KAFKA_RECORD).transform(failure_rows, ids, NOON)


def collected(frame: DataFrame) -> list[Row]:
    """In the order of the records."""
    return frame.orderBy("offset").collect()


def test_the_columns_are_those_of_the_table(spark: SparkSession) -> None:
    """In its order and with its types."""
    made = rows(spark, (TIER, b"v", []))
    assertSchemaEqual(made.schema, FAILURE, ignoreNullable=True)
    assert made.columns == FAILURE.fieldNames()


def test_topic_time_and_headers_have_their_places(spark: SparkSession) -> None:
    """The day is that of the failure in UTC; ours are columns, the user's own stay a list."""
    headers: Headers = [("own", b"1"), ("ackfloor.failed_at", str(LATE_MS).encode()), ("own", None)]
    tier, dlq = collected(rows(spark, (TIER, b"12345", headers), (DLQ, None, None)))
    assert (tier["topic_id"], tier["stage"], tier["tier"]) == ("tier-id", "retry", "5s")
    assert (tier["group"], tier["day"]) == ("billing", date(2026, 3, 1))
    assert tier["headers"] == [("own", b"1"), ("own", None)]
    assert (tier["payload"], tier["payload_bytes"]) == (b"12345", 5)
    assert (dlq["topic_id"], dlq["stage"], dlq["tier"]) == ("dlq-id", "dlq", None)
    assert (dlq["payload"], dlq["payload_bytes"], dlq["headers"]) == (None, None, [])
    assert (dlq["unreadable"], dlq["foreign"]) == ([], [])


@pytest.mark.parametrize(
    ("header", "group"),
    [
        (b"billing-eu", "billing-eu"),
        (b"../../etc", "billing"),
        (b"", "billing"),
        (b"x" * 250, "billing"),
        (b"\xff", "billing"),
    ],
)
def test_a_group_that_can_be_none_is_not_believed(
    spark: SparkSession, header: bytes, group: str
) -> None:
    """It would become the name of a folder; the topic's name says the group as well."""
    (row,) = collected(rows(spark, (TIER, b"v", [("ackfloor.group", header)])))
    assert row["group"] == group


RULES = [
    Redaction(),
    Redaction(payload="drop", key="hash"),
    Redaction(key="drop", headers=("OWN*", "a.c")),
    Redaction(fields=("email", "card.number")),
    Redaction(patterns=(r"\d{4,}", "ö+"), headers=("own",)),
    Redaction(key="hash", fields=("email",), patterns=("secret",)),
]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_rules_over_rows_are_the_core_s_rules(spark: SparkSession, rules: Redaction) -> None:
    """Value by value, whichever of Spark's ways is taken."""
    headers: Headers = [
        ("own", b"12345"), ("Owner", b"\xff9999"), ("a.c", None), ("abc", b"secret"), ("", b""),
        ("ackfloor.error.message", "12345 ööö secret".encode()),
        ("ackfloor.edited", b"%s 1790000000000 Ann B." % (b"0a" * 32)),
    ]  # fmt: skip
    values = [b'{"email": "a@b", "card": {"number": 12345}}', b"no json 12345", b"\xff\xfe", b""]
    plain = rows(spark, *((DLQ, value, headers) for value in (*values, None)))
    for before, after in zip(
        collected(plain), collected(plain.transform(redacted, rules)), strict=True
    ):
        expected = before.asDict() | {
            "payload": rules.of_payload(before["payload"]),
            "key": rules.of_key(before["key"]),
            "headers": rules.of_headers(before["headers"]),
            "error_message": rules.of_text(before["error_message"]),
            "edited": shown_mark(before["edited"], rules),
        }
        assert after.asDict() == expected
