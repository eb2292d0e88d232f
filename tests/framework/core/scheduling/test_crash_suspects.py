"""Suspects: who runs when, who is condemned, who is cleared, and what that does to the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import pytest

from ackfloor.core.breaker.rule import Forced
from ackfloor.core.messages.commands import TakeBack
from ackfloor.core.messages.events import RecordDeadLettered, SuspectCleared, SuspectStarted
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import RELEASED, Bury, Failed
from ackfloor.core.records.record import Failure
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling.crash_suspects import COMMIT_S, LONGEST_S
from ackfloor.core.state.assignment import HandlerRules, HandlerState
from ackfloor.core.state.worker_state import Route
from tests.framework.core.worlds import (
    DLQ,
    TIER,
    HeldWorld,
    MemoryRecord,
    World,
    deliveries_in,
    offsets_of,
)

HOW = "was killed by signal 11 (SIGSEGV)"
BY_KEY = HandlerRules("bill", "key")


def world(
    crashes: dict[int, int], rules: HandlerRules | None = None, *, topic: str = "orders"
) -> World:
    """A world that knows suspects of partition 0: offset -> crashes."""
    made = World(rules or HandlerRules("bill"))
    made.engine.suspects.learn((topic, 0, offset, count, HOW) for offset, count in crashes.items())
    made.assign()
    return made


def step(made: World, seconds: float = 0.0, *, quiet: bool = True) -> list[object]:
    """One turn of the owner thread; returns what was commanded."""
    made.now_s += seconds
    if made.engine.suspects.active:
        made.engine.suspects.tick(made.now, quiet=quiet)
    return list(made.take())


def started(made: World) -> list[int]:
    """Offsets of what was given and nobody has taken, in order; takes none."""
    return offsets_of(made.ready)


def exclusive(made: World) -> bool:
    """Whether nothing starts but what is to run alone."""
    return made.engine.state.exclusive


def at(made: World, offset: int) -> TrackedDelivery:
    """A worker takes what was dispatched of one offset and starts its handler."""
    while True:
        item = made.ready.popleft()
        delivery = item.popleft() if isinstance(item, Work) else item
        if isinstance(item, Work) and item:
            made.ready.append(item)
        if delivery.offset == offset:
            delivery.started_s = made.now_s
            return delivery
        made.ready.append(delivery)


def keyed(offsets: Iterable[int], key: bytes) -> Sequence[MemoryRecord]:
    """Records of one key."""
    return [MemoryRecord("orders", 0, offset, _key=key) for offset in offsets]


def test_without_suspects_nothing_is_looked_for() -> None:
    """The ordinary path is one question for each batch."""
    made = World()
    made.assign()
    made.read([0, 1])
    assert started(made) == [0, 1]
    assert not made.engine.suspects.watching
    assert not made.engine.suspects.active


def test_suspects_of_one_crash_run_one_at_a_time_beside_the_others() -> None:
    """Each waits for the end of the one before; whoever is no suspect does not."""
    made = world({1: 1, 3: 1})
    made.read(range(5))
    assert started(made) == [0, 2, 4]
    step(made)
    assert not exclusive(made)
    assert started(made) == [0, 2, 4, 1]
    step(made, quiet=False)
    assert 3 not in started(made)
    made.finish(at(made, 1))
    step(made)
    assert started(made)[-1] == 3
    assert made.engine.suspects.over == [("orders", 0, 1)]
    assert made.told(SuspectCleared) == [SuspectCleared("orders", "bill")]
    assert [(e.offset, e.crashes, e.alone) for e in made.told(SuspectStarted)] == [
        (1, 1, False),
        (3, 1, False),
    ]


def test_a_suspect_of_two_crashes_runs_alone_and_first() -> None:
    """Nothing starts any more, what runs may end, then it runs, then all goes on."""
    made = world({1: 1, 3: 2})
    made.read(range(5))
    assert step(made) == [TakeBack("bill")]
    assert (exclusive(made), started(made)) == (True, [])
    step(made, 1.0, quiet=False)
    assert started(made) == []
    step(made, 1.0, quiet=True)
    assert started(made) == [3]
    made.read([5])
    step(made, 1.0, quiet=False)
    assert started(made) == [3]
    made.finish(at(made, 3))
    step(made)
    assert not exclusive(made)
    assert started(made) == [1, 0, 2, 4, 5]
    assert step(made, quiet=False) == []


def test_two_that_must_run_alone_do_so_one_after_the_other() -> None:
    """Without letting others start in between, and others go on after the last."""
    made = world({1: 2, 3: 2})
    made.read(range(5))
    step(made)
    step(made)
    made.finish(at(made, 1))
    assert step(made) == []
    assert (exclusive(made), started(made)) == (True, [3])
    made.finish(at(made, 3))
    step(made)
    assert (exclusive(made), started(made)) == (False, [0, 2, 4])
    assert not made.engine.suspects.active


def test_a_record_that_died_alone_a_third_time_is_dead_lettered_without_being_run() -> None:
    """With the reason, the process's end in words, and nothing of it dispatched."""
    made = world({1: 3})
    made.read(range(3))
    assert started(made) == [0, 2]
    (write,) = made.writes
    assert write.topic == DLQ
    verdict = write.verdict
    assert isinstance(verdict, Bury)
    assert verdict.reason is Reason.CRASH
    assert verdict.failure.error_type == "WorkerCrash"
    assert HOW in verdict.failure.message
    assert write.envelope.duration_ms == 0
    made.confirm()
    (dead,) = made.told(RecordDeadLettered)
    assert (dead.offset, dead.reason) == (1, Reason.CRASH)
    made.finish(at(made, 0))
    assert made.floor() == 2


