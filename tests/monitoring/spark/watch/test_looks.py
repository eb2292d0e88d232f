"""How a watch looks at what was stored, and what it says: on a table that is made up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from ackfloor_monitoring.metrics.watch_metrics import WatchMetrics
from ackfloor_monitoring.spark.spark_errors import StoreFailed
from ackfloor_monitoring.spark.table import store
from ackfloor_monitoring.spark.table.ingest import IngestPlan
from ackfloor_monitoring.spark.watch.detection import Cause, NewCause, Rules, Sighting, Surge
from ackfloor_monitoring.spark.watch.stream import MOST_LOGGED, Watch, alert_text
from tests.monitoring.test_watch_metrics import value

NOW = 1_800_000_000.0
FIRST, SECOND = (datetime.fromtimestamp(NOW + number, UTC) for number in (1, 2))


class Table(Watch):
    """A watch of a table whose rows are given, and which may be away."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.clock_s = NOW
        self.numbers = WatchMetrics(lambda: self.clock_s)
        self.rows: list[dict[str, Any]] = []
        self.looks = 0
        plan = IngestPlan("t", {}, "p")
        nobody: Any = None
        super().__init__(
            nobody, plan, Rules(), self.numbers, self.lines.append, lambda: self.clock_s
        )

    def _collect(self, failures: Any, slices_from_s: float = 0.0) -> Sequence[Any]:
        self.looks += 1
        return self.rows


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    """One that is there."""
    monkeypatch.setattr(store, "read_failures", lambda *_: Found())
    # A column of Spark's can't be made without a session.
    monkeypatch.setattr("ackfloor_monitoring.spark.watch.stream.F.col", lambda name: Found())
    return Table()


class Found:
    """Whatever is asked of it, it is that."""

    def where(self, condition: object) -> Found:
        return self

    def isin(self, values: object) -> Found:
        return self


def row(fingerprint: str = "f", stored: int = 1, failed: int = 1) -> dict[str, Any]:
    """A row as the frame gives it."""
    return {
        "group": "billing", "handler": "bill", "stage": "dlq", "reason": "error",
        "fingerprint": fingerprint, "error_type": "shop.Boom", "stored": stored, "failed": failed,
        "at_s": NOW + 1, "sample": "orders--billing--dlq/0/1",
    }  # fmt: skip


def test_a_look_that_fails_is_done_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at once, counted and told; nothing that was stored is left out."""

    def away(*_: object) -> None:
        raise StoreFailed("table t: away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "read_failures", away)
        table.stored(FIRST)
        table.turn()
        table.stored(SECOND)
    table.turn()
    assert table.lines == ["what was stored last is looked at again: table t: away"]
    assert value(table.numbers, "errors_total", error="StoreFailed") == 1
    assert list(table._unseen) == [FIRST, SECOND]
    table.rows = [row(stored=3)]
    table.clock_s += 11
    table.turn()
    table.turn()
    assert table.looks == 1
    named = {"group": "billing", "handler": "bill"}
    assert value(table.numbers, "failures_total", **named, stage="dlq", reason="error") == 3
    assert value(table.numbers, "new_fingerprints_total", **named) == 1


def test_a_flood_of_news_is_counted_and_not_told_whole(table: Table) -> None:
    """The first lines, and how many there are beyond."""
    table.rows = [row(f"f{number}") for number in range(500)]
    table.stored(FIRST)
    table.turn()
    assert len(table.lines) == MOST_LOGGED + 1
    assert table.lines[-1] == "and 480 more new fingerprints and surges"
    named = {"group": "billing", "handler": "bill"}
    assert value(table.numbers, "new_fingerprints_total", **named) == 500


def test_rows_without_a_failure_are_counted_and_nothing_more(table: Table) -> None:
    """A replay is stored; it is no news."""
    table.rows = [row(failed=0)]
    table.stored(FIRST)
    table.turn()
    assert table.lines == []
    named = {"group": "billing", "handler": "bill", "stage": "dlq", "reason": "error"}
    assert value(table.numbers, "failures_total", **named) == 1


def test_a_find_is_one_line_whatever_the_headers_hold() -> None:
    """Names that try to be more than that are quoted."""
    seen = Sighting(Cause("billing", "bi\nll", 'f" x=1'), NOW, 3, "\x1b[31mBoom", "dlq/0/7")
    assert alert_text(NewCause(seen), Rules()) == (
        "NEW FINGERPRINT, none in 7d: group=billing "
        r'handler="bi\nll" fingerprint="f\" x=1" error="\u001b[31mBoom" sample=dlq/0/7'
    )
    assert alert_text(Surge(seen, 1_234, 5.04), Rules()).startswith(
        "SURGE, 1,234 failures in 5m, 5.0 are usual: group=billing "
    )
