"""Commits: when floors are committed, in which epoch, and what a refusal changes."""

from __future__ import annotations

from collections import deque

import pytest

from ackfloor.core.engine.engine import Engine
from ackfloor.core.messages.commands import Commit
from ackfloor.core.messages.events import CommitFailed, PositionsCommitted
from ackfloor.core.parking.parking import Parking
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.records.record import CommitPosition, StartPosition, TopicPartition
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.commit_schedule import QUIET, REPEAT_S, REPEATED_AT_ONCE
from ackfloor.core.state.worker_state import Route
from tests.framework.core.worlds import START_S, TIER, World


def handled(world: World, *offsets: int, partition: int = 0) -> None:
    """Records are read and handled."""
    world.read(offsets, partition)
    for _ in offsets:
        world.finish(world.start())


def positions(world: World) -> list[list[tuple[int, int]]]:
    """(partition, position) of every commit so far."""
    return [[(p.partition, p.position) for p in c.positions] for c in world.commits]


def test_floors_are_committed_once_a_second() -> None:
    """All that moved in one request; what did not move is left out."""
    world = World()
    world.assign(0)
    world.assign(1)
    world.assign(2, 50)
    world.tick()
    handled(world, 0, 1)
    handled(world, 7, partition=1)
    assert positions(world) == []
    world.tick(0.9)
    assert positions(world) == []
    world.tick(0.1)
    assert positions(world) == [[(0, 2), (1, 8)]]


def test_many_settled_records_bring_a_commit_forward() -> None:
    """By count or by time, whichever comes first."""
    world = World()
    world.engine = Engine(
        [HandlerRules("bill")],
        {"orders": Route("bill", "orders")},
        Parking("g", lambda n: 0, {}),
        limits=FlowLimits(),
        inbox=deque(),
        clock=lambda: world.now_s,
        commit_interval_s=60.0,
        commit_count=3,
    )
    world.assign()
    world.tick()
    handled(world, 0, 1)
    assert not world.engine.commit_due(world.now)
    world.tick()
    handled(world, 2)
    assert world.engine.commit_due(world.now)
    world.tick()
    assert positions(world) == [[(0, 3)]]
    world.answer_commit()
    handled(world, 3, 4)
    world.tick()
    assert positions(world) == []


def test_the_next_commit_is_a_reason_to_wake() -> None:
    """Nothing else to do: the worker sleeps until it, longer where nothing is to be committed."""
    world = World(HandlerRules("bill", consume_timeout_s=None))
    world.assign()
    world.tick()
    world.expire()
    assert world.engine.next_wakeup_s(world.now) == START_S + QUIET
    handled(world, 0)
    assert world.engine.next_wakeup_s(world.now) == START_S + 1
    world.tick(1)
    assert positions(world) == [[(0, 1)]]
    assert world.engine.next_wakeup_s(world.now) == START_S + 2


def test_a_refused_commit_is_repeated_soon() -> None:
    """Also where nothing is settled meanwhile."""
    world = World()
    world.assign()
    handled(world, 0)
    world.tick(1)
    world.answer_commit("COORDINATOR_NOT_AVAILABLE")
    assert not world.engine.commit_due(world.now)
    world.tick(1)
    assert positions(world) == [[(0, 1)]]


def test_one_commit_of_a_partition_is_outstanding() -> None:
    """The next waits for its answer and takes the floor of its own time."""
    world = World()
    world.assign()
    handled(world, 0)
    world.tick()
    handled(world, 1)
    world.tick(1)
    handled(world, 2)
    world.tick(1)
    assert positions(world) == [[(0, 1)]]
    world.answer_commit()
    world.tick(1)
    assert positions(world) == [[(0, 3)]]


def test_an_outstanding_commit_holds_up_nobody_else() -> None:
    """Each partition has a lane of its own."""
    world = World()
    world.assign(0)
    world.assign(1)
    handled(world, 0)
    world.tick()
    handled(world, 0, partition=1)
    world.tick(1)
    assert positions(world) == [[(0, 1)], [(1, 1)]]


