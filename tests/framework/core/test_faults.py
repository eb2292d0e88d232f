"""Faults: named from when they were first seen until they end."""

from __future__ import annotations

from ackfloor.core.faults import MOST, Faults
from ackfloor.core.snapshot import Fault


def test_a_fault_keeps_the_time_it_was_first_seen() -> None:
    """Only its message is renewed."""
    faults = Faults()
    faults.put("parking", "orders/0/1", "timed out", 1_000)
    faults.put("parking", "orders/0/1", "unknown topic", 2_000)
    assert faults.all() == (Fault("parking", "orders/0/1", "unknown topic", 1_000),)


def test_one_subject_ends_alone() -> None:
    """Others of its kind stay; what is not there can be cleared."""
    faults = Faults()
    faults.put("commit", "orders/0", "x", 1)
    faults.put("commit", "orders/1", "y", 1)
    faults.clear("commit", "orders/0")
    faults.clear("commit", "orders/9")
    faults.clear("parking", "orders/9")
    assert [fault.subject for fault in faults.all()] == ["orders/1"]


def test_a_whole_kind_ends_at_once() -> None:
    """Other kinds stay."""
    faults = Faults()
    faults.put("commit", "orders/0", "x", 1)
    faults.put("parking", "orders/0/1", "y", 1)
    faults.put("parking", "orders/0/2", "y", 1)
    faults.clear("parking")
    faults.clear("threads")
    assert [fault.kind for fault in faults.all()] == ["commit"]


def test_an_outage_names_no_more_subjects_than_a_person_reads() -> None:
    """Ten thousand refused records are one problem; those named are still renewed."""
    faults = Faults()
    for n in range(10_000):
        faults.put("parking", f"orders/0/{n}", "broker away", n)
    assert len(faults.all()) == MOST
    faults.put("parking", "orders/0/0", "unauthorised", 99)
    assert faults.all()[0] == Fault("parking", "orders/0/0", "unauthorised", 0)


def test_all_faults_of_a_kind_are_replaced_at_once() -> None:
    """What stays keeps its time, what is not named any more has ended."""
    faults = Faults()
    faults.put("parking", "orders/0/7", "away", 5)
    faults.replace("kafka", {"orders": "not allowed", "brokers": "no answer"}, 10)
    faults.replace("kafka", {"orders": "still not allowed"}, 20)
    assert faults.all() == (
        Fault("parking", "orders/0/7", "away", 5),
        Fault("kafka", "orders", "still not allowed", 10),
    )
    faults.replace("kafka", {}, 30)
    assert not faults.any("kafka")
