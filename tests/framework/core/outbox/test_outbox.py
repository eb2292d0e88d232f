"""Outbox: a record is settled by the broker's word alone, and refusals are tried again."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.messages.commands import Publish
from ackfloor.core.messages.events import (
    PublishFailed,
    RecordDeadLettered,
    RecordHopped,
    RecordParked,
)
from ackfloor.core.messages.fault_causes import Trouble
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import Failed, Rejected
from ackfloor.core.records.record import Failure, Headers
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import DLQ, TIER, MemoryRecord, World

ONCE_A_SECOND = HandlerRules("bill", policy=RetryPolicy.fixed("1s", 2, jitter=0))
REJECTED = Rejected(Failure("Hopeless", "no such customer"))


def world_with(*offsets: int, rules: HandlerRules = ONCE_A_SECOND) -> World:
    """A world whose records are read and not started."""
    world = World(rules)
    world.assign()
    world.read(offsets)
    return world


def test_a_parked_record_is_open_until_the_broker_confirms_it() -> None:
    """The floor waits for the delivery report, and only for that."""
    world = world_with(0)
    world.now_s += 2
    world.fail(world.start())
    assert (world.floor(), world.engine.assignments["orders", 0].parking) == (0, 1)
    world.now_s += 0.5
    world.confirm()
    assert (world.floor(), world.engine.assignments["orders", 0].parking) == (1, 0)
    assert world.told(RecordParked) == [
        RecordParked("orders", 0, 0, "bill", 1, Reason.ERROR, TIER, 1.0, 0.5)
    ]


def test_confirmations_that_come_together_settle_their_own_records_alone() -> None:
    """What is not among them stays open."""
    world = world_with(0, 1, 2)
    writes = [world.fail(world.start()) for _ in range(3)]
    world.engine.published(writes[:2], world.now)
    world.take()
    assert (world.floor(), world.engine.assignments["orders", 0].parking) == (2, 1)
    assert [event.offset for event in world.told(RecordParked)] == [0, 1]


def test_a_dead_letter_is_told_with_its_reason() -> None:
    """Which record, which attempt, and what went wrong."""
    world = world_with(0)
    world.fail(world.start(), REJECTED)
    world.confirm()
    assert world.told(RecordDeadLettered) == [
        RecordDeadLettered("orders", 0, 0, "bill", 1, Reason.DEAD_LETTER, "Hopeless", "orders")
    ]
    assert world.floor() == 1


def test_a_hop_is_told_and_settles_its_tier_record() -> None:
    """It moved on; the tier's own floor follows."""
    world = World(ONCE_A_SECOND)
    world.assign(topic=TIER)
    retry_at = [("ackfloor.retry_at", str(world.now.wall_ms + 5_000).encode())]
    world.redeliver([0], headers=retry_at)
    assert not world.ready
    world.confirm()
    assert world.told(RecordHopped) == [RecordHopped("orders", "bill", TIER)]
    assert world.floor(topic=TIER) == 1


def test_a_refused_park_stays_open_and_is_tried_again() -> None:
    """With a growing pause between the attempts, told each time, as a fault until the end."""
    world = world_with(0)
    world.fail(world.start())
    waits = []
    for _ in range(8):
        world.refuse("broker away")
        failed = world.told(PublishFailed)[-1]
        assert isinstance(failed, PublishFailed)
        waits.append(failed.retry_in_s)
        assert world.floor() == 0
        assert world.subjects() == [f"parking {TIER}"]
        assert world.engine.next_due_s(world.now) == world.now_s + waits[-1]
        world.tick(waits[-1] - 0.01)
        assert not world.writes
        world.tick(0.01)
        assert len(world.writes) == 1
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    world.confirm()
    assert (world.floor(), world.subjects()) == (1, [])
    assert world.engine.next_due_s(world.now) == inf


def test_the_fault_names_target_and_error() -> None:
    """What a person needs to fix it."""
    world = world_with(0)
    world.fail(world.start(), REJECTED)
    world.refuse("TOPIC_AUTHORIZATION_FAILED: Broker: no")
    (fault,) = world.engine.faults.all()
    assert (fault.subject, fault.cause, fault.records) == (DLQ, "denied", 1)
    assert fault.message == (
        "1 record can't be parked: TOPIC_AUTHORIZATION_FAILED: Broker: no; "
        f"grant WRITE on topic {DLQ}"
    )


def test_a_park_delayed_by_an_outage_still_waits_its_full_delay() -> None:
    """The due time is worked out anew for each attempt to write it."""
    world = world_with(0)
    world.fail(world.start())
    world.refuse()
    world.tick(60)
    assert world.writes[0].envelope.not_before_ms == world.now.wall_ms + 1_000


