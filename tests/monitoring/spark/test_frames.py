"""Headers become columns, and columns become counts, whatever the headers hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from ackfloor.core.records.envelope import HEADERS, Envelope, Reason, read_envelope, write_headers
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor_monitoring.spark.table.columns import DECODED_RECORD, HEADER_COLUMNS, KAFKA_RECORD
from ackfloor_monitoring.spark.table.table_frames import (
    decode_headers,
    failure_events,
    with_derived,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

Headers = list[tuple[str, bytes | None]]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
TIER = "orders--billing--retry-5s"
DLQ = "orders--billing--dlq"


def records(spark: SparkSession, *rows: tuple[str, Headers | None]) -> DataFrame:
    """Kafka records with these topics and headers; the offset is the place in the list."""
    data = [
        (b"key", b"value", topic, 0, offset, NOON, 0, headers)
        for offset, (topic, headers) in enumerate(rows)
    ]
    return spark.createDataFrame(data, KAFKA_RECORD)


def decoded(spark: SparkSession, *headers: Headers | None) -> list[Row]:
    """The decoded rows of one record for each list of headers."""
    rows = records(spark, *((TIER, each) for each in headers))
    return rows.transform(decode_headers).orderBy("offset").collect()


def failed(handler: str, reason: str, error: str, attempt: int, at_ms: int) -> Headers:
    """The headers that a report by cause looks at."""
    return [
        ("ackfloor.handler", handler.encode()),
        ("ackfloor.reason", reason.encode()),
        ("ackfloor.error.type", error.encode()),
        ("ackfloor.attempt", str(attempt).encode()),
        ("ackfloor.failed_at", str(at_ms).encode()),
    ]


@pytest.mark.parametrize(
    "name", ["shop.errors.PaymentDown", "PaymentDown", "errors.PaymentDown", "Down", "", "f00d"]
)
def test_sql_and_the_option_error_find_the_same(spark: SparkSession, name: str) -> None:
    """By the whole name of a class, by its name without the module, and by the cause."""
    errors = ["shop.errors.PaymentDown", "PaymentDown", "other.PaymentDown", "f00d", None]
    base = Envelope(origin_topic="orders", error_fingerprint="f00d")
    headers = [write_headers(base._replace(error_type=each), []) for each in errors]
    events = records(spark, *((DLQ, each) for each in headers)).transform(failure_events)
    rows = with_derived(events.withColumn("cluster", F.lit("kafka")))
    columns = [F.col(each) for each in ("error_type", "error_class", "error_fingerprint")]
    found = rows.where(F.lit(name).isin(*columns))
    option = DeadLetterFilter(error=name)
    letters = [DeadLetter(DLQ, 0, n, b"k", b"v", each) for n, each in enumerate(headers)]
    matching = [each.offset for each in letters if option.matches(each)]
    assert sorted(row["offset"] for row in found.select("offset").collect()) == matching


def test_every_header_of_the_runtime_has_a_column() -> None:
    """The table of columns names the runtime's headers, all of them, in its order."""
    assert [spec.header for spec in HEADER_COLUMNS] == list(HEADERS)


def test_what_the_runtime_writes_is_read_back(spark: SparkSession) -> None:
    """Each field of an envelope arrives in the column of its name."""
    envelope = Envelope(
        origin_topic="orders", origin_partition=3, origin_offset=4711, origin_timestamp_ms=NOON_MS,
        group="billing", handler="bill", attempt=2, failures=1, timeouts=1, reason=Reason.TIMEOUT,
        error_type="ConsumeTimeout", error_message="30 s är över", error_stack="File …",
        error_fingerprint="0badc0de", first_failed_at_ms=NOON_MS, failed_at_ms=NOON_MS + 1500,
        not_before_ms=NOON_MS + 6500, retry_at_ms=NOON_MS + 9999, duration_ms=30_000,
        release="v7", worker="a-1", replays=1, edited="00ff",
        truncated="stack",
    )  # fmt: skip
    (row,) = decoded(spark, write_headers(envelope, [("own", b"\xff")]))
    assert fields_of(row) == fields(envelope)
    assert row["unreadable"] == []


ODD: list[Headers | None] = [
    None,
    [],
    [("ackfloor.handler", None)],
    [("ackfloor.handler", b"\xc3\x28"), ("ackfloor.group", b"billing")],
    [("ackfloor.attempt", b"two"), ("ackfloor.failures", b"1.5"), ("ackfloor.timeouts", b"-1")],
    [("ackfloor.attempt", b" 2"), ("ackfloor.failures", b"2\n"), ("ackfloor.timeouts", b"")],
    [("ackfloor.attempt", b"1"), ("x", b"9"), ("ackfloor.attempt", b"2")],
    [("ackfloor.attempt", b"1"), ("ackfloor.attempt", b"many")],
    [("ackfloor.attempt", b"many"), ("ackfloor.attempt", b"1")],
    [("ackfloor.attempt", b"1"), ("ackfloor.attempt", None)],
    [("ackfloor.failed_at", b"2026-03-01"), ("ackfloor.not_before", b"")],
    [("ackfloor.origin.timestamp", b"-1"), ("ackfloor.origin.offset", b"999999999999999999")],
    [("ackfloor.failed_at", b"9999999999999999999"), ("ackfloor.duration_ms", "٣".encode())],
    [("ackfloor.unheard.of", b"1"), ("Ackfloor.attempt", b"1"), ("", b""), ("", b"")],
    [("kafka_dlt-original-partition", b"\x00\x00\x00\x01"), ("__dlq.errors.topic", b"orders")],
    [("ackfloor.handler", b""), ("ackfloor.error.message", b"\x00")],
]


