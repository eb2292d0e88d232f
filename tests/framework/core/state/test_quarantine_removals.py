"""Removals: retention takes records of a retry partition before they were read; R1 and R2."""

from __future__ import annotations

import pytest

from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.retry_policy import RetryPolicy
from tests.framework.core.quarantine_worlds import (
    BOOM,
    HOPELESS,
    LONG,
    SHORT,
    SOURCE,
    QuarantineWorld,
    parked_headers,
    rules,
)


def parked(keys: str, **others: object) -> QuarantineWorld:
    """A worker with a failed record of each key, which was not read again, and one behind each.

    The failed ones have the offsets from 0 on in the source and in their retry partition.
    """
    world = QuarantineWorld(rules(**others))
    world.gain()
    come(world, keys)
    for _ in keys:
        world.handle(BOOM)
    world.confirm_all()
    come(world, keys)
    world.confirm_all()
    return world


def come(world: QuarantineWorld, keys: str) -> None:
    """Records of these keys are written to the source and read; nothing else is read."""
    for key in keys:
        world.append(SOURCE, key.encode())
    world.poll(SOURCE)


def read(world: QuarantineWorld, topic: str, *offsets: int) -> None:
    """These records of a retry partition are read."""
    world.engine.polled([world.logs[topic, 0][offset] for offset in offsets], world.now)
    world.take()
    world.tick()


def handled(world: QuarantineWorld) -> list[int]:
    """All that is due is handled, and what follows it; returns the origin offsets, in order."""
    found: list[int] = []
    for _ in range(4):
        world.tick()
        found += world.handle_all()
    return found


def rests(world: QuarantineWorld) -> bool:
    """Nothing is open, quarantined or being written."""
    return not (world.quarantined or world.writes or world.engine.flow.open_count)


def test_what_was_removed_is_not_waited_for() -> None:
    """R2: the key goes on with what is left of it."""
    world = parked("a")
    world.poll(LONG)
    world.remove(SHORT, 1)
    assert world.engine.next_due_s(world.now) <= world.now_s
    world.tick()
    world.tick()
    assert handled(world) == [1]
    assert rests(world)


def test_what_is_still_in_the_log_keeps_its_place() -> None:
    """R1: of three keys one has lost its head; the others wait until theirs were read and ran."""
    world = parked("abc")
    world.poll(LONG)
    world.remove(SHORT, 1)
    world.tick(5.0)
    assert not world.startable()
    read(world, SHORT, 1)
    world.tick(5.0)
    assert handled(world) == [1, 4]
    read(world, SHORT, 2)
    world.tick(5.0)
    assert sorted(handled(world)) == [2, 3, 5]
    assert world.handled.index((0, 2)) < world.handled.index((0, 5))
    assert rests(world)


def test_what_is_written_to_the_partition_meanwhile_is_waited_for() -> None:
    """R1: it was read, failed and was parked there again before the log was read to its end."""
    world = parked("ba", policy=RetryPolicy("1s", 1, "1s", 3, 0))
    world.remove(SHORT, 1)
    read(world, SHORT, 1)
    world.tick(1.5)
    assert world.handle(BOOM) == 1
    world.confirm_all()
    read(world, SHORT, 2, 3)
    world.tick(5.0)
    assert handled(world) == [2]
    read(world, SHORT, 4)
    world.tick(5.0)
    assert handled(world) == [1, 3]
    assert rests(world)


def test_a_second_loss_comes_before_the_end_of_the_first() -> None:
    """Each record is waited for up to the end of the log when it was first in doubt."""
    world = parked("abc")
    world.poll(LONG)
    world.remove(SHORT, 1)
    come(world, "dd")
    world.handle(BOOM)
    world.confirm_all()
    world.poll(LONG)
    world.remove(SHORT, 2)
    world.tick()
    assert not world.startable()
    read(world, SHORT, 2)
    assert sorted(handled(world)) == [3, 4]
    world.tick(5.0)
    assert handled(world) == [2, 5]
    assert not world.startable()
    read(world, SHORT, 3)
    world.tick(5.0)
    assert handled(world) == [6, 7]
    assert rests(world)


