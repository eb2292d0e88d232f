"""Quarantines: a failed record is parked, and what follows of its key waits behind it, in order.

Invariants Y1 to Y5 of `core/scheduling/quarantined_keys.py`.
"""

from __future__ import annotations

from math import inf

import pytest

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.rule import Forced
from ackfloor.core.messages.events import (
    CopySettled,
    KeyFreed,
    KeyNotQuarantined,
    KeyQuarantined,
    QuarantinesTakenOver,
    RecordDeadLettered,
    RecordDiscarded,
    RecordParked,
    RedeliveriesStarted,
)
from ackfloor.core.parking.transaction import TransactionOutcome
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import ACKED, Discarded, Failed, Outcome, Rejected
from ackfloor.core.records.record import Failure, Now, TopicPartition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling import quarantine_renewal, quarantined_keys
from ackfloor.core.scheduling.redeliveries import LONGEST_WAIT
from ackfloor.core.scheduling.withheld import Withheld
from ackfloor.core.state.assignment import AfterDeadLetter, HandlerState
from ackfloor.core.state.worker_state import Route
from tests.framework.core.quarantine_worlds import (
    BOOM,
    HOPELESS,
    LONG,
    SHORT,
    SOURCE,
    TEN_YEARS_MS,
    TIERS,
    QuarantineWorld,
    envelope_of,
    parked_headers,
    rules,
)
from tests.framework.core.worlds import DLQ, START_MS, World

AFTER: tuple[AfterDeadLetter, ...] = ("continue", "dead_letter", "hold")


@pytest.fixture
def world() -> QuarantineWorld:
    """A worker with one partition of each topic."""
    world = QuarantineWorld(rules())
    world.gain()
    return world


def parked(keys: str = "aa", *, after: AfterDeadLetter = "continue") -> QuarantineWorld:
    """A worker whose first record has failed; its key's others wait behind it, and all was read."""
    world = QuarantineWorld(rules(after_dead_letter=after))
    world.gain()
    world.produce(keys)
    world.handle(BOOM)
    world.confirm_all()
    world.poll()
    return world


def is_at_rest(world: QuarantineWorld) -> bool:
    """Nothing is open, quarantined or being written, and nothing is counted as waiting."""
    assignments = world.engine.assignments.values()
    return (
        not (world.quarantined or world.pending or world.writes or world.engine.flow.open_count)
        and all(a.held == a.held_bytes == 0 for a in assignments)
        and world.engine.state.handlers["bill"].open_retries == 0
        and not world.engine.state.handlers["bill"].lanes
    )


# What is told of it.


def test_a_key_is_told_when_it_is_quarantined_and_when_it_is_free() -> None:
    """Once each, by the record that failed first, however many of its key were behind it."""
    world = parked("aaab")
    assert world.told(KeyQuarantined) == [KeyQuarantined(SOURCE, 0, "bill", 0)]
    assert world.told(KeyFreed) == []
    world.come_to_rest()
    (freed,) = world.told(KeyFreed)
    assert (freed.topic, freed.partition, freed.handler, freed.offset) == (SOURCE, 0, "bill", 0)
    assert freed.after_s >= 1.0
    assert len(world.told(KeyQuarantined)) == 1


def test_a_key_whose_partition_leaves_is_not_free() -> None:
    """Its next owner has it, and tells of all that it has in one event."""
    world = parked("aabb")
    world.handle(BOOM)
    world.confirm_all()
    world.commit()
    world.leave_all()
    world.tick(1.0)
    assert world.told(KeyFreed) == []
    count = len(world.told(KeyQuarantined))
    world.gain()
    assert world.told(QuarantinesTakenOver) == [QuarantinesTakenOver(SOURCE, 0, "bill", 2)]
    assert len(world.told(KeyQuarantined)) == count == 2
    world.come_to_rest()
    assert sorted(each.offset for each in world.told(KeyFreed)) == [0, 2]


# A record fails.


def test_what_follows_is_parked_behind_at_once() -> None:
    """In the partition it came from, without an attempt, with a time that is far away."""
    world = QuarantineWorld(rules(), count=2, pick=lambda n: 0)
    world.gain(partition=1)
    world.produce("aab", partition=1)
    world.handle(BOOM)
    assert world.leaving() == [(SHORT, 1, 0, Reason.ERROR), (LONG, 1, 1, Reason.BEHIND)]
    behind = world.writes[1].envelope
    assert (behind.attempt, behind.failures, behind.error_type) == (0, 0, None)
    assert behind.retry_at_ms == START_MS + TEN_YEARS_MS
    assert behind.not_before_ms == START_MS + 5000
    assert (behind.origin_topic, behind.origin_partition, behind.origin_offset) == (SOURCE, 1, 1)
    assert (behind.group, behind.handler) == ("g", "bill")
    world.produce("a", partition=1)
    assert world.leaving()[2:] == [(LONG, 1, 3, Reason.BEHIND)]
    assert world.pending == 0


def test_other_keys_and_records_without_a_key_go_on(world: QuarantineWorld) -> None:
    """Only what has the failed record's key waits."""
    world.append(SOURCE, b"a")
    world.append(SOURCE, b"a")
    world.append(SOURCE, b"b")
    world.append(SOURCE, None)
    world.poll()
    assert world.handle(BOOM) == 0
    assert world.handle_all() == [2, 3]
    world.append(SOURCE, b"a")
    world.append(SOURCE, None)
    world.poll()
    assert world.handle_all() == [5]
    assert world.open(SOURCE) == [0, 1, 4]


def test_a_record_without_a_key_is_parked_alone(world: QuarantineWorld) -> None:
    """It has no order to keep, in no topic."""
    world.append(SOURCE, None)
    world.append(SOURCE, None)
    world.poll()
    world.handle(BOOM)
    assert not world.quarantined
    assert world.handle_all() == [1]
    world.confirm_all()
    world.poll()
    world.tick(1.0)
    world.handle(BOOM)
    assert world.leaving() == [(LONG, 0, 0, Reason.ERROR)]
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 1, 1), (0, 0, 2), (0, 0, 3)]
    assert is_at_rest(world)


@pytest.mark.parametrize("after", AFTER)
def test_a_record_without_a_key_is_dead_lettered_alone(after: AfterDeadLetter) -> None:
    """It has none behind it, whatever becomes of those."""
    world = QuarantineWorld(rules(after_dead_letter=after))
    world.gain()
    world.append(SOURCE, None)
    world.poll()
    world.handle(HOPELESS)
    world.confirm_all()
    assert world.waiting_in(DLQ) == [(0, "dead_letter")]
    assert is_at_rest(world)


# The head's turns.


def test_handled_its_followers_are_handled_in_order_and_the_key_is_free(
    world: QuarantineWorld,
) -> None:
    """Y1 and Y4: each when the one in front of it is resolved, as its first attempt."""
    world.produce("aaab")
    world.handle(BOOM)
    world.confirm_all()
    world.poll()
    assert world.handle_all() == [3]
    world.tick(0.9)
    assert world.handle_all() == []
    world.tick(0.1)
    running = world.start()
    assert (running.origin.offset, running.attempt) == (0, 2)
    world.tick(100.0)
    assert not world.ready
    world.finish(running)
    world.tick()
    running = world.start()
    assert (running.origin.offset, running.attempt) == (1, 1)
    world.tick(100.0)
    assert not world.ready
    world.finish(running)
    world.tick()
    assert world.handle() == 2
    assert is_at_rest(world)
    world.produce("a")
    assert world.handle() == 4
    assert not world.writes


