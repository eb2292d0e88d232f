"""New causes of a release: a seeded history in which it is known which ones are new."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ackfloor_monitoring.spark import notebook
from ackfloor_monitoring.spark.spark_errors import UnknownRelease
from tests.monitoring.spark.failure_rows import NOON, dead, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
DAYS, RELEASED_AFTER = 30, 27
OLD, NEW = "1.0", "1.1"


@dataclass
class History:
    """Thirty days of failures; on day 27 a release replaces the workers, over a day.

    Old causes come from once a month to ten times a day, or in one outage of an hour, before the
    release or behind it, on the workers of both. New ones come with the release, from three times
    to 120 in the three days.
    """

    seed: int

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.new: set[str] = set()
        self.rows: list[dict[str, Any]] = []
        for number in range(60):
            self._steady(f"rare{number}", self.random.randint(1, 8))
        for number in range(25):
            self._steady(f"often{number}", self.random.randint(20, 300))
        for number in range(15):
            self._outage(f"outage{number}")
        for number in range(40):
            self.new.add(f"new{number}")
            self._new(f"new{number}", self.random.choice((3, 5, 8, 15, 40, 120)))

    def _fail(self, cause: str, day: float) -> None:
        updated = self.random.random() < day - RELEASED_AFTER
        self._add(cause, day, NEW if updated else OLD)

    def _add(self, cause: str, day: float, release: str) -> None:
        at: datetime = NOON + timedelta(days=day - 40)
        number = len(self.rows)
        self.rows.append(
            dead(
                number, event_time=at, kafka_time=at, day=at.date(), release=release, attempt=1,
                error_fingerprint=cause, origin_topic="orders", origin_partition=0,
                origin_offset=number,
            )
        )  # fmt: skip

    def _steady(self, cause: str, failures: int) -> None:
        for _ in range(failures):
            self._fail(cause, self.random.uniform(0, DAYS))

    def _outage(self, cause: str) -> None:
        start = self.random.uniform(0, DAYS)
        for _ in range(self.random.randint(10, 60)):
            self._fail(cause, min(DAYS, start + self.random.uniform(0, 1 / 24)))

    def _new(self, cause: str, failures: int) -> None:
        for _ in range(failures):
            self._add(cause, self.random.uniform(RELEASED_AFTER, DAYS), NEW)


def causes(history: History, spark: SparkSession) -> list[Any]:
    """The rows that are shown."""
    return notebook.new_causes(frame(spark, history.rows), NEW).collect()


@pytest.mark.parametrize("seed", range(5))
def test_what_is_shown_is_new_and_what_is_new_is_shown(spark: SparkSession, seed: int) -> None:
    """Of those shown 95 of 100, of the new ones 90 of 100."""
    history = History(seed)
    found = {row.cause for row in causes(history, spark)}
    right = len(found & history.new)
    assert right >= 0.95 * len(found), found - history.new
    assert right >= 0.90 * len(history.new), history.new - found


def test_the_evidence_is_beside_each(spark: SparkSession) -> None:
    """How often, in how many hours, how long was nothing, and how likely that is."""
    history = History(4)
    found = {row.cause: row for row in causes(history, spark)}
    assert [row.chance for row in found.values()] == sorted(row.chance for row in found.values())
    row = max(found.values(), key=lambda each: each.failures)
    mine = [each for each in history.rows if each["error_fingerprint"] == row.cause]
    hours: list[int] = []
    for hour in sorted({int(each["event_time"].timestamp() // 3600) for each in mine}):
        if not hours or hour - hours[-1] > 1:
            hours.append(hour)
    assert (row.failures, row.messages, row.dead) == (len(mine),) * 3
    assert (row.hours, row.releases) == (len(hours), [NEW])
    part = row.since_s / (row.since_s + row.before_s)
    assert part == pytest.approx((DAYS - RELEASED_AFTER) / DAYS, rel=0.1)
    assert row.chance == pytest.approx(part ** len(hours))
    assert row.sample.offset == max(mine, key=lambda each: each["event_time"])["offset"]


def test_what_the_old_release_fails_of_as_well_is_not_new(spark: SparkSession) -> None:
    """However often, and however suddenly; a worker without a release may be an old one."""
    history = History(5)
    for cause, release in (("both", OLD), ("nobody", None)):
        for hour in range(40):
            history._add(cause, 27.5 + hour / 24, NEW)
        history._add(cause, 29.5, release)  # type: ignore[arg-type]
    assert not {"both", "nobody"} & {row.cause for row in causes(history, spark)}


def test_a_release_that_nobody_names_is_refused(spark: SparkSession) -> None:
    """With those that there are."""
    with pytest.raises(UnknownRelease, match=r"release '2\.0': .* the table knows 1\.0"):
        notebook.new_causes(frame(spark, [dead(1, release=OLD)]), "2.0")


def test_without_a_history_nothing_is_known_to_be_new(spark: SparkSession) -> None:
    """The release is the first of the table."""
    rows = [dead(n, release=NEW, event_time=NOON - timedelta(hours=n)) for n in range(50)]
    assert notebook.new_causes(frame(spark, rows), NEW).collect() == []


def test_the_failure_that_dates_the_release_says_nothing_of_its_cause(spark: SparkSession) -> None:
    """It would be behind the release's first failure, however old its cause is."""
    old = [dead(n, release=OLD, event_time=NOON - timedelta(hours=n)) for n in range(1, 500)]
    first = dead(500, release=NEW, event_time=NOON, error_type="shop.First")
    assert notebook.new_causes(frame(spark, [*old, first]), NEW).collect() == []
    later = dead(501, release=NEW, event_time=NOON + timedelta(hours=2), error_type="shop.Second")
    [row] = notebook.new_causes(frame(spark, [*old, first, later]), NEW).collect()
    assert (row.error_type, row.hours, row.since_s) == ("shop.Second", 1, 3 * 3600)
    assert row.before_s == 499 * 3600
    assert row.chance == pytest.approx(3 / 502)


def test_of_two_groups_each_has_its_own_history(spark: SparkSession) -> None:
    """A cause that one group has known for long is new where it comes with the release."""
    rows = []
    for group, known in (("billing", "shop.A"), ("mail", "shop.B")):
        for n in range(1, 300):
            at = NOON - timedelta(hours=n)
            rows.append(dead(len(rows), group=group, release=OLD, event_time=at, error_type=known))
        for n, error in enumerate((known, "shop.A", "shop.A", "shop.A")):
            at = NOON + timedelta(hours=n)
            rows.append(dead(len(rows), group=group, release=NEW, event_time=at, error_type=error))
    found = notebook.new_causes(frame(spark, rows), NEW).collect()
    assert [(row.group, row.error_type, row.hours) for row in found] == [("mail", "shop.A", 2)]