def test_a_second_loss_takes_all_that_the_first_had_left() -> None:
    """The log is as good as read up to the end of that moment."""
    world = parked("ab")
    world.poll(LONG)
    world.remove(SHORT, 1)
    world.remove(SHORT, 2)
    world.tick()
    world.tick()
    assert sorted(handled(world)) == [2, 3]
    assert rests(world)


def test_a_position_that_passes_what_never_arrives_counts() -> None:
    """R2: behind what is left may be markers, or records of a transaction that was aborted."""
    world = parked("a")
    world.poll(LONG)
    world.append(SHORT, b"a")
    world.remove(SHORT, 1)
    world.tick(5.0)
    assert not world.startable()
    world.engine.passed({(SHORT, 0): 2})
    assert world.engine.next_due_s(world.now) <= world.now_s
    world.tick()
    world.tick()
    assert handled(world) == [1]
    assert rests(world)


@pytest.mark.parametrize("lost", [False, True])
def test_the_partition_leaves_while_it_is_in_doubt(lost: bool) -> None:
    """Its next owner sees what is there; nothing of the doubt is left."""
    world = parked("ab")
    world.poll(LONG)
    world.remove(SHORT, 1)
    world.leave_all(lost=lost)
    world.tick()
    world.stored[SOURCE, 0] = (4, "")
    world.stored[SHORT, 0] = (1, "")
    world.gain()
    world.poll()
    assert handled(world) == [2]
    world.tick(5.0)
    assert handled(world) == [1, 3]
    assert rests(world)


def test_its_topic_is_deleted_while_it_is_in_doubt() -> None:
    """What was read of it has its time; nothing else comes, and the other keys go on at once."""
    world = parked("abc")
    world.poll(LONG)
    world.remove(SHORT, 1)
    read(world, SHORT, 1)
    come(world, "dd")
    world.handle(BOOM)
    world.confirm_all()
    world.poll(LONG)
    world.drop_topic(SHORT)
    assert sorted(handled(world)) == [3, 5, 7]
    world.tick(5.0)
    assert handled(world) == [1, 4]
    assert rests(world)


def test_its_topic_is_deleted_when_its_source_has_left() -> None:
    """What waits behind it elsewhere is the head, and waits for the source."""
    world = parked("a")
    world.leave_all(SOURCE, lost=True)
    world.drop_topic(SHORT)
    world.tick()
    assert world.quarantined[SOURCE, 0, b"a"].head == 1


def test_what_was_read_before_its_group_was_here_counts_when_it_is_looked_at() -> None:
    """R1: a partition that came alone was read up to the end, and what was read waits.

    What was announced before all of its group were here, and removed, is not waited for.
    """
    world = QuarantineWorld(rules())
    world.gain()
    come(world, "aa")
    world.handle(BOOM)
    world.confirm_all()
    world.leave_all(SHORT, LONG)
    world.gain(SHORT)
    come(world, "bb")
    world.handle(BOOM)
    assert [write.topic for write in world.writes] == [SHORT, LONG]
    world.confirm_all()
    world.remove(SHORT, 1)
    read(world, SHORT, 1)
    come(world, "b")
    assert not world.startable()
    world.gain(LONG)
    world.come_to_rest()
    assert sorted(world.handled) == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert [offset for _, offset in world.handled if offset > 1] == [2, 3, 4]
    assert rests(world)


def test_what_the_source_has_takes_the_place_of_what_may_be_gone() -> None:
    """It is no copy of something that is known to be there: it is handled, in its order."""
    world = parked("a")
    world.append(SHORT, b"b", headers=parked_headers(9))
    world.poll(LONG)
    world.remove(SHORT, 1)
    world.leave_all(SOURCE, lost=True)
    world.stored.pop((SOURCE, 0), None)
    world.gain(SOURCE)
    world.poll(SOURCE)
    world.tick()
    assert handled(world) == [0, 1]