def test_a_follower_is_due_at_once() -> None:
    """Its own tier's wait is none: a worker that has been waiting for it goes on."""
    world = parked()
    world.tick(1.0)
    world.handle()
    assert world.engine.next_due_s(world.now) <= world.now_s
    world.tick()
    assert world.handle() == 1


def test_a_head_waits_no_longer_than_its_tier_may_delay_it() -> None:
    """A later time is that of a worker whose clock is ahead: its key does not wait for that."""
    world = QuarantineWorld(rules())
    world.stored[SOURCE, 0] = (2, "")
    world.append(SHORT, headers=parked_headers(0, due_ms=START_MS + 3_600_000))
    world.append(LONG, headers=parked_headers(1, reason=Reason.BEHIND, attempt=0))
    world.gain()
    world.poll()
    world.tick(LONGEST_WAIT * 1.0 - 0.1)
    assert not world.startable()
    world.tick(0.2)
    assert world.handle_all() == [0]
    world.tick()
    assert world.handle_all() == [1]
    assert is_at_rest(world)


def test_a_follower_is_late_for_nothing() -> None:
    """It had no time, so nothing is measured of it."""
    world = parked()
    world.come_to_rest()
    assert [list(event.attempts) for event in world.told(RedeliveriesStarted)] == [[2]]


def test_failed_again_it_goes_on_to_its_next_tier() -> None:
    """Its followers wait on, wherever they are."""
    world = parked()
    world.tick(1.0)
    assert world.handle(BOOM) == 0
    assert world.leaving() == [(LONG, 0, 0, Reason.ERROR)]
    world.confirm_all()
    world.poll()
    world.tick(4.9)
    assert world.handle_all() == []
    world.tick(0.1)
    assert world.handle() == 0
    world.tick()
    assert world.handle() == 1
    assert is_at_rest(world)


def test_a_follower_may_fail_itself() -> None:
    """Then it is the head, with attempts of its own."""
    world = parked("aaa")
    fails = {(1, 1): BOOM, (1, 2): BOOM}
    world.come_to_rest(lambda d: fails.get((d.origin.offset, d.attempt), ACKED))
    assert world.starts == [(0, 0, 1), (0, 0, 2), (0, 1, 1), (0, 1, 2), (0, 1, 3), (0, 2, 1)]
    assert is_at_rest(world)


def test_a_wait_of_its_own_is_hopped_without_an_attempt(world: QuarantineWorld) -> None:
    """`Retry(after=)` of a head goes from tier to tier, before its followers."""
    world.produce("aa")
    world.handle(Failed(Failure("Retry", ""), Reason.RETRY, 7.0))
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 2), (0, 1, 1)]
    assert [o for o, reason in world.waiting_in(SHORT) if reason == "retry"] == [0, 0]
    assert is_at_rest(world)


def test_a_discarded_head_lets_its_followers_go_on() -> None:
    """Y2: an answer that nothing is to be done is one."""
    world = parked()
    world.tick(1.0)
    world.handle(Discarded("not wanted"))
    world.tick()
    assert world.handle() == 1
    assert is_at_rest(world)
    assert len(world.told(RecordDiscarded)) == 1


def test_a_write_that_is_refused_holds_its_place(world: QuarantineWorld) -> None:
    """Nothing behind it starts, though that is written already."""
    world.produce("aa")
    world.handle(BOOM)
    world.refuse()
    world.confirm_all()
    world.poll()
    for _ in range(3):
        world.tick(5.0)
        world.poll()
    assert world.starts == [(0, 0, 1)]
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 2), (0, 1, 1)]
    assert is_at_rest(world)


def test_what_is_read_while_the_head_runs_waits_behind_it() -> None:
    """Written behind at once, so that a crash leaves it there."""
    world = parked("a")
    world.tick(1.0)
    running = world.start()
    world.produce("a")
    assert world.leaving() == [(LONG, 0, 1, Reason.BEHIND)]
    world.finish(running)
    assert len(world.quarantined) == 1
    world.confirm_all()
    world.poll()
    world.tick()
    assert world.handle() == 1
    assert is_at_rest(world)


def test_a_head_that_times_out_is_parked_like_any_other() -> None:
    """Its late answer changes nothing."""
    world = parked()
    world.tick(1.0)
    running = world.start()
    world.now_s += 61.0
    world.expire(running)
    assert world.leaving() == [(LONG, 0, 0, Reason.TIMEOUT)]
    world.finish(running)
    world.tick(10.0)
    assert not world.ready
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 1)]


# A head is dead-lettered.


def test_dead_lettered_at_once_it_holds_its_lane_until_that_is_written(
    world: QuarantineWorld,
) -> None:
    """`continue`: the key is not quarantined, and what follows goes on afterwards."""
    world.produce("aa")
    world.handle(HOPELESS)
    assert world.leaving() == [(DLQ, 0, 0, Reason.DEAD_LETTER)]
    world.tick(10.0)
    assert not world.ready
    assert not world.quarantined
    world.confirm_all()
    assert world.handle() == 1
    assert is_at_rest(world)


def test_continue_lets_the_followers_go_on() -> None:
    """The default: when the head's write is confirmed, and not before."""
    world = parked()
    world.tick(1.0)
    world.handle(HOPELESS)
    assert world.leaving() == [(DLQ, 0, 0, Reason.DEAD_LETTER)]
    world.tick(10.0)
    assert not world.ready
    world.confirm_all()
    world.tick()
    assert world.handle() == 1
    assert is_at_rest(world)
    assert world.waiting_in(DLQ) == [(0, "dead_letter")]


def test_dead_letter_sends_the_followers_after_it() -> None:
    """Those that wait when it is dead-lettered, in order, as what was behind; later ones go on."""
    world = parked("aaa", after="dead_letter")
    world.tick(1.0)
    world.handle(HOPELESS)
    world.confirm()
    assert world.leaving() == [(LONG, 0, 0, Reason.HELD)]
    world.confirm()
    assert world.leaving() == []
    world.poll()
    assert world.leaving() == [(DLQ, 0, 1, Reason.BEHIND), (DLQ, 0, 2, Reason.BEHIND)]
    world.produce("a")
    world.confirm_all()
    assert world.waiting_in(DLQ) == [(0, "dead_letter"), (1, "behind"), (2, "behind")]
    assert envelope_of(world.logs[DLQ, 0][1]).attempt == 0
    world.poll()
    world.tick()
    assert world.handle() == 3
    assert is_at_rest(world)
    reasons = [event.reason for event in world.told(RecordDeadLettered)]
    assert reasons == [Reason.DEAD_LETTER, Reason.BEHIND, Reason.BEHIND]


def test_the_condemned_go_although_they_are_read_later() -> None:
    """What waits in a retry topic and was not read yet belongs to them as well."""
    world = QuarantineWorld(rules(after_dead_letter="dead_letter"))
    world.stored[SOURCE, 0] = (3, "")
    world.append(SHORT, headers=parked_headers(0, reason=Reason.HELD, attempt=3))
    for origin in (1, 2):
        world.append(LONG, headers=parked_headers(origin, reason=Reason.BEHIND, attempt=0))
    world.gain()
    world.poll(SHORT)
    assert world.quarantined[SOURCE, 0, b"a"].condemned_count == 2
    assert not world.writes
    world.poll(LONG)
    assert world.leaving() == [(DLQ, 0, 1, Reason.BEHIND), (DLQ, 0, 2, Reason.BEHIND)]
    world.confirm_all()
    assert not world.starts
    assert is_at_rest(world)