def test_a_condemned_record_is_a_suspect_until_a_commit_holds_it() -> None:
    """Else a crash before that commit would let it kill three more processes."""
    made = world({1: 3})
    made.read(range(3))
    step(made)
    made.confirm()
    step(made)
    assert made.engine.suspects.over == []
    made.tick()
    assert len(made.commits) == 1, "at once, not in a second"
    step(made)
    assert made.engine.suspects.over == []
    made.answer_commit()
    step(made)
    assert made.floor() == 0
    assert made.engine.suspects.over == [("orders", 0, 1)]
    assert not made.engine.suspects.active
    assert not made.engine.suspects.watching


def test_where_lanes_wait_for_their_head_a_condemned_record_keeps_its_place() -> None:
    """Those before it first; those behind it when the broker has confirmed the dead letter."""
    made = world({1: 3}, HandlerRules("bill", "key", in_place=True))
    made.engine.polled(keyed(range(3), b"a"), made.now)
    step(made)
    assert made.writes == []
    made.finish(made.start())
    step(made)
    step(made)
    assert [write.delivery.offset for write in made.writes] == [1]
    assert started(made) == []
    made.confirm()
    assert started(made) == [2]


def test_retried_in_place_a_suspect_is_cleared_and_its_lane_waits_for_it() -> None:
    """It has failed like any other; what follows is the lane's business."""
    made = world({0: 1}, HandlerRules("bill", "key", in_place=True))
    made.engine.polled(keyed(range(2), b"a"), made.now)
    step(made)
    made.finish(made.start(), Failed(Failure("Boom", "x")))
    step(made)
    assert made.engine.suspects.over == [("orders", 0, 0)]
    assert started(made) == []
    made.tick(2.0)
    assert started(made) == [0]
    made.finish(made.start())
    assert started(made) == [1]


def test_no_suspect_starts_before_a_condemned_record_is_committed() -> None:
    """It might kill the process, and the dead letter would be written once more."""
    made = world({0: 1, 1: 3})
    made.tick(5.0)
    made.commits.clear()
    made.read(range(3))
    step(made)
    made.finish(at(made, 2))
    made.tick(1.0)
    made.confirm()
    step(made)
    made.tick()
    assert len(made.commits) == 1, "one at a time: the next when this one is answered"
    made.answer_commit()
    step(made)
    made.tick()
    assert started(made) == []
    made.answer_commit()
    step(made)
    assert started(made) == [0]


