"""What the demo makes of `/state` and `/metrics`."""

from __future__ import annotations

from typing import Any

from ackfloor_handlers.demo.run_watch import (
    ACKED,
    DEAD_LETTERED,
    PARKED,
    Counts,
    fetch,
    fetch_state,
    read_state,
)

NOW_MS = 1_000_000


def partition(name: str, number: int, **changes: Any) -> dict[str, Any]:
    """A partition as `/state` shows it."""
    plain = {
        "topic": name,
        "partition": number,
        "floor": 10,
        "position": 30,
        "high_watermark": 50,
        "open_count": 4,
        "gap_count": 6,
        "tier_s": None,
        "next_due_ms": None,
    }
    return plain | changes


def state(*partitions: dict[str, Any], faults: tuple[str, ...] = ()) -> dict[str, Any]:
    """`/state` of a run whose worker 1 has reported and whose worker 0 has not."""
    told = [{"kind": "commit", "subject": "orders/0", "message": text} for text in faults]
    worker = {"pid": 77, "taken_ms": NOW_MS, "partitions": list(partitions), "faults": told}
    return {"workers": {"0": None, "1": worker}}


def exposition(worker: int, acked: int, **parked: int) -> str:
    """`/metrics` of one worker."""
    lines = [f'ackfloor_messages_acked_total{{worker="{worker}"}} {acked}']
    lines += [
        f'ackfloor_messages_parked_total{{worker="{worker}",reason="{reason}"}} {count}'
        for reason, count in parked.items()
    ]
    return "\n".join(lines) + "\n"


def test_a_partition_is_shown_with_what_is_left_of_it() -> None:
    """Floor, gaps and open as they are; to go is what is open and what was not read yet."""
    view = read_state(state(partition("orders", 3)))
    (part,) = view.partitions
    assert (part.place, part.worker, part.floor, part.gaps, part.open) == (
        ("orders", 3),
        1,
        10,
        6,
        4,
    )
    assert part.left == 24
    assert view.pids == {1: 77}
    assert view.owned(1) == [("orders", 3)]
    assert view.owners("orders") == {1}


def test_a_partition_whose_end_is_unknown_counts_what_is_open() -> None:
    """Before the first fetch nobody knows where the log ends."""
    (part,) = read_state(state(partition("orders", 0, high_watermark=None))).partitions
    assert part.left == 4


def test_calm_means_owned_without_faults_and_on_time() -> None:
    """Each of the ways in which a run is not calm."""
    owned = partition("orders", 0)
    places = [("orders", 0)]
    assert read_state(state(owned)).has_recovered(places, NOW_MS - 1)
    assert not read_state(state(owned)).has_recovered(places, NOW_MS)
    assert not read_state(state(owned)).has_recovered([*places, ("orders", 1)], 0)
    assert not read_state(state(owned, faults=("refused",))).has_recovered(places, 0)
    late = partition("orders--billing--retry-1s", 0, tier_s=1.0, next_due_ms=NOW_MS - 5_000)
    assert not read_state(state(owned, late)).has_recovered(places, 0)


def test_counters_add_up_across_workers_and_reasons() -> None:
    """As Prometheus sums: each series by itself, then all of them."""
    counts = Counts()
    counts.read(exposition(0, 10, error=2, timeout=1) + exposition(1, 5, error=4))
    assert counts.total(ACKED) == 15
    assert counts.by_label(PARKED) == {"error": 6, "timeout": 1}
    assert counts.total(DEAD_LETTERED) == 0


def test_a_counter_that_began_anew_is_not_subtracted() -> None:
    """What a killed worker counted stays counted; its successor starts from zero."""
    counts = Counts()
    for acked in (100, 120, 7, 9):
        counts.read(exposition(0, acked))
    assert counts.total(ACKED) == 129


def test_a_run_that_does_not_answer_is_no_error() -> None:
    """Before it listens, and after it ended, there is nothing to show."""
    assert fetch("127.0.0.1:1", "/metrics") is None
    assert fetch_state("127.0.0.1:1") is None