def test_a_condemned_record_that_is_read_when_its_partition_stops_is_not_written() -> None:
    """It stays open, for its next owner."""
    world = parked("aa", after="dead_letter")
    world.tick(1.0)
    world.handle(HOPELESS)
    world.confirm()
    world.confirm()
    world.engine.polled(world.logs[LONG, 0][:1], world.now)
    world.engine.stop([TopicPartition(LONG, 0)])
    world.poll()
    world.tick(1.0)
    assert not world.writes


def test_the_condemned_go_in_order_however_they_are_read() -> None:
    """One of another retry topic waits for those before it: to be read, and to be written."""
    world = QuarantineWorld(rules(after_dead_letter="dead_letter"))
    world.stored[SOURCE, 0] = (9, "")
    world.append(LONG, b"a", headers=parked_headers(0, reason=Reason.HELD))
    for topic, origin in ((SHORT, 3), (SHORT, 2), (LONG, 1)):
        world.append(topic, b"a", headers=parked_headers(origin, reason=Reason.BEHIND, attempt=0))
    world.gain()
    world.engine.polled(world.logs[LONG, 0][:1], world.now)
    world.poll(SHORT)
    assert world.leaving() == []
    world.poll(LONG)
    assert world.leaving() == [(DLQ, 0, 1, Reason.BEHIND)]
    world.confirm()
    assert world.leaving() == [(DLQ, 0, 2, Reason.BEHIND)], "3 is before it in the log"
    world.confirm()
    assert world.leaving() == [(DLQ, 0, 3, Reason.BEHIND)]
    world.confirm_all()
    world.tick()
    assert is_at_rest(world)


@pytest.mark.parametrize("transactional", [False, True])
def test_the_condemned_wait_for_those_before_them_that_are_refused(transactional: bool) -> None:
    """Y5: a broker that refuses them all takes those that are read then: they would come first."""
    world = QuarantineWorld(rules(after_dead_letter="dead_letter"), transactional=transactional)
    world.stored[SOURCE, 0] = (9, "")
    world.append(SHORT, headers=parked_headers(0, reason=Reason.HELD, attempt=3))
    for origin in (1, 2, 3, 4):
        world.append(LONG, headers=parked_headers(origin, reason=Reason.BEHIND, attempt=0))
    world.gain()
    world.poll(SHORT)
    world.engine.polled(world.logs[LONG, 0][:2], world.now)
    world.take()
    if transactional:
        assert [w.delivery.origin.offset for w in world.transactions[0].writes] == [1, 2]
        world.end_transaction(TransactionOutcome("ILLEGAL_GENERATION"))
    else:
        assert [w.delivery.origin.offset for w in world.writes] == [1, 2]
        world.refuse()
        world.refuse()
    world.poll(LONG)
    assert (world.writes, world.transactions) == ([], []), "3 and 4 wait, too"
    for _ in range(4):
        world.tick(1.0)
        world.answer_commits()
        world.commit_transactions()
        world.confirm_all()
    assert [offset for offset, _ in world.waiting_in(DLQ)] == [1, 2, 3, 4]
    assert not world.open(LONG)


@pytest.mark.parametrize("after", ["dead_letter", "hold"])
def test_what_is_in_memory_alone_belongs_to_the_followers(after: AfterDeadLetter) -> None:
    """Y3: also what could not be written behind the head yet."""
    world = parked("a", after=after)
    world.tick(1.0)
    running = world.start()
    drained_later(world, "aaa")
    # A failure that is no sign of an outage leaves at once.
    world.finish(running, Rejected(Failure("Odd", "x"), Reason.DECODE))
    world.confirm()
    world.confirm()
    world.poll(LONG)
    if after == "hold":
        assert not world.writes
        assert world.pending == 3
        world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
        world.come_to_rest()
        assert [offset for offset, _ in world.waiting_in(DLQ)] == [0]
        assert world.quarantined[SOURCE, 0, b"a"].behind == 3
    else:
        assert world.leaving() == [(DLQ, 0, offset, Reason.BEHIND) for offset in (1, 2, 3)]
        assert world.pending == 0
        world.confirm_all()
        assert is_at_rest(world)
    assert world.starts == [(0, 0, 1), (0, 0, 2)]


@pytest.mark.parametrize("after", ["dead_letter", "hold"])
def test_a_source_record_that_is_dead_lettered_takes_its_lane_with_it(
    after: AfterDeadLetter,
) -> None:
    """It was in no retry topic: what waits in its lane waits behind it now."""
    world = QuarantineWorld(rules(after_dead_letter=after))
    world.gain()
    world.produce("aaa")
    world.handle(HOPELESS)
    world.come_to_rest()
    assert world.starts == [(0, 0, 1)]
    dead = [offset for offset, _ in world.waiting_in(DLQ)]
    assert dead == ([0] if after == "hold" else [0, 1, 2])
    assert is_at_rest(world) == (after == "dead_letter")


@pytest.mark.parametrize("first", [SOURCE, LONG])
@pytest.mark.parametrize("transactional", [False, True])
def test_what_goes_with_a_dead_letter_waits_for_what_is_before_it_in_the_source(
    first: str, transactional: bool
) -> None:
    """A crash cut off the dead letters of 1 and 2; 3, which was read later, was parked by then."""
    world = QuarantineWorld(rules(after_dead_letter="dead_letter"), transactional=transactional)
    world.append(LONG, headers=parked_headers(0, reason=Reason.HELD))
    world.append(LONG, headers=parked_headers(3, reason=Reason.BEHIND, attempt=0))
    for _ in range(4):
        world.append(SOURCE)
    world.stored[SOURCE, 0] = (1, "")
    world.gain()
    world.poll(first)
    for _ in range(10):
        world.tick(1.0)
        world.commit_transactions()
        world.confirm_all()
        world.poll()
        world.answer_commits()
    assert [offset for offset, _ in world.waiting_in(DLQ)] == [1, 2, 3]
    assert world.handled == []
    assert is_at_rest(world)


def test_dead_letter_without_followers_leaves_nothing_behind() -> None:
    """The key is free as soon as the write is confirmed, and what comes then goes on."""
    world = parked("a", after="dead_letter")
    world.tick(1.0)
    world.handle(HOPELESS)
    world.confirm()
    assert is_at_rest(world)
    world.produce("a")
    assert world.handle() == 1


def test_hold_keeps_the_followers_and_what_comes() -> None:
    """The dead-lettered record is the head, in a retry topic as well; nothing of it starts."""
    world = parked(after="hold")
    world.tick(1.0)
    world.handle(HOPELESS)
    world.confirm()
    assert world.leaving() == [(LONG, 0, 0, Reason.HELD)]
    held = world.writes[0].envelope
    assert held.retry_at_ms == world.now.wall_ms + 2 * TEN_YEARS_MS
    assert (held.attempt, held.error_type) == (2, "Hopeless")
    assert 0 in world.open(SHORT)
    world.produce("a")
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 2)]
    found = world.quarantined[SOURCE, 0, b"a"]
    assert (found.head, found.behind) == (0, 2)
    assert world.waiting_in(DLQ) == [(0, "dead_letter")]
    parks = [event.reason for event in world.told(RecordParked)]
    assert parks == [Reason.ERROR, Reason.BEHIND, Reason.HELD, Reason.BEHIND]


