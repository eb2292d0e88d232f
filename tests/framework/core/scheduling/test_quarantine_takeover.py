"""Takeovers: a partition's new owner knows its quarantined keys before it starts a record.

Invariants T1 to T4 of `core/scheduling/quarantine_takeover.py`.
"""

from __future__ import annotations

import pytest

from ackfloor.core.messages.events import CopySettled
from ackfloor.core.queues.flow_limits import PauseReason
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import ACKED, Outcome
from ackfloor.core.records.record import TopicPartition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from tests.framework.core.quarantine_worlds import (
    BOOM,
    HOPELESS,
    LONG,
    SHORT,
    SOURCE,
    TIERS,
    QuarantineWorld,
    parked_headers,
    rules,
)
from tests.framework.core.worlds import DLQ, START_MS


def parked(keys: str = "aab") -> QuarantineWorld:
    """A worker was killed whose first record is parked and committed; what follows behind it."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce(keys)
    world.handle(BOOM)
    world.confirm_all()
    world.handle_all()
    world.commit()
    world.crash()
    return world


def offsets(world: QuarantineWorld) -> list[int]:
    """What was handled, in order."""
    return [offset for _, offset in world.handled]


# T1: all of them are known.


@pytest.mark.parametrize("ends", ["comes", "leaves"])
def test_a_retry_partition_that_does_not_come_is_named(ends: str) -> None:
    """What stands still for long says why, until it goes on or leaves."""
    world = parked()
    world.gain(SOURCE)
    world.gain(SHORT)
    world.tick(29.0)
    assert not world.engine.faults.all()
    world.tick(2.0)
    (fault,) = world.engine.faults.all()
    assert (fault.kind, fault.subject) == ("quarantine", f"{SOURCE}/0")
    assert LONG in fault.message
    if ends == "comes":
        world.gain(LONG)
    else:
        world.engine.drop([TopicPartition(SOURCE, 0), TopicPartition(SHORT, 0)], lost=True)
    assert not world.engine.faults.all()


@pytest.mark.parametrize("last", [SOURCE, *TIERS])
def test_nothing_starts_before_the_last_of_the_partitions_came(last: str) -> None:
    """T1: whichever it is; what was read before that waits, and is not lost."""
    world = parked()
    world.tick(10.0)
    world.produce("ac")
    for topic in (SOURCE, *TIERS):
        if topic != last:
            world.gain(topic)
            # A consumer may have read it before it was told to pause.
            found = world.logs[topic, 0][world.engine.assignments[topic, 0].tracker.position :]
            world.engine.polled(found, world.now)
            world.take()
    world.tick(10.0)
    assert not world.ready
    assert not world.quarantined
    assert world.engine.flow.open_count > 0
    world.gain(last)
    assert world.quarantined[SOURCE, 0, b"a"].head == 0
    world.come_to_rest()
    assert offsets(world) == [2, 4, 0, 1, 3] or offsets(world) == [2, 0, 4, 1, 3]
    assert not world.quarantined
    assert world.engine.flow.open_count == 0


def test_what_waits_for_another_partition_is_not_fetched() -> None:
    """It goes on when the last one came."""
    world = parked()
    world.gain(SOURCE, SHORT)
    assignments = world.engine.assignments
    assert all(a.paused and a.awaited == {LONG} for a in assignments.values())
    why = world.engine.flow.why_paused(assignments[SOURCE, 0])
    assert why is PauseReason.WAITING
    world.gain(LONG)
    assert not any(a.paused or a.awaited for a in assignments.values())


def test_the_copy_of_a_record_that_was_read_early_is_settled() -> None:
    """What was read early of the source is looked at last."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce("aa")
    world.handle(BOOM)
    world.confirm_all()
    world.crash()
    world.gain(SOURCE)
    world.engine.polled(world.logs[SOURCE, 0], world.now)
    world.take()
    world.gain(*TIERS)
    assert world.open(SOURCE) == []
    world.come_to_rest()
    assert offsets(world) == [0, 1]


