"""Failures that users of other trackers have reported: one test for each, named after it.

The number is the report's in its own project.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor.core.acks.gap_set import decode
from ackfloor.core.messages.commands import Pause, Resume
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.outcomes import Discarded, Failed, Rejected
from ackfloor.core.records.record import Failure, TopicPartition
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import DLQ, START_MS, TIER, MemoryRecord, World

RULES = HandlerRules("bill", consume_timeout_s=5.0, policy=RetryPolicy.fixed("1s", 3, jitter=0))
MANUAL = replace(RULES, manual=True)


def world_with(*offsets: int, rules: HandlerRules = RULES) -> World:
    """A world whose records are read and not started."""
    world = World(rules)
    world.assign()
    world.read(offsets)
    return world


def flow_of(world: World) -> list[Pause | Resume]:
    """What was paused and resumed so far."""
    return [c for c in world.commands if isinstance(c, Pause | Resume)]


# Spring Kafka


def test_spring_4258_gaps_and_manual_acks_never_pause_for_ever() -> None:
    """A log full of transaction markers: every ack counts, and fetching goes on."""
    world = World(MANUAL, limits=FlowLimits(partition_span=10))
    world.assign()
    world.read([0, 2, 4, 6, 9])
    assert world.engine.assignments["orders", 0].paused
    for delivery in reversed([world.start() for _ in range(5)]):
        delivery.ack()
    world.engine.answered(list(world.inbox), world.now)
    world.take()
    assert flow_of(world)[1:] == [Resume(((TopicPartition("orders", 0), 10),))]


@pytest.mark.parametrize("topic", ["orders", TIER])
def test_spring_2525_a_partition_revoked_in_its_pause_is_read_when_it_comes_back(
    topic: str,
) -> None:
    """Source or tier: its new assignment knows nothing of the pause, and can pause again."""
    world = World(RULES, limits=FlowLimits(partition_span=2, tier_buffer=2))
    for _ in range(2):
        world.assign(topic=topic)
        records = [MemoryRecord(topic, 0, n, _headers=[]) for n in range(2)]
        world.engine.polled(records, world.now)
        world.take()
        assert world.engine.assignments[topic, 0].paused
        world.revoke(topic=topic)
    assert flow_of(world) == [Pause((TopicPartition(topic, 0),))] * 2


def test_spring_2410_a_retry_by_hand_does_not_stop_the_acks_after_it() -> None:
    """The parked record leaves; the floor follows the others."""
    world = world_with(0, 1, 2, rules=MANUAL)
    first, second, third = (world.start() for _ in range(3))
    third.ack()
    first.retry()
    second.ack()
    world.engine.answered(list(world.inbox), world.now)
    world.take()
    world.confirm()
    assert world.floor() == 3


def test_spring_1994_headers_do_not_grow_with_attempts() -> None:
    """The tenth failure writes as many bytes as the second."""
    rules = replace(RULES, policy=RetryPolicy.fixed("1s", 100, jitter=0))
    world = World(rules)
    world.assign()
    world.assign(topic=TIER)
    record = MemoryRecord("orders", 0, 0, _headers=[("own", b"1")])
    failure = Failed(Failure("Boom", "m" * 5_000, "s" * 50_000, "f00d"))
    sizes = []
    for offset in range(12):
        world.engine.polled([record], world.now)
        world.take()
        headers = list(world.fail(world.start(), failure).headers)
        sizes.append(sum(len(name) + len(value or b"") for name, value in headers))
        record = MemoryRecord(TIER, 0, offset, _headers=headers)
        world.tick(2)
    # The attempt and the failures are two digits from the tenth on.
    assert len(set(sizes[:9])) == 1
    assert sizes[-1] <= sizes[0] + 2
    assert sizes[-1] < 20_000


def test_spring_1828_retries_are_spread_over_the_tiers_partitions() -> None:
    """Whichever partition they came from, the choice is among all there are."""
    asked: list[int] = []

    def pick(n: int) -> int:
        asked.append(n)
        return len(asked) % n

    world = World(RULES, pick=pick)
    world.assign()
    world.read(range(4))
    partitions = [world.fail(world.start()).partition for _ in range(4)]
    assert asked == [4, 4, 4, 4]
    assert sorted(str(p) for p in partitions) == ["0", "1", "2", "3"]


# Pulsar


def test_pulsar_6451_a_nack_after_the_timeout_breaks_nothing() -> None:
    """It is late; the redelivery that is under way is the only one."""
    world = world_with(0, rules=MANUAL)
    delivery = world.start()
    world.now_s += 5
    world.expire(delivery)
    assert delivery.retry() is False
    assert not world.inbox
    assert len(world.writes) == 1


def test_pulsar_6869_a_nack_leaves_the_tracker() -> None:
    """Once it is durable elsewhere nothing of it is left here."""
    world = world_with(0, rules=MANUAL)
    world.start().retry()
    world.engine.answered([world.inbox.popleft()], world.now)
    world.take()
    world.confirm()
    assert not world.engine.assignments["orders", 0].tracker.open
    assert world.engine.flow.open_count == 0


def test_pulsar_6960_one_record_is_one_dead_letter() -> None:
    """Rejected, timed out and answered again: written once."""
    world = world_with(0)
    delivery = world.start()
    rejected = Rejected(Failure("Hopeless", "x"))
    world.now_s += 5
    world.fail(delivery, rejected)
    world.expire(delivery)
    world.finish(delivery, rejected)
    assert len(world.writes) == 1


def test_pulsar_7683_an_ack_counts_when_its_request_succeeded() -> None:
    """A commit that was sent is not a commit that was made."""
    world = world_with(0)
    world.finish(world.start())
    world.tick()
    assert world.engine.assignments["orders", 0].commit.position == 0
    world.answer_commit()
    assert world.engine.assignments["orders", 0].commit.position == 1


def test_pulsar_10167_one_unanswered_record_stops_its_key_until_its_deadline_only() -> None:
    """Other keys go on meanwhile, its own does afterwards."""
    world = World(replace(MANUAL, ordering="key"))
    world.assign()
    world.read([0, 1], key=b"a")
    world.read([2], key=b"b")
    forgotten, other = world.start(), world.start()
    assert (forgotten.offset, other.offset) == (0, 2)
    assert not world.ready
    world.now_s += 5
    world.expire(forgotten)
    assert world.start().offset == 1


# Karafka, NATS, Pub/Sub, Kafka itself


def test_karafka_1900_nothing_settled_piles_up() -> None:
    """A million offsets later the tracker holds what is open, and no more."""
    world = World(RULES)
    world.assign()
    tracker = world.engine.assignments["orders", 0].tracker
    for start in range(0, 20_000, 500):
        world.read(range(start, start + 500))
        for _ in range(500):
            world.finish(world.start())
        world.tick(1)
    assert (len(tracker.open), len(tracker._order), tracker.gap_count()) == (0, 0, 0)


def test_karafka_3216_a_dead_letter_commits_nothing_of_other_lanes() -> None:
    """The decision for one record moves no offset that another lane has not handled."""
    world = World(replace(RULES, ordering="key"))
    world.assign()
    world.read([0], key=b"slow")
    world.read([1], key=b"bad")
    slow, bad = world.start(), world.start()
    world.fail(bad, Rejected(Failure("Hopeless", "x")))
    world.confirm()
    world.tick(1)
    assert world.floor() == slow.offset == 0
    (commit,) = world.commits
    (told,) = commit.positions
    assert told.position == 0
    assert decode(told.metadata, "orders", 0).runs == ((1, 2),)


def test_karafka_1274_an_error_leaves_other_lanes_parallel() -> None:
    """Nothing collapses to one at a time."""
    world = World(replace(RULES, ordering="key"))
    world.assign()
    for offset in range(4):
        world.read([offset], key=bytes([offset]))
    world.fail(world.start())
    assert len({world.start().lane for _ in range(3)}) == 3


def test_nats_4112_a_full_worker_is_not_an_idle_one() -> None:
    """At its limit it handles what it has, and each answer leads back to fetching."""
    world = World(RULES, limits=FlowLimits(max_open=2))
    world.assign()
    world.read([0, 1])
    assert len(world.ready) == 2
    while world.ready:
        world.finish(world.start())
    assert flow_of(world)[-1] == Resume(((TopicPartition("orders", 0), 2),))


def test_pubsub_9268_what_waits_for_its_turn_has_no_deadline() -> None:
    """A record behind another of its key, and one that waits in a tier, are late for nothing."""
    world = World(replace(RULES, ordering="key"))
    world.assign()
    world.assign(topic=TIER)
    world.read([0, 1], key=b"a")
    world.redeliver([0], due_ms=START_MS + 600_000)
    first = world.start()
    behind = world.works[first][0]
    waiting = world.engine.assignments[TIER, 0].waiting.first
    world.now_s += 5
    world.expire(first, behind, waiting)
    assert [write.delivery for write in world.writes] == [first]


def test_kafka_20771_a_dead_letter_too_large_for_its_topic_is_written_with_less() -> None:
    """Its stack goes first; the record itself is never cut."""
    world = world_with(0)
    world.fail(world.start(), Rejected(Failure("Hopeless", "x", "stack")))
    world.refuse("MSG_SIZE_TOO_LARGE", too_large=True)
    (write,) = world.writes
    assert write.envelope.truncated == "stack"
    world.confirm()
    assert world.floor() == 1


def test_kip_1316_a_dead_letter_outage_stops_no_other_record() -> None:
    """The floor waits for the one that can't be written; work and redeliveries go on."""
    world = World(RULES)
    world.assign()
    world.assign(topic=TIER)
    world.read(range(10))
    world.fail(world.start(), Rejected(Failure("Hopeless", "x")))
    world.refuse("broker away")
    for _ in range(9):
        world.finish(world.start())
    world.redeliver([0])
    world.finish(world.start())
    assert (world.floor(), world.floor(topic=TIER)) == (0, 1)
    assert world.engine.flow.open_count == 1
    assert world.subjects() == [f"parking {DLQ}"]


def test_kip_1317_the_reason_is_for_machines() -> None:
    """One of a fixed list, in a header of its own."""
    world = world_with(0)
    write = world.fail(world.start(), Rejected(Failure("Hopeless", "no such customer")))
    assert ("ackfloor.reason", b"dead_letter") in list(write.headers)


@pytest.mark.parametrize("manual", [False, True])
def test_a_double_ack_settles_once(manual: bool) -> None:
    """The second one finds it done and takes nothing else along."""
    world = world_with(0, 1, rules=replace(RULES, manual=manual))
    delivery = world.start()
    if manual:
        assert (delivery.ack(), delivery.ack()) == (True, False)
        world.engine.answered([*world.inbox, *world.inbox], world.now)
    else:
        world.finish(delivery)
        world.finish(delivery)
    assert (world.floor(), world.engine.flow.open_count) == (1, 1)


def test_a_discard_is_settled_by_the_users_word_alone() -> None:
    """No write is waited for."""
    world = world_with(0)
    world.finish(world.start(), Discarded("obsolete"))
    assert world.floor() == 1
    assert not world.writes