def test_hold_holds_a_key_without_followers_too() -> None:
    """What comes after it is what an operator is to decide about."""
    world = parked("a", after="hold")
    world.tick(1.0)
    world.handle(HOPELESS)
    world.come_to_rest()
    world.produce("a")
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 2)]
    assert world.quarantined[SOURCE, 0, b"a"].behind == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [("hold", "continue"), ("hold", "dead_letter"), ("hold", "hold"), ("dead_letter", "continue")],
)
def test_what_is_held_does_as_the_setting_of_the_next_worker_says(
    before: AfterDeadLetter, after: AfterDeadLetter
) -> None:
    """The record that holds its key is there after a restart, and is not handled again."""
    world = parked("aaa", after=before)
    world.tick(1.0)
    world.handle(HOPELESS)
    world.confirm()
    world.confirm()
    world.commit()
    world.rules = rules(after_dead_letter=after)
    world.restart()
    world.come_to_rest()
    dead = [offset for offset, _ in world.waiting_in(DLQ)]
    started = [offset for _, offset, _ in world.starts]
    if after == "hold":
        assert (started, dead) == ([0, 0], [0])
        assert world.quarantined[SOURCE, 0, b"a"].head == 0
    elif after == "continue":
        assert (started, dead) == ([0, 0, 1, 2], [0])
        assert is_at_rest(world)
    else:
        assert (started, dead) == ([0, 0], [0, 1, 2])
        assert is_at_rest(world)


@pytest.mark.parametrize("after", ["dead_letter", "hold"])
@pytest.mark.parametrize("runs", [True, False])
def test_what_holds_the_key_is_written_when_the_redriven_record_was_handled(
    after: AfterDeadLetter, runs: bool
) -> None:
    """The next one runs by then, and ends as any other; or it waits, and gives way."""
    world = parked("aa", after=after)
    world.tick(1.0)
    world.handle(HOPELESS)
    world.confirm()
    assert world.leaving() == [(LONG, 0, 0, Reason.HELD)]
    world.append(SHORT, b"a", headers=parked_headers(0, attempt=0, replays=1))
    world.poll()
    world.tick()
    assert world.handle() == 0
    running = None
    if runs:
        world.tick()
        running = world.start()
    world.confirm()
    world.poll()
    if running is None:
        goes = [(DLQ, 0, 1, Reason.BEHIND)] if after == "dead_letter" else []
        assert world.leaving() == goes
        world.tick(1.0)
        assert not world.ready
    else:
        assert (running.origin.offset, running.closed, world.leaving()) == (1, False, [])
        world.finish(running)
        assert world.handled == [(0, 0), (0, 1)]
    world.confirm_all()
    assert bool(world.quarantined) == (after == "hold")
    assert is_at_rest(world) == (after != "hold")


@pytest.mark.parametrize("after", ["dead_letter", "hold"])
def test_a_crash_between_the_dead_letter_and_what_holds_the_key(after: AfterDeadLetter) -> None:
    """The head is handled again, at worst; no follower overtakes it."""
    world = parked(after=after)
    world.commit()
    world.tick(1.0)
    world.handle(HOPELESS)
    world.confirm()
    assert world.leaving() == [(LONG, 0, 0, Reason.HELD)]
    world.restart()
    world.come_to_rest(lambda d: HOPELESS if d.origin.offset == 0 else ACKED)
    assert [offset for _, offset, _ in world.starts] == [0, 0, 0]
    dead = [offset for offset, _ in world.waiting_in(DLQ)]
    assert dead == ([0, 0] if after == "hold" else [0, 0, 1])


@pytest.mark.parametrize("after", ["dead_letter", "hold"])
def test_what_holds_the_key_was_written_and_nothing_was_committed(after: AfterDeadLetter) -> None:
    """The newer copy of the two counts, so the head is not handled again."""
    world = parked(after=after)
    world.commit()
    world.tick(1.0)
    world.handle(HOPELESS)
    world.confirm()
    world.confirm()
    world.restart()
    world.come_to_rest()
    assert [offset for _, offset, _ in world.starts] == [0, 0]
    dead = [offset for offset, _ in world.waiting_in(DLQ)]
    assert dead == ([0] if after == "hold" else [0, 1])
    assert is_at_rest(world) == (after == "dead_letter")


# The circuit breaker.


def drained_later(world: QuarantineWorld, keys: str) -> None:
    """Records come whose key is quarantined, while nothing may be written behind it."""
    bucket = world.engine.state.handlers["bill"].circuit.bucket
    world.engine.force("bill", Forced.OPEN, inf, "a test", world.now)
    while bucket.take(1e-9, 1.0, world.now_s):
        pass
    world.produce(keys)
    assert world.pending == len(keys)
    assert world.engine.assignments[SOURCE, 0].held == len(keys)


def test_what_follows_leaves_at_the_drip_of_a_breaker_that_is_open() -> None:
    """An outage does not drain through what waits behind."""
    world = QuarantineWorld(rules(breaker=CircuitBreaker(park_rate="60/m")))
    world.gain()
    world.produce("a")
    world.handle(BOOM)
    world.confirm_all()
    drained_later(world, "aaaa")
    assert world.engine.next_due_s(world.now) <= world.now_s + quarantined_keys.DRIP_S
    for offset in (1, 2, 3):
        world.tick(0.5)
        assert len(world.writes) == 0
        world.tick(0.5)
        assert world.leaving() == [(LONG, 0, offset, Reason.BEHIND)]
        world.confirm_all()
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.tick()
    assert world.leaving() == [(LONG, 0, 4, Reason.BEHIND)]
    world.come_to_rest()
    assert [offset for _, offset in world.handled] == [0, 1, 2, 3, 4]
    assert is_at_rest(world)


