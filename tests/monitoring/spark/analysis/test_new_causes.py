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
OLD, NEW, NEXT = "1.0", "1.1", "1.2"


@dataclass
class History:
    """Thirty days of failures; on day 27 a release replaces the workers, over a day.

    Old causes come from once a month to ten times a day, or in one outage of an hour, before the
    release or behind it, on the workers of both. New ones come with the release, from three times
    to 120 in the three days.

    Where the release comes earlier, another one replaces it after three days, with causes of its
    own. It ends half of those that came before.
    """

    seed: int
    released: int = RELEASED_AFTER

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
            times = self.random.choice((3, 5, 8, 15, 40, 120))
            self._new(f"new{number}", times, self.released)
            if number % 2:
                self._new(f"new{number}", times, self.released + 3)
            self._new(f"next{number}", times, self.released + 3)

    def _fail(self, cause: str, day: float) -> None:
        share = self.random.random()
        updated = sum(share < day - since for since in (self.released, self.released + 3))
        self._add(cause, day, (OLD, NEW, NEXT)[updated])

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

    def _new(self, cause: str, failures: int, since: int) -> None:
        if since == DAYS:
            return
        for _ in range(failures):
            release = NEW if since == self.released else NEXT
            self._add(cause, self.random.uniform(since, since + 3), release)


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


@pytest.mark.parametrize("seed", range(2))
def test_what_an_earlier_release_brought_is_found_as_surely(spark: SparkSession, seed: int) -> None:
    """Up to the next release, however long the history goes on; that one's causes are its own."""
    history = History(seed, released=20)
    assert {row["release"] for row in history.rows} == {OLD, NEW, NEXT}
    found = {row.cause for row in causes(history, spark)}
    right = len(found & history.new)
    assert right >= 0.95 * len(found), found - history.new
    assert right >= 0.90 * len(history.new), history.new - found


def test_a_cause_that_the_next_release_repaired_is_shown_with_its_end(spark: SparkSession) -> None:
    """It lasted for hours of a long history. The next release's first failure is of it as well, and
    so is that of a dead letter that was redriven days later."""

    def failed(hours: float, release: str, error: str, **more: Any) -> dict[str, Any]:
        at = NOON + timedelta(hours=hours)
        return dead(
            len(rows), event_time=at, release=release, error_type=error,
            origin_topic="orders", origin_partition=0, origin_offset=len(rows), **more,
        )  # fmt: skip

    rows: list[dict[str, Any]] = []
    for hour in range(-180, 500, 2):
        release = OLD if hour < 0 else NEW if hour <= 6 else NEXT
        rows.append(failed(hour + 0.5, release, "shop.Usual"))
    rows += [failed(n / 10, NEW, "KeyError") for n in range(65)]
    rows += [failed(6.5, NEXT, "KeyError")]
    rows += [failed(30, NEXT, "KeyError", replays=1)]
    rows += [failed(n, NEXT, "shop.Outage") for n in range(100, 110)]
    [row] = notebook.new_causes(frame(spark, rows), NEW).collect()
    assert (row.error_type, row.failures, row.releases) == ("KeyError", 67, [NEW, NEXT])
    # Hours 0, 2, 4 and 6; the first one dates the release.
    assert (row.hours, row.since_s, row.before_s) == (4, 7 * 3600, 180 * 3600)
    assert row.chance == pytest.approx((7 / 187) ** 3)
    began, ended = row["first"].timestamp(), row["last"].timestamp()
    assert (began, ended) == (NOON.timestamp(), NOON.timestamp() + 6.5 * 3600)
    assert row.until.timestamp() == ended


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