def test_a_refused_commit_is_made_anew_from_the_present_floor() -> None:
    """Never the old value again; the fault is named until one is confirmed."""
    world = World()
    world.assign()
    handled(world, 0)
    world.tick()
    handled(world, 1, 2)
    refused = world.answer_commit("COORDINATOR_NOT_AVAILABLE")
    assert refused.positions[0].position == 1
    assert world.told(CommitFailed) == [CommitFailed("orders", 0, "COORDINATOR_NOT_AVAILABLE")]
    assert world.subjects() == ["commit orders"]
    world.tick(1)
    assert positions(world) == [[(0, 3)]]
    world.answer_commit()
    assert world.subjects() == []
    assert world.told(PositionsCommitted) == [PositionsCommitted(1)]
    assert world.engine.assignments["orders", 0].commit.position == 3


def test_an_answer_of_an_older_epoch_is_ignored() -> None:
    """Neither its success nor its failure says anything of the partition as it is now."""
    world = World()
    world.assign()
    handled(world, 0)
    world.tick()
    world.revoke()
    world.assign(0, 0)
    old = world.commits.pop()
    world.engine.committed([(old.positions[0], None), (old.positions[0], "FENCED")], world.now)
    world.take()
    assert world.engine.assignments["orders", 0].commit.position == 0
    assert not world.told(PositionsCommitted)
    assert not world.told(CommitFailed)
    assert world.subjects() == []


def test_an_answer_for_a_partition_that_left_is_ignored() -> None:
    """Nobody owns it here."""
    world = World()
    world.engine.committed([(CommitPosition("orders", 0, 1, "", 1), "FENCED")], world.now)
    world.take()
    assert world.events == []


def test_the_fault_of_a_refused_commit_leaves_with_its_partition() -> None:
    """A rebalance is the usual reason of a refusal, and the next owner commits."""
    world = World()
    world.assign(0)
    world.assign(1)
    handled(world, 0)
    handled(world, 0, partition=1)
    world.tick()
    world.answer_commit("REBALANCE_IN_PROGRESS")
    world.revoke(0)
    (fault,) = world.engine.faults.all()
    assert fault.message == "partition 1: REBALANCE_IN_PROGRESS"


def test_a_first_position_is_committed_at_once() -> None:
    """A partition without a commit brings the next one forward, with nothing read of it."""
    world = World()
    world.assign(0)
    world.tick()
    world.engine.assign([StartPosition("orders", 1, 700, committed=False)], world.now)
    assert world.engine.next_wakeup_s(world.now) <= world.now_s
    world.tick()
    assert positions(world) == [[(1, 700)]]


def test_a_leaving_partition_is_committed_by_its_last_commit_alone() -> None:
    """No ordinary commit is sent that could overtake it."""
    world = World()
    world.assign()
    handled(world, 0)
    world.engine.stop([TopicPartition("orders", 0), TopicPartition("elsewhere", 0)])
    world.tick(5)
    assert positions(world) == []
    epoch = world.engine.assignments["orders", 0].epoch
    leaving = [TopicPartition("orders", 0), TopicPartition("elsewhere", 0)]
    (last,) = world.engine.final_positions(leaving)
    assert (last.topic, last.partition, last.position, last.epoch) == ("orders", 0, 1, epoch)


def test_the_last_commit_is_left_out_where_it_says_nothing_new() -> None:
    """Committed and confirmed already: the revoke costs no request."""
    world = World()
    world.assign()
    handled(world, 0)
    world.tick()
    world.answer_commit()
    assert world.revoke() == ()


def test_an_unanswered_commit_is_settled_by_the_last_one() -> None:
    """Its fate is not known, so the floor is committed once more."""
    world = World()
    world.assign()
    handled(world, 0)
    world.tick()
    assert [final.position for final in world.revoke()] == [1]