def test_a_breaker_that_is_open_is_asked_once_for_all_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In each look at what is pending; what it lets go is of the key that waits for longest."""
    world = QuarantineWorld(rules(breaker=CircuitBreaker(park_rate="60/m")))
    world.gain()
    world.produce("abc")
    for _ in "abc":
        world.handle(BOOM)
    world.confirm_all()
    drained_later(world, "aabbc")
    asked: list[bool] = []
    may_follow = Withheld.may_follow

    def ask(self: Withheld, handler: HandlerState, now: Now) -> bool:
        asked.append(may_follow(self, handler, now))
        return asked[-1]

    monkeypatch.setattr(Withheld, "may_follow", ask)
    world.tick()
    assert asked == [False]
    world.tick(1.0)
    assert asked == [False, True, False]
    assert world.leaving() == [(LONG, 0, 3, Reason.BEHIND)]


def test_the_key_is_free_and_what_is_pending_goes_on_from_memory() -> None:
    """Y4: nothing of it is in a retry topic, so nothing has to be written there."""
    world = parked("a")
    world.tick(1.0)
    running = world.start()
    drained_later(world, "aaa")
    world.finish(running)
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.tick()
    assert world.handle_all() == [1, 2, 3]
    assert not world.writes
    assert is_at_rest(world)


def test_what_is_pending_counts_as_waiting() -> None:
    """Of its partition, so that it stops being read in time; but not for the others."""
    world = QuarantineWorld(rules(), limits=FlowLimits(max_open=16))
    world.gain()
    world.produce("a")
    world.handle(BOOM)
    world.confirm_all()
    world.poll()
    drained_later(world, "aaaa")
    assert world.engine.assignments[SOURCE, 0].paused
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.tick()
    world.come_to_rest()
    assert not world.engine.assignments[SOURCE, 0].paused
    assert is_at_rest(world)


# What can't be quarantined.


def test_beyond_the_bound_of_keys_a_record_blocks_its_lane(world: QuarantineWorld) -> None:
    """Said and counted; it is retried in its place, in order."""
    world.engine._quarantines.most_keys = 2
    world.produce("abcc")
    for _ in "abc":
        world.handle(BOOM)
    assert {key for _, _, key in world.quarantined} == {b"a", b"b"}
    told = [(e.topic, e.partition, e.handler, e.why) for e in world.told(KeyNotQuarantined)]
    assert told == [(SOURCE, 0, "bill", "full")]
    assert {offset for _, _, offset, _ in world.leaving()} == {0, 1}
    world.tick(1.0)
    assert world.handle(BOOM) == 2
    world.engine._quarantines.most_keys = 3
    world.tick(5.0)
    assert world.handle(HOPELESS) == 2
    world.come_to_rest()
    assert [s for s in world.starts if s[1] >= 2] == [(0, 2, 1), (0, 2, 2), (0, 2, 3), (0, 3, 1)]
    assert is_at_rest(world)


def test_a_lane_that_blocked_is_quarantined_when_there_is_room(world: QuarantineWorld) -> None:
    """Its next failure parks it, and what was held behind it goes behind it."""
    world.engine._quarantines.most_keys = 0
    world.produce("aa")
    world.handle(BOOM)
    assert world.engine.assignments[SOURCE, 0].held == 2
    world.engine._quarantines.most_keys = 1
    world.tick(1.0)
    world.handle(BOOM)
    assert world.leaving() == [(LONG, 0, 0, Reason.ERROR), (LONG, 0, 1, Reason.BEHIND)]
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 1)]
    assert is_at_rest(world)


def test_a_retry_topic_with_fewer_partitions(world: QuarantineWorld) -> None:
    """A key of a partition that it does not have could not be kept in order there: it blocks."""
    world = QuarantineWorld(rules(), count=2, counts=((LONG, 1),))
    for partition in (0, 1):
        world.gain(partition=partition)
        world.produce("aa", partition)
        world.handle(BOOM)
    assert [e.why for e in world.told(KeyNotQuarantined)] == ["partitions"]
    assert [partition for _, partition, _ in world.quarantined] == [0]
    world.come_to_rest()
    assert [s for s in world.starts if s[0] == 1] == [(1, 0, 1), (1, 0, 2), (1, 1, 1)]
    assert is_at_rest(world)


# Records of others in its retry topics.


def test_a_record_of_another_partition_is_sent_home(world: QuarantineWorld) -> None:
    """A release that knows nothing of quarantine has written it: it waits as long as it was to."""
    world = QuarantineWorld(rules(), count=2)
    world.gain()
    headers = parked_headers(7, partition=1, due_ms=START_MS + 3_000)
    world.append(SHORT, headers=headers)
    world.poll()
    assert world.leaving() == [(SHORT, 1, 7, Reason.ERROR)]
    write = world.writes[0]
    assert write.envelope.retry_at_ms == START_MS + 3_000
    assert write.envelope.attempt == 1
    world.confirm_all()
    assert is_at_rest(world)


def test_one_that_was_on_its_way_keeps_the_end_of_it() -> None:
    """Its `retry_at` is not replaced by the time of the tier that it is in."""
    world = QuarantineWorld(rules(), count=2)
    world.gain()
    far = ("ackfloor.retry_at", str(START_MS + 60_000).encode())
    world.append(SHORT, headers=[*parked_headers(7, partition=1), far])
    world.poll()
    assert world.leaving() == [(LONG, 1, 7, Reason.ERROR)]
    assert world.writes[0].envelope.retry_at_ms == START_MS + 60_000


@pytest.mark.parametrize(
    "headers",
    [
        parked_headers(7, topic="payments"),
        parked_headers(7, partition=5),
        [("ackfloor.attempt", b"1")],
    ],
    ids=["another topic's", "a partition there is not", "no origin"],
)
def test_what_belongs_nowhere_is_handled_where_it_is(
    world: QuarantineWorld, headers: list[tuple[str, bytes | None]]
) -> None:
    """In no key's order, when it is due."""
    world.append(SHORT, headers=headers)
    world.poll()
    world.tick()
    assert not world.writes
    assert not world.quarantined
    world.handle(BOOM)
    world.come_to_rest()
    assert len(world.handled) == 1
    assert is_at_rest(world)


# Copies.


def copies(world: QuarantineWorld) -> list[int]:
    """How many records were settled as one of several copies, of each topic."""
    return [len(world.told(CopySettled)), world.engine.flow.open_count]


def test_a_copy_that_is_read_twice_is_settled_with_its_record(world: QuarantineWorld) -> None:
    """Y3: and not before, and it is handled once."""
    for _ in range(3):
        world.append(SHORT, headers=parked_headers(0))
    world.append(SOURCE)
    world.poll(SOURCE)
    assert world.handle() == 0
    world.poll()
    assert copies(world) == [0, 3]
    world.tick()
    assert world.handle() == 0
    assert copies(world) == [2, 0]
    assert is_at_rest(world)


def test_a_copy_is_not_settled_while_an_older_one_waits(world: QuarantineWorld) -> None:
    """The answer to the write of a copy comes late: retention may take the one that waits first."""
    world.produce("a")
    world.handle(BOOM)
    lost = world.writes[0]
    world.store(lost)
    world.poll()
    world.refuse("timed out: no answer")
    world.tick(0.5)
    world.store(world.writes[0])
    world.poll()
    World.confirm(world)
    assert world.open(SHORT) == [0, 1]
    assert not world.open(SOURCE)
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 2)]
    assert is_at_rest(world)


def test_the_newest_copy_counts(world: QuarantineWorld) -> None:
    """The other would have been one attempt earlier."""
    world.produce("bb")
    world.handle_all()
    world.append(SHORT, headers=parked_headers(0, due_ms=START_MS + 900))
    world.append(SHORT, headers=parked_headers(1, attempt=1))
    world.append(LONG, headers=parked_headers(1, attempt=2))
    world.append(LONG, headers=parked_headers(1, attempt=1))
    world.poll()
    world.tick(0.9)
    world.handle()
    world.tick()
    running = world.start()
    assert (running.topic, running.attempt) == (LONG, 3)
    world.finish(running)
    assert copies(world) == [2, 0]
    assert is_at_rest(world)


def test_a_newer_copy_of_a_head_that_has_its_turn_is_a_twin(world: QuarantineWorld) -> None:
    """What runs goes on, and both are settled by it."""
    world.append(SOURCE)
    world.poll()
    world.handle()
    world.append(SHORT, headers=parked_headers(0, attempt=1))
    world.poll()
    running = world.start()
    world.append(LONG, headers=parked_headers(0, attempt=2))
    world.poll()
    world.tick(10.0)
    assert not world.ready
    world.finish(running)
    assert copies(world) == [1, 0]
    assert is_at_rest(world)


