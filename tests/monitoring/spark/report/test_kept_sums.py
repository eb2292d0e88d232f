"""Sums of days in Arrow and NumPy: without Spark, against plain counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from ackfloor.commits import Settled
from ackfloor_monitoring.spark.report.kept import joined_lives, kept_lives, life_sums
from ackfloor_monitoring.spark.report.kept.commits_kept import with_settled
from ackfloor_monitoring.spark.report.kept.quantiles import counted_values, percentiles, rows_by
from ackfloor_monitoring.spark.report.overview import overview_of_days
from tests.monitoring.spark.report.samples import NOW

SHARES = (0.5, 0.95, 0.99, 1.0)


def test_percentiles_lie_between_neighbours() -> None:
    """Of values that are there once or several times."""
    drawn = np.random.default_rng(3)
    for size in (1, 2, 7, 1_000):
        values = np.sort(drawn.integers(0, 50, size))
        expected = np.percentile(values, [100 * share for share in SHARES])
        some, times = np.unique(values, return_counts=True)
        assert percentiles(some, SHARES, times) == pytest.approx(list(expected))
        each_once = np.ones(size, np.int64)
        assert percentiles(values, SHARES, each_once) == percentiles(some, SHARES, times)
    nothing = np.array([], np.int64)
    assert percentiles(nothing, SHARES, nothing) is None


def test_what_is_taken_away_goes_as_often_as_it_is_given() -> None:
    """The others stay, sorted, and how often each is there."""
    drawn = np.random.default_rng(4)
    sets = [drawn.integers(0, 300, 500) for _ in range(3)]
    taken = drawn.permutation(np.concatenate(sets))[:900]
    given = [(each, np.ones(len(each), np.int64)) for each in sets]
    values, times = counted_values([*given, (taken, np.full(900, -1))])
    expected = Counter(np.concatenate(sets).tolist()) - Counter(taken.tolist())
    assert dict(zip(values.tolist(), times.tolist(), strict=True)) == expected
    assert values.tolist() == sorted(expected)
    assert [len(each) for each in counted_values([])] == [0, 0]


def test_the_keys_with_the_most_failures_are_never_left_out() -> None:
    """Whatever a hash has in common with others, with some taken away again."""
    drawn = np.random.default_rng(5)
    keys = drawn.integers(-(2**63), 2**63, 40_000)
    hashes = np.concatenate([drawn.permutation(keys), drawn.choice(keys, 150_000), keys[:900]])
    failures = drawn.integers(0, 5, len(hashes))
    failures[-900:] = -failures[:40_000][np.argsort(hashes[:40_000])][
        np.searchsorted(np.sort(hashes[:40_000]), keys[:900])
    ]
    total: Counter[int] = Counter()
    for key, number in zip(hashes.tolist(), failures.tolist(), strict=True):
        total[key] += number
    enough = sorted(total.values())[-50]
    found = kept_lives._perhaps_among(hashes, failures, 50)
    assert {key for key, number in total.items() if number >= enough} <= set(hashes[found].tolist())
    # All that a key has is among them or nothing.
    assert not set(hashes[found].tolist()) & set(hashes[~found].tolist())
    assert found.sum() < len(hashes) / 2


def test_messages_of_several_days() -> None:
    """Those that lie in two sets, in each of them."""
    sets = [np.array(each, np.int64) for each in ([1, 5, 9], [], [2, 5], [5, 9, 11])]
    found = joined_lives._shared(sets)
    assert [each.tolist() for each in found] == [[5, 9], [], [5], [5, 9]]
    assert [len(each) for each in joined_lives._shared([np.array([], np.int64)])] == [0]
    assert joined_lives._shared([]) == []


def test_messages_of_several_days_range_by_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hashes as far apart as numbers are, compared in many ranges."""
    monkeypatch.setattr(joined_lives, "_AT_ONCE", 50)
    drawn = np.random.default_rng(7)
    bounds = np.iinfo(np.int64)
    every = np.append(drawn.integers(bounds.min, bounds.max, 800), [bounds.min, 0, bounds.max])
    sets = [np.unique(drawn.choice(every, 300)) for _ in range(4)]
    count = Counter(np.concatenate(sets).tolist())
    expected = [[each for each in some.tolist() if count[each] > 1] for some in sets]
    assert [each.tolist() for each in joined_lives._shared(sets)] == expected


