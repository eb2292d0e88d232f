"""Sums over the counts, without Spark: names that are missing, renamed handlers, replays."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ackfloor_monitoring.spark.report import sums

SCHEMA = pa.schema(
    [
        *(
            (name, pa.string())
            for name in (
                "group", "origin_topic", "handler", "reason", "error_type", "error_fingerprint",
                "release", "stage", "tier", "cause",
            )
        ),
        ("first_life", pa.bool_()),
        *(
            (name, pa.int64())
            for name in (
                "attempt", "start", "records", "failures", "hops", "replays", "behind",
                "unreadable", "without_origin", "first", "last",
            )
        ),
    ]
)  # fmt: skip


def counted(*rows: dict[str, Any]) -> pa.Table:
    """Counts: what is not said is as of one failure in a retry topic."""
    usual = {
        "group": "billing", "origin_topic": "orders", "handler": "bill", "reason": "error",
        "error_type": "KeyError", "error_fingerprint": "cafe", "release": "1.0", "stage": "retry",
        "tier": "1s", "cause": "cafe", "first_life": True, "attempt": 1, "start": 0, "records": 1,
        "failures": 1, "hops": 0, "replays": 0, "behind": 0, "unreadable": 0, "without_origin": 0,
        "first": 5, "last": 5,
    }  # fmt: skip
    return pa.Table.from_pylist([{**usual, **row} for row in rows], SCHEMA)


REPLAY = {"records": 1, "failures": 0, "replays": 1, "attempt": 0, "last": 90, "start": 50}


def test_totals_add_up() -> None:
    """Records are failures, hops and replays; of nothing there is nothing."""
    told = sums.totals(counted({"records": 4, "failures": 3, "hops": 1}, REPLAY))
    assert told == {
        "records": 5, "failures": 3, "hops": 1, "replays": 1, "behind": 0, "unreadable": 0,
        "without_origin": 0,
    }  # fmt: skip
    assert set(sums.totals(counted()).values()) == {0}


def test_a_cause_is_summed_up_over_time_and_releases() -> None:
    """A release or an error that no record names is left out; a replay is no failure."""
    (cause,) = sums.failure_groups(
        counted(
            {"failures": 2, "first": 3, "last": 8, "release": "1.1"},
            {"start": 50, "last": 60, "stage": "dlq", "release": "1.0"},
            {"start": 50, "first": 51, "last": 59, "release": None, "error_type": None},
            REPLAY,
        )
    )
    assert (cause["failures"], cause["dead"]) == (4, 1)
    assert (cause["first"], cause["last"]) == (3, 60)
    assert cause["releases"] == ["1.0", "1.1"]
    assert cause["trend"] == {0: 2, 50: 2}
    assert (cause["error_type"], cause["fingerprint"]) == ("KeyError", "cafe")


def test_a_wrong_clock_is_no_first_and_no_last() -> None:
    """What lies outside of the period has no stretch: it counts, and its time says nothing."""
    far = {"start": None, "first": -900, "last": 9_000, "handler": "bill"}
    counts = counted({"first": 3, "last": 8}, far)
    (cause,) = sums.failure_groups(counts)
    assert (cause["failures"], cause["first"], cause["last"]) == (2, 3, 8)
    assert cause["trend"].get(0) == 1
    assert sums.over_time(counts) == [
        {"start": 0, "group": "billing", "handler": "bill", "reason": "error", "failures": 1}
    ]
    assert sums.releases(counts) == {"1.0": 3}
    renamed = sums.topic_handlers(counted({"handler": "charge", "last": 9}, far))
    assert renamed["handler"].to_pylist() == ["charge"]


def test_a_cause_with_no_other_time_has_the_wrong_one() -> None:
    """It was seen, and when is all that is known of it."""
    (cause,) = sums.failure_groups(counted({"start": None, "first": -900, "last": -900}))
    assert (cause["first"], cause["last"]) == (-900, -900)


def test_rows_without_names_stand_for_themselves() -> None:
    """Foreign records name no handler: they are counted, first."""
    rows = sums.over_time(counted({}, {"handler": None}, {"handler": None, "failures": 2}))
    assert [(row["handler"], row["failures"]) for row in rows] == [(None, 3), ("bill", 1)]


def test_the_last_cause_tells_a_timeout() -> None:
    """Where the budget ran out, the reason says only that; where none is named, it is an error."""
    (told,) = sums.handlers(
        counted(
            {"reason": "timeout"},
            {"reason": "exhausted", "error_type": "ConsumeTimeout"},
            {"reason": None, "error_type": None, "failures": 5},
        )
    )
    assert (told["timeouts"], told["errors"]) == (2, 5)


def test_a_renamed_handler_has_its_latest_name() -> None:
    """A record without the header changes no name; a source topic without any has none."""
    told = sums.topic_handlers(
        counted(
            {"handler": "charge", "last": 9},
            {"handler": "bill", "last": 5},
            {"handler": None, "last": 20},
            {"origin_topic": "mails", "handler": None},
        )
    )
    assert told.to_pylist() == [{"group": "billing", "origin_topic": "orders", "handler": "charge"}]


def test_releases_and_tiers() -> None:
    """When each release failed first; which tiers the policy chose, of first lives."""
    counts = counted(
        {"first": 7}, {"first": 4}, {"release": None}, {"release": "2.0", "failures": 0},
        {"tier": "5s", "attempt": 2}, {"tier": None, "attempt": 3},
        {"tier": "9s", "attempt": 4, "first_life": False},
    )  # fmt: skip
    assert sums.releases(counts) == {"1.0": 4}
    assert {row["attempt"]: row["tiers"] for row in sums.tiers(counts)} == {1: ["1s"], 2: ["5s"]}