def test_twins_of_a_head_that_fails_again_are_settled_when_it_is_written() -> None:
    """Y3: the copy that is written is open."""
    world = parked("a")
    world.append(SHORT, headers=parked_headers(0))
    world.poll()
    world.tick(1.0)
    world.handle(BOOM)
    assert world.open(SHORT) == [0, 1]
    world.confirm_all()
    assert world.open(SHORT) == []
    world.come_to_rest()
    assert is_at_rest(world)


def test_redriven_it_counts_before_what_holds_its_key(world: QuarantineWorld) -> None:
    """An operator's redrive of the dead letter frees the key, in order."""
    world = parked(after="hold")
    world.tick(1.0)
    world.handle(HOPELESS)
    world.come_to_rest()
    assert world.quarantined
    world.append(SHORT, headers=parked_headers(0, attempt=0, replays=1))
    world.come_to_rest()
    assert [offset for _, offset in world.handled] == [0, 1]
    assert is_at_rest(world)


def test_the_copy_that_was_written_is_the_one_that_counts(world: QuarantineWorld) -> None:
    """A twin is here while its record is being written: it is not taken for the record."""
    world = parked("aa")
    world.append(LONG, headers=parked_headers(1, reason=Reason.BEHIND, attempt=0))
    world.poll()
    world.come_to_rest()
    assert [offset for _, offset in world.handled] == [0, 1]
    assert is_at_rest(world)


def test_a_late_confirmation_does_not_take_the_place_of_a_later_write(
    world: QuarantineWorld,
) -> None:
    """A record was read before its write was confirmed, and failed again.

    The confirmation says where the record was, and not where it is. Here retention then takes it
    where it is: nobody waits for it where it was.
    """
    world.produce("aa")
    world.handle(BOOM)
    world.store(world.writes[0])
    world.poll(SHORT)
    world.tick(1.0)
    world.handle(BOOM)
    World.confirm(world)
    world.confirm_all()
    assert [offset for offset, _ in world.waiting_in(LONG)] == [1, 0]
    world.remove(LONG, 2)
    world.come_to_rest()
    assert is_at_rest(world)


def test_a_record_with_a_lower_offset_comes_when_the_head_waits(world: QuarantineWorld) -> None:
    """Y1: the head's turn is taken from it, unless it runs."""
    for _ in range(2):
        world.append(SOURCE, b"b")
    world.poll()
    world.handle_all()
    world.append(SHORT, headers=parked_headers(1, due_ms=START_MS + 900))
    world.poll()
    world.append(SHORT, headers=parked_headers(0, due_ms=START_MS + 800))
    world.poll()
    world.tick(0.9)
    assert world.handle() == 0
    world.tick()
    assert world.handle() == 1
    assert is_at_rest(world)


def test_a_record_with_a_lower_offset_waits_for_the_one_that_runs(world: QuarantineWorld) -> None:
    """Never two of a key at a time."""
    for _ in range(2):
        world.append(SOURCE, b"b")
    world.poll()
    world.handle_all()
    world.append(SHORT, headers=parked_headers(1))
    world.poll()
    running = world.start()
    world.append(SHORT, headers=parked_headers(0))
    world.poll()
    world.tick(10.0)
    assert not world.ready
    world.finish(running)
    world.tick()
    assert world.handle() == 0
    assert is_at_rest(world)


# Copies that come after a takeover: a former owner's writes arrive late.


def test_a_late_copy_of_a_source_record_that_runs_is_its_twin(world: QuarantineWorld) -> None:
    """It fails: what was read meanwhile is settled when it is written, and strands nothing."""
    world.produce("aa")
    running = world.start()
    world.append(SHORT, headers=parked_headers(0, due_ms=START_MS + 60_000))
    world.poll()
    world.finish(running, BOOM)
    assert world.open(SHORT) == [0]
    world.confirm_all()
    assert world.open(SHORT) == []
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 2), (0, 1, 1)]
    assert is_at_rest(world)


def test_late_copies_that_wait_in_the_lane_of_a_record_that_fails(world: QuarantineWorld) -> None:
    """Of itself, and of what is behind it: these were due, and may not run any more."""
    world.produce("aaa")
    running = world.start()
    for origin in (1, 0):
        world.append(SHORT, headers=parked_headers(origin))
        world.poll()
        world.tick(0.1)
    world.finish(running, BOOM)
    world.come_to_rest()
    firsts = list(dict.fromkeys(offset for _, offset in world.handled))
    assert firsts == [0, 1, 2]
    assert is_at_rest(world)


def test_a_late_copy_that_was_read_before_its_source_record(world: QuarantineWorld) -> None:
    """The copy is open: the source record is settled, and takes no place from it."""
    for _ in range(3):
        world.append(SOURCE)
    for origin in (0, 1):
        world.append(SHORT, headers=parked_headers(origin, due_ms=START_MS + 500))
    world.poll(SHORT)
    world.poll(SOURCE)
    assert world.leaving() == [(LONG, 0, 2, Reason.BEHIND)]
    world.come_to_rest()
    assert world.starts == [(0, 0, 2), (0, 1, 2), (0, 2, 1)]
    assert is_at_rest(world)


def test_a_key_that_was_freed_is_not_freed_again_in_another_ones_place() -> None:
    """Its partition left and came back, and it was quarantined anew, before time passed."""
    world = parked("a")
    world.leave_all(lost=True)
    world.logs[SHORT, 0].clear()
    world.stored[SOURCE, 0] = (1, "")
    world.gain()
    world.produce("aa")
    running = world.start()
    world.finish(running, BOOM)
    world.tick()
    assert world.quarantined[SOURCE, 0, b"a"].behind == 1
    world.come_to_rest()
    assert [offset for _, offset in world.handled] == [1, 2]
    assert is_at_rest(world)


@pytest.mark.parametrize("after", AFTER)
def test_a_condemned_suspect_holds_its_key_when_it_is_dead_lettered(
    after: AfterDeadLetter,
) -> None:
    """It never ran, and was in no quarantine: what waits in its lane waits behind it."""
    world = QuarantineWorld(rules(after_dead_letter=after))
    world.engine.suspects.learn([(SOURCE, 0, 0, 3, "was killed")])
    world.gain()
    world.produce("aa")
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    assert world.leaving() == [(DLQ, 0, 0, Reason.CRASH)]
    for _ in range(4):
        world.come_to_rest()
        world.engine.suspects.tick(world.now, quiet=True)
        world.take()
    started = [offset for _, offset, _ in world.starts]
    dead = [offset for offset, _ in world.waiting_in(DLQ)]
    expected = {"continue": ([1], [0]), "dead_letter": ([], [0, 1]), "hold": ([], [0])}
    assert (started, dead) == expected[after]
    assert bool(world.quarantined) == (after == "hold")
    assert world.engine.assignments[SOURCE, 0].held == 0


def test_a_suspect_among_what_goes_on_from_memory_runs_in_its_turn() -> None:
    """And what is behind it after it."""
    world = parked("a")
    world.commit()
    world.crash()
    world.engine.suspects.learn([(SOURCE, 0, 2, 1, "was killed")])
    world.gain()
    world.poll()
    world.tick(1.0)
    running = world.start()
    drained_later(world, "aaa")
    world.finish(running)
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.take()
    assert world.handle_all() == [1]
    world.tick()
    assert not world.ready
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    assert world.handle_all() == [2]
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    assert world.handle_all() == [3]
    assert is_at_rest(world)


# Renewal.


