"""The generated month: what tests and reports rely on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from ackfloor import RetryPolicy
from ackfloor.core.acks.gap_set import decode
from ackfloor.core.records.envelope import read_envelope
from benchmarks.failures.arrivals import arrivals
from benchmarks.failures.month import Month, Parked
from benchmarks.failures.scenario import CAUSES, END_MS, START_MS

MESSAGES = 1_500


@pytest.fixture(scope="module")
def month() -> Month:
    """A small month; its commits are known once `records` were drawn."""
    return Month(MESSAGES, seed=3)


@pytest.fixture(scope="module")
def records(month: Month) -> list[Parked]:
    """All its records."""
    return list(month)


def origins(records: Sequence[Parked]) -> set[tuple[object, ...]]:
    """The messages behind the records."""
    told = (parked.envelope for parked in records)
    return {(e.group, e.origin_topic, e.origin_partition, e.origin_offset) for e in told}


def test_a_seed_is_a_month(records: list[Parked]) -> None:
    """The same seed gives the same records, another seed others."""
    assert list(Month(MESSAGES, seed=3)) == records
    assert list(Month(MESSAGES, seed=4)) != records


def test_records_lie_as_a_worker_would_have_written_them(records: list[Parked]) -> None:
    """Offsets without holes; times and due times of a tier partition never go back."""
    by_partition: dict[tuple[str, int], list[Parked]] = defaultdict(list)
    for parked in records:
        by_partition[parked.topic, parked.partition].append(parked)
    for (topic, _), lying in by_partition.items():
        assert [parked.offset for parked in lying] == list(range(len(lying)))
        written = [parked.timestamp_ms for parked in lying]
        assert written == sorted(written)
        assert START_MS <= written[0] <= written[-1] <= END_MS + 3
        due = [parked.envelope.not_before_ms or 0 for parked in lying]
        first_lives = [ms for ms, parked in zip(due, lying, strict=True) if not _replayed(parked)]
        assert first_lives == sorted(first_lives)
        assert all(due) is not topic.endswith("--dlq")


def _replayed(parked: Parked) -> bool:
    return parked.envelope.replays > 0 and parked.envelope.attempt == 0


def test_headers_are_those_of_the_runtime(records: list[Parked]) -> None:
    """What the core reads from a record's headers is what the month meant."""
    for parked in records[::50]:
        assert read_envelope(parked.headers) == parked.envelope


def test_every_kind_of_failure_is_there(records: list[Parked]) -> None:
    """Retries, deaths, explicit waits with hops, replays and duplicates."""
    reasons = {parked.envelope.reason for parked in records}
    assert {"error", "timeout", "retry", "decode", "dead_letter", "exhausted"} <= reasons
    assert any(parked.envelope.retry_at_ms for parked in records)
    assert any(parked.envelope.replays for parked in records)
    assert {parked.envelope.release for parked in records} > {"2.4.0", "2.4.1", "1.19.0"}


def test_commits_leave_open_what_waits(month: Month, records: list[Parked]) -> None:
    """A tier record is settled unless it is due after the end, or was due moments before."""
    settled = {}
    for each in month.commits():
        gaps = decode(each.metadata, each.topic, each.partition)
        assert gaps.floor == each.position
        settled[each.topic, each.partition] = gaps
    waiting = 0
    for parked in records:
        if parked.topic.endswith("--dlq"):
            continue
        gaps = settled[parked.topic, parked.partition]
        done = parked.offset < gaps.floor or any(a <= parked.offset < b for a, b in gaps.runs)
        due_ms = parked.envelope.not_before_ms or 0
        if done:
            assert due_ms <= END_MS
        else:
            waiting += 1
            assert due_ms > END_MS - 31_000
    assert waiting > 0


def test_another_policy_meets_the_same_messages(records: list[Parked]) -> None:
    """Who fails does not depend on the policy; what comes of it does."""
    impatient = list(Month(MESSAGES, seed=3, policy=RetryPolicy(max_redeliveries=2)))
    assert origins(impatient) == origins(records)
    assert _dead(impatient) > _dead(records)


def _dead(records: Sequence[Parked]) -> int:
    return len(origins([parked for parked in records if parked.topic.endswith("--dlq")]))


def test_messages_come_in_order_and_about_as_many_as_asked() -> None:
    """The times of first deliveries ascend, and every cause strikes."""
    coming = list(arrivals(20_000, seed=1))
    assert [m.time_ms for m in coming] == sorted(m.time_ms for m in coming)
    assert 19_900 < len(coming) <= 20_000
    assert {m.cause for m in coming} == set(CAUSES)


def test_memory_does_not_grow_with_the_month() -> None:
    """What is held is what waits: a small part of what was written."""
    month = Month(MESSAGES, seed=1)
    held = max((len(month._heap) for _ in month), default=0)
    assert held < MESSAGES / 4
