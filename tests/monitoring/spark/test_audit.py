"""The audit: each planted fault is found, and what is in order is not complained of."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ackfloor.dead_letters.rules.dispositions import Disposition, DispositionNote
from ackfloor_monitoring.spark.audit.audit import Fault, audited, fault_rows
from ackfloor_monitoring.spark.table.columns import KAFKA_RECORD
from ackfloor_monitoring.spark.table.disposition_rows import DISPOSITION, dispositions
from ackfloor_monitoring.spark.table.settled_rows import COMMIT
from tests.monitoring.spark.failure_rows import NOON, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

Rows = list[dict[str, Any]]
NOW_MS = round((NOON + timedelta(days=1)).timestamp() * 1000)
#: What was redriven before must be in the table.
THERE_MS = round((NOON + timedelta(hours=1)).timestamp() * 1000)
TIERS = {0: "retry-1s", 1: "retry-1s", 2: "retry-5s", 3: "retry-25s"}


class Table:
    """Rows of a table, one life after the other, of several groups that are audited together."""

    def __init__(self) -> None:
        self.rows: Rows = []
        self.notes: list[tuple[Any, ...]] = []
        self.redriven_at = NOON
        self.group = ""
        self._ends: Counter[str] = Counter()
        self._origin = 0

    def record(self, kind: str, source: str = "orders", **more: Any) -> dict[str, Any]:
        """One row of `retry-1s` and so on, or of `dlq`; places count up."""
        topic = f"{source}--{self.group}--{kind}"
        offset = self._ends[topic]
        self._ends[topic] += 1
        row = {
            "topic_id": topic, "topic": topic, "partition": 0, "offset": offset,
            "group": self.group, "day": NOON.date(), "stage": "dlq" if kind == "dlq" else "retry",
            "event_time": NOON + timedelta(seconds=len(self.rows)), "kafka_time": NOON,
            "first_failed_at": NOON + timedelta(seconds=1), "ingested_at": NOON, "handler": "bill",
            "origin_topic": source, "origin_partition": 0, "origin_offset": self._origin,
            "not_before": None if kind == "dlq" else NOON, "unreadable": [], "foreign": [], **more,
        }  # fmt: skip
        self.rows.append(row)
        return row

    def life(self, *attempts: int, dies: bool = False, replays: int = 0, more: Any = None) -> None:
        """The records of these attempts, the last one in the dead-letter topic where it dies."""
        if not replays:
            self._origin += 1
        for n, attempt in enumerate(attempts):
            kind = "dlq" if dies and n == len(attempts) - 1 else TIERS[attempt]
            self.record(kind, replays=replays or None, attempt=attempt, **(more or {}))
            if attempt == 0 and replays:
                self.note_death()

    def note_death(self) -> None:
        """The disposition of the last dead letter: it was replayed."""
        row = next(r for r in reversed(self.rows) if r["stage"] == "dlq")
        at_ms = round(self.redriven_at.timestamp() * 1000)
        place = (row["topic"], row["topic_id"], 0, row["offset"])
        self.notes.append(
            (*place, "replayed", f"orders--{self.group}--retry-1s", at_ms, "me", "job")
        )

    def of(self, group: str) -> Table:
        """Go on with this group."""
        self.group = group
        return self


def in_order(table: Table) -> None:
    """Lives of every kind, all in order."""
    # A record before the others: what is whole began after it.
    table.record("retry-1s", attempt=1, first_failed_at=NOON)
    table.life(1)
    table.life(1, 2, 3)
    table.life(1, 2, 3, dies=True)
    table.life(0, 1, 2, dies=True, replays=1)
    table.life(0, replays=2)
    table.life(1, dies=True)
    # It began before the table did.
    table.life(3, dies=True, more={"first_failed_at": NOON - timedelta(hours=1)})
    # An explicit wait, hop by hop.
    table._origin += 1
    for seconds in range(3):
        wait = {"event_time": NOON, "retry_at": NOON, "attempt": 1}
        table.record("retry-5s", kafka_time=NOON + timedelta(seconds=seconds), **wait)
    # A key in quarantine: one failed and is dead, and what is behind it was written twice in a
    # retry topic; a note keeps the key. Then they are handled, or given up, and redriven.
    for attempt in (0, 2):
        table.life(1, 2, dies=True)
        table.record("retry-5s", reason="held", retry_at=NOON, first_failed_at=None, attempt=2)
        for dies in (False, True):
            table.life(*range(1, attempt + 1))
            table._origin += attempt == 0
            behind = {"reason": "behind", "first_failed_at": None, "attempt": attempt}
            for tier in ("retry-5s", "retry-5s"):
                table.record(tier, retry_at=NOON + timedelta(days=3650), **behind)
            if dies:
                table.record("dlq", **behind)
                table.life(0, replays=1)
                table.record("retry-1s", **behind | {"attempt": 0}, replays=1, retry_at=NOON)
    # Retried in place: no tiers; in broadcast mode, one dead letter for each worker.
    for worker in ("a", "b"):
        table.record("dlq", "news", attempt=5, worker=worker)


def with_faults(table: Table) -> None:
    """One of each kind."""
    table.life(2)  # the first attempt is missing
    table.life(1, 3)  # one in the middle
    table.life(1, 1, 2)  # parked twice
    table.life(1, 2, dies=True)
    table.record("dlq", attempt=2)  # dead twice
    table.life(3, dies=True)  # no chain
    table.life(1, 2, dies=True)
    table.record("retry-25s", attempt=3)  # alive after death
    table.life(1, 2, dies=True)
    table.life(0, replays=1)
    table.record("retry-1s", attempt=0, replays=1)  # replayed twice
    table.life(1)
    table.record("retry-1s", attempt=0, replays=1)  # of nothing
    table.life(1, 2, dies=True)
    table.record("retry-1s", attempt=0, replays=1)  # not noted
    table.life(1, 2, dies=True)
    table.note_death()  # noted and not there
    table.record("dlq", attempt=1, origin_offset=None)
    table.life(1, more={"group": "other"})


def redriven_just_before_the_ingest(table: Table) -> None:
    """Redrives so young that some are in the table and some may still be to come."""
    table.redriven_at = NOON + timedelta(hours=1)
    table.life(1, 2, dies=True)
    table.life(0, replays=1)  # ingested, and noted
    table.life(1, 2, dies=True)
    table.note_death()  # noted, and ingested later
    table.life(1, 2, dies=True)
    table.record("retry-1s", attempt=0, replays=1)  # not noted, however young


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, Counter[str]]:
    """What one audit of all groups finds, by group and fault."""
    table = Table()
    in_order(table.of("clean"))
    in_order(table.of("faulty"))
    with_faults(table)
    for n in range(12):
        table.of("late")._origin = n
        table.record(
            "retry-1s", attempt=1, not_before=NOON + timedelta(days=2) if n == 10 else NOON
        )
    # Not settled, and past the wait of its retry topic: it waits for another record.
    table.record("retry-1s", reason="behind", attempt=0, retry_at=NOON)
    # One copy dies and the other goes on, as after a crash without transactions.
    table.of("branched").life(1, 2)
    table.record("dlq", attempt=2)
    table.record("retry-25s", attempt=3)
    redriven_just_before_the_ingest(table.of("young"))
    tiers = sorted({row["topic"] for row in table.rows if row["stage"] == "retry"})
    commits = [(tier, 0, 8 if "--late--" in tier else 1_000, [(9, 10)]) for tier in tiers]
    rows = audited(frame(spark, table.rows), spark.createDataFrame(commits, COMMIT)).persist()
    notes = spark.createDataFrame(table.notes, DISPOSITION)
    by_group: dict[str, Counter[str]] = defaultdict(Counter)
    for row in fault_rows(rows, NOW_MS, notes, there_ms=THERE_MS).collect():
        by_group[row.topic.split("--")[1]][row.fault] += 1
    return by_group


def test_what_is_in_order_is_not_complained_of(found: dict[str, Counter[str]]) -> None:
    """Recovered, dead, replayed twice over, cut off at the table's beginning, hops, in place."""
    assert found["clean"] == {}