def test_too_large_a_record_sheds_headers_and_is_written_at_once() -> None:
    """First the stack, then the message; when nothing is left it waits, named."""
    world = world_with(0)
    world.fail(world.start(), Failed(Failure("Boom", "message", "stack", "f")))
    names = []
    for _ in range(2):
        world.refuse("MSG_SIZE_TOO_LARGE", too_large=True)
        names.append([name for name, _ in world.writes[0].headers])
        assert world.subjects() == []
    assert "ackfloor.error.stack" not in names[0]
    assert "ackfloor.error.message" in names[0]
    assert "ackfloor.error.message" not in names[1]
    assert ("ackfloor.truncated", b"stack,message") in list(world.writes[0].headers)
    world.refuse("MSG_SIZE_TOO_LARGE", too_large=True)
    assert not world.writes
    assert world.subjects() == [f"parking {TIER}"]
    assert world.floor() == 0


def test_a_fault_lasts_until_every_refused_record_is_written() -> None:
    """One that gets through does not hide another that is still on its way."""
    world = world_with(0, 1)
    world.fail(world.start())
    world.fail(world.start())
    world.refuse()
    world.refuse()
    world.tick(1)
    world.confirm()
    (fault,) = world.engine.faults.all()
    assert (fault.subject, fault.records) == (TIER, 1)
    world.confirm()
    assert world.subjects() == []


def test_two_broken_topics_are_both_named_with_their_records() -> None:
    """However many wait for the first; each ends by itself."""
    rules = replace(ONCE_A_SECOND, breaker=CircuitBreaker(enabled=False))
    world = world_with(*range(42), rules=rules)
    since_ms = world.now.wall_ms
    for n in range(42):
        world.fail(world.start(), REJECTED if n >= 40 else None)
    for n in range(42):
        world.refuse("MSG_SIZE_TOO_LARGE: x" if n >= 40 else "_UNKNOWN_TOPIC: Local: Unknown topic")
    assert world.engine.assignments["orders", 0].refused == 42
    found = [(f.subject, f.cause, f.records, f.since_ms) for f in world.engine.faults.all()]
    assert found == [(TIER, "missing", 40, since_ms), (DLQ, "too_large", 2, since_ms)]
    world.tick(1)
    assert world.engine.assignments["orders", 0].refused == 0
    for _ in range(40):
        world.confirm()
    assert world.subjects() == [f"parking {DLQ}"]
    for _ in range(2):
        world.confirm()
    assert world.subjects() == []


def test_a_refused_record_is_told_with_the_number_of_its_tries() -> None:
    """So that who counts records counts no tries."""
    world = world_with(0)
    world.fail(world.start())
    world.refuse()
    world.tick(1)
    world.refuse()
    assert [event.tries for event in world.told(PublishFailed)] == [1, 2]


GONE = Trouble("missing", "the topic does not exist", "make it", unwritable=True)


def test_what_goes_to_a_topic_that_the_brokers_do_not_know_waits_for_that() -> None:
    """Reported or not, and whatever the client says of it; mended, it is written at once."""
    world = world_with(0, 1, 2)
    for _ in range(2):
        world.fail(world.start())
    world.refuse("_MSG_TIMED_OUT: Local: Message timed out")
    assert [f.cause for f in world.engine.faults.all()] == ["unconfirmed"]
    world.engine.troubled({TIER: GONE, "orders": Trouble("denied", "no READ")}, world.now)
    parking, kafka = world.engine.faults.all()
    assert (parking.kind, parking.subject, parking.cause, parking.records) == (
        "parking",
        TIER,
        "missing",
        2,
    )
    assert (kafka.kind, kafka.subject) == ("kafka", "orders")
    world.refuse("_MSG_TIMED_OUT: Local: Message timed out")
    world.fail(world.start(), REJECTED)
    world.engine.troubled({TIER: GONE}, world.now)
    assert [(f.cause, f.records) for f in world.engine.faults.all()] == [("missing", 2)]
    world.engine.troubled({}, world.now)
    world.confirm()
    assert not world.writes
    world.tick()
    assert len(world.writes) == 2
    for _ in range(2):
        world.confirm()
    assert world.subjects() == []


def test_a_topic_that_is_mended_hurries_nothing_of_another() -> None:
    """What was refused elsewhere waits its backoff."""
    world = world_with(0, 1)
    world.fail(world.start(), REJECTED)
    world.fail(world.start())
    world.refuse("MSG_SIZE_TOO_LARGE: x")
    world.engine.troubled({TIER: GONE}, world.now)
    world.refuse()
    world.engine.troubled({}, world.now)
    world.tick()
    assert [write.topic for write in world.writes] == [TIER]


def test_what_left_with_its_partition_is_counted_to_no_topic() -> None:
    """It is under way still, and the next owner's."""
    world = world_with(0)
    world.fail(world.start())
    world.revoke()
    world.engine.troubled({TIER: GONE}, world.now)
    assert world.subjects() == [f"kafka {TIER}"]