def test_what_was_read_early_is_gone_with_its_partition() -> None:
    """It is read again when that comes back."""
    world = parked()
    world.gain(SOURCE, SHORT)
    world.engine.polled(world.logs[SHORT, 0], world.now)
    world.take()
    world.leave_all(SOURCE, SHORT)
    assert world.engine.flow.open_count == 0
    assert (SHORT, 0) not in world.stored
    world.gain()
    world.come_to_rest()
    assert offsets(world) == [2, 0, 1]


def test_one_of_those_that_wait_leaves_again() -> None:
    """The others go on waiting, for that one as well."""
    world = parked()
    world.gain(SOURCE, SHORT)
    world.leave_all(SHORT)
    world.gain(LONG)
    assert {a.topic for a in world.engine.assignments.values() if a.awaited == {SHORT}} == {
        SOURCE,
        LONG,
    }
    world.gain(SHORT)
    world.come_to_rest()
    assert offsets(world) == [2, 0, 1]


def test_a_retry_topic_that_has_no_such_partition_is_not_waited_for() -> None:
    """It can't come."""
    world = QuarantineWorld(rules(), count=2, counts=((LONG, 1),))
    world.gain(SOURCE, SHORT, partition=1)
    assert not any(a.awaited for a in world.engine.assignments.values())
    world.produce("a", 1)
    assert world.handle() == 0


def test_a_retry_topic_that_was_deleted_is_not_waited_for() -> None:
    """Unless it comes again."""
    world = QuarantineWorld(rules(), count=2)
    world.gain()
    world.drop_topic(SHORT)
    world.gain(SOURCE, LONG, partition=1)
    world.produce("a", 1)
    assert world.handle() == 0
    world.leave_all(SOURCE, LONG, partition=1)
    world.gain(SHORT)
    world.gain(SOURCE, LONG, partition=1)
    assert world.engine.assignments[SOURCE, 1].awaited == {SHORT}


def test_a_source_partition_says_which_retry_topics_do_not_exist() -> None:
    """A worker that had no partition of one was not told; it is waited for when it exists again."""
    world = QuarantineWorld(rules(), count=2)
    source = world.start_of(SOURCE, 1)
    world.engine.assign([source._replace(absent=frozenset({SHORT}))], world.now)
    world.gain(LONG, partition=1)
    world.produce("a", 1)
    assert world.handle() == 0
    world.leave_all(SOURCE, LONG, partition=1)
    world.engine.assign([world.start_of(SOURCE)._replace(absent=frozenset())], world.now)
    world.gain(LONG)
    assert world.engine.assignments[SOURCE, 0].awaited == {SHORT}
    world.gain(SHORT)
    world.produce("a")
    assert world.handle() == 0


def test_what_waits_for_a_retry_topic_goes_on_when_another_partition_says_it_is_absent() -> None:
    """The brokers had not told it when the first one came; what was read by then starts."""
    world = QuarantineWorld(rules(), count=2)
    world.gain(SOURCE, LONG)
    world.append(SOURCE)
    world.engine.polled(world.logs[SOURCE, 0], world.now)
    world.take()
    assert not world.startable()
    source = world.start_of(SOURCE, 1)
    world.engine.assign([source._replace(absent=frozenset({SHORT}))], world.now)
    world.take()
    assert world.handle() == 0
    assert not world.engine.assignments[SOURCE, 0].awaited


def test_a_partition_that_a_retry_topic_has_more_than_its_source_is_read() -> None:
    """There is no source partition to wait for; what is there belongs to another one."""
    world = QuarantineWorld(rules(), counts=((SHORT, 2), (LONG, 2)))
    world.stored[SOURCE, 0] = (1, "")
    world.append(SOURCE)
    world.append(SHORT, headers=parked_headers(0, due_ms=START_MS), partition=1)
    world.gain()
    world.engine.assign([world.start_of(topic, 1) for topic in TIERS], world.now)
    assert not any(a.awaited for a in world.engine.assignments.values())
    world.come_to_rest()
    assert offsets(world) == [0]
    assert not world.open(SHORT, 1)