def test_suspects_do_not_wait_for_ever_for_a_dead_letter_that_can_not_be_written() -> None:
    """The topic may be missing for hours."""
    made = world({0: 1, 1: 3})
    made.read(range(2))
    step(made, COMMIT_S - 1)
    assert started(made) == []
    step(made, 2.0)
    assert started(made) == [0]


def test_a_condemned_record_whose_partition_left_is_condemned_when_it_comes_again() -> None:
    """Its new assignment parks it once more: that is for the commit to prevent, nothing else."""
    made = world({1: 3})
    made.read(range(3))
    made.revoke()
    step(made)
    assert made.engine.suspects.over == []
    made.writes.clear()
    made.assign()
    made.read(range(3))
    assert [write.delivery.offset for write in made.writes] == [1]


def test_what_an_assignment_begins_behind_is_over() -> None:
    """Somebody else has settled and committed it."""
    made = World()
    made.engine.suspects.learn([("orders", 0, 4, 1, HOW), ("orders", 0, 5, 3, HOW)])
    made.assign(position=5)
    assert made.engine.suspects.over == [("orders", 0, 4)]


def test_a_failure_and_a_timeout_clear_a_suspect_as_well() -> None:
    """The process has survived it."""
    made = world({0: 1, 1: 1, 2: 1})
    made.read(range(3))
    step(made)
    made.fail(at(made, 0), Failed(Failure("Boom", "x")))
    step(made)
    late = at(made, 1)
    made.now_s += 61.0
    made.expire(late)
    step(made)
    assert made.engine.suspects.over == [("orders", 0, 0), ("orders", 0, 1)]
    assert started(made) == [2]


def test_a_release_and_a_revoke_clear_nobody() -> None:
    """It was cut short; the next owner must know."""
    made = world({0: 1, 1: 1})
    made.read(range(2))
    step(made)
    made.finish(at(made, 0), RELEASED)
    step(made)
    assert started(made) == [1]
    made.revoke()
    step(made)
    assert made.engine.suspects.over == []
    assert not made.engine.suspects.active


def test_suspects_of_a_partition_that_left_are_forgotten() -> None:
    """Those that wait and those that wait behind them."""
    made = world({0: 1, 2: 1}, BY_KEY)
    made.engine.polled([*keyed(range(2), b"a"), *keyed(range(2, 4), b"b")], made.now)
    step(made)
    made.revoke()
    step(made)
    assert not made.engine.suspects.active
    made.assign()
    made.engine.polled(keyed(range(2), b"a"), made.now)
    made.ready.clear()
    step(made)
    assert started(made) == [0]


def test_a_lane_waits_for_its_suspect_and_a_suspect_for_its_lane() -> None:
    """In offset order, whatever is a suspect in it."""
    made = world({1: 1, 3: 2}, BY_KEY)
    made.engine.polled(keyed(range(5), b"a"), made.now)
    step(made)
    assert started(made) == [0]
    step(made)
    assert len(made.ready) == 1, "the lane is not idle until what runs in it has ended"
    made.finish(made.start())
    step(made)
    assert started(made) == [1]
    made.finish(made.start())
    step(made)
    assert started(made) == [2], "up to the next suspect"
    made.finish(made.start())
    assert step(made) == [TakeBack("bill")]
    assert (exclusive(made), started(made)) == (True, [])
    step(made)
    assert (exclusive(made), started(made)) == (True, [3])


def test_what_came_behind_a_suspect_goes_on_in_its_lane() -> None:
    """Also what came while it ran, up to the next suspect, which then waits for the lane."""
    made = world({0: 1, 3: 1}, BY_KEY)
    made.engine.polled(keyed(range(2), b"a"), made.now)
    step(made)
    delivery = made.start()
    made.engine.polled(keyed(range(2, 5), b"a"), made.now)
    step(made)
    assert started(made) == []
    made.finish(delivery)
    step(made)
    run = made.ready.popleft()
    assert isinstance(run, Work)
    assert [d.offset for d in run] == [1, 2]
    made.finish(run.popleft())
    made.finish(run.popleft())
    made.engine.unit_ended("bill", run, made.now)
    step(made)
    assert started(made) == [3]
    made.finish(made.start())
    step(made)
    assert started(made) == [4]
    made.engine.polled(keyed([5], b"a"), made.now)
    made.finish(made.start())
    made.take()
    assert started(made) == [5], "the lane is an ordinary one again"