def test_each_planted_fault_is_found(found: dict[str, Counter[str]]) -> None:
    """One of each kind, among lives that are in order, and nothing else."""
    assert found["faulty"] == {
        Fault.HOLE: 2,
        Fault.DOUBLE: 2,
        Fault.NO_CHAIN: 1,
        Fault.AFTER_DEATH: 1,
        Fault.REPLAYED_TWICE: 1,
        Fault.REPLAY_OF_NOTHING: 1,
        Fault.REPLAY_NOT_NOTED: 1,
        Fault.REPLAY_LOST: 1,
        Fault.NO_ORIGIN: 1,
        Fault.STRAY: 1,
    }


def test_what_waits_past_its_due_time_is_found(found: dict[str, Counter[str]]) -> None:
    """8 and 11 are open and due; 9 is in the gap set, 10 is not due yet."""
    assert found["late"] == {Fault.OVERDUE: 2}


def test_a_young_replay_is_in_order_where_it_is_noted(found: dict[str, Counter[str]]) -> None:
    """It is noted with the record that is sent; only the record may come into the table later."""
    assert found["young"] == {Fault.REPLAY_NOT_NOTED: 1}


def test_without_parking_in_transactions_a_branch_is_a_double_and_nothing_else(
    found: dict[str, Counter[str]],
) -> None:
    """After a double one copy may die and the other go on: the double alone is listed."""
    assert found["branched"] == {Fault.DOUBLE: 1}


def test_dispositions_are_read_as_they_are_written(spark: SparkSession) -> None:
    """The last of a key counts, one without a value takes it back, and others are left out."""
    note = DispositionNote(Disposition.REPLAYED, 1_700_000_000_123, "me", "job", "target", "id")
    archived = DispositionNote(Disposition.ARCHIVED, 1_700_000_000_000, "me", "job")
    topic = "orders--billing--dispositions"
    values = [
        (b"0/1", archived.to_bytes()), (b"0/1", note.to_bytes()), (b"0/2", note.to_bytes()),
        (b"0/2", None), (b"x", note.to_bytes()), (b"0/3", b"{"), (None, b"{}"),
    ]  # fmt: skip
    records = [(k, v, topic, 0, n, NOON, 0, None) for n, (k, v) in enumerate(values)]
    rows = dispositions(spark.createDataFrame(records, KAFKA_RECORD))
    assert rows.schema.names == DISPOSITION.names
    assert [tuple(row) for row in rows.collect()] == [
        ("orders--billing--dlq", "id", 0, 1, "replayed", "target", 1_700_000_000_123, "me", "job")
    ]
    assert json.loads(note.to_bytes())["at"].endswith("Z")