def test_what_is_still_there_after_all_takes_its_place_back() -> None:
    """Renewals look after what is in retry partitions; the source has done its part."""
    world = QuarantineWorld(rules())
    world.gain()
    world.append(LONG, b"b", headers=parked_headers(9))
    come(world, "aa")
    world.handle(BOOM)
    world.confirm_all()
    world.remove(LONG, 1)
    world.leave_all(SOURCE, lost=True)
    world.gain(SOURCE)
    world.poll(SOURCE)
    assert world.open(SOURCE) == [1]
    read(world, LONG, 1)
    assert world.open(SOURCE) == []
    read(world, SHORT, 0)
    world.tick(5.0)
    assert handled(world) == [0, 1]


def test_what_was_announced_and_removed_is_handled_from_the_source() -> None:
    """It was parked, and no commit said so: the source still has it."""
    world = parked("a")
    world.restart()
    world.poll(LONG)
    world.remove(SHORT, 1)
    world.tick()
    world.poll(SOURCE)
    world.tick()
    assert handled(world) == [0, 1]
    world.tick()
    assert rests(world)


def test_a_copy_in_a_partition_that_comes_later_is_waited_for_there() -> None:
    """It is known to be there: the end of the other partition's log says nothing of it."""
    world = parked("a")
    world.stored[SOURCE, 0] = (2, "")
    world.leave_all(LONG, lost=True)
    # Of an earlier source topic: it waits for nothing.
    world.append(SHORT, b"b", headers=parked_headers(9))
    world.remove(SHORT, 1)
    world.append(LONG, headers=parked_headers(0, attempt=2))
    world.gain(LONG)
    world.poll(SHORT)
    world.tick(5.0)
    read(world, LONG, 0)
    assert handled(world) == [9]
    read(world, LONG, 1)
    assert handled(world) == [0, 1]


def test_the_condemned_that_may_be_gone_hold_their_key_no_longer_than_needed() -> None:
    """A dead letter that stays until those behind it have followed goes when they are gone."""
    world = QuarantineWorld(rules(after_dead_letter="dead_letter"))
    world.stored[SOURCE, 0] = (3, "")
    world.append(SHORT, headers=parked_headers(0))
    for origin in (1, 2):
        world.append(LONG, headers=parked_headers(origin, reason=Reason.BEHIND, attempt=0))
    world.gain()
    world.poll(SHORT)
    world.remove(LONG, 1)
    assert world.handle(HOPELESS) == 0
    world.confirm_all()
    assert world.quarantined
    world.come_to_rest()
    dead = [origin for origin, _ in world.waiting_in("orders--g--dlq")]
    assert dead == [0, 2]
    assert rests(world)


def test_a_full_partition_is_read_on_for_what_may_be_gone() -> None:
    """R2: what waits behind and fills it is written anew, as for any head that was not read."""
    world = QuarantineWorld(rules(), limits=FlowLimits(tier_buffer=2))
    world.stored[SOURCE, 0] = (6, "")
    for origin in range(6):
        reason = Reason.BEHIND if origin else Reason.ERROR
        world.append(LONG, headers=parked_headers(origin, reason=reason, attempt=not origin))
    world.gain()
    assert len(world.quarantined) == 1
    world.remove(LONG, 1)
    read(world, LONG, 1, 2)
    assert world.engine.assignments[LONG, 0].paused
    world.tick(1.0)
    assert [offset for _, _, offset, _ in world.leaving()] == [1, 2]
    world.come_to_rest()
    assert [offset for _, offset in world.handled] == [1, 2, 3, 4, 5]
    assert rests(world)


def test_records_without_an_order_that_were_removed_are_expected_no_longer() -> None:
    """What is expected in a full partition has others written anew, each time it is looked at."""
    world = parked("a")
    place = world.engine.assignments[SHORT, 0]
    world.append(SOURCE, None)
    world.poll(SOURCE)
    assert world.handle(BOOM) == 2
    world.confirm_all()
    assert place.others_unread == 1
    world.remove(SHORT, 2)
    world.tick()
    assert place.others_unread == 0