def test_a_source_that_has_more_partitions_than_was_known_comes_last() -> None:
    """What was parked from it is known, and copies of that are settled."""
    world = QuarantineWorld(rules(), count=2, counts=((SOURCE, 1),))
    world.logs[SOURCE, 1] = []
    for _ in range(2):
        world.append(SOURCE, partition=1)
    world.append(SHORT, headers=parked_headers(0, partition=1, due_ms=START_MS), partition=1)
    world.engine.assign([world.start_of(topic, 1) for topic in TIERS], world.now)
    world.poll()
    assert not world.startable()
    world.engine.assign([world.start_of(SOURCE, 1)], world.now)
    world.come_to_rest()
    assert world.starts == [(1, 0, 2), (1, 1, 1)]


def test_partitions_of_other_numbers_wait_for_their_own() -> None:
    """Each group by itself."""
    world = QuarantineWorld(rules(), count=2)
    world.gain(partition=0)
    world.gain(SOURCE, partition=1)
    world.produce("a", 0)
    assert world.handle() == 0
    assert world.engine.assignments[SOURCE, 1].awaited == set(TIERS)


def test_another_handlers_topics_are_not_waited_for() -> None:
    """Nor does a handler wait that does not quarantine."""
    world = QuarantineWorld(rules(quarantines=False))
    world.gain(SOURCE)
    world.produce("a")
    assert world.handle() == 0


def test_a_retry_partition_that_comes_alone_adds_what_waits_in_it() -> None:
    """Its key may be quarantined by the others."""
    world = parked("aaa")
    world.gain()
    world.leave_all(LONG, lost=True)
    world.tick()
    assert len(world.quarantined[SOURCE, 0, b"a"]) == 1
    world.gain(LONG)
    assert len(world.quarantined[SOURCE, 0, b"a"]) == 3
    world.come_to_rest()
    assert offsets(world)[-3:] == [0, 1, 2]


def test_a_copy_in_a_retry_partition_that_comes_alone_takes_no_place() -> None:
    """The record is here already: what is read of it is a twin."""
    world = QuarantineWorld(rules())
    world.stored[SOURCE, 0] = (1, "")
    world.append(SHORT, headers=parked_headers(0, due_ms=START_MS + 500))
    world.gain()
    world.poll()
    world.leave_all(LONG)
    world.append(LONG, headers=parked_headers(0))
    world.gain(LONG)
    world.come_to_rest()
    assert [(offset, attempt) for _, offset, attempt in world.starts] == [(0, 2)]
    assert world.engine.flow.open_count == 0


def test_what_was_parked_is_known_before_it_is_read() -> None:
    """What follows of its key is written behind it; other keys go on."""
    world = parked()
    world.gain()
    world.append(SOURCE, b"a")
    world.append(SOURCE, b"b")
    world.poll(SOURCE)
    assert world.leaving() == [(LONG, 0, 3, Reason.BEHIND)]
    assert world.handle_all() == [4]


# T2: one copy of each.