def test_what_waits_is_written_anew_where_it_keeps_a_head_from_being_read() -> None:
    """Behind that head; not heads: those are delivered from where they are."""
    world = QuarantineWorld(rules(), limits=FlowLimits(tier_buffer=4))
    for topic in TIERS:
        world.routes[topic] = Route("bill", SOURCE, 3600.0)
    world.stored[SOURCE, 0] = (9, "")
    world.append(SHORT, b"c", headers=parked_headers(2, due_ms=START_MS + 3_600_000))
    world.append(LONG, b"d", headers=parked_headers(8, due_ms=START_MS + 3_600_000))
    for origin in range(3, 8):
        world.append(LONG, b"c", headers=parked_headers(origin, reason=Reason.BEHIND, attempt=0))
    world.append(LONG, b"a", headers=parked_headers(0, attempt=2))
    world.gain()
    world.poll(SHORT)
    world.engine.polled(world.logs[LONG, 0][:6], world.now)
    world.take()
    assert world.engine.assignments[LONG, 0].paused
    world.tick(quarantine_renewal.LOOK_S + 0.1)
    assert world.leaving() == [(LONG, 0, origin, Reason.BEHIND) for origin in range(3, 8)]
    world.come_to_rest()
    assert world.handled == [(0, 0)]
    assert {key for _, _, key in world.quarantined} == {b"c", b"d"}
    assert world.quarantined[SOURCE, 0, b"c"].behind == 5


def test_what_keeps_nothing_from_being_read_stays_where_it_is() -> None:
    """A partition may be full of what waits for a head that was read."""
    world = QuarantineWorld(rules(), limits=FlowLimits(tier_buffer=4))
    world.stored[SOURCE, 0] = (9, "")
    world.append(SHORT, b"c", headers=parked_headers(2, due_ms=START_MS + 3_600_000))
    for origin in range(3, 9):
        world.append(LONG, b"c", headers=parked_headers(origin, reason=Reason.BEHIND, attempt=0))
    world.gain()
    world.poll()
    assert world.engine.assignments[LONG, 0].paused
    for _ in range(5):
        world.tick(1.0)
    assert not world.writes


def test_a_look_for_full_partitions_is_planned() -> None:
    """Nothing else may happen for long."""
    world = QuarantineWorld(rules(), limits=FlowLimits(tier_buffer=2))
    world.gain()
    for origin in range(3):
        world.append(LONG, b"a", headers=parked_headers(origin, reason=Reason.BEHIND, attempt=0))
    world.poll()
    assert world.engine.assignments[LONG, 0].paused
    world.tick()
    planned_s = world.engine.next_due_s(world.now)
    assert world.now_s < planned_s <= world.now_s + quarantine_renewal.LOOK_S + 0.01


def test_what_has_waited_for_a_day_is_written_anew() -> None:
    """Before its topic's retention takes it: what waits behind, and what holds its key."""
    world = parked(after="hold")
    world.tick(1.0)
    world.handle(HOPELESS)
    world.come_to_rest()
    world.commit()
    world.tick(quarantine_renewal.RENEW_MS / 1000 - 120)
    assert not world.writes
    world.tick(240)
    assert sorted(world.leaving(), key=lambda each: each[2]) == [
        (LONG, 0, 0, Reason.HELD),
        (LONG, 0, 1, Reason.BEHIND),
    ]
    assert all(write.envelope.attempt in (0, 2) for write in world.writes)
    world.come_to_rest()
    assert world.open(LONG) == [2, 3]
    assert world.quarantined[SOURCE, 0, b"a"].head == 0
    world.restart()
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 2)]


# Partitions leave.


def test_a_partition_that_stops_starts_and_writes_nothing() -> None:
    """Y1 and Y3: what is there is for its next owner."""
    world = parked("a", after="dead_letter")
    world.tick(1.0)
    running = world.start()
    drained_later(world, "aa")
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.engine.stop([TopicPartition(topic, 0) for topic in (SOURCE, *TIERS)])
    world.tick(1.0)
    assert not world.writes
    assert not world.ready
    world.finish(running)
    world.tick(100.0)
    assert not world.writes
    assert not world.ready
    world.leave_all()
    assert world.stored[SHORT, 0][0] == 1
    assert world.stored[SOURCE, 0][0] == 1
    world.gain()
    world.come_to_rest()
    assert [offset for _, offset, _ in world.starts] == [0, 0, 1, 2]


def test_the_condemned_of_a_partition_that_stops_are_not_written() -> None:
    """Their next owner finds out that they are condemned."""
    world = parked("aaa", after="dead_letter")
    world.tick(1.0)
    world.handle(HOPELESS)
    world.engine.stop([TopicPartition(LONG, 0)])
    world.confirm()
    assert world.leaving() == [(LONG, 0, 0, Reason.HELD)]
    world.confirm()
    assert world.leaving() == []
    world.leave_all()
    world.restart()
    world.come_to_rest()
    assert [offset for offset, _ in world.waiting_in(DLQ)] == [0, 1, 2]
    assert is_at_rest(world)


@pytest.mark.parametrize("lost", [False, True])
def test_a_group_of_partitions_leaves_and_comes_back(lost: bool) -> None:
    """Nothing of its keys is left here meanwhile, and nothing of them overtakes afterwards."""
    world = parked("aab")
    world.handle_all()
    world.commit()
    world.leave_all(lost=lost)
    world.tick()
    assert not world.quarantined
    assert not world.pending
    assert not world.engine.flow.open_count
    world.tick(5.0)
    world.gain()
    assert world.quarantined[SOURCE, 0, b"a"].behind == 1
    world.come_to_rest()
    assert [offset for _, offset in world.handled] == [2, 0, 1]
    assert is_at_rest(world)


def test_the_keys_of_other_partitions_stay_as_they_are() -> None:
    """And what is to be looked at after one has left is looked at at once."""
    world = QuarantineWorld(rules(), count=2)
    for partition in (0, 1):
        world.gain(partition=partition)
        world.produce("aa", partition)
        world.handle(BOOM)
    world.confirm_all()
    world.leave_all(partition=0)
    assert world.engine.next_due_s(world.now) <= world.now_s
    world.tick()
    assert [partition for _, partition, _ in world.quarantined] == [1]
    world.come_to_rest()
    assert world.handled == [(1, 0), (1, 1)]


@pytest.mark.parametrize("topic", TIERS)
def test_one_retry_partition_leaves_alone(topic: str) -> None:
    """What was in it is not waited for; what comes back takes its place again."""
    world = parked("aaa")
    world.commit()
    world.leave_all(topic, lost=True)
    world.tick()
    if topic == SHORT:
        # The head has gone: another owner has it. Those behind it don't wait for what is not here.
        assert world.quarantined[SOURCE, 0, b"a"].head == 1
    else:
        assert len(world.quarantined[SOURCE, 0, b"a"]) == 1
    world.gain(topic)
    world.come_to_rest()
    assert sorted(offset for _, offset in world.handled) == [0, 1, 2]
    assert is_at_rest(world)


def test_the_source_leaves_alone_while_a_head_runs() -> None:
    """What it had in memory is its next owner's; the head ends, and the key waits for it."""
    world = parked("a")
    world.tick(1.0)
    running = world.start()
    drained_later(world, "aa")
    world.leave_all(SOURCE)
    assert (world.pending, world.stored[SOURCE, 0][0]) == (0, 1)
    world.finish(running)
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.gain(SOURCE)
    world.come_to_rest()
    assert [offset for _, offset in world.handled] == [0, 1, 2]
    assert is_at_rest(world)