def test_a_suspect_does_not_wait_for_ever_for_what_runs() -> None:
    """A handler without a timeout that never ends would hold up everything."""
    made = world({1: 2})
    made.read(range(2))
    step(made)
    step(made, LONGEST_S - 1, quiet=False)
    assert started(made) == []
    step(made, 2.0, quiet=False)
    assert (exclusive(made), started(made)) == (True, [1])


def test_nothing_waits_for_ever_for_a_suspect() -> None:
    """After a while it is let go, without being cleared."""
    made = world({0: 2, 1: 1})
    made.read(range(3))
    step(made)
    step(made)
    stuck = at(made, 0)
    assert step(made, LONGEST_S - 1, quiet=False) == []
    step(made, 2.0, quiet=False)
    assert (exclusive(made), started(made)) == (False, [1, 2])
    made.finish(stuck)
    assert ("orders", 0, 0) not in made.engine.suspects.over


def test_a_pause_of_a_suspects_handler_lets_the_others_go_on() -> None:
    """It is not alone any more when it runs after the pause; another crash will not condemn it."""
    made = world({0: 2})
    made.read(range(2))
    step(made)
    step(made)
    made.engine.hold("bill", 30.0, "away", made.now)
    step(made)
    assert (exclusive(made), started(made)) == (False, [])
    made.tick(31.0)
    assert started(made) == [0, 1]
    made.finish(at(made, 0))
    step(made)
    assert made.engine.suspects.over == [("orders", 0, 0)]


def test_no_suspect_of_a_paused_handler_is_started() -> None:
    """It could not run, and everything else would wait for it."""
    made = world({0: 2})
    made.engine.hold("bill", 30.0, "away", made.now)
    made.read(range(2))
    made.take()
    assert step(made) == []
    made.tick(31.0)
    assert step(made) == [TakeBack("bill")]
    assert exclusive(made)


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
@pytest.mark.parametrize("singly", [True, False], ids=["singly", "in works"])
def test_a_suspect_of_a_handler_that_an_operator_paused_has_its_turn_later(
    ordering: str, singly: bool
) -> None:
    """S6: neither records nor another suspect wait for it; resumed, it runs as it should, alone."""
    made = World(HandlerRules("bill", ordering, manual=not singly))
    other = made.engine.state.handlers["other"] = HandlerState(HandlerRules("other"))
    made.routes["calls"] = Route("other", "calls")
    known = [("orders", 0, 0, 2, HOW), ("calls", 0, 0, 1, HOW)]
    made.engine.suspects.learn(known)
    made.assign()
    made.assign(topic="calls")
    made.engine.polled(keyed(range(2), b"a"), made.now)
    step(made)
    step(made)
    assert (exclusive(made), started(made)) == (True, [0])
    made.engine.pause("bill", inf, "a migration", made.now)
    made.take()
    made.engine.polled([MemoryRecord("calls", 0, offset) for offset in range(2)], made.now)
    step(made, LONGEST_S * 2)
    assert not exclusive(made)
    assert [d.assignment.topic for d in flat(made)] == ["calls", "calls"]
    for offset in (0, 1):
        made.finish(at(made, offset))
    step(made, 60.0)
    assert made.engine.suspects.over == [("calls", 0, 0)]
    assert (exclusive(made), started(made), other.suspect) == (False, [], None)
    made.engine.resume("bill", made.now)
    step(made)
    step(made)
    assert (exclusive(made), started(made)) == (True, [0])
    suspect = made.start()
    made.finish(suspect)
    made.leave(suspect)
    step(made)
    assert made.engine.suspects.over == [("calls", 0, 0), ("orders", 0, 0)]
    assert (exclusive(made), started(made)) == (False, [1])