def test_of_a_record_that_was_written_twice_one_copy_is_kept() -> None:
    """T2: its park to the next tier was confirmed, and no commit after it."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce("aa")
    world.handle(BOOM)
    world.confirm_all()
    world.poll()
    world.commit()
    assert world.handle(BOOM) == 0
    world.confirm_all()
    world.restart()
    assert set(world.engine.assignments[SHORT, 0].superseded) == {0}
    world.poll()
    assert world.open(SHORT) == []
    assert len(world.told(CopySettled)) == 1
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 1)]


def test_the_copy_with_more_attempts_is_kept_wherever_it_is() -> None:
    """Also in the shorter tier, as after a change of the policy; of equal ones the later one."""
    world = QuarantineWorld(rules())
    world.stored[SOURCE, 0] = (3, "")
    for topic, origin, attempt in (
        (SHORT, 0, 2),
        (LONG, 0, 1),
        (SHORT, 1, 1),
        (SHORT, 1, 1),
        (SHORT, 2, 1),
        (LONG, 2, 1),
    ):
        key = b"abc"[origin : origin + 1]
        world.append(topic, key, headers=parked_headers(origin, attempt=attempt))
    world.gain()
    assert set(world.engine.assignments[SHORT, 0].superseded) == {1, 3}
    assert set(world.engine.assignments[LONG, 0].superseded) == {0}
    world.come_to_rest()
    assert sorted(world.starts) == [(0, 0, 3), (0, 1, 2), (0, 2, 2)]
    assert world.engine.flow.open_count == 0


@pytest.mark.parametrize(("first", "then"), [(LONG, SHORT), (SHORT, LONG)])
def test_the_copy_that_was_written_later_is_kept(first: str, then: str) -> None:
    """A hop spends no attempt, and the other one is what retention takes first."""
    world = QuarantineWorld(rules())
    world.stored[SOURCE, 0] = (1, "")
    world.append(first, headers=parked_headers(0))
    world.tick(5.0)
    world.append(then, headers=parked_headers(0))
    world.gain()
    assert set(world.engine.assignments[first, 0].superseded) == {0}
    assert set(world.engine.assignments[then, 0].superseded) == set()
    world.poll()
    world.remove(first, 1)
    world.come_to_rest()
    assert world.starts == [(0, 0, 2)]
    assert not world.quarantined


def test_of_two_copies_in_one_log_the_one_further_on_is_kept() -> None:
    """Also where the clock was set back between them: retention takes the other one first."""
    world = QuarantineWorld(rules())
    world.stored[SOURCE, 0] = (1, "")
    world.append(LONG, headers=parked_headers(0))._timestamp_ms += 60_000
    world.append(LONG, headers=parked_headers(0))
    world.gain()
    assert set(world.engine.assignments[LONG, 0].superseded) == {0}
    world.remove(LONG, 1)
    world.come_to_rest()
    assert world.starts == [(0, 0, 2)]
    assert not world.quarantined


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize(("newer", "older"), [(LONG, SHORT), (SHORT, LONG)])
def test_where_retention_took_the_newest_copy_unread_the_older_one_counts(
    newer: str, older: str, forgets: bool
) -> None:
    """T2: whether it is read before the log with the newest was read on, or after that."""
    world = QuarantineWorld(rules())
    world.stored[SOURCE, 0] = (2, "")
    world.append(older, headers=parked_headers(0, attempt=1))
    world.append(older, headers=parked_headers(1, reason=Reason.BEHIND, attempt=0))
    world.append(newer, headers=parked_headers(0, attempt=2))
    world.append(newer, b"b", headers=parked_headers(1))
    world.gain()
    assert set(world.engine.assignments[older, 0].superseded) == {0}
    world.remove(newer, 1)
    if forgets:
        world.poll(newer)
        world.tick()
    world.poll(older)
    world.come_to_rest()
    assert [start for start in world.starts if start[1] == 0] == [(0, 0, 2)]
    assert offsets(world).count(0) == 1
    assert not world.quarantined
    assert not world.open(older)


def test_one_that_was_redriven_is_kept_before_any_other() -> None:
    """T2: its attempts were counted from the start."""
    world = QuarantineWorld(rules(after_dead_letter="hold"))
    world.stored[SOURCE, 0] = (1, "")
    world.append(LONG, headers=parked_headers(0, reason=Reason.HELD, attempt=3))
    world.append(SHORT, headers=parked_headers(0, attempt=0, replays=1))
    world.gain()
    assert set(world.engine.assignments[LONG, 0].superseded) == {0}
    world.come_to_rest()
    assert world.starts == [(0, 0, 1)]
    assert not world.quarantined


def test_a_source_record_whose_copy_was_found_is_settled() -> None:
    """Its park was confirmed, and no commit after it: it is handled once more, and not twice."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce("aab")
    world.handle(BOOM)
    world.confirm_all()
    world.restart()
    world.poll()
    assert world.open(SOURCE) == [2]
    assert len(world.told(CopySettled)) == 2
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 2, 1), (0, 0, 2), (0, 1, 1)]


# T3: the source was read.