def test_every_assignment_has_its_own_epoch() -> None:
    """Also two partitions of one rebalance, and the same one given back."""
    world = World()
    world.engine.assign([StartPosition("orders", p, 0) for p in range(2)], world.now)
    world.assign(0, 0, TIER)
    epochs = [a.epoch for a in world.engine.assignments.values()]
    world.revoke(1)
    world.assign(1)
    epochs.append(world.engine.assignments["orders", 1].epoch)
    assert epochs == sorted(set(epochs))
    assert world.engine.state.epoch == epochs[-1]


def test_nothing_moved_commits_nothing() -> None:
    """No request without a new floor, however much time passes."""
    world = World()
    world.assign(0, 12)
    for _ in range(5):
        world.tick(10)
    assert not [c for c in world.commands if isinstance(c, Commit)]


def test_a_commit_of_a_retry_topic_is_repeated_before_the_broker_forgets_it() -> None:
    """At its start and every six hours: nobody subscribes to it, so what stays would expire."""
    world = World()
    world.assign(0, 12)
    world.engine.assign([StartPosition(TIER, 1, 7, topic_id="id")], world.now)
    world.tick()
    assert positions(world) == [[(1, 7)]]
    world.tick(REPEAT_S + 1)
    world.tick(10)
    assert len(world.commits) == 1, "while it is not answered there is no other"
    world.answer_commit()
    world.tick(1)
    assert positions(world) == [[(1, 7)]]
    world.answer_commit()
    for _ in range(round(REPEAT_S / 5) - 1):
        world.tick(5)
    assert positions(world) == []
    world.tick(5)
    assert positions(world) == [[(1, 7)]]


@pytest.mark.parametrize(("topic_id", "metadata"), [("", ""), ("id", "of a later version")])
def test_what_is_not_understood_is_not_repeated_without_it_at_once(
    topic_id: str, metadata: str
) -> None:
    """It stays as it was written, for whoever understands it, until something is settled."""
    world = World()
    start = StartPosition(TIER, 1, 7, metadata=metadata, topic_id=topic_id)
    world.engine.assign([start], world.now)
    world.tick()
    assert positions(world) == []
    world.tick(REPEAT_S)
    assert positions(world) == [[(1, 7)]]


def test_not_all_are_repeated_with_one_commit() -> None:
    """A request has to fit into a broker's message."""
    world = World()
    count = 2 * REPEATED_AT_ONCE + 1
    starts = [StartPosition(TIER, number, 7, topic_id="id") for number in range(count)]
    world.engine.assign(starts, world.now)
    sizes = []
    for _ in range(4):
        world.tick(10)
        sizes += [len(commit.positions) for commit in world.commits]
        while world.commits:
            world.answer_commit()
    assert sizes == [REPEATED_AT_ONCE, REPEATED_AT_ONCE, 1]


def test_a_floor_that_a_marker_moved_is_committed() -> None:
    """Trailing offsets that never arrive are behind us as well."""
    world = World()
    world.assign()
    handled(world, 0)
    world.engine.passed({("orders", 0): 3})
    world.tick()
    assert positions(world) == [[(0, 3)]]


def test_a_commit_that_nobody_answers_is_named_until_it_is_answered() -> None:
    """A broker that is away does not refuse, it says nothing."""
    world = World()
    world.assign()
    handled(world, 0)
    world.tick()
    world.tick(4)
    assert world.subjects() == []
    world.tick(2)
    (fault,) = world.engine.faults.all()
    assert (fault.kind, fault.subject, fault.cause) == ("commit", "orders", "unconfirmed")
    assert fault.message == "partition 0: the broker has not answered a commit"
    assert fault.since_ms == world.now.wall_ms - 6_000
    world.answer_commit()
    assert world.subjects() == []
    world.tick(9)
    assert world.subjects() == []
