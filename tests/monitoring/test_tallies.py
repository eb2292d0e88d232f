"""Counts and distributions: a batch counts as its values would one by one."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from ackfloor_monitoring.metrics.metric_definitions import HANDLER_SECONDS
from ackfloor_monitoring.metrics.tallies import MOST_ADDED_EDGES, Distribution, Names, Tally

seconds = st.one_of(st.floats(0.0, 1_000.0), st.sampled_from(HANDLER_SECONDS), st.floats(-5.0, 0.0))


@given(
    batches=st.lists(st.lists(seconds, max_size=60), max_size=5),
    edges=st.lists(st.floats(0.001, 700.0), min_size=1, max_size=12, unique=True),
)
def test_a_batch_equals_its_values_one_by_one(
    batches: list[list[float]], edges: list[float]
) -> None:
    """However values are batched, the buckets are those of observing each, here and in the
    client library; values below zero count as zero."""
    bulk, single = Distribution(edges), Distribution(edges)
    theirs = Histogram("x", "x", buckets=sorted(edges), registry=CollectorRegistry())
    for batch in batches:
        given_batch = list(batch)
        bulk.add_all(("a",), batch)
        assert batch == given_batch, "a batch belongs to all observers"
        for value in batch:
            single.add(("a",), value)
            theirs.observe(max(value, 0.0))
    if not any(batches):
        assert all(not series.sum for series in bulk.series.values())
        return
    ours = bulk.series["a",]
    assert ours.counts == single.series["a",].counts
    assert ours.sum == pytest.approx(single.series["a",].sum)
    samples = next(iter(theirs.collect())).samples
    cumulative = [s.value for s in samples if s.name == "x_bucket"]
    assert list(accumulate(ours.counts)) == cumulative
    assert ours.sum == pytest.approx(next(s.value for s in samples if s.name == "x_sum"))


@given(
    before=st.lists(seconds, max_size=30),
    after=st.lists(seconds, max_size=30),
    edge=st.floats(0.001, 700.0),
)
def test_an_edge_added_later_loses_no_count(
    before: list[float], after: list[float], edge: float
) -> None:
    """Cumulative counts at the old edges stay right when an edge is put between them."""
    grown, plain = Distribution((0.1, 1.0, 10.0)), Distribution((0.1, 1.0, 10.0))
    for values in (before, after):
        grown.add_all((), values)
        plain.add_all((), values)
        grown.add_edge(edge)
    for labels, series in plain.series.items():
        at = dict(zip(grown.edges, accumulate(grown.series[labels].counts), strict=False))
        assert [at[e] for e in plain.edges] == list(accumulate(series.counts))[:-1]
        assert sum(grown.series[labels].counts) == sum(series.counts)


def test_an_edge_splits_what_comes_after_it() -> None:
    """From the moment it is known, a consume timeout tells apart what is below and above it."""
    durations = Distribution((30.0, 60.0))
    durations.add_edge(45.0)
    durations.add_edge(45.0)
    durations.add_all((), [40.0, 45.0, 50.0])
    assert durations.edges == [30.0, 45.0, 60.0]
    assert durations.series[()].counts == [0, 2, 1, 0]


def test_edges_added_while_running_are_bounded() -> None:
    """A timeout changed again and again can't grow the histogram for ever."""
    durations = Distribution((1.0,))
    for edge in range(2, 200):
        durations.add_edge(float(edge))
    assert len(durations.edges) == 1 + MOST_ADDED_EDGES


def test_names_from_outside_are_capped() -> None:
    """The first 50 names keep theirs for good, all others share one."""
    names = Names(50)
    first = [names.of(f"Error{n}") for n in range(50)]
    assert first == [f"Error{n}" for n in range(50)]
    assert names.of("OneMore") == "other"
    assert names.of("Error0") == "Error0"


def test_a_seeded_series_starts_at_zero_and_is_not_reset() -> None:
    """Seeding makes a series exist and never takes away what it has counted."""
    tally = Tally()
    tally.seed(("a",))
    assert tally.values == {("a",): 0}
    tally.add(("a",), 3)
    tally.seed(("a",))
    assert tally.values == {("a",): 3}