def test_a_record_waits_until_the_source_was_read_up_to_it() -> None:
    """T3: one before it may be there that was not parked, whose write the broker never had."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce("bbaa")
    world.handle(BOOM)
    assert world.leaving()[0] == (SHORT, 0, 0, Reason.ERROR)
    # The follower's write arrived, and the head's did not.
    world.store(world.writes[1])
    world.restart()
    world.poll(*TIERS)
    world.tick(10.0)
    assert not world.ready
    world.engine.polled(world.logs[SOURCE, 0][:1], world.now)
    world.take()
    world.tick()
    assert world.handle() == 0
    world.come_to_rest()
    assert offsets(world) == [0, 1, 2, 3] or offsets(world) == [0, 2, 3, 1]
    assert [s for s in world.starts if s[1] == 1] == [(0, 1, 1)]


def test_what_was_found_in_the_source_first_may_fail_again() -> None:
    """Then it is parked, before those that are."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce("aaa")
    world.handle(BOOM)
    world.store(world.writes[1])
    world.restart()
    world.poll(*TIERS)
    world.poll()
    world.tick()
    assert world.handle(BOOM) == 0
    world.come_to_rest()
    assert offsets(world) == [0, 1, 2]
    assert world.engine.flow.open_count == 0


@pytest.mark.parametrize("empty", [False, True])
def test_a_head_goes_on_when_its_source_was_read_beyond_it(empty: bool) -> None:
    """By records of other keys, or by a position that moves without any."""
    world = QuarantineWorld(rules())
    world.stored[SOURCE, 0] = (2, "")
    world.append(SHORT, headers=parked_headers(3, due_ms=START_MS))
    world.append(SHORT, b"c", headers=parked_headers(9, due_ms=START_MS))
    for key in (b"b", b"b", b"b", b"a", b"b", b"b"):
        world.append(SOURCE, key)
    world.gain()
    world.poll(SHORT)
    world.tick(10.0)
    assert not world.ready
    if empty:
        world.engine.passed({(SOURCE, 0): 4})
        world.tick()
        assert world.handle_all() == [3]
    else:
        world.engine.polled(world.logs[SOURCE, 0][2:4], world.now)
        world.take()
        world.tick()
        assert sorted(world.handle_all()) == [2, 3]
    world.tick(10.0)
    assert not world.ready
    world.engine.passed({(SOURCE, 0): 10})
    world.tick()
    world.tick()
    assert world.handle_all() == [9]
    assert not world.quarantined


def test_a_key_that_waited_for_its_source_may_be_gone_then() -> None:
    """An operator, retention or its partition took it."""
    world = QuarantineWorld(rules())
    world.stored[SOURCE, 0] = (2, "")
    world.append(SHORT, headers=parked_headers(3))
    world.append(SHORT, b"c", headers=parked_headers(4))
    for key in (b"b", b"b", b"b", b"a", b"b", b"b"):
        world.append(SOURCE, key)
    world.gain()
    world.poll(SHORT)
    world.leave_all(SHORT, lost=True)
    world.tick()
    assert not world.quarantined
    world.engine.polled(world.logs[SOURCE, 0][2:4], world.now)
    world.take()
    # Its copy may be gone.
    assert world.handle_all() == [2, 3]
    world.engine.passed({(SOURCE, 0): 9})
    world.tick()
    assert not world.quarantined
    world.gain(SHORT)
    world.come_to_rest()
    assert sorted(offsets(world)) == [2, 3, 3, 4]


def test_a_head_does_not_start_without_its_source() -> None:
    """That has left: what precedes it in the source is another worker's."""
    world = parked("a")
    world.gain()
    world.leave_all(SOURCE, lost=True)
    world.poll(SHORT)
    world.tick(10.0)
    assert not world.ready
    world.gain(SOURCE)
    world.poll()
    world.tick(10.0)
    world.tick()
    assert world.handle_all() == [0]


# T4: another record at the offset of one that is parked.


def anew(*keys: str, after: str = "continue") -> QuarantineWorld:
    """The source was deleted, with the first of these records parked and the others behind it, and
    created anew; nothing was written to it yet."""
    world = QuarantineWorld(rules(after_dead_letter=after))
    world.gain()
    world.produce("".join(keys))
    world.handle(BOOM)
    world.confirm_all()
    world.commit()
    world.leave_all()
    world.logs[SOURCE, 0].clear()
    del world.stored[SOURCE, 0]
    world.tick(1.0)
    return world