def flat(made: World) -> list[TrackedDelivery]:
    """What was given and nobody has taken."""
    return [delivery for item in made.ready for delivery in deliveries_in(item)]


def test_a_suspect_that_runs_when_an_operator_pauses_its_handler_runs_on_alone() -> None:
    """It may still kill the worker: what it runs beside would be suspected with it."""
    made = world({0: 2})
    made.read(range(2))
    step(made)
    step(made)
    suspect = at(made, 0)
    made.engine.pause("bill", inf, "a migration", made.now)
    step(made, 30.0, quiet=False)
    assert exclusive(made)
    made.finish(suspect)
    step(made)
    assert (exclusive(made), started(made)) == (False, [])
    assert made.engine.suspects.over == [("orders", 0, 0)]


def test_a_partition_may_leave_while_its_suspect_waits_for_an_operator() -> None:
    """Its next owner handles it; here nothing is left of it."""
    made = world({0: 2}, BY_KEY)
    made.engine.polled(keyed(range(2), b"a"), made.now)
    step(made)
    step(made)
    made.engine.pause("bill", inf, "a migration", made.now)
    step(made, 1.0)
    made.revoke()
    made.engine.resume("bill", made.now)
    step(made)
    assert (exclusive(made), started(made)) == (False, [])
    assert not made.engine.suspects.active
    assert made.engine.flow.open_count == 0


def test_a_suspect_in_a_tier_waits_its_time_and_runs_like_any_other() -> None:
    """And takes its share of the room of redeliveries until it has ended."""
    made = World()
    made.engine.suspects.learn([(TIER, 0, 0, 1, HOW), (TIER, 0, 1, 3, HOW)])
    made.assign(topic=TIER)
    made.redeliver([0, 1, 2], due_ms=made.now.wall_ms + 5_000)
    step(made)
    assert started(made) == []
    made.tick(5.0)
    handler = made.engine.state.handlers["bill"]
    assert handler.open_retries == 2
    assert [p.delivery.offset for p in made.writes] == [1]
    made.confirm()
    step(made)
    made.commits.clear()
    made.tick()
    made.answer_commit()
    step(made)
    assert sorted(started(made)) == [0, 2]
    made.finish(at(made, 0))
    made.finish(at(made, 2))
    step(made)
    assert handler.open_retries == 0
    assert made.engine.suspects.over == [(TIER, 0, 1), (TIER, 0, 0)]


def test_a_suspect_that_waits_for_its_lane_takes_no_room_from_the_head_of_it() -> None:
    """The head failed while the circuit breaker was open, and needs the only slot to come again."""
    policy = RetryPolicy("1s", 1, "1s", 1, 0)
    made = HeldWorld(HandlerRules("bill", "key", concurrency=1, policy=policy))
    made.engine.suspects.learn([(TIER, 0, 1, 1, HOW)])
    made.assign(topic=TIER)
    made.engine.force("bill", Forced.OPEN, inf, "", made.now)
    made.redeliver([0], key=b"k")
    made.tick()
    made.finish(made.start(), Failed(Failure("Boom", "x")))
    made.engine.force("bill", Forced.CLOSED, inf, "", made.now)
    made.redeliver([1], key=b"k")
    handled: list[int] = []
    for _ in range(5):
        step(made, 1.0)
        made.tick()
        while made.startable():
            delivery = made.start()
            made.finish(delivery)
            made.leave(delivery)
            handled.append(delivery.offset)
    assert handled == [0, 1]
    assert made.engine.state.handlers["bill"].open_retries == 0


def test_what_is_learnt_replaces_what_was_known() -> None:
    """Whole tables are sent, so that a lost one is made good by the next."""
    made = world({0: 1})
    made.engine.suspects.learn([("orders", 0, 1, 1, HOW)])
    made.read(range(2))
    assert started(made) == [0]


def test_records_of_other_partitions_are_none_of_its_business() -> None:
    """A suspect's offset in another partition is another record."""
    made = world({0: 1})
    made.assign(partition=1)
    made.read([0, 1], partition=1)
    assert started(made) == [0, 1]
