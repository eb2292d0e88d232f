"""The model on tables of a few rows, where every number can be worked out by hand."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from ackfloor import RetryPolicy, SettingError
from ackfloor.commits import Settled
from ackfloor_monitoring.spark.spark_errors import NothingToReport
from ackfloor_monitoring.spark.whatif.answer import PRESUMED, Estimate, LeftOut
from ackfloor_monitoring.spark.whatif.build import what_if
from tests.monitoring.spark.failure_rows import NOON, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

# Everything is settled.
COMMITS = [Settled("retry", "retry", 0, 1_000, [])]
EVERY_10S = RetryPolicy.fixed("10s", 3, jitter=0)


def failure(
    origin: int, attempt: int, at_s: float, due_s: float | None, **more: Any
) -> dict[str, Any]:
    """A failed delivery `at_s` seconds after noon: due again at `due_s`, or dead."""
    at = NOON + timedelta(seconds=at_s)
    stage = "dlq" if due_s is None else "retry"
    return {
        "topic_id": stage, "topic": stage, "partition": 0, "offset": origin * 10 + attempt,
        "group": "billing", "stage": stage, "event_time": at, "kafka_time": at, "failed_at": at,
        "origin_topic": "orders", "origin_partition": 0, "origin_offset": origin,
        "handler": "bill", "attempt": attempt, "reason": "exhausted" if due_s is None else "error",
        "error_type": "Away", "duration_ms": 0, "unreadable": [], "foreign": [],
        "not_before": None if due_s is None else NOON + timedelta(seconds=due_s), **more,
    }  # fmt: skip


def message(origin: int, *times_s: float, dies: bool = False, **more: Any) -> list[dict[str, Any]]:
    """One that fails at each of the times but the last, at which it works; or is dead."""
    tried = list(pairwise(times_s))
    first = NOON + timedelta(seconds=times_s[0])
    rows = [
        failure(origin, attempt, at_s, due_s, first_failed_at=first, **more)
        for attempt, (at_s, due_s) in enumerate(tried, 1)
    ]
    if dies:
        rows.append(failure(origin, len(times_s), times_s[-1], None, first_failed_at=first, **more))
    return rows


def exact(likely: float, least: float, most: float) -> Estimate:
    """As near as sums of shares come."""
    numbers: list[Any] = [pytest.approx(number) for number in (likely, least, most)]
    return Estimate(*numbers)


def test_a_recovery_lies_anywhere_in_the_last_wait(spark: SparkSession) -> None:
    """Between 6 s and 31 s: redeliveries at 10, 20 and 30 s fail with 84, 44 and 4 percent."""
    table = frame(spark, message(1, 0, 1, 6, 31))
    total = what_if(table, COMMITS, EVERY_10S, table="t").total
    assert (total.messages, total.recovered, total.dead, total.redeliveries) == (1, 1, 0, 3)
    assert total.dead_then == exact(0.04, 0, 1)
    assert total.recovered_then == exact(0.96, 0, 1)
    assert total.redeliveries_then == exact(1 + 0.84 + 0.44, 1, 3)
    assert total.to_recovery_s == 31
    assert total.to_recovery_then_s == pytest.approx(
        (0.16 * 10 + 0.4 * 20 + 0.4 * 30) / 0.96, abs=1e-3
    )


def test_others_with_the_same_cause_narrow_it(spark: SparkSession) -> None:
    """One fails at 25 s and another works at 29 s, with the same cause: over by 30 s."""
    near = [*message(2, 24, 25, 35), *message(3, 28, 29), *message(4, 26, 30, error_type="Other")]
    table = frame(spark, [*message(1, 0, 1, 6, 31), *near])
    told = what_if(table, COMMITS, EVERY_10S, table="t")
    # Message 1 at 30 s; 2 at 34 s; 3 at 38 s, 4 at 36 s.
    assert told.total.dead_then == exact(0, 0, 1)
    assert told.total.redeliveries_then.likely == pytest.approx(3 + 1 + 1 + 1)


def test_what_died_is_only_bounded(spark: SparkSession) -> None:
    """Tried later than it was it might have lived; by its handler's word it dies anyway."""
    rows = [*message(1, 0, 1, 6, dies=True), *message(2, 0, dies=True, reason="dead_letter")]
    told = what_if(frame(spark, rows), COMMITS, EVERY_10S, table="t").total
    assert (told.recovered, told.dead, told.dead_anyway, told.redeliveries) == (0, 2, 1, 2)
    assert (told.dead_then, told.tried_later) == (exact(2, 1, 2), 1)
    # Its handler's word ended the second one at its first call: it is never redelivered.
    assert told.redeliveries_then == exact(3, 1, 3)
    assert (told.to_death_s, told.to_death_then_s) == (6, 30)
    sooner = what_if(frame(spark, rows), COMMITS, RetryPolicy.fixed("1s", 3), table="t").total
    assert (sooner.dead_then, sooner.tried_later) == (exact(2, 2, 2), 0)
    none = what_if(frame(spark, rows), COMMITS, RetryPolicy(max_redeliveries=0), table="t").total
    assert (none.dead_then, none.redeliveries_then) == (exact(2, 2, 2), exact(0, 0, 0))
    assert (none.to_recovery_then_s, none.to_death_then_s) == (None, 0)