def test_the_first_dead_letter_of_each_life() -> None:
    """Of several each time the same: no handler first, then by handler and cause, as in Spark."""
    drawn = np.random.default_rng(6)
    messages = drawn.integers(-(2**63), 2**63, 300)
    names = [None, "", "a", "bill", "ä", "\U0001f600"]
    chosen = zip(drawn.choice(messages, 4_000), *drawn.integers(0, 6, (3, 4_000)), strict=True)
    rows = [
        {
            "message": int(message),
            "replays": int(replays),
            "died_by": names[by],
            "died_of": f"cause-{of}",
        }
        for message, replays, by, of in chosen
    ]
    expected: dict[tuple[int, int], tuple[str | None, str]] = {}
    for row in rows:
        life, died = (row["message"], row["replays"]), (row["died_by"], row["died_of"])
        first = min(expected.get(life, died), died, key=lambda d: (d[0] is not None, d[0] or "", d))
        expected[life] = first
    asked = [(int(message), replays) for message in messages for replays in range(9)]
    lives = pa.table({"message": [m for m, _ in asked], "replays": [r for _, r in asked]})
    types = {"message": pa.int64(), "replays": pa.int32(), "died_by": pa.string()}
    table = pa.Table.from_pylist(rows, pa.schema({**types, "died_of": pa.string()}))
    for deaths, known in ((table, expected), (table.slice(0, 0), {})):
        found = life_sums.deaths_of(life_sums.numbered(lives, "replays"), deaths).to_pylist()
        told = [(row["died_by"], row["died_of"]) for row in found]
        assert told == [known.get(life, (None, None)) for life in asked]


def test_parts_that_two_runs_have_moved_are_there_once() -> None:
    """Only those that are wanted; all parts of one run where it is the only one."""
    first = pa.table({"message": [3, 3, 5, 9], "replays": [0, 1, 0, 0]})
    second = pa.table({"message": [9, 3, 3, 7], "replays": [0, 1, 0, 0]})
    wanted = np.array([3, 9], np.int64)
    for tables in ([first], [first, second], [second]):
        found = joined_lives._once(tables, wanted).to_pylist()
        lives = sorted((row["message"], row["replays"]) for row in found)
        assert lives == [(3, 0), (3, 1), (9, 0)]


def test_rows_by_names_that_may_be_missing() -> None:
    """No name is a name of its own."""
    table = pa.table({"group": ["a", None, "a", "b"], "topic": pa.array([None, "t", None, "t"])})
    found = {names: rows.tolist() for names, rows in rows_by(table, ("group", "topic"))}
    assert found == {("a", None): [0, 2], (None, "t"): [1], ("b", "t"): [3]}


def test_what_commits_settle_of_open_records() -> None:
    """Below the position, in the runs above it; null where no commit is known."""
    places = [("t", 0, 4), ("t", 0, 5), ("t", 0, 8), ("t", 0, 9), ("t", 1, 0), (None, 0, 0)]
    columns = [list(each) for each in zip(*places, strict=True)]
    records = pa.table(dict(zip(("topic_id", "partition", "offset"), columns, strict=True)))
    commits = [Settled("t", "t", 0, 5, [(7, 9)])]
    found = with_settled(records, commits)["settled"].to_pylist()
    assert found == [True, False, True, False, None, None]


def test_an_overview_of_days_that_no_clock_can_mean() -> None:
    """Those before Kafka are one day, and those after tomorrow."""
    day_ms = 86_400_000
    spans = [(0, 1), (5 * day_ms, 5 * day_ms + 7), (20_000 * day_ms, 20_000 * day_ms + 3)]
    rows = [
        {"group": "g", "topic": "t", "stage": "dlq", "records": 2, "first_ms": a, "last_ms": b}
        for a, b in spans
    ]
    early, late = overview_of_days(rows, NOW).days
    assert (early.records, early.first_ms, early.last_ms) == (4, 0, 5 * day_ms + 7)
    assert (late.day, late.records) == (20_000, 2)