def test_the_brokers_are_asked_where_a_write_takes_long_or_is_refused() -> None:
    """And not while everything is confirmed in time."""
    world = world_with(0)
    assert not world.engine.doubtful(world.now)
    world.fail(world.start())
    assert not world.engine.doubtful(world.now)
    world.now_s += 0.4
    assert world.engine.doubtful(world.now)
    world.refuse()
    assert world.engine.doubtful(world.now)
    world.tick(1)
    world.confirm()
    assert not world.engine.doubtful(world.now)


@pytest.mark.parametrize("under_way", [False, True], ids=["waiting", "under way"])
def test_a_fault_leaves_with_the_partition_of_its_record(under_way: bool) -> None:
    """Refused or being written once more when the partition goes: the next owner's business."""
    world = world_with(0)
    world.fail(world.start())
    world.refuse()
    if under_way:
        world.tick(1)
    world.revoke()
    assert world.subjects() == []
    world.tick(60)
    assert len(world.writes) == under_way


def test_a_fault_of_another_partition_stays() -> None:
    """What leaves takes only its own along."""
    world = world_with(0)
    world.assign(1)
    world.read([5], partition=1)
    world.fail(world.start())
    world.fail(world.start())
    world.refuse()
    world.refuse()
    world.tick(1)
    world.revoke(1)
    (fault,) = world.engine.faults.all()
    assert (fault.subject, fault.records) == (TIER, 1)


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_report_after_the_revoke_changes_nothing(confirmed: bool) -> None:
    """The record is the next owner's, and comes again there."""
    world = world_with(0)
    world.fail(world.start())
    world.revoke()
    assignment = world.writes[0].delivery.assignment
    if confirmed:
        world.confirm()
    else:
        world.refuse()
    assert assignment.parking == 0
    assert not world.told(RecordParked)
    assert not world.told(PublishFailed)
    assert (world.engine.flow.open_count, world.subjects()) == (0, [])


def test_refused_records_do_not_hold_up_others() -> None:
    """The floor waits; handlers and later records go on."""
    world = world_with(0, 1, 2)
    world.fail(world.start())
    world.refuse()
    world.finish(world.start())
    world.fail(world.start())
    world.confirm()
    assert world.floor() == 0
    assert world.engine.assignments["orders", 0].tracker.gap_count() == 2
    published = [c for c in world.tick(1) if isinstance(c, Publish)]
    assert len(published) == 1
    world.confirm()
    assert world.floor() == 3


def test_nothing_refused_is_nothing_to_do() -> None:
    """A tick without refusals publishes nothing and plans nothing."""
    world = world_with(0)
    world.fail(world.start())
    world.tick(100)
    assert len(world.writes) == 1
    assert world.engine.next_due_s(world.now) == inf


def test_a_park_that_nobody_answers_is_named_until_it_is_written() -> None:
    """A broker that is away refuses nothing: silence is a fault as well."""
    world = world_with(0, 1)
    for _ in range(2):
        world.fail(world.start())
    world.tick(4.9)
    assert world.subjects() == []
    world.tick(1.1)
    (fault,) = world.engine.faults.all()
    assert (fault.subject, fault.cause, fault.records) == (TIER, "unconfirmed", 2)
    assert "no broker confirms it" in fault.message
    assert fault.since_ms == world.now.wall_ms - 6_000
    world.confirm()
    world.tick(1)
    (fault,) = world.engine.faults.all()
    assert fault.records == 1
    world.revoke(lost=True)
    world.tick(5)
    assert world.subjects() == []


class _Unreadable(MemoryRecord):
    """As the client's message is where the name of a header is not UTF-8."""

    asked = False

    def headers(self) -> Headers | None:
        assert not self.asked, "asked a second time, the client crashes the process"
        self.asked = True
        raise SystemError("returned a result with an exception set")


@pytest.mark.parametrize("topic", ["orders", TIER])
def test_headers_that_the_client_can_not_read_cost_the_headers_alone(topic: str) -> None:
    """It is handled and parked with key and value; `truncated` says what is missing."""
    world = World(ONCE_A_SECOND)
    world.assign(topic=topic)
    world.engine.polled([_Unreadable(topic, 0, 0, b"v", b"k")], world.now)
    world.take()
    delivery = world.start()
    assert delivery.headers == delivery.headers == ()
    write = world.fail(delivery)
    assert (delivery.key, delivery.value) == (b"k", b"v")
    assert dict(write.headers)["ackfloor.truncated"] == b"headers"
    world.refuse(too_large=True)
    assert dict(write.headers)["ackfloor.truncated"] == b"headers,message"
    world.confirm()
    assert world.floor(topic=topic) == 1
    again = [(name, value) for name, value in write.headers if name != "ackfloor.not_before"]
    world.assign(1, topic=TIER)
    world.redeliver([0], partition=1, headers=again)
    assert dict(world.fail(world.start()).headers)["ackfloor.truncated"] == b"headers"