def behind(
    origin: int, offset: int, at_s: float, due_s: float | None, **more: Any
) -> dict[str, Any]:
    """A record that waits, or is dead-lettered, behind another one of its key."""
    waits = {
        "reason": "behind", "error_type": None, "duration_ms": None, "failed_at": None,
        "offset": offset, "retry_at": None if due_s is None else NOON + timedelta(days=3650),
    }  # fmt: skip
    return {**failure(origin, 0, at_s, due_s), **waits, **more}


def test_what_waits_behind_another_record_did_not_fail(spark: SparkSession) -> None:
    """No policy decides over it, and its cause narrows no other message's; what failed counts."""
    rows = message(1, 0, 1, 6, 31)
    alone = what_if(frame(spark, rows), COMMITS, EVERY_10S, table="t")
    others = [
        behind(2, 500, 7, 17),
        behind(2, 501, 17, 27),
        behind(3, 502, 7, None),
        behind(4, 503, 7, 17, reason="held"),
        behind(5, 504, 7, 17, replays=1),
        behind(6, 505, 7, 17, origin_offset=None),
    ]
    told = what_if(frame(spark, [*rows, *others]), COMMITS, EVERY_10S, table="t")
    assert told == alone
    # One that failed before and is behind now waits: it has not recovered.
    again = [*message(7, 0, 5), behind(7, 2_000, 8, 18, attempt=1)]
    table = frame(spark, [*rows, *again])
    told = what_if(table, COMMITS, EVERY_10S, table="t")
    assert (told.total, told.left_out) == (alone.total, LeftOut(1, 0, 0, 0))


def test_calls_take_their_time_and_waits_their_share_of_jitter(spark: SparkSession) -> None:
    """Calls of 4 s: begun at 0, failed at 4; the redeliveries begin at 15 and 30 s, works at 30."""
    first = {"first_failed_at": NOON + timedelta(seconds=4), "duration_ms": 4_000}
    rows = [failure(1, 1, 4, 16, **first), failure(1, 2, 20, 30, **first)]
    table = frame(spark, rows)
    # From the failure at 4 s: 11.237 s, a call, 11.237 s; partition 0 has 0.618 of the jitter.
    told = what_if(table, COMMITS, RetryPolicy.fixed("10s", 2, jitter=0.2), table="t").total
    # It began to fail for the last time at 16 s; in 15 s it fails, in 30 s it works.
    assert (told.redeliveries_then, told.to_recovery_then_s) == (exact(2, 2, 2), 26.474)


def test_what_passed_beside_a_wait_passes_again(spark: SparkSession) -> None:
    """The next call began 3 s after its wait was over; no call is taken to begin before it is."""
    first = {"first_failed_at": NOON, "duration_ms": 1_000}
    late = [failure(1, 1, 0, 10, **first), failure(1, 2, 14, 30, **first)]
    ahead = [failure(2, 1, 0, 10, **first), failure(2, 2, 8, 30, **first)]
    policy = RetryPolicy.fixed("10s", 3, jitter=0)
    # At 13 s it fails, 14 s later it may work, for it did at 30 s.
    told = what_if(frame(spark, late), COMMITS, policy, table="t").total
    likely = (30 - 24) / (30 - 13)
    assert told.redeliveries_then.likely == pytest.approx(2 + likely)
    told = what_if(frame(spark, ahead), COMMITS, policy, table="t").total
    first_fails, then_fails = (30 - 9.9) / (30 - 7), (30 - 20.9) / (30 - 7)
    assert told.redeliveries_then.likely == pytest.approx(1 + first_fails + then_fails)


def test_what_can_not_be_replayed_is_left_out(spark: SparkSession) -> None:
    """Waiting, with waits of its own, replayed, without origin; and what is presumed."""
    rows = [
        *message(1, 0, 1),
        failure(2, 1, 0, 100, topic_id="other"),
        *message(3, 0, 1, retry_at=NOON),
        *message(4, 0, 1, handler="mail"),
        *message(4, 50, 55, dies=True, replays=1, handler="mail"),
        failure(4, 0, 40, 40, replays=1, offset=45),
        failure(5, 1, 60, None, origin_offset=None),
    ]
    told = what_if(frame(spark, rows), COMMITS, EVERY_10S, table="t")
    assert told.left_out == LeftOut(waiting=1, own_waits=1, replays=1, without_origin=1)
    assert [(each.handler, each.messages) for each in told.handlers] == [("bill", 1), ("mail", 1)]
    assert (told.commits_known, PRESUMED in told.assumptions) == (True, False)
    presumed = what_if(frame(spark, rows), None, EVERY_10S, table="t", handler="bill")
    assert (presumed.total.messages, presumed.left_out.waiting) == (1, 1)
    assert (presumed.commits_known, PRESUMED in presumed.assumptions) == (False, True)


def test_nothing_to_replay_and_no_such_handler(spark: SparkSession) -> None:
    """Each is told in a sentence."""
    with pytest.raises(NothingToReport, match="t: no failure is in it"):
        what_if(frame(spark, []), COMMITS, EVERY_10S, table="t")
    waits = frame(spark, [failure(1, 1, 0, 100)])
    with pytest.raises(NothingToReport, match="1 still wait"):
        what_if(waits, None, EVERY_10S, table="t")
    with pytest.raises(SettingError, match="no failure names it; the table has bill"):
        what_if(waits, COMMITS, EVERY_10S, table="t", handler="bil")