def test_odd_headers_are_read_as_the_runtime_reads_them(spark: SparkSession) -> None:
    """Missing, null, repeated, foreign and mistyped headers: Spark and a worker agree on each."""
    rows = decoded(spark, *ODD)
    assert len(rows) == len(ODD)
    for row, headers in zip(rows, ODD, strict=True):
        envelope = read_envelope(headers)
        assert set(row["unreadable"]) == set(envelope.unreadable), headers
        present = {name for name, _ in headers or []}
        assert fields_of(row) == fields(envelope, present), headers


def test_a_time_beyond_the_calendar_is_unreadable(spark: SparkSession) -> None:
    """A number of milliseconds that is no date in Spark fails no job: it is named."""
    far = b"999999999999999999"
    row, nearer = decoded(
        spark,
        [("ackfloor.failed_at", far), ("ackfloor.not_before", b"-" + far)],
        [("ackfloor.failed_at", b"253402214400000")],
    )
    assert (row["failed_at"], row["not_before"]) == (None, None)
    assert set(row["unreadable"]) == {"ackfloor.failed_at", "ackfloor.not_before"}
    assert nearer["unreadable"] == []


def test_an_unknown_reason_is_shown_as_it_is(spark: SparkSession) -> None:
    """A reason that only a newer worker knows is still a reason to count by."""
    (row,) = decoded(spark, [("ackfloor.reason", b"eclipse")])
    assert (row["reason"], row["unreadable"]) == ("eclipse", [])


def test_five_hundred_headers_are_no_trouble(spark: SparkSession) -> None:
    """A record with many headers, ours repeated among them, decodes like any other."""
    many: Headers = [(f"own-{number % 7}", b"x") for number in range(500)]
    many[100:100] = [("ackfloor.handler", b"first")]
    many[300:300] = [("ackfloor.handler", b"last")]
    (row,) = decoded(spark, many)
    assert row["handler"] == "last"
    assert len(row["headers"]) == 502


def test_own_headers_are_what_is_not_ours(spark: SparkSession) -> None:
    """Wherever they stand, repeated ones as well; a header of a later release is not the user's."""
    ours: Headers = [("ackfloor.handler", b"bill"), ("ackfloor.attempt", b"1")]
    later: Headers = [("ackfloor.later", b"x")]
    own: Headers = [("a", b"1"), ("b", None), ("a", b"\xff")]
    cases = [
        [*own, *ours],
        [*ours, *own],
        [own[0], ours[0], own[1], ours[1], own[2]],
        [*later, *own, *ours],
        [*own, *ours, *later],
        [*own, *ours, ours[0]],
        own,
    ]
    rows = decoded(spark, *cases, ours, [], None)
    told = [[(each["key"], each["value"]) for each in row["own_headers"]] for row in rows]
    plain = [(name, value and bytearray(value)) for name, value in own]
    assert told == [plain] * len(cases) + [[]] * 3


def test_the_records_own_columns_stay(spark: SparkSession) -> None:
    """Decoding adds columns: key, value, coordinates and raw headers stay as they were."""
    rows = records(spark, (TIER, [("own", b"\x00\xff")]), (DLQ, None))
    out = rows.transform(decode_headers)
    assertSchemaEqual(out.schema, DECODED_RECORD, ignoreNullable=True)
    assertDataFrameEqual(out.select(rows.columns), rows)


def test_stage_and_time_of_an_event(spark: SparkSession) -> None:
    """The topic's name gives the stage; without a readable time the record's own counts."""
    later = NOON_MS + 60_000
    events = records(
        spark,
        (TIER, failed("bill", "error", "ValueError", 1, later)),
        (DLQ, [("ackfloor.failed_at", b"soon")]),
    ).transform(failure_events)
    rows = events.select("stage", F.unix_millis("event_time")).collect()
    assert [tuple(row) for row in rows] == [("retry", later), ("dlq", NOON_MS)]


def fields_of(row: Row) -> dict[str, Any]:
    """A decoded row under the envelope's field names, times in milliseconds."""
    found = {}
    for spec in HEADER_COLUMNS:
        value = row[spec.column]
        if spec.kind == "time":
            # Collected times are local and without a zone; `timestamp()` takes them as such.
            value = None if value is None else round(value.timestamp() * 1000)
            found[f"{spec.column}_ms"] = value
        else:
            found[spec.column] = value
    return found


def fields(envelope: Envelope, present: set[str] | None = None) -> dict[str, Any]:
    """The envelope as Spark shows it: a count is null, not 0, where its header is not there."""
    found = {}
    for spec in HEADER_COLUMNS:
        name = f"{spec.column}_ms" if spec.kind == "time" else spec.column
        absent = present is not None and spec.header not in present
        unread = spec.header in envelope.unreadable
        found[name] = None if absent or unread else getattr(envelope, name)
    return found
