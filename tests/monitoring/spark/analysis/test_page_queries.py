"""The SQL of docs/spark-analysis.md gives true numbers, on rows whose truth is known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ackfloor.commits import Settled
from ackfloor_monitoring.spark import notebook
from ackfloor_monitoring.spark.table.disposition_rows import DISPOSITION
from ackfloor_monitoring.spark.table.table_frames import with_derived
from tests.monitoring.spark.failure_rows import NOON, dead, frame
from tests.structure.sources import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
PAGE = REPOSITORY / "docs" / "spark-analysis.md"
TIER = "orders--billing--retry-1m"


def query(question: str) -> str:
    """The SQL below a question of the page."""
    found = re.search(
        rf"\*\*{re.escape(question)}\*\*.*?```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    assert found, question
    return found[1]


class Rows:
    """Records of messages of handler `bill`, as a worker and a redrive leave them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, message: int, at_s: float, attempt: int, key: bytes, **more: Any) -> None:
        """A record in a retry topic; a dead letter where `stage` says so."""
        at = NOON + timedelta(seconds=at_s)
        parked = {"stage": "retry", "tier": "1m", "topic": TIER, "reason": "error"}
        self.rows.append(
            dead(
                len(self.rows),
                **{
                    **parked, "topic_id": "tier", "event_time": at, "day": at.date(),
                    "first_failed_at": NOON, "attempt": attempt, "key": key,
                    "origin_topic": "orders", "origin_partition": 0, "origin_offset": message,
                    "not_before": at + timedelta(seconds=60), **more,
                },
            )
        )  # fmt: skip

    def fails(self, message: int, attempts: int, key: bytes, *, dies: bool) -> None:
        """A minute between its failures."""
        for attempt in range(1, attempts + 1):
            last = {"stage": "dlq", "topic_id": "dlq"} if dies and attempt == attempts else {}
            self.add(message, 60 * (attempt - 1), attempt, key, **last)


@pytest.fixture(scope="module")
def asked(spark: SparkSession) -> Mapping[str, list[tuple[Any, ...]]]:
    """What each question is answered with.

    Message 0 fails once and waits through three retry topics, dies, is redriven after days, and
    dies again. 1 and 2 die at the third delivery, 3 is healed by the second, 4 waits behind 0.
    """
    rows = Rows()
    for hop in range(3):
        due = {"retry_at": NOON + timedelta(hours=1)}
        rows.add(0, 0, 1, b"long", not_before=NOON + timedelta(minutes=20 * (hop + 1)), **due)
    died = {"stage": "dlq", "topic_id": "dlq"}
    rows.add(0, 3600, 2, b"long", **died)
    rows.add(0, 3 * 86_400, 0, b"long", replays=1, reason=None, error_type=None)
    rows.add(0, 3 * 86_400 + 60, 1, b"long", replays=1, **died)
    rows.fails(1, 3, b"hot", dies=True)
    rows.fails(2, 3, b"hot", dies=True)
    rows.fails(3, 1, b"cool", dies=False)
    rows.add(4, 0, 0, b"long", reason="behind", error_type=None)
    settled = [Settled(TIER, "tier", 0, len(rows.rows), [])]
    notebook.register_views(with_derived(frame(spark, rows.rows)), settled)
    questions = (
        "Which retries never help?",
        "Which errors do retries heal, and which never?",
        "At which attempt do records heal?",
        "Which keys are hot?",
        "How long from the first failure to the dead letter?",
        "Today's failures by handler and hour?",
    )
    return {each: [tuple(row) for row in spark.sql(query(each)).collect()] for each in questions}


Answers = Mapping[str, list[tuple[Any, ...]]]


def test_keys_are_counted_in_failed_deliveries(asked: Answers) -> None:
    """A long wait in three topics failed once; what is redriven or waits behind it did not."""
    assert asked["Which keys are hot?"] == [
        ("bill", "shop.Boom", "hot", 6, 2),
        ("bill", "shop.Boom", "long", 3, 1),
        ("bill", "shop.Boom", "cool", 1, 1),
    ]


def test_the_time_to_the_dead_letter_is_that_of_first_lives(asked: Answers) -> None:
    """That of a redriven message would begin three days before."""
    [(handler, died, p50_s, p99_s)] = asked["How long from the first failure to the dead letter?"]
    assert (handler, died, p50_s) == ("bill", 3, 120)
    assert 3500 < p99_s <= 3600


def test_behind_the_last_attempt_there_is_no_retry_that_could_help(asked: Answers) -> None:
    """The third delivery saved nobody; the second one message."""
    assert asked["Which retries never help?"] == [("bill", 2, 2, 0)]
    assert asked["At which attempt do records heal?"] == [
        ("bill", 1, 1, 25.0), ("bill", 2, 0, 0.0), ("bill", 3, 0, 0.0)
    ]  # fmt: skip
    [row] = asked["Which errors do retries heal, and which never?"]
    assert row == ("bill", "shop.Boom", 1, 3, 6)


def test_the_last_day_of_a_history_has_its_failures(asked: Answers) -> None:
    """However long ago it was. `kind` would count the redrive as none, and each hop of a wait."""
    [(handler, _, failures)] = asked["Today's failures by handler and hour?"]
    assert (handler, failures) == ("bill", 1)