def test_a_record_of_another_key_at_the_offset_of_a_parked_one_is_handled() -> None:
    """It is no copy: nothing has handled it."""
    world = anew("a")
    world.gain()
    world.produce("b")
    assert world.handle() == 0
    assert not world.told(CopySettled)
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 1), (0, 0, 2)]
    assert not world.quarantined
    assert not world.open(SOURCE)


def test_a_later_record_at_the_offset_of_a_parked_one_of_its_key_waits_for_it() -> None:
    """There it has no place before that one is handled."""
    world = anew("a")
    world.gain()
    world.produce("aa")
    world.come_to_rest()
    assert world.starts == [(0, 0, 1), (0, 0, 2), (0, 0, 1), (0, 1, 1)]
    assert not world.quarantined
    assert not world.open(SOURCE)


def test_a_record_at_the_offset_of_one_that_waits_behind_is_handled_and_may_fail() -> None:
    """Each of the four is handled."""
    world = anew("a", "a")
    world.gain()
    world.produce("aa")
    failed: list[int] = []

    def once(delivery: TrackedDelivery) -> Outcome:
        if delivery.attempt == 1 and not failed:
            failed.append(delivery.record_offset)
            return BOOM
        return ACKED

    world.come_to_rest(once)
    assert failed
    assert sorted(offsets(world)) == [0, 0, 1, 1]
    assert not world.quarantined
    assert not world.open(SOURCE)


def test_what_goes_with_a_dead_letter_leaves_a_later_record_at_its_offset_out() -> None:
    """What was behind the dead letter is dead-lettered, what came in its place is not lost."""
    world = anew("a", "a", after="dead_letter")
    world.gain()
    world.produce("aa")
    world.come_to_rest(lambda d: HOPELESS if d.attempt == 2 else ACKED)
    assert [offset for offset, _ in world.waiting_in(DLQ)] == [0, 1]
    assert offsets(world) == [0, 1]
    assert not world.quarantined
    assert not world.open(SOURCE)


@pytest.mark.parametrize("topics", [(SHORT, SHORT), (SHORT, LONG)])
def test_two_parked_records_with_one_offset_are_both_handled(topics: tuple[str, str]) -> None:
    """T2: neither is a copy of the other; those of the source are copies of them."""
    world = QuarantineWorld(rules())
    world.append(SOURCE)
    for topic, written_ms in zip(topics, (START_MS - 9, START_MS), strict=True):
        world.append(topic, headers=parked_headers(0, written_ms=written_ms))
    world.append(LONG, headers=parked_headers(1, reason=Reason.BEHIND, written_ms=START_MS + 1))
    world.gain()
    assert len(world.quarantined[SOURCE, 0, b"a"]) == 3
    assert not any(a.superseded for a in world.engine.assignments.values())
    world.come_to_rest()
    assert world.starts == [(0, 0, 2), (0, 0, 2), (0, 1, 2)]
    assert not world.quarantined
    assert not world.open(SOURCE)


@pytest.mark.parametrize("written", ["", "bb"])
def test_what_was_parked_from_a_longer_source_does_not_wait_until_it_is_as_long(
    written: str,
) -> None:
    """It may never be; and what it has is read before."""
    world = anew("a", "aaa")
    for key in written:
        world.append(SOURCE, key.encode())
    world.gain()
    world.poll(*TIERS)
    world.tick(10.0)
    assert world.startable() == (not written)
    world.come_to_rest()
    assert sorted(offsets(world)) == sorted([0, 1, 2, 3, *range(len(written))])
    assert not world.quarantined


@pytest.mark.parametrize("cut", [0, 1])
def test_a_record_whose_copy_was_truncated_before_it_was_read_is_handled(cut: int) -> None:
    """The retry partition comes anew, with what is left of it."""
    world = parked("aab")
    world.stored[SOURCE, 0] = (0, "")
    world.gain()
    world.leave_all(LONG, lost=True)
    del world.logs[LONG, 0][cut:]
    world.gain(LONG)
    world.come_to_rest()
    assert [offset for offset in offsets(world) if offset != 2] == [0, 1]
    assert not world.quarantined