def test_a_retry_partition_leaves_while_its_head_runs() -> None:
    """Its lane is free: the key goes on without it."""
    world = parked("a")
    world.tick(1.0)
    running = world.start()
    world.leave_all(SHORT, lost=True)
    world.tick()
    world.finish(running)
    assert not world.quarantined
    world.produce("a")
    assert world.handle() == 1


def test_a_deleted_retry_topic_takes_what_was_not_read() -> None:
    """What was read of it is handled; the key does not wait for what never comes."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce("aa")
    world.handle(BOOM)
    world.confirm_all()
    world.poll(LONG)
    world.drop_topic(SHORT)
    world.tick()
    world.tick()
    assert world.handle_all() == [1]
    assert not world.quarantined


def test_what_is_written_to_a_topic_that_is_not_read_here_is_not_waited_for() -> None:
    """Its topic was deleted meanwhile."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce("aa")
    world.handle(BOOM)
    world.drop_topic(SHORT)
    world.tick()
    world.confirm_all()
    world.poll()
    world.tick()
    assert world.handle_all() == [1]
    assert not world.quarantined


# Crash suspects.


def test_what_waits_behind_a_suspect_waits_behind_its_key() -> None:
    """A suspect that fails is parked, and those behind it go behind it."""
    world = QuarantineWorld(rules())
    world.engine.suspects.learn([(SOURCE, 0, 0, 1, "was killed")])
    world.gain()
    world.produce("aaab")
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    assert {world.start().origin.offset, world.start().origin.offset} == {0, 3}
    suspect = next(d for d in world.engine.assignments[SOURCE, 0].tracker.open.values())
    world.finish(suspect, BOOM)
    world.engine.suspects.tick(world.now, quiet=False)
    world.take()
    world.tick()
    assert world.leaving()[1:] == [(LONG, 0, 1, Reason.BEHIND), (LONG, 0, 2, Reason.BEHIND)]
    for _ in range(8):
        world.engine.suspects.tick(world.now, quiet=True)
        world.confirm_all()
        world.poll()
        world.tick(1.0)
        world.handle_all()
    assert [s[1] for s in world.starts if s[1] < 3] == [0, 0, 1, 2]


@pytest.mark.parametrize("crashes", [1, 2])
@pytest.mark.parametrize("suspects", [[1], [1, 2], [0, 1], [0, 2]])
def test_a_suspect_waits_behind_the_head_of_its_key(suspects: list[int], crashes: int) -> None:
    """A record ahead of it fails: the suspect runs when its key's turn has come to it."""
    world = QuarantineWorld(rules())
    world.engine.suspects.learn([(SOURCE, 0, each, crashes, "was killed") for each in suspects])
    world.gain()
    world.produce("aaa")
    for _ in range(2):
        world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    first = world.start()
    assert first.origin.offset == 0
    world.finish(first, BOOM)
    for _ in range(12):
        world.engine.suspects.tick(world.now, quiet=True)
        world.take()
        world.confirm_all()
        world.poll()
        world.tick(1.0)
        world.handle_all()
    assert [offset for _, offset, *_ in world.starts] == [0, 0, 1, 2]
    assert is_at_rest(world)


def test_a_parked_head_that_is_a_suspect_holds_its_followers() -> None:
    """It was in flight when its worker died: it runs when its turn comes, and they after it."""
    world = parked()
    world.commit()
    world.crash()
    world.engine.suspects.learn([(SHORT, 0, 0, 1, "was killed")])
    world.gain()
    world.poll()
    world.tick(2.0)
    assert not world.ready
    world.produce("a")
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    running = world.start()
    assert running.origin.offset == 0
    world.finish(running)
    for _ in range(4):
        world.engine.suspects.tick(world.now, quiet=True)
        world.confirm_all()
        world.poll()
        world.tick(1.0)
        world.handle_all()
    assert [offset for _, offset in world.handled] == [0, 1, 2]
    assert is_at_rest(world)


# Transactions.


@pytest.mark.parametrize("after", AFTER)
def test_the_same_in_transactions(after: AfterDeadLetter) -> None:
    """A write that does not settle goes with a commit that settles nothing of it."""
    world = QuarantineWorld(rules(after_dead_letter=after), transactional=True)
    world.gain()
    world.produce("aaa")
    fails: dict[int, Outcome] = {1: BOOM, 2: HOPELESS}
    rest_in_transactions(world, fails)
    started = [offset for _, offset, _ in world.starts]
    dead = [offset for offset, _ in world.waiting_in(DLQ)]
    expected = {
        "continue": ([0, 0, 1, 2], [0]),
        "dead_letter": ([0, 0], [0, 1, 2]),
        "hold": ([0, 0], [0]),
    }
    assert (started, dead) == expected[after]


def rest_in_transactions(world: QuarantineWorld, fails: dict[int, Outcome]) -> None:
    """The first record fails so in its attempts; until nothing moves."""
    for _ in range(30):
        world.commit_transactions()
        world.poll()
        while world.ready:
            delivery: TrackedDelivery = world.start()
            first = delivery.origin.offset == 0
            world.finish(delivery, fails.get(delivery.attempt, ACKED) if first else ACKED)
        world.tick(1.0)
        world.answer_commits()


# A handler that does not quarantine any more.


@pytest.mark.parametrize("in_place", [False, True])
def test_what_waits_is_read_by_a_handler_that_does_not_quarantine(in_place: bool) -> None:
    """What is behind is handled when its tier's wait is over; what holds a key is settled."""
    world = parked("aa", after="hold")
    world.tick(1.0)
    world.handle(HOPELESS)
    world.come_to_rest()
    world.rules = rules(quarantines=False, in_place=in_place)
    world.restart()
    world.come_to_rest()
    assert [offset for _, offset in world.handled] == [1]
    assert world.waiting_in(DLQ) == [(0, "dead_letter")]
    assert is_at_rest(world)


# What a late copy must not leave behind.


def hopeless(world: QuarantineWorld) -> None:
    """The head of a key is on its way to the dead-letter topic, and a copy of it is read."""
    world.tick(1.0)
    world.poll()
    world.handle(HOPELESS)
    world.append(LONG, headers=parked_headers(0))
    world.poll()


def test_a_copy_that_waits_ends_with_its_record() -> None:
    """Y2: dead-lettered, it is not delivered again from a copy."""
    world = parked(keys="a")
    hopeless(world)
    world.confirm_all()
    world.come_to_rest()
    assert not world.quarantined
    assert world.engine.flow.open_count == 0


def test_a_copy_that_runs_ends_by_itself() -> None:
    """It is at work already: how it ends is counted, and nothing waits for it."""
    world = parked(keys="a")
    hopeless(world)
    world.tick(0.0)
    copy = world.start()
    world.confirm_all()
    assert not world.quarantined
    world.finish(copy)
    assert world.engine.flow.open_count == 0


def test_what_a_retry_partition_that_left_had_in_a_lane_is_gone_from_it() -> None:
    """A redelivery waits behind a record that runs; its partition leaves; the record fails."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce("a")
    running = world.start()
    world.append(SHORT, headers=parked_headers(0, topic=SOURCE, replays=1))
    world.poll()
    world.tick(1.0)
    world.leave_all(SHORT, lost=True)
    world.finish(running, BOOM)
    world.gain(SHORT)
    world.come_to_rest()
    assert not world.quarantined
    assert world.engine.flow.open_count == 0