def test_a_release_that_makes_a_cause_more_frequent_is_found(spark: SparkSession) -> None:
    """Timeouts were there before, of the same class; a redrive under the release is not its doing,
    and what came with it is beside none before."""
    rows: list[dict[str, Any]] = []

    def failed(hour: float, error: str, **more: Any) -> None:
        at = NOON + timedelta(hours=hour)
        release = "1.0" if hour < 100 else "1.1" if hour < 150 else "1.2"
        number = len(rows)
        rows.append(
            dead(
                number, event_time=at, day=at.date(), error_type=error, release=release,
                origin_topic="orders", origin_partition=0, origin_offset=number, **more,
            )
        )  # fmt: skip

    for hour in range(-100, 180):
        for n in range(12 if 100 <= hour < 150 else 2):
            failed(hour + n / 12, "shop.Timeout")
        failed(hour + 0.5, "shop.Usual")
    for n in range(50):
        failed(100 + n / 2, "shop.New")
        failed(101, "shop.Usual", replays=1)
    notebook.register_views(with_derived(frame(spark, rows)))
    found = [
        tuple(row) for row in spark.sql(query("What did a release make more frequent?")).collect()
    ]
    assert found == [
        ("bill", "shop.Timeout", "1.1", "1.0", 600, 12.0, 2.0),
        ("bill", "shop.New", "1.1", "1.0", 50, 1.0, 0.0),
    ]
    hours = [
        tuple(row)[1:] for row in spark.sql(query("Was it the release, or the hour?")).collect()
    ]
    assert hours == [("1.0", 2)] * 200 + [("1.1", 12)] * 50 + [("1.2", 2)] * 30
    ended = spark.sql("SELECT release, messages FROM release_rates WHERE error_type = 'shop.New'")
    assert {tuple(row) for row in ended.collect()} == {("1.1", 50), ("1.2", 0)}


def test_what_came_of_a_redrive_is_told_by_operator_and_job(spark: SparkSession) -> None:
    """Ann sent four: one was handled, one died again and one waits; the fourth went to its source
    topic, as another record. Ben sent what died again, and it was handled; Cleo sent nothing."""
    rows, dlq = Rows(), "orders--billing--dlq"
    died = {"stage": "dlq", "topic": dlq, "topic_id": "dlq"}
    redriven: dict[str, Any] = {"attempt": 0, "key": b"k", "reason": None, "error_type": None}
    places: dict[tuple[int, int], int] = {}
    for message in range(6):
        places[message, 0] = len(rows.rows)
        rows.add(message, 60, 2, b"k", **died)
    rows.add(0, 3600, replays=1, **redriven)
    rows.add(1, 3600, replays=1, **redriven)
    places[1, 1] = len(rows.rows)
    rows.add(1, 3660, 1, b"k", replays=1, **died)
    rows.add(1, 7200, replays=2, **redriven)
    rows.add(2, 3600, replays=1, **redriven)
    settled = [Settled(TIER, "tier", 0, len(rows.rows) - 1, [])]
    sent = [
        *(("ann", "a", "replayed", (message, 0), 1) for message in range(4)),
        ("ben", "b", "replayed", (1, 1), 2),
        ("cleo", "c", "discarded", (4, 0), 3),
    ]
    notes = [
        (dlq, "dlq", 0, places[which], disposition, TIER, at_ms, by, job)
        for by, job, disposition, which, at_ms in sent
    ]
    done = spark.createDataFrame(notes, DISPOSITION)
    notebook.register_views(with_derived(frame(spark, rows.rows)), settled, done)
    found = spark.sql(query("What came of a redrive, by operator and job?")).collect()
    assert [tuple(row) for row in found] == [
        ("ann", "a", "replayed", "bill", 4, 1, 1, 1, 1),
        ("ben", "b", "replayed", "bill", 1, 1, 0, 0, 0),
        ("cleo", "c", "discarded", "bill", 1, 0, 0, 0, 0),
    ]


def test_views_that_are_kept_give_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """For the session, the funnels from the lives that are kept, and as a file."""
    rows = Rows()
    rows.fails(1, 3, b"hot", dies=True)
    rows.fails(2, 2, b"hot", dies=False)
    done = spark.createDataFrame([], DISPOSITION)
    notebook.register_views(with_derived(frame(spark, rows.rows)), [], done)
    [program] = re.findall(r"```python\n([^`]*cacheTable[^`]*)```", PAGE.read_text("utf-8"))
    lives, funnel = (sorted(map(str, spark.table(name).collect())) for name in ("lives", "funnel"))
    # Java has a working folder of its own.
    file = str(tmp_path / "lives.parquet")
    try:
        exec(program.replace("lives.parquet", file), {"spark": spark})
        assert sorted(map(str, spark.read.parquet(file).collect())) == lives
        for name in ("lives", "funnel"):
            explained = spark.sql(f"EXPLAIN SELECT * FROM {name}").first()
            assert explained is not None
            assert "Scan In-memory table lives" in explained[0]
        assert sorted(map(str, spark.table("funnel").collect())) == funnel
    finally:
        spark.catalog.clearCache()
