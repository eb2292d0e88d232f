"""Drip: over any stretch of time no more is taken than the burst and the rate admit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.breaker.park_rate import BURST, TokenBucket


def test_a_burst_and_then_the_rate() -> None:
    """Ten at once, then one every 600 ms at 100 a minute."""
    bucket, rate = TokenBucket(), 100 / 60
    assert [bucket.take(rate, 1.0, 5.0) for _ in range(11)] == [True] * 10 + [False]
    assert not bucket.take(rate, 1.0, 5.5)
    assert bucket.take(rate, 1.0, 5.61)
    assert not bucket.take(rate, 1.0, 5.62)


def test_a_worker_takes_its_share() -> None:
    """A quarter of the burst, and of the rate."""
    bucket = TokenBucket()
    assert [bucket.take(4.0, 0.25, 0.0) for _ in range(3)] == [True, True, False]
    assert not bucket.take(4.0, 0.25, 0.4)
    assert bucket.take(4.0, 0.25, 1.1)


def test_however_small_its_share_one_record_may_leave() -> None:
    """Or nothing ever would."""
    assert TokenBucket().take(0.001, 0.001, 0.0)


@given(
    rate=st.floats(0.01, 100.0),
    share=st.floats(0.01, 1.0),
    waits=st.lists(st.floats(0.0, 5.0), max_size=60),
)
def test_no_more_than_admitted(rate: float, share: float, waits: list[float]) -> None:
    """Whatever the pattern of tries."""
    bucket, now_s, taken = TokenBucket(), 100.0, 0
    for wait_s in waits:
        now_s += wait_s
        taken += bucket.take(rate, share, now_s)
    most = max(1.0, BURST * share) + rate * share * sum(waits)
    assert taken <= most + 1e-6
    assert taken == pytest.approx(round(taken))
