"""Faults: one for each thing to mend, from when it was first seen until it ends."""

from __future__ import annotations

import pytest

from ackfloor.core.messages.fault_causes import (
    TRANSACTION,
    Identity,
    Trouble,
    identify,
    mend_writing,
)
from ackfloor.core.state.faults import MOST_PARTITIONS, Faults
from ackfloor.core.state.snapshot import Fault

GONE = identify("orders--g--dlq", "UNKNOWN_TOPIC_OR_PART: no such topic")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("UNKNOWN_TOPIC_OR_PART: Broker: Unknown topic or partition", "missing"),
        ("_UNKNOWN_TOPIC: Local: Unknown topic", "missing"),
        ("_UNKNOWN_PARTITION: Local: Unknown partition", "missing"),
        ("TOPIC_AUTHORIZATION_FAILED: Broker: Topic authorization failed", "denied"),
        ("MSG_SIZE_TOO_LARGE: Broker: Message size too large", "too_large"),
        ("_MSG_TIMED_OUT: Local: Message timed out", "unconfirmed"),
        ("NOT_ENOUGH_REPLICAS: Broker: Not enough in-sync replicas", "not_enough_replicas"),
        ("the worker is closing", "unconfirmed"),
    ],
)
def test_a_cause_has_one_name_whoever_notices_it(error: str, cause: str) -> None:
    """The client's words and the broker's for one thing make one fault."""
    assert identify("orders", error) == Identity("orders", cause)


@pytest.mark.parametrize(
    ("cause", "fix"),
    [
        ("missing", "`ackfloor topics apply` makes the topic"),
        ("denied", "grant WRITE on topic t"),
        ("too_large", "raise max.message.bytes of topic t"),
        ("not_enough_replicas", "`ackfloor doctor` looks closer"),
    ],
)
def test_each_cause_comes_with_what_to_do(cause: str, fix: str) -> None:
    """As a command, or as the grant that is missing."""
    assert mend_writing("t", cause) == fix


def test_a_transaction_that_is_refused_is_no_topic_to_grant() -> None:
    """Its group may be what is denied; no topic has its name."""
    error = "GROUP_AUTHORIZATION_FAILED: Broker: Group authorization failed"
    faults = Faults()
    faults.wait("parking", "a", identify(TRANSACTION, error), error, 1_000)
    [fault] = faults.all()
    assert fault.cause == "denied"
    assert fault.message == f"1 record can't be parked: {error}; `ackfloor doctor` looks closer"


def test_a_fault_keeps_the_time_it_was_first_seen() -> None:
    """Only its message is renewed."""
    faults = Faults()
    faults.put("abandoned", "bill", "3 still run", 1_000)
    faults.put("abandoned", "bill", "4 still run", 2_000)
    assert faults.all() == (Fault("abandoned", "bill", "4 still run", 1_000),)


def test_all_records_that_wait_for_one_thing_are_one_fault() -> None:
    """However many they are, and another topic is named beside it."""
    faults = Faults()
    for n in range(10_000):
        faults.wait("parking", n, GONE, "UNKNOWN_TOPIC_OR_PART: no such topic", 5 + n)
    large = identify("orders--g--retry-1s", "MSG_SIZE_TOO_LARGE: too large")
    faults.wait("parking", "x", large, "MSG_SIZE_TOO_LARGE: too large", 7)
    assert faults.all() == (
        Fault(
            "parking",
            "orders--g--dlq",
            "10000 records can't be parked: UNKNOWN_TOPIC_OR_PART: no such topic; "
            "`ackfloor topics apply` makes the topic",
            5,
            "missing",
            10_000,
        ),
        Fault(
            "parking",
            "orders--g--retry-1s",
            "1 record can't be parked: MSG_SIZE_TOO_LARGE: too large; "
            "raise max.message.bytes of topic orders--g--retry-1s",
            7,
            "too_large",
            1,
        ),
    )


def test_a_member_waits_for_its_latest_error_alone() -> None:
    """It leaves the fault that it was in, and that one ends with its last member."""
    faults = Faults()
    faults.wait("parking", 1, GONE, "x", 1)
    faults.wait("parking", 2, GONE, "x", 2)
    faults.wait("parking", 1, Identity("orders--g--dlq", "denied"), "y", 3)
    assert [(f.cause, f.records, f.since_ms) for f in faults.all()] == [
        ("missing", 1, 1),
        ("denied", 1, 3),
    ]
    faults.clear("parking", 2)
    faults.clear("parking", 2)
    assert [fault.cause for fault in faults.all()] == ["denied"]
    assert faults.of("parking", 1) == Identity("orders--g--dlq", "denied")
    faults.clear("parking", 1)
    assert faults.all() == ()
    assert faults.of("parking", 1) is None


def test_commits_of_one_topic_are_named_with_their_partitions() -> None:
    """Some of them, where there are many."""
    faults = Faults()
    for n in range(MOST_PARTITIONS + 2):
        faults.wait("commit", ("orders", n), Identity("orders", "unconfirmed"), "no answer", 1)
    (fault,) = faults.all()
    assert fault.message == "partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more: no answer"
    for n in range(MOST_PARTITIONS + 1):
        faults.clear("commit", ("orders", n))
    (fault,) = faults.all()
    assert (fault.message, fault.records) == ("partition 11: no answer", 0)


def test_all_faults_of_a_kind_are_replaced_at_once() -> None:
    """What stays keeps its time, what is not named any more has ended."""
    faults = Faults()
    faults.put("abandoned", "bill", "1 still runs", 5)
    faults.replace("kafka", {"a": Trouble("denied", "no"), "brokers": Trouble("x", "away")}, 10)
    faults.replace("kafka", {"a": Trouble("denied", "still not", "grant READ")}, 20)
    assert faults.all() == (
        Fault("abandoned", "bill", "1 still runs", 5),
        Fault("kafka", "a", "still not; grant READ", 10, "denied"),
    )
    faults.replace("kafka", {}, 30)
    assert len(faults.all()) == 1


def test_what_the_brokers_say_and_the_records_that_wait_for_it_are_one_fault() -> None:
    """Since the first of both, in the brokers' words; first of all, as records wait for it."""
    faults = Faults()
    faults.put("abandoned", "bill", "1 still runs", 1)
    faults.wait("parking", 1, GONE, "UNKNOWN_TOPIC_OR_PART: no such topic", 20)
    trouble = Trouble("missing", "the topic does not exist", "make it", unwritable=True)
    faults.replace("kafka", {"orders--g--dlq": trouble, "orders": trouble}, 10)
    assert [(f.kind, f.subject, f.message, f.since_ms, f.records) for f in faults.all()] == [
        (
            "parking",
            "orders--g--dlq",
            "1 record can't be parked: the topic does not exist; make it",
            10,
            1,
        ),
        ("abandoned", "bill", "1 still runs", 1, 0),
        ("kafka", "orders", "the topic does not exist; make it", 10, 0),
    ]
